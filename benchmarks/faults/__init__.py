"""Bad inputs, damaged files, kills, full disks, little memory, threads and hostile requests."""

"""Methods that only the experiments compare with: RoundTrip, and flows given a class."""

"""Pin the newest versions of every direct and indirect dependency in constraints.txt.

Run as `make constraints`. pip resolves all extras in an empty environment and installs nothing.
"""

import json
import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path

# One build of torch for everybody; change it here, then run `make constraints`.
TORCH = "torch==2.13.0"
HEADER = """\
# Versions that `make` installs and the tests ran with. Written by `make constraints`; do not edit.
# pyproject.toml has the ranges that the library accepts.
"""


def main() -> None:
    """Resolve `.[dev]` and the build tools, and write the pins."""
    root = Path(__file__).resolve().parent.parent
    build = tomllib.loads((root / "pyproject.toml").read_text())["build-system"]["requires"]
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        report = Path(folder, "report.json")
        fixed = Path(folder, "fixed.txt")
        fixed.write_text(TORCH)
        pip = [str(Path(folder, "bin", "python")), "-m", "pip", "install", "-q", "--dry-run"]
        wanted = [*build, "editables", f"{root}[dev]"]
        subprocess.run(
            [*pip, "--ignore-installed", "--report", report, "-c", fixed, *wanted], check=True
        )
        packages = [item["metadata"] for item in json.loads(report.read_text())["install"]]
    # A local label such as +cpu names one build of a version, not the version.
    pins = {p["name"].lower().replace("_", "-"): p["version"].split("+")[0] for p in packages}
    del pins["qaffde"]
    lines = "".join(f"{name}=={version}\n" for name, version in sorted(pins.items()))
    (root / "constraints.txt").write_text(HEADER + lines)
    print(f"constraints.txt: {len(pins)} packages", file=sys.stderr)


if __name__ == "__main__":
    main()

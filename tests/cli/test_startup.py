"""What the command line needs before a command begins to work."""

import subprocess
import sys

import pytest

from qaffde.plot import KINDS

HEAVY = ("torch", "sklearn", "pyarrow", "pandas")
HEAVY_FOR_HELP = ("numpy", "rich", *HEAVY)
PROBE = """
import sys
from qaffde.cli import main
sys.argv = ["qaffde", *sys.argv[1:]]
try:
    main()
except SystemExit as stopped:
    code = stopped.code
print(code, sorted({heavy} & set(sys.modules)))
"""


@pytest.mark.parametrize(
    ("arguments", "code", "heavy"),
    [
        (["--help"], 0, HEAVY_FOR_HELP),
        (["--version"], 0, HEAVY_FOR_HELP),
        (["nothing"], 2, HEAVY_FOR_HELP),
        (["fit", "--help"], 0, HEAVY),
        (["fit"], 2, HEAVY),
        (["score", "model", "rows.csv", "--missing", "perhaps"], 2, HEAVY),
        (["sample", "model", "-n", "many"], 2, HEAVY),
    ],
)
def test_help_and_wrong_arguments_import_nothing_heavy(arguments, code, heavy):
    probe = PROBE.format(heavy=set(heavy))
    done = subprocess.run(
        [sys.executable, "-c", probe, *arguments], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == f"{code} []", done.stderr


def test_help_names_what_there_is(qaffde):
    words = " ".join(qaffde("plot", "--help").out.split())
    assert [name for name in KINDS if name not in words] == []

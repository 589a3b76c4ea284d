"""What the command line needs before a command begins to work."""

import inspect
import subprocess
import sys
from importlib import import_module

import pytest

from qaffde import demo
from qaffde.cli import app
from qaffde.plot import KINDS
from qaffde.targets import PLANAR

HEAVY = ("torch", "sklearn", "pyarrow", "pandas")
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
    ("arguments", "code"),
    [
        (["--help"], 0),
        (["--version"], 0),
        (["fit", "--help"], 0),
        (["fit"], 2),
        (["score", "model", "rows.csv", "--missing", "perhaps"], 2),
        (["sample", "model", "-n", "many"], 2),
    ],
)
def test_help_and_wrong_arguments_import_nothing_heavy(arguments, code):
    probe = PROBE.format(heavy=set(HEAVY))
    done = subprocess.run(
        [sys.executable, "-c", probe, *arguments], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == f"{code} []", done.stderr


@pytest.mark.parametrize("name", app.MODULES)
def test_arguments_are_those_of_the_work(name):
    declared = inspect.signature(getattr(app, name)).parameters
    work = getattr(import_module(f"qaffde.cli.{app.MODULES[name]}"), name)
    inspect.signature(work).bind(**dict.fromkeys(declared))


def test_help_names_what_there_is(qaffde):
    help = qaffde("plot", "--help").out + qaffde("demo", "--help").out
    words = " ".join(help.replace("│", " ").split())
    assert [name for name in [*KINDS, *demo.METHODS, *PLANAR] if name not in words] == []

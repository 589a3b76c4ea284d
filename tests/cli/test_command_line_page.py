"""The examples of docs/command_line.md do what the page shows."""

import doctest
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from qaffde.cli.app import app

PAGE = Path(__file__).parents[2] / "docs/command_line.md"
CONSOLE = re.compile(r"```console\n(.*?)```", re.S)
PYTHON = re.compile(r"```python\n(.*?)```", re.S)
CHECKER = doctest.OutputChecker()
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def examples():
    """Commands of the page and what each prints."""
    for block in CONSOLE.findall(PAGE.read_text()):
        for part in re.split(r"^\$ ", block, flags=re.M)[1:]:
            command, _, output = part.partition("\n")
            yield command, output


def test_every_example_prints_what_it_shows(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    exec(PYTHON.search(PAGE.read_text()).group(1), {})
    found = list(examples())
    assert len(found) > 12
    for command, expected in found:
        piped, _, rest = command.rpartition("| ")
        name, *arguments = rest.split()
        assert name == "qaffde"
        given = Path(piped.split()[1]).read_text() if piped else None
        result = CliRunner().invoke(app, arguments, input=given)
        shown = result.stdout if result.exit_code == 0 else result.stderr
        fine = CHECKER.check_output(expected, shown, FLAGS)
        assert fine, f"{command}\nexpected:\n{expected}\nshown:\n{shown}{result.stderr}"

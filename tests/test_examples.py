"""The demo and the pictures of the README, in small: they print their tables and draw.

The tutorials run when the pages are built, which CI does (`make docs`).
"""

import json
import pkgutil
import runpy
import sys
from functools import partial
from pathlib import Path

import pytest

import qaffde
from qaffde import TrainingConfig, baselines

pytest.importorskip("matplotlib")
pytest.importorskip("typer", reason="the command line needs the extra 'cli'")

from typer.testing import CliRunner

from qaffde.cli import demo
from qaffde.cli.app import app

PICTURES = Path(__file__).parents[1] / "examples/pictures"
PNG = b"\x89PNG\r\n\x1a\n"
N_ROWS = "300"
STEPS = 200
NOT_API = {"qaffde.cli", "qaffde.extras", "qaffde.parameters"}  # commands, and checks inside


def run(main, picture, capsys, *arguments):
    """First words of the lines that were printed, and the first bytes of the picture."""
    main(["--n", N_ROWS, "--out", str(picture), *arguments])
    printed = capsys.readouterr().out
    assert str(picture) in printed
    assert picture.read_bytes()[:8] == PNG
    return [line.split() for line in printed.splitlines() if line]


def picture(name):
    path = PICTURES / f"{name}.py"
    if not path.exists():
        pytest.skip("examples live in the repository, not in the package")
    return runpy.run_path(str(path))["main"]


@pytest.mark.parametrize("target", ["swiss_roll", "potential_2"])
def test_demo(tmp_path, monkeypatch, target):
    """By steps in place of the clock: figures do not depend on how busy the machine is."""
    monkeypatch.setattr(demo, "SECONDS", None)
    nsf = partial(baselines.NSF, training=TrainingConfig(max_steps=STEPS))
    monkeypatch.setitem(baselines.BASELINES, "nsf", nsf)
    arguments = ["demo", "--target", target, "--rows", N_ROWS, "-o", str(tmp_path / "demo.png")]
    found = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)["methods"]
    assert list(found) == ["truth", "qaffde", "qaffde-sgd", "kde", "nsf"]
    truth = found.pop("truth")
    assert (truth["fit_s"], truth["mean_absolute_error"], truth["excess_nll"]) == (None, 0, 0)
    assert truth["spearman"] == pytest.approx(1)
    assert truth["mass"] == pytest.approx(1, abs=0.02)
    for name, figures in found.items():
        assert figures["mass"] == pytest.approx(1, abs=0.02), name
        assert figures["mean_absolute_error"] > 0, name
        assert 0.3 < figures["spearman"] < 1, name
    assert (tmp_path / "demo.png").read_bytes()[:8] == PNG


def test_demo_without_matplotlib_still_prints_the_table(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    arguments = ["demo", "--rows", N_ROWS, "--methods", "kde", "-o", str(tmp_path / "demo.png")]
    found = CliRunner().invoke(app, arguments)
    assert "kde  " in found.stdout
    assert "pip install 'qaffde[plot]'" in found.stderr
    assert not (tmp_path / "demo.png").exists()


def test_first_density(tmp_path, capsys):
    head, *rows, _ = run(picture("first_density"), tmp_path / "first.png", capsys)
    assert head[0] == "target"
    assert [row[0] for row in rows] == ["star_eight", "swiss_roll", "potential_3"]
    assert all(0.5 < float(row[4]) < 1 for row in rows)  # Spearman


def test_bounded_data(tmp_path, capsys):
    _, *rows, _ = run(picture("bounded_data"), tmp_path / "bounded.png", capsys)
    outside = {(data, method): float(mass) for data, method, _, mass in rows}
    assert list(outside) == [
        (data, method) for data in ("shares", "potential_2") for method in ("QAFFDE", "KDE")
    ]
    for data in ("shares", "potential_2"):
        assert outside[data, "QAFFDE"] < 0.1 * outside[data, "KDE"]


def test_api_pages_have_every_public_module():
    listing = Path(__file__).parents[1] / "docs/api/index.md"
    if not listing.exists():
        pytest.skip("pages live in the repository, not in the package")
    names = [m.name for m in pkgutil.iter_modules(qaffde.__path__) if not m.name.startswith("_")]
    public = {f"qaffde.{name}" for name in names} - NOT_API
    listed = {line.strip() for line in listing.read_text().splitlines() if "qaffde." in line}
    assert public - listed == set()

"""The demo, in small: a table, JSON and a picture."""

import json
from functools import partial

import pytest

from qaffde import TrainingConfig, baselines

pytest.importorskip("typer", reason="the command line needs the extra 'cli'")

from typer.testing import CliRunner

from experiments import demo
from experiments.__main__ import app
from experiments.targets import TARGETS

PNG = b"\x89PNG\r\n\x1a\n"
N_ROWS = "300"
STEPS = 600


def run(*arguments):
    return CliRunner().invoke(app, ["demo", *map(str, arguments)])


@pytest.mark.parametrize("target", ["swiss_roll", "potential_2"])
def test_demo(tmp_path, monkeypatch, target):
    """By steps in place of the clock: figures do not depend on how busy the machine is."""
    monkeypatch.setattr(demo, "SECONDS", None)
    nsf = partial(baselines.NSF, training=TrainingConfig(max_steps=STEPS))
    monkeypatch.setitem(baselines.BASELINES, "nsf", nsf)
    done = run("--target", target, "--rows", N_ROWS, "-o", tmp_path / "demo.png", "--json")
    found = json.loads(done.stdout)["methods"]
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


def test_other_methods(tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "TEST_ROWS", 100)
    monkeypatch.setattr(demo, "GRID_SIDE", 32)
    out = tmp_path / "demo.png"
    options = ["--rows", 200, "--methods", "gmm,kde", "-o", out]
    done = run("--target", "binomial", *options, "--json")
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)["methods"]
    assert set(found) == {"truth", "gmm", "kde"}
    assert (found["truth"]["fit_s"], found["truth"]["excess_nll"]) == (None, 0)
    assert found["truth"]["mass"] == pytest.approx(1, abs=0.01)
    assert found["gmm"]["spearman"] > 0.9
    assert out.read_bytes().startswith(PNG)
    assert "Spearman" in run(*options).stdout


def test_help_names_the_targets():
    words = " ".join(run("--help").stdout.split())
    assert [name for name in TARGETS if name not in words] == []


@pytest.mark.parametrize("options", [["--target", "moons"], ["--methods", "svm"]])
def test_usage(options, tmp_path):
    done = run(*options, "-o", tmp_path / "demo.png")
    assert done.exit_code == 2
    assert "Usage" in done.stderr
    assert not list(tmp_path.iterdir())

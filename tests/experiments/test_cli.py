"""The command line: what it prints, and what it says of mistakes."""

import pytest

pytest.importorskip("typer", reason="the command line needs the extra 'cli'")

from typer.testing import CliRunner

from experiments import registry
from experiments.__main__ import app
from experiments.rows import read_rows
from tests.experiments.tiny import tiny_config


@pytest.fixture
def experiments():
    return lambda *arguments: CliRunner().invoke(app, list(arguments))


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setattr(registry, "load_config", lambda name, cls: tiny_config())


@pytest.mark.usefixtures("tiny")
def test_run_resumes_and_reports(experiments, tmp_path):
    folder = ["--out", str(tmp_path)]
    options = ["--sets", "arc,random_gmm(2, 0.2)", "--methods", "gmm", "--seeds", "7", *folder]
    first = experiments("run", "planar", *options)
    assert first.exit_code == 0, first.output
    assert "planar, budget quick: 6 rows, 0 there already" in first.output
    assert "[6/6] gmm on random_gmm(2, 0.2), seed 7, final: Spearman" in first.output
    assert {row["seed"] for row in read_rows(tmp_path / "planar-quick.jsonl")} == {7}
    again = experiments("run", "planar", *options)
    assert "6 rows, 6 there already" in again.output
    assert "[" not in again.output

    pytest.importorskip("matplotlib")
    out = tmp_path / "report"
    done = experiments(
        "report", "planar", "--budget", "quick", "--rows", str(tmp_path), "--out", str(out)
    )
    assert done.exit_code == 0, done.output
    assert str(out / "results.html") in done.output.replace("\n", "")
    assert (out / "results.html").exists()


@pytest.mark.usefixtures("tiny")
def test_the_untuned_are_a_variant(experiments, tmp_path):
    options = ["--variant", "untuned", "--sets", "arc", "--methods", "gmm", "--seeds", "7,8"]
    done = experiments("run", "planar", *options, "--out", str(tmp_path))
    assert done.exit_code == 0, done.output
    assert "2 rows, 0 there already" in done.output
    assert "[2/2] gmm on arc, seed 8, untuned: Spearman" in done.output
    assert not list(tmp_path.glob("*.optuna.db"))


@pytest.mark.usefixtures("tiny")
def test_another_storage(experiments, tmp_path):
    url = f"sqlite:///{tmp_path / 'elsewhere.db'}"
    options = ["--sets", "arc", "--methods", "gmm", "--out", str(tmp_path), "--storage", url]
    assert experiments("run", "planar", *options).exit_code == 0
    assert (tmp_path / "elsewhere.db").exists()
    assert not (tmp_path / "planar-quick.optuna.db").exists()


def test_list(experiments):
    listed = experiments("list")
    assert listed.exit_code == 0
    assert "planar      nine planar densities" in listed.output
    assert "quick     tuned    " in listed.output
    assert "of 297 rows" in listed.output
    assert "standard  untuned  " in listed.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "audio"], "unknown experiment 'audio'; choose one of planar, dimensions"),
        (["run", "planar", "--sets", "moons"], "unknown set 'moons'; choose one of arc"),
        (["run", "planar", "--methods", "svm"], "unknown method 'svm'"),
        (["run", "planar", "--seeds", "one"], "--seeds takes whole numbers such as 100,101"),
        (["run", "kernel", "--sets", "arc"], "kernel has one data set"),
        (
            ["run", "kernel", "--variant", "untuned"],
            "kernel has no variant 'untuned'; it has tuned",
        ),
        (["recipe", "audio", "lenet"], "unknown set 'audio'; choose one of mnist"),
        (["report", "planar", "--rows", "nowhere"], "has no rows; run: python -m experiments run"),
    ],
)
def test_mistakes_are_one_line(experiments, arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = experiments(*arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ")
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []

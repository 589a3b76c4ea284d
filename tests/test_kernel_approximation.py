"""The paper's Figure 2 in small: learned and squared features approximate the kernel best."""

import sys
from statistics import mean

import pytest

from qaffde.training import AdaptiveConfig

experiment = pytest.importorskip(
    "experiments.kernel_approximation", reason="lives in the repository, not in the package"
)

QUICK = AdaptiveConfig(n_epochs=10, n_pairs=5000, batch_size=250, learning_rate=0.02)


@pytest.fixture(scope="module")
def rows():
    return list(experiment.run(range(3), (8, 32), config=QUICK))


@pytest.mark.parametrize("n_features", [8, 32])
def test_order_of_the_figure(rows, n_features):
    errors = experiment.errors_of(rows)
    mse = {kind: mean(by_size[n_features]) for kind, by_size in errors.items()}
    assert mse["AFF²"] < 0.5 * mse["AFF"]
    assert mse["AFF"] < 0.5 * mse["RFF"]
    assert mse["AFF²"] < 0.1 * mse["RFF²"]
    assert mse["AFF², paired"] < 0.1 * mse["RFF²"]


def test_rows_reproduce_and_name_their_settings(rows):
    again = experiment.measure("AFF²", 8, 0, QUICK)
    [row] = [
        row for row in rows if (row["kind"], row["n_features"], row["seed"]) == ("AFF²", 8, 0)
    ]
    assert again["mse"] == pytest.approx(row["mse"], rel=1e-3)
    assert row["training"]["n_epochs"] == 10
    assert row["versions"]["qaffde"]


def test_rows_survive_the_file_and_the_table_shows_their_means(rows, tmp_path):
    path = tmp_path / "new" / "rows.jsonl"
    experiment.write_rows(rows, path)
    assert experiment.read_rows(path) == rows
    head, _, *lines = experiment.table(rows).splitlines()
    assert head == "| D | RFF | RFF² | AFF | AFF² | AFF², paired |"
    assert [line.split(" | ")[0] for line in lines] == ["| 8", "| 32"]
    assert f"{mean(experiment.errors_of(rows)['RFF'][8]):.1e}" in lines[0]


def test_figure_is_drawn_from_the_rows_alone(rows, tmp_path, monkeypatch, capsys):
    pytest.importorskip("matplotlib")
    experiment.write_rows(rows, tmp_path / experiment.ROWS.name)
    command = ["kernel_approximation", "--redraw", "--out", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", command)
    experiment.main()
    assert (tmp_path / experiment.PICTURE.name).stat().st_size > 10_000
    assert "| RFF |" in capsys.readouterr().out


def test_labels_do_not_touch():
    heights = experiment._spread_labels({"a": 1.0, "b": 1.1, "c": 1e-3}, ratio=2.0)
    assert heights == {"c": 1e-3, "a": 1.0, "b": 2.0}

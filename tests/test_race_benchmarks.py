"""The races of solvers and flow in small: rows, tables and pages."""

import pytest

solvers = pytest.importorskip(
    "benchmarks.solvers", reason="lives in the repository, not in the package"
)
flow_race = pytest.importorskip("benchmarks.flow_race", reason="needs the extra 'flows'")
from experiments.rows import read_rows  # noqa: E402


def reported(benchmark, rows, page):
    """A page after the rows are written between its markers."""
    name = benchmark.ROWS.stem
    page.write_text(f"above\n<!-- {name}:begin -->\nold\n<!-- {name}:end -->\n")
    benchmark.main(["report", "--results", str(rows), "--page", str(page)])
    return page.read_text(encoding="utf-8")


def test_every_solver_starts_from_the_same_loss_and_lowers_it(tmp_path, monkeypatch):
    monkeypatch.setattr(solvers, "PROBLEMS", {"potential_1": 0.6})
    monkeypatch.setattr(solvers, "RIDGES", (1e-3,))
    path = tmp_path / "rows.jsonl"
    solvers.main(["run", "--n", "500", "--seconds", "0.3", "--out", str(path)])
    rows = read_rows(path)
    assert [row["solver"] for row in rows] == list(solvers.SOLVERS)
    assert all(row["loss"][-1] <= row["loss"][0] for row in rows)
    assert solvers.table(rows) in reported(solvers, path, tmp_path / "page.md")


def test_time_to_a_loss_is_that_of_the_first_row_below_it():
    row = {"seconds": [1.0, 2.0, 3.0], "loss": [0.5, 0.1, 0.2]}
    assert solvers._time_to(row, 0.2) == "2.0"
    assert solvers._time_to(row, 0.05) == "–"


def test_flow_race_appends_a_row_and_names_the_better(tmp_path, monkeypatch):
    monkeypatch.setattr(flow_race, "N_HELD_OUT", 500)
    monkeypatch.setattr(flow_race, "TRIAL_STEPS", 3)
    path = tmp_path / "rows.jsonl"
    arguments = ["run", "--sets", "binomial", "--factor", "0.5", "--n", "300", "--out", str(path)]
    flow_race.main(arguments)
    flow_race.main(arguments)
    (row,) = read_rows(path)
    sides = [row["qaffde_sgd"]["log_likelihood"], row["nsf"]["log_likelihood"]]
    better = flow_race.table([row]).splitlines()[-1].split(" | ")[-1].strip(" |")
    assert better == ("QAFFDE-SGD" if sides[0] >= sides[1] else "NSF")
    assert flow_race.table([row]) in reported(flow_race, path, tmp_path / "page.md")

"""The benchmark of a mixed table in small: rows, page, and a true density that is one."""

import numpy as np
import pytest

mixed_table = pytest.importorskip(
    "benchmarks.mixed_table", reason="lives in the repository, not in the package"
)
from experiments.rows import read_rows  # noqa: E402


def test_both_estimators_are_measured_and_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(mixed_table, "N_TEST", 300)
    path, page = tmp_path / "rows.jsonl", tmp_path / "page.md"
    mixed_table.main(["run", "--rows", "500", "--seeds", "1", "--out", str(path)])
    rows = read_rows(path)
    assert [row["method"] for row in rows] == ["QAFFDE", "QAFFDESGD"]
    assert all(0 < row["excess"] < 0.5 for row in rows)
    assert all(row["impossible_density"] == row["impossible_mass"] == 0 for row in rows)
    page.write_text("<!-- mixed_table:begin -->\n<!-- mixed_table:end -->\n")
    mixed_table.main(["report", "--results", str(path), "--page", str(page)])
    assert mixed_table.body(rows) in page.read_text(encoding="utf-8")


def test_the_true_density_of_a_gap_is_a_sum():
    row = mixed_table.draw(50, 0, gaps=0)[0]
    ages = np.tile(row, (len(mixed_table.AGES), 1))
    ages[:, 1] = mixed_table.AGES
    row[1] = np.nan
    total = np.exp(mixed_table.log_density(ages)).sum()
    assert mixed_table.log_density(row[None])[0] == pytest.approx(np.log(total), abs=1e-9)

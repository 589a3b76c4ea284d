"""Figures of the README follow their rows."""

import json

import pytest

from experiments.headline import headline
from experiments.rows import RESULTS, ROOT, read_rows


@pytest.fixture
def folder(tmp_path):
    for path in RESULTS.glob("*-standard.jsonl"):
        (tmp_path / path.name).write_text(path.read_text(encoding="utf-8"), encoding="utf-8")
    return tmp_path


def change(path, changed):
    rows = [changed(row) for row in read_rows(path)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def test_readme_has_the_figures_of_the_rows():
    assert headline() in (ROOT / "README.md").read_text(encoding="utf-8")


def test_a_changed_row_changes_its_line(folder):
    spoilt = {("qaffde", "concrete", "final"), ("qaffde_sgd", "star_eight", "untuned")}

    def worse(row):
        if (row["method"], row["set"], row["stage"]) in spoilt:
            key = "log_likelihood" if "log_likelihood" in row["metrics"] else "excess_nll"
            row["metrics"][key] += -100.0 if key == "log_likelihood" else 100.0
        return row

    before = headline(folder).splitlines()
    for name in ("tables", "planar"):
        change(folder / f"{name}-standard.jsonl", worse)
    after = headline(folder).splitlines()
    moved = [
        line.split("|")[1].strip()
        for line, other in zip(before, after, strict=True)
        if line != other
    ]
    assert moved == ["ten real tables", "planar densities"]


def test_lines_without_rows_are_left_out(tmp_path):
    assert len(headline(tmp_path, tmp_path / "none.jsonl").splitlines()) == 2

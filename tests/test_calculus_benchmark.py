"""The benchmark of the calculus runs in small; no time is judged here."""

import math
from collections import Counter

import pytest

calculus = pytest.importorskip(
    "benchmarks.calculus", reason="lives in the repository, not in the package"
)
from experiments.rows import read_rows, write_rows  # noqa: E402

BEGIN, END = "<!-- calculus:begin -->", "<!-- calculus:end -->"
TINY = calculus.Sizes(
    n_train=300, n_rows=20, n_features=32, sets=("arc",), dims=(3, 4), ranks=(2, 1.0)
)


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    path = tmp_path_factory.mktemp("rows") / "calculus.jsonl"
    calculus.main(["run", "--repetitions", "1", "--out", str(path)], TINY)
    return read_rows(path)


def test_every_comparison_is_there(rows):
    counts = Counter(row["comparison"] for row in rows)
    assert counts == {"build": 3 * 5, "planar": 2, "draws": 2 * 2 * 2, "rows": 4}


def test_ratios_are_to_scoring(rows):
    assert all(math.isfinite(row["ratio"]) and row["ratio"] > 0 for row in rows)
    for row in rows:
        if row["case"] in ("score", "score one row"):
            scoring = row["seconds"]
        assert row["ratio"] == row["seconds"] / scoring
    assert [row["comparison"] for row in rows if row["bound"] is not None] == ["planar"]


def test_report_replaces_what_is_between_the_markers(rows, tmp_path):
    page, source = tmp_path / "page.md", tmp_path / "rows.jsonl"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n", "utf-8")
    write_rows(rows, source)
    calculus.main(["report", "--results", str(source), "--page", str(page)])
    text = page.read_text("utf-8")
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")
    assert "old" not in text
    assert "| impute by means | 20 |" in text
    assert "times scoring at most" in text


def test_verdict_tells_a_ratio_above_the_bound():
    rows = [
        {"setting": "a", "ratio": 21.0, "bound": 20.0},
        {"setting": "b", "ratio": 3.0, "bound": 20.0},
        {"setting": "c", "ratio": 99.0, "bound": None},
    ]
    assert calculus.verdict(rows).endswith("(a), ABOVE the bound of 20")

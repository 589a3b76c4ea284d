"""The benchmarks of large data run in small; no time is judged here."""

import numpy as np
import pytest

out_of_core = pytest.importorskip(
    "benchmarks.out_of_core", reason="lives in the repository, not in the package"
)
dask_workers = pytest.importorskip("benchmarks.dask_workers")
from experiments.rows import read_rows  # noqa: E402


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch):
    monkeypatch.setattr(out_of_core, "_fresh", lambda function, *args: function(*args))
    monkeypatch.setattr(out_of_core, "CHUNK", 150)
    monkeypatch.setattr(out_of_core, "TEST_ROWS", 50)


def test_every_source_has_the_same_rows(tmp_path, capsys):
    path, page = tmp_path / "rows.jsonl", tmp_path / "page.md"
    arguments = ["--rows", "400", "--columns", "1", "--features", "16", "--folder", str(tmp_path)]
    out_of_core.main(["run", *arguments, "--source", *out_of_core.SOURCES, "--out", str(path)])
    rows = read_rows(path)
    assert [row["source"] for row in rows] == ["memmap", "parquet", "generator"]
    assert {(row["n"], row["frame"]) for row in rows} == {(400, "chosen")}
    assert len({row["n_features"] for row in rows}) == 1
    assert np.ptp([row["mean_log_density"] for row in rows]) < 1e-6
    assert all(row["rows_per_second"] > 0 and row["peak_growth_mib"] >= 0 for row in rows)
    assert "| generator | 400 | 1 |" in capsys.readouterr().out
    page.write_text("<!-- out_of_core:begin --><!-- out_of_core:end -->")
    out_of_core.main(["report", "--results", str(path), "--page", str(page)])
    assert "400 × 1 rows: at most" in page.read_text()


def test_memory_is_read_after_shares_of_the_rows():
    watch = out_of_core.Watch(1000)
    for what, done in [("looking at the rows", 1000), ("adding up", 5), ("adding up", 120)]:
        watch(what, done, None)
    assert [(mark["share"], mark["rows"]) for mark in watch.marks] == [(0.01, 120), (0.1, 120)]
    watch("adding up", 1000, None)
    watch("adding up", 1000, None)
    assert [mark["share"] for mark in watch.marks] == list(out_of_core.SHARES)


def test_a_frame_that_is_given_is_taken(tmp_path):
    row = out_of_core.measure("generator", 300, 2, None, {"n_features": 16, **out_of_core.GIVEN})
    assert (row["frame"], row["base_measure"]) == ("given", "box")
    assert len(row["marks"]) == 4


@pytest.mark.parametrize(("n", "peak", "words"), [
    (10**8, 1000.0, "1024 wanted: met"),
    (10**8, 1100.0, "1024 wanted: MISSED"),
    (10**6, 10.0, "100,000,000 rows are wanted"),
])  # fmt: skip
def test_the_verdict_on_memory(n, peak, words):
    row = {"n": n, "d": 2, "peak_growth_mib": peak, "interpreter_mib": 300.0}
    assert words in out_of_core.verdict([row])


def test_the_peak_is_no_less_than_what_is_held():
    assert out_of_core.peak_memory() >= out_of_core.resident() - 1 > 0


def test_workers_are_compared(tmp_path, capsys, monkeypatch):
    clock = {1: 6.0, 2: 4.0}

    def timed(sizes, count):
        rows = dask_workers.collection(sizes.n, sizes.d)
        model = sizes.model().fit(dask_workers.DaskSource(rows))
        return dask_workers.Timed(model, clock[count], 1, 300.0)

    monkeypatch.setattr(dask_workers, "timed", timed)
    monkeypatch.setattr(dask_workers, "PARTITION", 100)
    path, page = tmp_path / "rows.jsonl", tmp_path / "page.md"
    arguments = ["--rows", "250", "--columns", "3", "--features", "16", "--repetitions", "2"]
    dask_workers.main(["run", *arguments, "--out", str(path)])
    rows = read_rows(path)
    assert [row["speedup"] for row in rows] == [1.0, 1.5]
    assert [row["every_seconds"] for row in rows] == [[6.0, 6.0], [4.0, 4.0]]
    assert "two workers: 1.50 times as fast as one, 1.6 wanted: MISSED" in capsys.readouterr().out
    page.write_text("<!-- dask_workers:begin --><!-- dask_workers:end -->")
    dask_workers.main(["report", "--results", str(path), "--page", str(page)])
    assert "| 2 | 250 | 3 | 16 | 4.00 |" in page.read_text()

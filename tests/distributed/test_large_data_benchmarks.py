"""The benchmarks of large data run in small; no time is judged here."""

import numpy as np
import pytest

out_of_core = pytest.importorskip(
    "benchmarks.out_of_core", reason="lives in the repository, not in the package"
)
dask_workers = pytest.importorskip("benchmarks.dask_workers")


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch):
    monkeypatch.setattr(out_of_core, "_fresh", lambda function, *args: function(*args))
    monkeypatch.setattr(out_of_core, "CHUNK", 150)
    monkeypatch.setattr(out_of_core, "TEST_ROWS", 50)


def test_every_source_has_the_same_rows(tmp_path, capsys):
    path = tmp_path / "rows.jsonl"
    arguments = ["--rows", "400", "--columns", "1", "--features", "16", "--folder", str(tmp_path)]
    out_of_core.main([*arguments, "--source", *out_of_core.SOURCES, "--out", str(path)])
    rows = out_of_core.read_rows(path)
    assert [row["source"] for row in rows] == ["memmap", "parquet", "generator"]
    assert {(row["n"], row["n_features"]) for row in rows} == {(400, 15)}
    assert np.ptp([row["mean_log_density"] for row in rows]) < 1e-6
    assert all(row["rows_per_second"] > 0 and row["peak_growth_mib"] >= 0 for row in rows)
    assert "| generator | 400 | 1 |" in capsys.readouterr().out


def test_workers_are_compared(tmp_path, capsys, monkeypatch):
    clock = {1: 6.0, 2: 4.0}

    def timed(n, count, n_features):
        rows = dask_workers.collection(n)
        return dask_workers.fit(dask_workers._model(n_features), rows), clock[count]

    monkeypatch.setattr(dask_workers, "timed", timed)
    monkeypatch.setattr(dask_workers, "PARTITION", 100)
    path = tmp_path / "rows.jsonl"
    arguments = ["--rows", "250", "--features", "16", "--repetitions", "2", "--out", str(path)]
    dask_workers.main(arguments)
    assert [row["speedup"] for row in dask_workers.read_rows(path)] == [1.0, 1.5]
    assert "two workers: 1.50 times as fast as one, 1.6 wanted" in capsys.readouterr().out

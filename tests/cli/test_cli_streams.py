"""Data that stream by give the fit of data in memory."""

import gzip
import os
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest

from qaffde import QAFFDE, Real, load
from qaffde.cli import fit
from qaffde.selection import sources
from qaffde.streams import delimited
from qaffde.streams.table import Table

GIVEN = ["--features", "48", "--bandwidth", "0.4"]


@pytest.fixture
def small_batches(monkeypatch):
    """Batches of a few rows, so that a small table is many of them."""
    monkeypatch.setattr(Table, "batch_rows", 37)
    monkeypatch.setattr(delimited, "BLOCK_BYTES", 1500)


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".feather", ".npy", ".npz"])
def test_a_stream_equals_a_fit_in_memory(suffix, qaffde, frame, write, tmp_path):
    data = write(frame, tmp_path / f"data{suffix}")
    options = [*GIVEN, "--column", "real:-8:8", "-o", tmp_path / "m"]
    streamed = qaffde("fit", data, *options, "--stream", "--json")
    assert streamed.code == 0, streamed.err
    assert streamed.json["streamed"] is True
    assert streamed.json["rows"] == 200
    found = load(tmp_path / "m")
    assert found.warm_start is False
    whole = QAFFDE(48, 0.4, columns=Real(-8, 8), random_state=0).fit(frame.to_numpy())
    np.testing.assert_allclose(
        found.score_samples(rows_like(found, frame)),
        whole.score_samples(frame.to_numpy()),
        atol=1e-10,
    )


def rows_like(model, frame):
    return frame if hasattr(model, "feature_names_in_") else frame.to_numpy()


@pytest.mark.usefixtures("small_batches")
def test_an_untuned_stream_equals_an_untuned_fit_in_memory(qaffde, frame, write, tmp_path):
    data = write(frame, tmp_path / "data.parquet")
    done = qaffde("fit", data, "-o", tmp_path / "m", "--features", 32, "--stream")
    assert done.code == 0, done.err
    whole = QAFFDE(32, random_state=0).fit(frame)
    found = load(tmp_path / "m")
    np.testing.assert_allclose(found.score_samples(frame), whole.score_samples(frame), atol=1e-10)
    assert found.sums_.weight == 200


@pytest.mark.usefixtures("small_batches")
def test_a_box_holds_all_rows_of_a_stream(qaffde, frame, write, tmp_path, monkeypatch):
    monkeypatch.setattr(sources.ChunkSource.__init__, "__defaults__", (2, 20))
    data = write(frame, tmp_path / "data.csv")
    box = ["--base-measure", "box", "--column", "x=real:-7:"]
    done = qaffde("fit", data, "-o", tmp_path / "m", *GIVEN, *box, "--stream")
    assert done.code == 0, done.err
    model = load(tmp_path / "m")
    ends = {"x": Real(-7)}
    whole = QAFFDE(48, 0.4, base_measure="box", columns=ends, random_state=0).fit(frame)
    np.testing.assert_allclose(model.score_samples(frame), whole.score_samples(frame), atol=1e-10)
    assert model.sums_.weight == 200


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("missing", ["drop", "impute"])
def test_gaps_and_weights_of_a_stream(missing, qaffde, frame, write, tmp_path):
    holes = frame.assign(w=np.where(np.arange(200) < 60, 0.0, 2.0))
    holes.loc[::9, "y"] = np.nan
    data = write(holes, tmp_path / "data.csv")
    options = [
        "-c",
        "x,y",
        "--weights",
        "w",
        "--missing",
        missing,
        *GIVEN,
        "--column",
        "real:-8:8",
    ]
    for name in ("stream", "no-stream"):
        done = qaffde("fit", data, "-o", tmp_path / name, *options, f"--{name}", "--json")
        assert done.code == 0, done.err
        assert done.json["missing_values"] == 23
    found, whole = load(tmp_path / "stream"), load(tmp_path / "no-stream")
    np.testing.assert_allclose(found.score_samples(frame), whole.score_samples(frame), atol=1e-10)


@pytest.mark.usefixtures("small_batches")
def test_scores_stream_in_order(qaffde, model, frame, write, tmp_path):
    data = write(frame.assign(number=np.arange(200)), tmp_path / "data.csv")
    assert qaffde("score", model, data, "-o", tmp_path / "s.parquet").code == 0
    table = pd.read_parquet(tmp_path / "s.parquet")
    assert (table["number"].astype(int) == np.arange(200)).all()
    np.testing.assert_allclose(table["log_density"], load(model).score_samples(frame))
    judged = qaffde("anomalies", model, data, "--fraction", 0.1, "-o", tmp_path / "a.csv")
    assert judged.code == 0
    lowest = set(np.argsort(table["log_density"].to_numpy())[:20])
    assert set(pd.read_csv(tmp_path / "a.csv")["row"]) == lowest


@pytest.mark.filterwarnings("ignore:time_limit has ended the search")  # on a busy machine
def test_large_tables_stream_by_themselves(qaffde, frame, write, tmp_path, monkeypatch):
    monkeypatch.setattr(fit, "STREAM_BYTES", 100)
    data = write(frame, tmp_path / "data.npy")
    out = ["-o", tmp_path / "m", *GIVEN, "--column", "real:-8:8", "--json"]
    assert qaffde("fit", data, *out).json["streamed"] is True
    assert qaffde("fit", data, *out, "--no-stream").json["streamed"] is False
    trained = [*out, "--method", "qaffde-sgd"]
    assert qaffde("fit", data, *trained).json["streamed"] is False


def test_compressed_tables_stream_by_what_they_hold(qaffde, frame, tmp_path, monkeypatch):
    data = tmp_path / "data.csv.gz"
    pd.concat([frame.round(1)] * 50).to_csv(data, index=False)
    monkeypatch.setattr(fit, "STREAM_BYTES", 2 * data.stat().st_size)
    done = qaffde("fit", data, "-o", tmp_path / "m", *GIVEN, "--column", "real:-8:8", "--json")
    assert done.code == 0, done.err
    assert (done.json["streamed"], done.json["rows"]) == (True, 10_000)


def test_small_files_of_many_rows_stream(qaffde, frame, tmp_path):
    """Rows that take 36 MB, in a hundredth of that: a fit in memory took ten times as much."""
    data, lines = tmp_path / "data.csv.gz", frame.round(1).to_csv(index=False, header=False)
    n = 1_500_000 // len(frame)
    data.write_bytes(gzip.compress(f"{','.join(frame)}\n{lines * n}".encode()))
    done = qaffde("fit", data, "-o", tmp_path / "m", *GIVEN, "--column", "real:-8:8", "--json")
    assert done.code == 0, done.err
    assert (done.json["streamed"], done.json["rows"]) == (True, n * len(frame))


def test_a_termination_leaves_nothing_of_standard_input(tmp_path):
    command = [sys.executable, "-m", "qaffde.cli", "fit", "-", "-o", str(tmp_path / "m")]
    held = tmp_path / "held"
    held.mkdir()
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(held)},
    ) as process:
        try:
            process.stdin.write(b"1,2\n" * 500_000)
            process.stdin.flush()
            deadline = time.monotonic() + 60
            while not any(f.stat().st_size for f in held.iterdir()):
                assert time.monotonic() < deadline
                time.sleep(0.05)
            process.terminate()
            assert process.wait(60) == 143
            assert process.stderr.read() == b""
        finally:
            process.kill()
    assert [*held.iterdir()] == []
    assert {item.name for item in tmp_path.iterdir()} == {"held"}


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize("how", ["asked", "large"])
def test_text_and_gaps_stream(suffix, how, qaffde, frame, write, tmp_path, monkeypatch):
    """Files of text that are larger than the threshold are not read into memory."""
    table = frame.assign(city=np.where(frame["x"] > 0, "Cali", "Bogotá"))
    table.loc[::7, "city"] = None
    table.loc[::9, "y"] = np.nan
    data = write(table, tmp_path / f"data{suffix}")
    module = sys.modules["qaffde.cli.fit"]
    monkeypatch.setattr(module, "STREAM_BYTES", 1000 if how == "large" else 1 << 28)
    extra = ["--stream"] if how == "asked" else ["--method", "qaffde"]
    done = qaffde("fit", data, "-o", tmp_path / "m", "--missing", "keep", "--json", *extra)
    assert done.code == 0, done.err
    assert done.json["streamed"] is True
    assert done.json["kinds"] == ["real", "real", "category of 2: Bogotá, Cali"]
    model = load(tmp_path / "m")
    whole = QAFFDE(random_state=0).fit(table)
    np.testing.assert_allclose(model.score_samples(table), whole.score_samples(table), atol=1e-9)

"""What goes wrong is one line on standard error and an exit code; old files stay."""

import os
import shlex
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import torch

from qaffde import QAFFDE, FourierFeatures
from tests.cli.conftest import SMALL

BROKEN = {
    "empty.csv": (b"", "empty.csv is empty"),
    "blank.csv": (b"\n\n\n", "is empty"),
    "header.csv": (b"a,b\n", "has no rows"),
    "ragged.csv": (b"a,b\n1,2\n3\n", "Row #3: Expected 2 columns, got 1"),
    "late.csv": (b"a,b\n" + b"1,2\n" * 300 + b"1,oops\n", "column 'b' has 'oops' in line 302"),
    "twice.csv": (b"a,a\n1,2\n", "the column 'a' stands twice"),
    "gap.csv": (b"a,b\n1,2\n3,\n", "column 'b' has no value in row 1; use --missing drop"),
    "infinite.csv": (b"a,b\n1,inf\n2,3\n", "row 0 has infinity in column 'b'"),
    "nul.csv": (b"a,b\n1,\x002\n", "has a NUL character"),
    "latin.csv": (b"a,b\n1,\xe9\n", "is not text in UTF-8"),
    "constant.csv": (b"a,b\n1,2\n1,3\n", "constant"),
    "one.csv": (b"a,b\n1,2\n", "minimum of 2"),
    "broken.csv.gz": (b"\x1f\x8b\x08\x00garbage", "cannot be read as text"),
    "broken.parquet": (b"PAR1 nothing PAR1", "cannot be read as Parquet"),
    "broken.arrow": (b"ARROW1 nothing", "cannot be read as Arrow"),
    "broken.npy": (b"\x93NUMPY\x01\x00\x10\x00{'descr': '|O'}", "cannot be read as NPY"),
    "broken.npz": (b"PK\x03\x04", "cannot be read as NPZ"),
}


def is_one_line(result):
    return result.err.startswith("error: ") and result.err.count("\n") == 1


@pytest.mark.parametrize("name", BROKEN)
def test_data_that_cannot_be_used(name, qaffde, tmp_path):
    content, message = BROKEN[name]
    (tmp_path / name).write_bytes(content)
    (tmp_path / "m").write_text("old")
    result = qaffde("fit", tmp_path / name, "-o", tmp_path / "m", *SMALL)
    assert result.code == 1
    assert is_one_line(result), result.err
    assert message in result.err
    assert (tmp_path / "m").read_text() == "old"
    assert {item.name for item in tmp_path.iterdir()} == {name, "m"}


def test_arrays_that_are_no_tables(qaffde, tmp_path):
    np.save(tmp_path / "cube.npy", np.ones((2, 2, 2)))
    np.save(tmp_path / "none.npy", np.ones((0, 2)))
    np.save(tmp_path / "words.npy", np.array([["a"], ["b"]]))
    np.save(tmp_path / "code.npy", np.array([print], dtype=object), allow_pickle=True)
    np.savez(tmp_path / "uneven.npz", a=np.ones(2), b=np.ones(3))
    np.savez(tmp_path / "mixed.npz", a=np.ones(2), b=np.ones((2, 2)))
    messages = {
        "cube.npy": "has 3 dimensions",
        "none.npy": "has no rows",
        "words.npy": "column is not numeric: x0",
        "code.npy": "Array can't be memory-mapped: Python objects",
        "uneven.npz": "differ in length",
        "mixed.npz": "one array, or one for each column, but it has a (2,), b (2, 2)",
    }
    for name, message in messages.items():
        result = qaffde("fit", tmp_path / name, "-o", tmp_path / "m")
        assert result.code == 1
        assert is_one_line(result), result.err
        assert message in result.err


CALLS = {
    "no such data": (["fit", "{dir}/none.csv", "-o", "{dir}/m"], "none.csv does not exist"),
    "folder": (["fit", "{dir}", "-o", "{dir}/m"], "cannot be read as Parquet"),
    "no such folder": (["fit", "{data}", "-o", "{dir}/no/m"], "does not exist; create it first"),
    "device": (["fit", "{data}", "-o", "/dev/null"], "/dev/null is not a regular file"),
    "output folder": (["fit", "{data}", "-o", "{dir}"], "is not a regular file"),
    "unknown column": (["fit", "{data}", "-c", "z", "-o", "{dir}/m"], "has no column 'z'"),
    "column twice": (["fit", "{data}", "-c", "x,0", "-o", "{dir}/m"], "one of them twice"),
    "weights picked": (
        ["fit", "{data}", "-c", "x,y", "--weights", "x", "-o", "{dir}/m"],
        "of weights is among the columns",
    ),
    "negative weights": (
        ["fit", "{data}", "-c", "x", "--weights", "y", "-o", "{dir}/m"],
        "has the weight -",
    ),
    "parameter": (
        ["fit", "{data}", "--base-measure", "cube", "-o", "{dir}/m"],
        "base_measure='cube' is not known; choose one of",
    ),
    "header of parquet": (
        ["fit", "{dir}/words.parquet", "--header", "-o", "{dir}/m"],
        "is not text, so header does not apply",
    ),
    "kind": (
        ["fit", "{data}", "-o", "{dir}/m", "--column", "x=text"],
        "column 'x': 'text' is not a kind of column; take real, periodic",
    ),
    "period": (["fit", "{data}", "-o", "{dir}/m", "--column", "x=periodic"], "needs a period"),
    "column of a kind": (
        ["fit", "{data}", "-o", "{dir}/m", "--column", "z=integer"],
        "the fit has no column 'z'",
    ),
    "not whole": (
        ["fit", "{data}", "-o", "{dir}/m", "--column", "x=integer"],
        "not a whole number; make it real",
    ),
    "no such model": (["score", "{dir}/none", "{data}"], "none does not exist"),
    "no model": (["score", "{data}", "{data}"], "cannot be loaded"),
    "model folder": (["info", "{dir}"], "is not a file"),
    "no density": (["score", "{dir}/features", "{data}"], "FourierFeatures, which has no score"),
    "other columns": (["score", "{model}", "{dir}/other.csv"], "lacks the model's columns y"),
    "fewer columns": (["score", "{model}", "{data}", "-c", "0"], "pick them with --columns"),
    "suffix": (["score", "{model}", "{data}", "-o", "{dir}/out.txt"], "the suffix says no format"),
    "words in arrays": (
        ["score", "{model}", "{dir}/named.csv", "-o", "{dir}/out.npy"],
        "arrays hold numbers only, and name are none",
    ),
    "marginal": (["marginal", "{model}", "z", "-o", "{dir}/m"], "the model has no column 'z'"),
    "all given": (
        ["condition", "{model}", "x=1", "y=1", "-o", "{dir}/m"],
        "every column is in the condition",
    ),
    "plot of nothing": (
        ["plot", "{model}", "--kind", "curve", "-o", "{dir}/p.png"],
        "this shows one column, got 2",
    ),
    "output is the data": (["fit", "{data}", "-o", "{data}"], "would replace the input"),
    "output links to the data": (["fit", "{data}", "-o", "{dir}/link.csv"], "replace the input"),
    "scores into the data": (["score", "{model}", "{data}", "-o", "{data}"], "replace the input"),
    "marginal into the model": (["marginal", "{model}", "x", "-o", "{model}"], "the input"),
    "few rows": (["compare", "{dir}/few.csv"], "2 rows are too few to compare"),
}


@pytest.fixture(scope="module")
def places(model, frame, tmp_path_factory):
    folder = tmp_path_factory.mktemp("bad")
    frame.to_csv(folder / "data.csv", index=False)
    frame.assign(name="a").to_csv(folder / "named.csv", index=False)
    frame[["x"]].assign(z=1.0).to_csv(folder / "other.csv", index=False)
    frame.head(2).to_csv(folder / "few.csv", index=False)
    pd.DataFrame({"t": ["a", "b"], "u": [True, False]}).to_parquet(folder / "words.parquet")
    (folder / "link.csv").hardlink_to(folder / "data.csv")
    FourierFeatures(8, bandwidth=1.0).fit(frame).save(folder / "features")
    return {"dir": folder, "data": folder / "data.csv", "model": model}


@pytest.mark.parametrize("name", CALLS)
def test_what_cannot_be_done(name, qaffde, places):
    arguments, message = CALLS[name]
    before = sorted(places["dir"].iterdir())
    result = qaffde(*(argument.format(**places) for argument in arguments))
    assert result.code == 1
    assert is_one_line(result), result.err
    assert message in result.err
    assert sorted(places["dir"].iterdir()) == before


@pytest.mark.parametrize("name", ["output is the data", "scores into the data"])
def test_the_input_stays(name, qaffde, places):
    before = places["data"].read_bytes()
    qaffde(*(argument.format(**places) for argument in CALLS[name][0]))
    assert places["data"].read_bytes() == before


USAGE = {
    "no arguments": ["fit"],
    "no output": ["fit", "{data}"],
    "method": ["fit", "{data}", "-o", "{dir}/m", "--method", "svm"],
    "baseline": ["fit", "{data}", "-o", "{dir}/m", "--method", "gmm"],
    "negative time": ["fit", "{data}", "-o", "{dir}/m", "--time-limit", "-3"],
    "stream of another": ["fit", "{data}", "-o", "{dir}/m", "--method", "qaffde-sgd", "--stream"],
    "condition": ["condition", "{model}", "x", "-o", "{dir}/m"],
    "infinite condition": ["condition", "{model}", "x=inf", "-o", "{dir}/m"],
    "two outputs": ["score", "{model}", "{data}", "--json", "-o", "-"],
    "model to standard output": ["fit", "{data}", "-o", "-"],
    "marginal to standard output": ["marginal", "{model}", "x", "-o", "-"],
    "fraction": ["anomalies", "{model}", "{data}", "--fraction", "2"],
    "two limits": ["anomalies", "{model}", "{data}", "--fraction", ".1", "--threshold", "1"],
    "kind": ["plot", "{model}", "-o", "{dir}/p.png", "--kind", "pie"],
    "picture": ["plot", "{model}", "-o", "{dir}/p.gif"],
    "given": ["plot", "{model}", "-o", "{dir}/p.png", "--kind", "slices", "--given", "x"],
    "compare": ["compare", "{data}", "--methods", "svm"],
}


@pytest.mark.parametrize("name", USAGE)
def test_usage(name, qaffde, places):
    before = sorted(places["dir"].iterdir())
    result = qaffde(*(argument.format(**places) for argument in USAGE[name]))
    assert result.code == 2
    assert "Usage" in result.err
    assert sorted(places["dir"].iterdir()) == before


def test_a_model_does_not_go_to_standard_output(qaffde, places, monkeypatch):
    monkeypatch.chdir(places["dir"])
    result = qaffde("fit", places["data"], "-o", "-")
    assert "cannot go to standard output; name a file" in " ".join(result.err.split())
    assert not (places["dir"] / "-").exists()


def test_a_folder_without_permission(qaffde, places, monkeypatch):
    monkeypatch.setattr("os.access", lambda _, mode: mode != os.W_OK)
    result = qaffde("score", places["model"], places["data"], "-o", places["dir"] / "out.csv")
    assert result.code == 1
    assert "cannot be written: no permission for its folder" in result.err


def test_a_full_disk_leaves_the_old_file(qaffde, places, monkeypatch, tmp_path):
    def full(_):
        raise OSError(28, "No space left on device")

    (tmp_path / "out.csv").write_text("old")
    monkeypatch.setattr("os.fsync", full)
    result = qaffde("score", places["model"], places["data"], "-o", tmp_path / "out.csv")
    assert result.code == 1
    assert result.err == "error: [Errno 28] No space left on device\n"
    assert [(item.name, item.read_text()) for item in tmp_path.iterdir()] == [("out.csv", "old")]


@pytest.mark.parametrize(
    ("closed", "arguments", "message"),
    [
        ("<&-", ["fit", "-", "-o", "{dir}/m"], "standard input is closed; name a file"),
        (">&-", ["score", "{model}", "{data}"], "standard output is closed; name a file with -o"),
    ],
)
def test_closed_streams(closed, arguments, message, places):
    words = [sys.executable, "-m", "qaffde.cli", *(a.format(**places) for a in arguments)]
    done = subprocess.run(
        ["sh", "-c", f"{shlex.join(words)} {closed}"],
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (1, f"error: {message}\n")


def test_too_little_memory_is_told_without_internals(qaffde, places, monkeypatch, tmp_path):
    monkeypatch.setattr(QAFFDE, "_kinds", lambda _: torch.empty(1 << 50, dtype=torch.uint8))
    result = qaffde("fit", places["data"], "-o", tmp_path / "m")
    assert result.code == 1
    assert result.err.startswith("error: there is not enough memory; try --stream")
    assert "alloc" not in result.err

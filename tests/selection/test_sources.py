"""Rows that are read a block at a time give the fit of rows in memory."""

import os
import re
import tracemalloc
from itertools import pairwise

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as parquet
import pytest

from qaffde import QAFFDE, QAFFDESGD, Real, TrainingConfig
from qaffde.estimators import base
from qaffde.selection import sources
from qaffde.selection.sources import ChunkSource
from qaffde.streams import blocks, chunked, chunks, files
from qaffde.streams.blocks import reblocked

N = 2500
X = np.random.default_rng(0).normal(size=(N, 2)) * [1.0, 3.0] + [0.0, 5.0]
WEIGHT = np.random.default_rng(1).choice([0.0, 1.0, 2.5], N)
NAMES = ["a", "b"]
FRAME = pd.DataFrame(X, columns=NAMES).assign(w=WEIGHT)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Blocks of 1024 rows, and arrays that are large."""
    monkeypatch.setattr(blocks, "BLOCK_ROWS", 1024)
    for module in (base, chunked):
        monkeypatch.setattr(module, "LARGE", 1000)


def model(**parameters):
    return QAFFDE(24, **{"bandwidth": 0.7, "base_measure": "gaussian", **parameters})


def in_memory(weight=None, **parameters):
    """Fit of a data frame, which is never read in blocks."""
    return model(**parameters).fit(FRAME[NAMES], sample_weight=weight)


def assert_same(first, second, atol=1e-10):
    assert first.sums_.weight == pytest.approx(second.sums_.weight)
    assert first.sums_.count == pytest.approx(second.sums_.count)
    scores = [fit._log_density(X) for fit in (first, second)]
    np.testing.assert_allclose(*scores, atol=atol)


def pieces(frame, n):
    return [frame.iloc[part] for part in np.array_split(np.arange(N), n)]


@pytest.fixture
def mapped(tmp_path):
    np.save(tmp_path / "rows.npy", X)
    return np.load(tmp_path / "rows.npy", mmap_mode="r")


@pytest.fixture
def folder(tmp_path):
    """Parquet files of uneven length, one of them without rows."""
    path = tmp_path / "set"
    path.mkdir()
    for number, (start, stop) in enumerate(pairwise([0, 0, 700, 701, N])):
        part = FRAME.iloc[start:stop]
        parquet.write_table(pa.Table.from_pandas(part), path / f"{number}.parquet")
    return path


SOURCES = {
    "list": lambda: chunks(np.array_split(X, 9)),
    "callable": lambda: chunks(lambda: iter(np.array_split(X, 9))),
    "generator": lambda: (part for part in np.array_split(X, 9)),
    "frames": lambda: chunks(pieces(FRAME[NAMES], 4)),
    "batches": lambda: iter(pa.Table.from_pandas(FRAME[NAMES]).to_batches(300)),
    "empty chunks": lambda: chunks([X[:0], X[:10], X[:0], X[10:]]),
}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("base", ["gaussian", "box"])
def test_chunks_give_the_fit_in_memory(source, base):
    fit = model(base_measure=base).fit(SOURCES[source]())
    assert_same(fit, in_memory(base_measure=base))
    assert hasattr(fit, "feature_names_in_") == (source in ("frames", "batches"))


def test_a_mapped_array_gives_the_fit_in_memory(mapped):
    assert_same(model().fit(mapped), in_memory())
    assert_same(model().fit(mapped, sample_weight=WEIGHT), in_memory(WEIGHT))
    assert_same(model().fit(np.asfortranarray(X)), in_memory())


def test_parquet_gives_the_fit_in_memory(folder):
    for source in (str(folder), folder, ds.dataset(folder)):
        fit = model().fit(chunks(source, columns=NAMES))
        assert list(fit.feature_names_in_) == NAMES
        assert_same(fit, in_memory())
    assert_same(model().fit(chunks(folder, weights="w")), in_memory(WEIGHT))
    assert model().fit(folder / "1.parquet").n_features_in_ == 3
    with pytest.raises(ValueError, match="feature names"):
        fit.partial_fit(folder / "1.parquet")


def test_weights_come_with_chunks():
    pairs = zip(np.array_split(X, 5), np.array_split(WEIGHT, 5), strict=True)
    assert_same(model().fit(chunks(list(pairs))), in_memory(WEIGHT))
    frames = [(frame[NAMES], frame["w"]) for frame in pieces(FRAME, 3)]
    assert_same(model().fit(chunks(frames)), in_memory(WEIGHT))


def test_the_untuned_fit_is_that_in_memory():
    rows = np.random.default_rng(2).gamma(2.0, size=(1100, 1))
    whole = QAFFDE(24, random_state=0).fit(pd.DataFrame(rows))
    parts = QAFFDE(24, random_state=0).fit(chunks(np.array_split(rows, 7)))
    assert parts.base_measure_ == whole.base_measure_
    np.testing.assert_allclose(parts.bandwidth_, whole.bandwidth_, rtol=1e-9)
    np.testing.assert_allclose(parts.score_samples(rows), whole.score_samples(rows), atol=1e-6)


def test_updates_take_streams(mapped):
    first = model(random_state=0).partial_fit(chunks(np.array_split(X[:1500], 3)))
    first.partial_fit(part for part in np.array_split(X[1500:], 4)).partial_fit(mapped)
    again = model(random_state=0).partial_fit(chunks([X[:1500]]))
    again.set_params(warm_start=True).fit(chunks([X, X]))
    assert_same(first, again)
    first.forget(X)
    assert first.sums_.weight == pytest.approx(N)


def test_updates_take_parquet(folder):
    half = model(random_state=0).partial_fit(chunks(folder, columns=NAMES))
    half.partial_fit(chunks(folder / "3.parquet", columns=NAMES, weights="w"))
    again = model(random_state=0).partial_fit(FRAME[NAMES])
    again.partial_fit(FRAME[NAMES].iloc[701:], sample_weight=WEIGHT[701:])
    assert_same(half, again)


ENDLESS = {
    "generator": lambda n: drawn(n),
    "function": lambda n: chunks(lambda: drawn(n)),
}


def drawn(n):
    return (np.random.default_rng(seed).normal(size=(4096, 4)) for seed in range(n))


@pytest.mark.parametrize("source", ENDLESS)
def test_memory_does_not_grow_with_the_rows(source):
    def peak(rows):
        tracemalloc.start()
        model(columns=Real(-9, 9), base_measure="box", random_state=0).fit(rows)
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    assert peak(ENDLESS[source](40)) < 1.2 * peak(ENDLESS[source](8))


def test_the_plan_of_an_iterator_is_selected_on_its_first_rows():
    parts = iter(np.array_split(X, 5))
    source = ChunkSource(chunks(parts), max_rows=1024)
    fit = QAFFDE(24, bandwidth="scott", random_state=0).fit(source)
    first = QAFFDE(24, bandwidth="scott", random_state=0).partial_fit(pd.DataFrame(X[:1024]))
    first.partial_fit(X[1024:])
    assert_same(fit, first)
    assert next(parts, None) is None
    with pytest.raises(ValueError, match="read once only"):
        fit.fit(parts)


def test_a_plan_that_is_given_by_numbers_takes_one_pass():
    passes = []

    def once():
        passes.append(0)
        yield from np.array_split(X, 3)

    given = {"columns": [Real(-9, 9), Real(-20, 30)]}
    rows = chunks(once)
    passes.clear()
    fit = model(base_measure="box", **given).fit(rows)
    assert_same(fit, in_memory(base_measure="box", **given))
    assert len(passes) == 2  # the first for one block alone


def test_a_first_block_of_one_row_that_weighs_is_no_error():
    weight = np.where(np.arange(N) < 1023, 0.0, 1.0)
    given = {"base_measure": "box", "columns": [Real(-9, 9), Real(-20, 30)]}
    for source in (chunks([(X, weight)]), iter([(X, weight)])):
        assert_same(model(**given).fit(source), in_memory(weight, **given))


def test_the_plan_is_selected_on_a_sample_of_all_rows():
    rows = ChunkSource(chunks(np.array_split(np.sort(X, axis=0), 6)), max_rows=300)
    fit = QAFFDE(24, bandwidth="scott", base_measure="box", random_state=0).fit(rows)
    whole = QAFFDE(24, bandwidth="scott", base_measure="box").fit(pd.DataFrame(np.sort(X, axis=0)))
    np.testing.assert_allclose(fit.bandwidth_, whole.bandwidth_)
    np.testing.assert_allclose(fit.plan_.location, whole.plan_.location)
    assert (fit.plan_.n_rows, whole.plan_.n_rows) == (300, N)
    for end in ("lower", "upper"):
        ends = [getattr(m.plan_.measure, end) for m in (fit, whole)]
        np.testing.assert_allclose(*ends)


def test_maximum_likelihood_takes_a_sample(monkeypatch):
    monkeypatch.setattr(sources, "MANY_ROWS", 500)
    short = TrainingConfig(max_iter=10)
    options = {"ridge": 1e-3, "base_measure": "gaussian", "training": short, "random_state": 0}
    sgd = QAFFDESGD(16, 0.8, **options)
    scores = sgd.fit(chunks(np.array_split(X, 4))).score_samples(X)
    sample = ChunkSource(chunks(X), max_rows=500).summarize(sgd._seed()).rows.numpy()
    assert len(sample) == 500
    np.testing.assert_array_equal(sgd.fit(sample).score_samples(X), scores)


# Errors


@pytest.mark.parametrize(("value", "word"), [(np.nan, "NaN"), (np.inf, "infinity")])
def test_a_bad_value_names_its_row_and_changes_nothing(value, word):
    bad = X.copy()
    bad[2000, 1] = value
    frames = [FRAME[NAMES], FRAME[NAMES].assign(b=bad[:, 1])]
    cases = {
        f"row 2000 has {word} in column 1": ([X], chunks([bad])),
        f"row {N + 2000} has {word} in column 'b'": (frames[:1], chunks(frames)),
    }
    for message, (good, source) in cases.items():
        fit = model().fit(chunks(good))
        before = vars(fit).copy()
        for call in (fit.partial_fit, fit.fit):
            with pytest.raises(ValueError, match=message):
                call(source)
            assert vars(fit) == before


BAD = {
    "outside bounds, the first is row 1500": (
        lambda: chunks(outlier()),
        {"columns": Real(-99, 99)},
    ),
    "row 1200 has the weight -1": (lambda: chunks(X, weights=negative()), {}),
    "chunk 1 has the columns 1": (lambda: chunks([X, X[:, :1]]), {}),
    "chunk 1 has the columns ['b', 'a']": (lambda: frames("ab", "ba"), {}),
    "chunk 0 does not hold numbers alone": (lambda: chunks([[["x", "y"]]]), {}),
    "chunk 0 must have the shape (n, d)": (lambda: chunks([X[:, 0]]), {}),
    "chunk 0 has 3 rows and 2 weights": (lambda: chunks([(X[:3], [1, 2])]), {}),
    "a tuple of 3": (lambda: chunks([(X, X, X)]), {}),
    "fewer than two rows": (lambda: chunks([X[:1]]), {}),
    "has no chunks": (lambda: chunks([]), {}),
    "constant column": (lambda: chunks([X * 0]), {}),
    "does not exist": (lambda: "nowhere.parquet", {}),
    "columns and weights by name belong to files": (lambda: chunks([X], weights="w"), {}),
    "give arrays their weights as an array": (lambda: chunks(X, columns=["a"]), {}),
    "and chunks as pairs (rows, weights)": (lambda: chunks([X], weights=WEIGHT), {}),
    "rows must be an array of numbers": (lambda: chunks(X[0]), {}),
    "got int": (lambda: chunks(3), {}),
}


def outlier():
    rows = X.copy()
    rows[1500, 0] = 100.0
    return rows


def negative():
    weight = WEIGHT.copy()
    weight[1200] = -1
    return weight


def frames(*orders):
    return chunks([FRAME[list(order)] for order in orders])


@pytest.mark.parametrize("message", BAD)
def test_bad_sources_are_rejected(message):
    make, parameters = BAD[message]
    fit = QAFFDE(24, **parameters)
    with pytest.raises((ValueError, TypeError, FileNotFoundError), match=re.escape(message)):
        fit.fit(make())
    assert not fit.__sklearn_is_fitted__()
    assert not hasattr(fit, "n_features_in_")


def test_columns_of_a_data_set_are_checked(tmp_path):
    table = pa.table({"a": [1.0, 2.0], "word": ["x", "y"]})
    parquet.write_table(table, tmp_path / "t.parquet")
    with pytest.raises(ValueError, match=r"column 'word' holds text .* where numbers are wanted"):
        QAFFDE(columns=None).fit(tmp_path / "t.parquet")
    with pytest.raises(ValueError, match="no column 'b'"):
        chunks(tmp_path / "t.parquet", columns=["a", "b"])
    with pytest.raises(ValueError, match="no column but that of the weights"):
        chunks(tmp_path / "t.parquet", columns=[], weights="a")
    with pytest.raises(ValueError, match="belong to an array of rows; name a column"):
        chunks(tmp_path / "t.parquet", weights=[1.0, 2.0])


def test_weights_beside_a_stream_are_rejected():
    with pytest.raises(ValueError, match="come with its rows"):
        model().fit(chunks([X]), sample_weight=WEIGHT)
    with pytest.raises(ValueError, match="belong to files"):
        chunks(chunks([X]), weights="w")


# Blocks, progress


def test_progress_tells_passes_and_rows(capsys, monkeypatch):
    told = []
    model().fit(chunks(X, progress=lambda *news: told.append(news)))
    assert told[:3] == [("looking at the rows", n, N) for n in (1024, 2048, N)]
    assert told[3:] == [("adding up", n, N) for n in (1024, 2048, N)]
    monkeypatch.setattr(chunked, "EVERY_SECONDS", 0.0)
    model().fit(chunks([X], progress=True))
    assert "adding up: 2,500 rows" in capsys.readouterr().out
    assert repr(chunks(iter([X]))) == "<Chunks of rows by 2 columns, to be read once>"


def test_blocks_do_not_depend_on_chunks():
    for sizes in ([N], [1, 5, 1100, 3], range(100, 2000, 300)):
        parts = [(part, np.ones(len(part))) for part in np.split(X, np.cumsum(sizes)) if len(part)]
        found = [rows for rows, _ in reblocked(parts, 1024)]
        assert [len(rows) for rows in found] == [1024, 1024, N - 2048]
        np.testing.assert_array_equal(np.concatenate(found), X)


def test_pages_of_a_file_are_given_back_but_no_changes_lost(tmp_path):
    np.save(tmp_path / "rows.npy", X)
    for mode in ("r", "r+", "c"):
        array = np.load(tmp_path / "rows.npy", mmap_mode=mode)
        if mode != "r":
            array[0, 0] = 7.0
        files.release_pages(np.asarray(array)[5:])
        assert array[0, 0] == (X[0, 0] if mode == "r" else 7.0)


def test_scores_of_a_mapped_array(mapped):
    fit = model().fit(mapped)
    np.testing.assert_array_equal(fit.score_samples(mapped), fit.score_samples(X))
    assert chunks(mapped).n_rows == N


# Sources that change while they are read


def test_a_source_that_changes_between_passes_is_noticed():
    parts = iter([X, X, X[:900]])
    rows = chunks(lambda: [next(parts, X[:900])])
    with pytest.raises(ValueError, match=r"had 2,500 rows when it was first read, and 900 now"):
        QAFFDE(24, random_state=0).fit(rows)
    model().fit(rows)  # every fit counts anew


def test_a_file_that_is_cut_between_passes_is_noticed(tmp_path):
    path = tmp_path / "rows.csv"
    np.savetxt(path, X, delimiter=",")

    def cut(what, done, total):
        if done == N:
            np.savetxt(path, X[:900], delimiter=",")

    with pytest.raises(ValueError, match="had 2,500 rows when it was first read, and 900 now"):
        QAFFDE(24, random_state=0).fit(chunks(path, progress=cut))


def test_a_mapped_file_that_is_cut_does_not_kill_the_process(tmp_path):
    path = tmp_path / "rows.npy"
    np.save(path, X)
    for rows in (chunks(np.load(path, mmap_mode="r")), chunks(path)):
        rows.collect()
        os.truncate(path, 5000)
        with pytest.raises(ValueError, match="became shorter while it was read"):
            rows.collect()
        np.save(path, X)

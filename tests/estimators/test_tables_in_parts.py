"""Tables in chunks, files, Dask collections and processes: the density of the rows in memory."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
import torch

import qaffde
from qaffde import (
    QAFFDE,
    QAFFDESGD,
    Atom,
    Category,
    Integer,
    ModelSpec,
    Periodic,
    QAFFDETensorTrain,
    Real,
    SelectionPolicy,
    TensorTrainConfig,
    load,
    select,
    solve,
    summarize,
)
from qaffde.distributed import DaskSource, score_samples
from qaffde.selection.sources import ChunkSource
from qaffde.streams import blocks, chunks, schemas
from tests.estimators.test_tables import TABLE as LONG

TABLE = LONG[:900].reset_index(drop=True)
POLICY = SelectionPolicy(mixture_sizes=(3,), table_iterations=10)
GIVEN = {"columns": {"hour": Periodic(24)}, "policy": POLICY, "random_state": 0}
CATEGORICAL = TABLE.assign(region=TABLE["region"].astype("category"))
PARTS = [TABLE[:7], TABLE[7:500], TABLE[500:500], TABLE[500:]]
ARRAY = TABLE[["age", "income"]].assign(code=np.arange(900) % 3).to_numpy()
KINDS = {"columns": ["integer", "real", "category"], "policy": POLICY, "random_state": 0}


@pytest.fixture(scope="module")
def whole():
    return QAFFDE(**GIVEN).fit(TABLE)


@pytest.fixture(scope="module")
def numbers():
    """A fit to an array with kinds and gaps."""
    return QAFFDE(**KINDS).fit(ARRAY)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK_ROWS", 1024)
    for module in (blocks, schemas, qaffde.frames):
        monkeypatch.setattr(module, "LOOKED_AT_ROWS", 300)


def assert_same(model, whole, rows=TABLE, atol=1e-9):
    np.testing.assert_allclose(model.score_samples(rows), whole.score_samples(rows), atol=atol)


def arrow(table):
    return pa.Table.from_pandas(table, preserve_index=False)


STREAMS = {
    "frames": lambda: chunks(PARTS),
    "categories": lambda: chunks([CATEGORICAL[:500], CATEGORICAL[500:]]),
    "categories that differ": lambda: chunks([CATEGORICAL[k::2] for k in (0, 1)]),
    "polars": lambda: chunks([pl.from_pandas(part) for part in PARTS]),
    "arrow": lambda: iter(arrow(TABLE).to_batches(300)),
    "iterator": lambda: iter(PARTS),
    "function": lambda: chunks(lambda: iter(PARTS)),
    "pairs": lambda: chunks([(part, np.ones(len(part))) for part in PARTS]),
}


@pytest.mark.parametrize("stream", STREAMS)
def test_chunks_with_the_same_plan_give_the_fit_in_memory(stream, whole):
    model = QAFFDE(plan=whole.plan_).fit(STREAMS[stream]())
    order = np.r_[0:900:2, 1:900:2] if stream == "categories that differ" else np.arange(900)
    assert_same(model, QAFFDE(plan=whole.plan_).fit(TABLE.iloc[order]))


@pytest.mark.parametrize("stream", ["frames", "categories", "polars", "iterator"])
def test_kinds_are_found_in_chunks_as_in_memory(stream, whole):
    """The plan, too, is that of the rows in memory."""
    model = QAFFDE(**GIVEN).fit(STREAMS[stream]())
    assert model.schema_.kinds == whole.schema_.kinds
    assert_same(model, whole)
    draws = model.sample(3, random_state=0)
    assert isinstance(draws, pl.DataFrame if stream == "polars" else pd.DataFrame)
    dtypes = [str(dtype) for dtype in (CATEGORICAL if "cat" in stream else TABLE).dtypes]
    assert stream == "polars" or [str(dtype) for dtype in draws.dtypes] == dtypes


def test_partial_fit_takes_chunks_once(whole):
    model = QAFFDE(plan=whole.plan_).partial_fit(iter(PARTS[:2]))
    assert_same(model.partial_fit(iter(PARTS[2:])), whole)
    assert_same(model.forget(TABLE[500:]), QAFFDE(plan=whole.plan_).fit(TABLE[:500]), atol=1e-6)
    first = QAFFDE(**GIVEN).partial_fit(iter(PARTS[:2]))
    again = QAFFDE(**GIVEN).partial_fit(TABLE[:500])
    assert_same(first.partial_fit(chunks(PARTS[2:])), again.partial_fit(TABLE[500:]))


def test_the_first_rows_of_an_iterator_settle_plan_and_kinds():
    """Two columns, whose frequencies are a lattice otherwise."""
    table = LONG[["region", "income"]].dropna(subset="region").reset_index(drop=True)
    source = ChunkSource(chunks(iter([table[:600], table[600:]])), max_rows=1024)
    model = QAFFDE(policy=POLICY, random_state=0).fit(source)
    assert model.sums_.weight == len(table)
    first = QAFFDE(policy=POLICY, random_state=0).partial_fit(table[:1024])
    assert_same(model, first.partial_fit(table[1024:]), table)


@pytest.mark.parametrize("table", [TABLE, CATEGORICAL], ids=["text", "dictionary"])
def test_files_are_read_with_kinds_and_gaps(table, whole, tmp_path):
    parquet.write_table(arrow(table), tmp_path / "rows.parquet", row_group_size=200)
    table.to_csv(tmp_path / "rows.csv", index=False)
    for name in ("rows.parquet", "rows.csv"):
        model = QAFFDE(**GIVEN).fit(chunks(tmp_path / name, missing="keep"))
        assert model.schema_.kinds == whole.schema_.kinds
        assert_same(model, whole)
        with pytest.raises(ValueError, match=r"has no value in row .*; use missing=drop, .*keep"):
            QAFFDE(**GIVEN).fit(tmp_path / name)
        dropped = QAFFDE(plan=whole.plan_).fit(chunks(tmp_path / name, missing="drop"))
        assert_same(dropped, QAFFDE(plan=whole.plan_).fit(table.dropna()))


def test_labels_that_come_late_are_found_where_rows_are_read_again(tmp_path):
    table = TABLE.dropna().sort_values("region")
    for source in (chunks([table[:350], table[350:]]), str(tmp_path / "sorted.parquet")):
        parquet.write_table(arrow(table), tmp_path / "sorted.parquet")
        model = QAFFDE(**GIVEN).fit(source)
        assert model.schema_.kinds[0] == Category(sorted(table["region"].unique()))
    asked = {**GIVEN, "columns": {"hour": Periodic(24), "region": Category(["north", "west"])}}
    with pytest.raises(ValueError, match=r"column 'region' has no category 'east' \(row 0\)"):
        QAFFDE(**asked).fit(tmp_path / "sorted.parquet")


def test_dates_are_days_in_a_stream():
    moments = pd.date_range("2024-01-01", periods=400, freq="h")
    table = pd.DataFrame({"when": moments, "x": np.random.default_rng(0).normal(size=400)})
    model = QAFFDE(random_state=0).fit(chunks([table[:150], table[150:]]))
    assert_same(model, QAFFDE(random_state=0).fit(table), table)
    assert list(model.sample(2, random_state=0).dtypes) == list(table.dtypes)


@pytest.mark.parametrize("given", ["bandwidth", "all"])
def test_dates_are_days_in_a_stream_where_parameters_are_given(given, tmp_path):
    """Then nothing is asked of the columns, or all of them are real."""
    moments = pd.date_range("2024-01-01", periods=400, freq="h")
    table = pd.DataFrame({"when": moments, "x": np.random.default_rng(0).normal(size=400)})
    options = {"bandwidth": 0.5, "n_features": 32, "base_measure": "box"}
    if given == "all":
        options["columns"] = {"when": Real(19_700, 19_800), "x": Real(-9, 9)}
    table.to_csv(tmp_path / "rows.csv", index=False)
    wanted = QAFFDE(**options, random_state=0).fit(table)
    for source in (chunks([table[:150], table[150:]]), tmp_path / "rows.csv"):
        model = QAFFDE(**options, random_state=0).fit(source)
        if given == "bandwidth":  # otherwise a stream settles the features before it is read
            assert_same(model, wanted, table)
        assert list(model.sample(2, random_state=0).dtypes) == list(table.dtypes)


@pytest.mark.parametrize("source", [lambda: chunks(ARRAY), lambda: chunks([ARRAY[:9], ARRAY[9:]])])
def test_arrays_in_parts_take_kinds_and_gaps(source, numbers):
    assert np.isnan(ARRAY).any()
    assert_same(QAFFDE(**KINDS).fit(source()), numbers, ARRAY)
    only_gaps = {"policy": POLICY, "random_state": 0}
    gaps = QAFFDE(**only_gaps).fit(source())
    assert_same(gaps, QAFFDE(**only_gaps).fit(ARRAY), ARRAY)
    assert_same(gaps.partial_fit(source()), gaps.partial_fit(ARRAY), ARRAY)


def test_a_chunk_without_a_value_in_a_column():
    """Its mean is that of nothing, and must not become that of all."""
    rows = ARRAY.copy()
    rows[:300, 0] = np.nan
    source = ChunkSource(chunks([rows[:1024], rows[1024:]]))
    summary = source.settled(None, gaps=True).summarize(0)
    parts = [summarize(part, columns="real") for part in (rows[:150], rows[150:300], rows[300:])]
    both = parts[0] + parts[1] + parts[2]
    np.testing.assert_allclose(both.moments.mean, summary.moments.mean)
    np.testing.assert_array_equal(both.moments.ends, summary.moments.ends)


def test_other_estimators_take_tables_in_parts(whole, tmp_path):
    model = QAFFDESGD(**GIVEN).fit(chunks(PARTS))
    assert_same(model, QAFFDESGD(**GIVEN).fit(TABLE))
    training = TensorTrainConfig(max_steps=20, bond=4)
    train = QAFFDETensorTrain(columns=GIVEN["columns"], training=training, random_state=0)
    assert train.fit(chunks(PARTS)).schema_.kinds == whole.schema_.kinds
    chosen = qaffde.fit(iter(PARTS), columns=GIVEN["columns"], time_limit=6, random_state=0)
    assert chosen.schema_.kinds == whole.schema_.kinds
    assert len(chosen.choice_.candidates) == 3
    model.save(tmp_path / "model")
    assert_same(load(tmp_path / "model"), model)


def test_three_functions_take_tables_in_parts(whole):
    parts = summarize(chunks(PARTS), columns=GIVEN["columns"], random_state=0)
    assert not parts.is_plain
    plan = select(parts, ModelSpec(), policy=POLICY)
    density = solve(plan, chunks(PARTS))
    rows = np.ascontiguousarray(plan.schema.encode(TABLE))
    expected = solve(plan, TABLE).log_prob(torch.from_numpy(rows))
    torch.testing.assert_close(density.log_prob(torch.from_numpy(rows)), expected)


# Dask


@pytest.fixture
def lazy():
    """Makes Dask frames, which threads compute."""
    dask = pytest.importorskip("dask")
    frames = pytest.importorskip("dask.dataframe")
    with dask.config.set(scheduler="threads", num_workers=1):
        yield lambda table, n: frames.from_pandas(table, npartitions=n)


@pytest.mark.parametrize("table", [TABLE, CATEGORICAL], ids=["text", "categories"])
def test_dask_gives_the_fit_in_memory(table, lazy, whole):
    rows = lazy(table, 4)
    assert_same(QAFFDE(plan=whole.plan_).fit(DaskSource(rows)), whole)
    model = QAFFDE(**GIVEN).fit(DaskSource(rows))
    assert model.schema_.kinds == whole.schema_.kinds
    assert_same(model, QAFFDE(plan=model.plan_).fit(TABLE))
    half = QAFFDE(plan=whole.plan_).partial_fit(DaskSource(lazy(table[:500], 2)))
    assert_same(half.partial_fit(DaskSource(lazy(table[500:], 2))), whole)
    scores = score_samples(whole, rows).compute()
    np.testing.assert_allclose(scores, whole.score_samples(TABLE))


def test_dask_finds_labels_in_all_partitions(lazy):
    table = TABLE.dropna().sort_values("region")
    model = QAFFDE(**GIVEN).fit(DaskSource(lazy(table, 5)))
    assert model.schema_.kinds[0] == Category(sorted(table["region"].unique()))
    with pytest.raises(
        ValueError, match=r"column 'region' holds text .* where numbers are wanted"
    ):
        QAFFDE(columns=None).fit(DaskSource(lazy(table, 5)))


# Errors


def changed(column, row, value):
    table = TABLE.copy()
    table[column] = table[column].astype(object)
    table.loc[row, column] = value
    return table


PLAIN = np.random.default_rng(0).normal(size=(1024, 3))
AGES = TABLE.assign(age=TABLE["age"].fillna(30))
BAD = {
    r"chunk 1: column 'region' has no category 'moon' \(row 700\); it has .*Fit with all": (
        lambda: iter([TABLE[:500], changed("region", 700, "moon")[500:]]),
        {},
    ),
    "chunk 1: column 'age' holds text .* where numbers are wanted; convert it": (
        lambda: iter([TABLE[:500], TABLE[500:].assign(age="old")]),
        {},
    ),
    "column 'age' has text .* in one part of the rows and numbers": (
        lambda: chunks([TABLE[:100], TABLE[100:].assign(age="old")]),
        {},
    ),
    "chunk 1: column 'region' has no category 3": (
        lambda: iter([TABLE[:500], TABLE[500:].assign(region=3)]),
        {},
    ),
    "column 'age' has 30.5 in row 600: not a whole number; make it real": (
        lambda: iter([AGES[:500], changed("age", 600, 30.5)[500:]]),
        {},
    ),
    "column 'income' has inf in row 600: drop the row, or make it a gap": (
        lambda: chunks(
            [TABLE[:500], changed("income", 600, np.inf).astype({"income": float})[500:]]
        ),
        {},
    ),
    "column 'region' mixes": (lambda: chunks([changed("region", 3, 4.0)]), {}),
    "column 'age' holds objects of the type dict": (
        lambda: chunks([TABLE.assign(age=[{}] * 900)]),
        {},
    ),
    "column 'age' has no value at all; drop it": (
        lambda: chunks([TABLE[:500].assign(age=np.nan), TABLE[500:].assign(age=np.nan)]),
        {},
    ),
    "different texts in .* rows, so it names the rows": (
        lambda: chunks([TABLE.assign(region=np.arange(900).astype(str))]),
        {},
    ),
    "columns names 'town', but the table has": (lambda: iter(PARTS), {"town": "category"}),
    "'periodic' needs a period": (lambda: iter(PARTS), {"hour": "periodic"}),
    "has 0 different|has no rows": (lambda: chunks([TABLE[:0]]), {}),
    "but it is atom at 0, else real, at least 0": (
        lambda: chunks([TABLE[:500], TABLE[500:].assign(amount=-1.0)]),
        {"amount": Atom(0, Real(lower=0))},
    ),
    "too large to have a place in a period 24": (
        lambda: chunks([TABLE[:500], TABLE[500:].assign(hour=1e17)]),
        {"hour": Periodic(24)},
    ),
    "chunk 1 has the columns": (lambda: chunks([TABLE[:9], TABLE[9:][["age"]]]), {}),
    "where rows are read once, begin with some that have gaps": (
        lambda: ChunkSource(chunks(iter([PLAIN, ARRAY])), max_rows=2),
        None,
    ),
    "column 'region' holds text .* where numbers are wanted": (lambda: chunks([TABLE]), None),
}


@pytest.mark.parametrize("message", BAD)
def test_bad_tables_in_parts_are_refused_with_a_sentence(message):
    make, columns = BAD[message]
    model = QAFFDE(columns=columns, policy=POLICY, random_state=0)
    with pytest.raises(ValueError, match=message) as caught:
        model.fit(make())
    assert "\n" not in str(caught.value)
    assert not model.__sklearn_is_fitted__()


LATER = {
    r"chunk 0: column 'region' has no category 'moon' \(row 1\)": lambda: changed(
        "region", 1, "moon"
    ),
    "column 'age' has 1.5 in row 2": lambda: changed("age", 2, 1.5).astype({"age": float}),
    "rows have values that the plan holds for impossible": lambda: changed("age", 2, 900.0).astype(
        {"age": float}
    ),
}


@pytest.mark.parametrize("message", LATER)
def test_bad_rows_that_come_later_change_nothing(message, whole):
    model = QAFFDE(plan=whole.plan_).fit(TABLE)
    before = model.score_samples(TABLE)
    with pytest.raises(ValueError, match=message):
        model.partial_fit(iter([LATER[message]()]))
    np.testing.assert_array_equal(model.score_samples(TABLE), before)


def test_integers_of_all_chunks_have_mass():
    model = QAFFDE(columns="integer", policy=POLICY, random_state=0)
    rows = np.repeat(np.arange(30.0), 20)[:, None]
    model.fit(chunks(np.array_split(rows, 7)))
    assert model.schema_.kinds == (Integer(),)
    assert model.probability({0: (20, 29)}) == pytest.approx(1 / 3, abs=0.05)

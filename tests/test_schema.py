"""Schema of tables: kinds found, numbers and back, and what is refused."""

import datetime as dt

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from polars.testing import assert_frame_equal

from qaffde.kinds import Atom, Category, Integer, Periodic, Real, as_kind
from qaffde.schema import Schema

N = 200
RNG = np.random.default_rng(0)
FRAME = pd.DataFrame(
    {
        "age": RNG.integers(18, 80, N),
        "few": pd.array(RNG.integers(0, 5, N), dtype="Int64"),
        "size": RNG.normal(size=N),
        "small": RNG.normal(size=N).astype("float32"),
        "city": RNG.choice(["Cali", "Bogotá"], N),
        "shape": pd.Categorical(RNG.choice(["x", "y"], N), categories=["y", "x", "u"]),
        "grade": pd.Categorical(RNG.choice(["lo", "hi"], N), ["lo", "hi"], ordered=True),
        "code": pd.Categorical(RNG.choice([1, 2], N)),
        "flag": RNG.random(N) > 0.5,
        "when": pd.Timestamp("2020-01-01") + pd.to_timedelta(RNG.integers(0, 10**9, N), "ms"),
        "zoned": pd.Timestamp("2020-01-01", tz="UTC")
        + pd.to_timedelta(RNG.integers(0, 10**9, N), "ms"),
        "spend": np.where(RNG.random(N) < 0.4, 0, RNG.lognormal(size=N)),
        "income": RNG.integers(0, 100_000, N),
    }
)
for name in ("few", "size", "city", "shape", "when"):
    FRAME.loc[RNG.integers(0, N, 5), name] = None

KINDS = {
    "age": Integer(),
    "few": Integer(),
    "size": Real(),
    "small": Real(),
    "city": Category(["Bogotá", "Cali"]),
    "shape": Category(["y", "x", "u"]),
    "grade": Category(["lo", "hi"]),
    "code": Category([1, 2]),
    "flag": Category([False, True]),
    "when": Real(),
    "zoned": Real(),
    "spend": Atom(0, Real(lower=0)),
    "income": Real(),
}


@pytest.mark.parametrize("name", KINDS)
def test_kinds_are_found_from_dtype_and_values(name):
    assert Schema.infer(FRAME[[name]]).kinds == (KINDS[name],)


def test_pandas_frames_come_back_as_they_were():
    schema = Schema.infer(FRAME)
    pd.testing.assert_frame_equal(schema.decode(schema.encode(FRAME)), FRAME)


def test_polars_frames_come_back_as_they_were():
    frame = pl.from_pandas(FRAME.drop(columns="code")).with_columns(
        day=pl.lit(dt.date(2020, 1, 2)), rank=pl.col("grade").cast(pl.Enum(["lo", "hi"]))
    )
    schema = Schema.infer(frame)
    assert_frame_equal(schema.decode(schema.encode(frame)), frame)
    assert schema.kinds[frame.columns.index("rank")] == Category(["lo", "hi"])


def test_arrow_tables_come_back_with_their_values():
    table = pa.Table.from_pandas(FRAME.drop(columns="code"), preserve_index=False)
    schema = Schema.infer(table)
    back = schema.decode(schema.encode(table))
    assert isinstance(back, pa.Table)
    assert back.to_pydict() == table.to_pydict()


def test_gaps_are_nan_in_every_kind():
    codes = Schema.infer(FRAME).encode(FRAME)
    np.testing.assert_array_equal(np.isnan(codes), FRAME.isna().to_numpy())


def test_dates_are_days():
    frame = pd.DataFrame({"day": pd.to_datetime(["1970-01-02", "1970-01-03"])})
    np.testing.assert_allclose(Schema.infer(frame).encode(frame)[:, 0], [1, 2])


@pytest.mark.parametrize("dtype", [float, int])
def test_arrays_are_real_unless_asked(dtype):
    X = RNG.integers(0, 3, (50, 2)).astype(dtype)
    assert Schema.infer(X).kinds == (Real(), Real())
    assert Schema.infer(X).is_real
    schema = Schema.infer(X, {1: "integer"})
    assert schema.kinds == (Real(), Integer())
    np.testing.assert_array_equal(schema.decode(schema.encode(X)), X)


def test_columns_none_makes_all_real():
    assert Schema.infer(FRAME[["age", "spend"]], None).kinds == (Real(), Real())


def test_columns_are_found_by_name_in_any_order():
    schema = Schema.infer(FRAME[["age", "city"]])
    np.testing.assert_array_equal(
        schema.encode(FRAME[["city", "age"]]), schema.encode(FRAME[["age", "city"]])
    )


def test_rows_as_lists_are_encoded_by_place():
    schema = Schema.infer(FRAME[["city", "age"]])
    np.testing.assert_array_equal(
        schema.encode([["Cali", 20], [None, 30]]), [[1, 20], [np.nan, 30]]
    )


def test_a_printed_schema_has_one_line_for_each_column():
    lines = str(Schema.infer(FRAME[["city", "spend", "when"]])).splitlines()
    assert lines[0].split() == ["column", "kind", "dtype"]
    assert "category of 2: Bogotá, Cali" in lines[1]
    assert "atom at 0, else real, at least 0" in lines[2]
    assert "real, days since 1970" in lines[3]


def frame(**columns):
    return pd.DataFrame(columns)


def infer(columns="auto", **values):
    return lambda: Schema.infer(frame(**values), columns)


def encode(given, columns="auto", **values):
    return lambda: Schema.infer(frame(**values), columns).encode(given)


def check(given, columns="auto", **values):
    schema = Schema.infer(frame(**values), columns)
    return lambda: schema.check(schema.encode(given))


CITY = ["Cali", "Bogotá"] * 3
AGES = [20, 30] * 3

BAD = {
    "period of zero": (lambda: Periodic(0), r"period=0\) must be a positive number"),
    "period below normal numbers": (lambda: Periodic(1e-309), "must be a positive number above"),
    "negative period": (lambda: Periodic(-1), r"period=-1\) must be a positive number"),
    "period as text": (lambda: Periodic("day"), r"period='day'\) must be a positive number"),
    "infinite period": (lambda: Periodic(np.inf), r"period=inf\) must be a positive number"),
    "infinite start": (lambda: Periodic(24, np.inf), r"start=inf\) must be a finite number"),
    "infinite end": (lambda: Real(0, np.inf), r"upper=inf\) .*None where there is no end"),
    "NaN as an end": (lambda: Real(np.nan), r"lower=nan\) must be a finite number"),
    "ends swapped": (lambda: Real(1, 0), r"lower=1, upper=0\): swap the ends"),
    "atom at infinity": (lambda: Atom(np.inf), r"value=inf\) must be a finite number"),
    "atom among integers": (lambda: Atom(0, Integer()), r"rest=Integer\(\)\) must be Real\(\)"),
    "category as text": (lambda: Category("abc"), r"must be a list of labels: .*\['abc'\]"),
    "category as number": (lambda: Category(3), r"must be a list of labels: .*\[3\]"),
    "lazy rows": (lambda: Schema.infer(pl.LazyFrame({"a": [1]})), r"is lazy: .* X\.collect"),
    "label twice": (lambda: Category(["a", "a"]), "the label 'a' twice; give each label once"),
    "no label": (lambda: Category([]), "must have at least one label"),
    "label of NaN": (lambda: Category([np.nan]), "label nan is float, where text, a finite"),
    "label that is a list": (lambda: Category([[1]]), r"label \[1\] is list, .*make it text"),
    "unknown kind": (lambda: as_kind("text", "a"), "'text' is not a kind of column; take real"),
    "kind that is a number": (lambda: as_kind(24, "a"), "column 'a': 24 is not a kind of column"),
    "periodic without period": (lambda: as_kind("periodic", "h"), r"needs a period: Periodic\(24"),
    "atom without value": (lambda: as_kind("atom", "a"), r"needs its value: Atom\(0\)"),
    "class without period": (lambda: as_kind(Periodic, "h"), "column 'h': 'periodic' needs a"),
    "kind with odd numbers": (lambda: as_kind("periodic:x", "h"), "write it as 'periodic:24'"),
    "integer with numbers": (lambda: as_kind("integer:3", "h"), "'integer:3' is not understood"),
    "columns as text": (infer("numbers", a=AGES), "'numbers' is not a kind of column; take real"),
    "columns as number": (infer(3, a=AGES), r"columns=3 must be 'auto', None, a kind, a list"),
    "kinds too many": (infer(["real"] * 2, a=AGES), "columns has 2 kinds for 1 columns"),
    "unknown column": (infer({"b": "real"}, a=AGES), "columns names 'b', but the table has 'a'"),
    "number beyond": (infer({1: "real"}, a=AGES), "columns names 1, but the table has 'a'"),
    "column named twice": (infer({0: "real", "a": "real"}, a=AGES), "names the column 'a' twice"),
    "all gaps": (infer(a=[np.nan] * 3), "column 'a' has no value at all; drop it"),
    "all gaps in text": (infer(a=[None] * 3), "column 'a' has no value at all; drop it"),
    "all gaps in bools": (
        infer(a=pd.array([None] * 3, dtype="boolean")),
        "column 'a' has no value at all; drop it",
    ),
    "text as numbers": (infer(None, a=CITY), r"column 'a' holds text \('Cali'\).*'category'"),
    "numbers as text": (
        encode([["1"]], {"a": "real"}, a=["1", "2"]),
        r"holds text \('1'\).*convert it",
    ),
    "text in an array": (lambda: Schema.infer([["x", 1.0]]), r"column 0 holds text \('x'\)"),
    "mixed objects": (infer(a=[1, "x"]), r"mixes str \('x'\) and int \(1\); make all of them"),
    "bools among numbers": (infer(a=[True, 2.5]), r"mixes bool \(True\) and float \(2\.5\)"),
    "lists": (infer(a=[[1], [2]]), "column 'a' holds objects of the type list"),
    "dicts": (infer(a=[{}, {}]), "column 'a' holds objects of the type dict"),
    "names of rows": (infer(a=[f"id{k}" for k in range(30)]), "30 different texts in 30 rows"),
    "intervals": (infer(a=pd.cut([1, 2, 3], 2)), "column 'a': the label Interval.*make it text"),
    "durations": (infer(a=pd.to_timedelta(AGES, "s")), "column 'a' has the dtype timedelta64"),
    "complex": (infer(a=[1j, 2j]), "column 'a' has the dtype complex128.*convert or drop it"),
    "no rows": (infer(a=[]), "the table has no rows"),
    "no columns": (infer(), "the table has no columns"),
    "one dimension": (lambda: Schema.infer([1.0, 2.0]), r"shape \(n, d\), got .* \(2,\)"),
    "ragged rows": (lambda: Schema.infer([[1.0], [1.0, 2.0]]), "rows differ in length"),
    "same name twice": (
        lambda: Schema.infer(pd.DataFrame([[1, 2]], columns=["a", "a"])),
        "two columns have the same name; rename",
    ),
    "unseen category": (
        encode(frame(a=["Tunja"]), a=CITY),
        r"column 'a' has no category 'Tunja' \(row 0\); it has 'Bogotá', 'Cali'\. Fit with all",
    ),
    "number for a category": (encode(frame(a=[3.5]), a=CITY), "column 'a' has no category 3.5"),
    "category for a number": (encode(frame(a=["x"]), a=AGES), r"column 'a' holds text \('x'\)"),
    "infinite value": (check(frame(a=[1.0, np.inf]), a=AGES), "'a' has inf in row 1: drop the"),
    "not whole": (check(frame(a=[1.5]), a=AGES), "'a' has 1.5 in row 0: not a whole number"),
    "below the end": (
        check(frame(a=[-1.0]), {"a": "real:0:"}, a=AGES),
        "'a' has -1 in row 0: but it is real, at least 0; widen its ends",
    ),
    "below an atom": (check(frame(a=[-1.0]), {"a": Atom(0, Real(0))}, a=AGES), "'a' has -1 in"),
    "column lacks": (encode(frame(b=AGES), a=AGES), "lacks the column 'a', .*; it has 'b'"),
    "columns too few": (encode([[1.0]], a=AGES, b=AGES), "has 1 columns, and the fit had 2: 'a'"),
    "unseen in polars": (
        lambda: Schema.infer(pl.DataFrame({"a": CITY})).encode(pl.DataFrame({"a": ["x"]})),
        "column 'a' has no category 'x'",
    ),
    "times in polars": (
        lambda: Schema.infer(pl.DataFrame({"a": [dt.time(1)]})),
        "column 'a' has the dtype Time",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_tables_are_refused_with_a_sentence(case):
    action, message = BAD[case]
    with pytest.raises(ValueError, match=message):
        action()

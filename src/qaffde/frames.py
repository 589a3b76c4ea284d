"""Columns out of tables and back: arrays, and pandas, polars and pyarrow through narwhals."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray

DAY = 86_400_000_000
"""Microseconds of a day, which is the unit of dates."""
LOOKED_AT_ROWS = 100_000
"""Rows of a table in parts that tell the kinds of its columns; labels are those of all rows."""
DATETIME = re.compile(r"Datetime\(time_unit='(\w+)', time_zone='?(.*?)'?\)")


@dataclass(frozen=True, eq=False)
class Values:
    """A column as it was given."""

    name: str | int  # its number where it has no name
    dtype: str
    values: NDArray[Any]  # numbers with NaN for gaps, or objects with None for them
    labels: tuple[Any, ...] | None = None  # all categories, where the dtype tells them

    @property
    def is_numeric(self) -> bool:
        """Whether the values are numbers."""
        return bool(self.values.dtype.kind == "f")

    @property
    def known(self) -> list[Any]:
        """Those that are not gaps."""
        return [value for value in self.values.tolist() if not is_gap(value)]


@dataclass(frozen=True, eq=False)
class Look:
    """First values of the columns of a table, and all labels; those of parts add up.

    Examples
    --------
    >>> parts = [["a", 1.0], ["b", 2.0]], [["c", 3.0]]
    >>> both = Look.at(parts[0]) + Look.at(parts[1])
    >>> both.n_rows, [column.values.tolist() for column in both.columns]
    (3, [['a', 'b', 'c'], [1.0, 2.0, 3.0]])
    """

    columns: tuple[Values, ...]
    library: str | None
    n_rows: int
    words: tuple[frozenset[Any], ...]  # of columns that are not numbers all values

    @classmethod
    def at(cls, X: Any, most: int = LOOKED_AT_ROWS) -> "Look":
        """The first rows of a part, and its labels."""
        given, library = read_columns(X)
        words = tuple(frozenset(() if v.is_numeric else v.known) for v in given)
        n_rows = len(given[0].values) if given else 0
        return cls(
            tuple(replace(v, values=v.values[:most]) for v in given), library, n_rows, words
        )

    def __add__(self, other: "Look") -> "Look":
        pairs = zip(self.columns, other.columns, strict=True)
        columns = tuple(_joined(*pair) for pair in pairs)
        words = tuple(a | b for a, b in zip(self.words, other.words, strict=True))
        return Look(columns, self.library, self.n_rows + other.n_rows, words)

    def read(self) -> tuple[list[Values], str | None]:
        """As `read_columns`: the first rows and, below them, each label that these lack."""
        found = []
        for column, words in zip(self.columns, self.words, strict=True):
            whole = column.values
            if column.labels is None and words:
                lacking = _objects(sorted(words.difference(whole.tolist())))
                whole = np.concatenate([whole, lacking])
            found.append(replace(column, values=whole))
        return found, self.library


def _joined(first: Values, more: Values) -> Values:
    """First values of a column of which two parts were seen."""
    if first.is_numeric != more.is_numeric:
        if not first.known or not more.known:  # a part without any value has no type
            return first if first.known else more
        text, number = (more, first) if first.is_numeric else (first, more)
        raise ValueError(
            f"column {first.name!r} has text ({text.known[0]!r}) in one part of the rows and "
            f"numbers ({number.known[0]:g}) in another; make all of them text, or all numbers"
        )
    dtypes, labels = [first.dtype, more.dtype], first.labels
    if labels is not None and more.labels is not None:
        labels = tuple(dict.fromkeys(labels + more.labels))
    floats = [dtype for dtype in dtypes if "float" in dtype.lower()]
    values = first.values
    if len(values) < LOOKED_AT_ROWS:
        values = np.concatenate([values, more.values])[:LOOKED_AT_ROWS]
    return replace(first, dtype=(floats or dtypes)[0], values=values, labels=labels)


def as_frame(X: Any) -> Any:
    """A data frame in memory as narwhals' one; None for anything else."""
    if nw.dependencies.is_polars_lazyframe(X):
        raise ValueError("the table is lazy: give its rows, X.collect()")
    try:
        frame = nw.from_native(X, eager_only=True, pass_through=True)
    except nw.exceptions.DuplicateError:
        raise ValueError("two columns have the same name; rename one of them") from None
    return frame if isinstance(frame, nw.DataFrame) else None


def read_columns(X: Any) -> tuple[list[Values], str | None]:
    """Columns of a table, and the library of its frame; None for an array.

    Examples
    --------
    >>> columns, library = read_columns([["a", 1.0], ["b", 2.0]])
    >>> [column.values.tolist() for column in columns], library
    ([['a', 'b'], [1.0, 2.0]], None)
    """
    frame = as_frame(X)
    if frame is None:
        return _of_array(X), None
    own = frame.implementation
    library = "pandas" if own.is_pandas_like() else own.value
    named = all(isinstance(name, str) for name in frame.columns)
    names = frame.columns if named else range(len(frame.columns))
    pairs = zip(frame.iter_columns(), names, strict=True)
    return [_of_series(series, name, library) for series, name in pairs], library


def _of_array(X: Any) -> list[Values]:
    try:
        array = np.asarray(X)
        array = array if array.dtype.kind in "biuf" else np.asarray(X, dtype=object)
    except ValueError:
        raise ValueError("the rows differ in length; a table has equally many in each") from None
    if array.ndim != 2:
        raise ValueError(f"a table has the shape (n, d), got an array of shape {array.shape}")
    if array.dtype.kind != "O":
        numbers = array.astype(np.float64)
        return [Values(k, str(array.dtype), column) for k, column in enumerate(numbers.T)]
    return [Values(k, "object", tidy(k, column.tolist())) for k, column in enumerate(array.T)]


def _of_series(series: Any, name: str | int, library: str) -> Values:
    dtype = str(series.to_native().dtype) if library == "pandas" else str(series.dtype)
    kind = series.dtype
    if kind.is_numeric():
        return Values(name, dtype, np.array(series.cast(nw.Float64).to_numpy(), dtype=np.float64))
    if kind in (nw.Date, nw.Datetime):  # days since 1970, in UTC where there is a time zone
        moments = series.cast(nw.Datetime("us")) if kind == nw.Date else series
        days = np.array(moments.dt.timestamp("us").cast(nw.Float64).to_numpy()) / DAY
        return Values(name, dtype, days)
    given = [None if is_gap(value) else value for value in series.to_list()]
    if kind in (nw.Categorical, nw.Enum):
        words = "Enum" if kind == nw.Enum else "Categorical"
        return Values(name, words, _objects(given), _labels(series, given))
    if kind in (nw.String, nw.Boolean, nw.Object) or series.is_null().all():
        return Values(name, dtype, tidy(name, given))
    raise ValueError(
        f"column {name!r} has the dtype {dtype}, which is neither numbers, text, bools, dates nor "
        "categories; convert or drop it"
    )


def _labels(series: Any, given: Sequence[Any]) -> tuple[Any, ...]:
    """Categories in their order; those of polars without an order are shared between frames."""
    if series.dtype == nw.Enum:
        return tuple(series.dtype.categories)
    if series.implementation.is_polars():
        return tuple(sorted({value for value in given if value is not None}))
    return tuple(series.cat.get_categories().to_list())


def tidy(name: str | int, values: Sequence[Any]) -> NDArray[Any]:
    """Objects as numbers if they are; None for gaps otherwise.

    Examples
    --------
    >>> tidy("a", [1, None]).tolist(), tidy("a", ["x", float("nan")]).tolist()
    ([1.0, nan], ['x', None])
    """
    known = [None if is_gap(value) else value for value in values]
    types = {type(value) for value in known if value is not None}
    words, bools = {str, np.str_}, {bool, np.bool_}
    if types and (types <= words or types <= bools):
        return _objects(known)
    if types & (words | bools):
        shown = next(v for v in known if type(v) in words | bools)
        other = next(v for v in known if v is not None and type(v) is not type(shown))
        raise ValueError(
            f"column {name!r} mixes {type(shown).__name__} ({shown!r}) and "
            f"{type(other).__name__} ({other!r}); make all of them text, or all of them numbers"
        )
    try:
        return np.array([np.nan if v is None else float(v) for v in known], dtype=np.float64)
    except (TypeError, ValueError):
        others = [value for value in known if value is not None]
        odd = next((value for value in others if not isinstance(value, int | float)), others[0])
        raise ValueError(
            f"column {name!r} holds objects of the type {type(odd).__name__}, which is neither "
            "text nor a number; convert or drop it"
        ) from None


def is_gap(value: Any) -> bool:
    """Whether a value is None, NaN, NA or NaT."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float) and value != value


def _objects(values: Sequence[Any]) -> NDArray[Any]:
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def make_frame(columns: Sequence[Values], library: str | None) -> Any:
    """A table of some library from its columns, in their dtypes; the reverse of `read_columns`."""
    if library is None:
        numeric = all(column.is_numeric for column in columns)
        arrays = [column.values if numeric else column.values.astype(object) for column in columns]
        return np.stack(arrays, axis=1)
    parts = [_series(column, library).to_frame() for column in columns]
    frame = nw.concat(parts, how="horizontal").to_native()
    if library == "pandas" and not isinstance(columns[0].name, str):
        frame.columns = [column.name for column in columns]
    return frame


def with_index(frame: Any, like: Any) -> Any:
    """A frame with the index of another one of as many rows, where both are of pandas."""
    both = (nw.dependencies.is_pandas_dataframe(part) for part in (frame, like))
    return frame.set_axis(like.index, axis=0) if all(both) else frame


def _series(column: Values, library: Any) -> Any:
    """A series of a library in the column's dtype."""
    name, dtype, labels = str(column.name), column.dtype, column.labels
    values = [None if is_gap(v) else v for v in column.values.tolist()]
    if is_date(dtype):
        values = [None if v is None else round(v * DAY) for v in values]
    if library == "pandas":
        return nw.from_native(_of_pandas(name, values, dtype, labels), series_only=True)
    if labels is not None:
        own = nw.Enum(labels) if dtype == "Enum" else nw.Categorical
        return nw.new_series(name, values, nw.String, backend=library).cast(own)
    if is_date(dtype):
        found = DATETIME.fullmatch(dtype)
        of: Any = found.groups() if found else ("us", "None")
        unit, zone = of
        moments = nw.Datetime("us", None if zone == "None" else zone)
        dates = nw.new_series(name, values, nw.Int64, backend=library).cast(moments)
        return dates.cast(nw.Date if dtype == "Date" else nw.Datetime(unit, moments.time_zone))
    if any(isinstance(value, float) for value in values):  # labels, of which others are int
        values = [None if value is None else float(value) for value in values]
    series = nw.new_series(name, values, backend=library)
    kind: Any = vars(nw).get(dtype)
    known = isinstance(kind, type) and issubclass(kind, nw.dtypes.DType)
    return series.cast(kind) if known else series


def _of_pandas(name: str, values: list[Any], dtype: str, labels: tuple[Any, ...] | None) -> Any:
    """A series of pandas; of dates the values are microseconds."""
    import pandas as pd

    if labels is not None:
        own = pd.CategoricalDtype(list(labels), ordered=dtype == "Enum")
        return pd.Series(values, name=name, dtype=own)
    if not is_date(dtype):
        return pd.Series(values, name=name).astype(dtype)
    parsed = pd.to_datetime(pd.Series(values, name=name, dtype="Int64"), unit="us", utc=True)
    return (parsed if "," in dtype else parsed.dt.tz_localize(None)).astype(dtype)


def is_date(dtype: str) -> bool:
    """Whether a dtype is one of dates or moments."""
    return dtype.startswith(("Date", "datetime64", "timestamp"))

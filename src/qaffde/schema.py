"""Schema of a table: name, kind and dtype of each column, and their values as numbers.

Estimators work on numbers: categories are their places among the labels, dates are days since
1970, and gaps are NaN. A :class:`Schema` encodes tables so, and decodes draws into tables of the
same kind.
"""

from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qaffde.frames import Look, Values, is_date, is_gap, make_frame, read_columns, tidy
from qaffde.kinds import MAX_WHOLE, Atom, Category, Integer, Kind, Label, Periodic, Real, as_kind

__all__ = ["Column", "Schema"]

Array = NDArray[np.float64]

ATOM, RARE = 0.05, 20
"""Share of the rows that a value takes alone, and how many times that of others it must be."""
COARSE = 1e-3
"""Rounding of a number, as a share of the period that it is to have a place in."""


@dataclass(frozen=True)
class Column:
    """One column of a table."""

    name: str | int  # its number where it has no name
    kind: Kind  # categories with all their labels
    dtype: str = "float64"  # as its library writes it

    @cached_property
    def codes(self) -> dict[Label, int]:
        """Number of each label of a category."""
        labels = self.kind.values if isinstance(self.kind, Category) else None
        return {label: code for code, label in enumerate(labels or ())}

    def encode(self, given: Values, first: int = 0) -> Array:
        """Values of shape (n,) as numbers; NaN for gaps. Messages count rows from `first`."""
        return self._places(given, first) if isinstance(self.kind, Category) else _numbers(given)

    def encode_values(self, values: Any) -> Array:
        """One value or a list of them, as in a condition, as numbers of the same shape."""
        given = [values] if np.ndim(values) == 0 else list(values)
        numbers = self.encode(Values(self.name, self.dtype, tidy(self.name, given)))
        return numbers.reshape(np.shape(values))

    def decode(self, numbers: Array) -> Values:
        """Values in the column's dtype from numbers of shape (n,)."""
        if not isinstance(self.kind, Category):
            whole = "int" in self.dtype.lower()
            return Values(self.name, self.dtype, np.rint(numbers) if whole else numbers)
        labels, values = self.kind.values or (), np.empty(len(numbers), dtype=object)
        values[:] = [None if np.isnan(x) else labels[int(x)] for x in numbers]
        own = labels if self.dtype in ("Categorical", "Enum") else None
        return Values(self.name, self.dtype, values, own)

    def check(self, numbers: Array, first: int = 0) -> None:
        """Reject numbers of shape (n,) that the kind does not have; gaps may be."""
        kind = self.kind

        def refuse(bad: NDArray[np.bool_], why: str) -> None:
            bad = bad & ~np.isnan(numbers)
            if bad.any():
                row, more = int(bad.argmax()), int(bad.sum()) - 1
                also = f" (and {more} rows more are like it)" if more else ""
                raise ValueError(
                    f"column {self.name!r} has {numbers[row]:g} in row {first + row}{also}: {why}"
                )

        refuse(np.isinf(numbers), "drop the row, or make it a gap (NaN)")
        if isinstance(kind, Integer):
            hint = f"make it real: columns={{{self.name!r}: 'real'}}"
            refuse(numbers != np.rint(numbers), f"not a whole number; {hint}")
            refuse(np.abs(numbers) >= MAX_WHOLE, f"too large to count; {hint}")
        if isinstance(kind, Periodic):
            coarse = np.abs(numbers) * np.finfo(float).eps > COARSE * kind.period
            refuse(coarse, f"too large to have a place in a period {kind.period:g}")
        rest = kind.rest if isinstance(kind, Atom) else kind
        if isinstance(rest, Real):
            beyond = (numbers < rest.ends[0]) | (numbers > rest.ends[1])
            beyond &= numbers != kind.value if isinstance(kind, Atom) else True
            refuse(beyond, f"but it is {kind}; widen its ends, or drop the row")

    def _places(self, given: Values, first: int) -> Array:
        values = given.values.tolist()
        try:
            found = [np.nan if is_gap(v) else self.codes.get(v, -1) for v in values]
        except TypeError:
            raise ValueError(f"column {self.name!r} holds lists or dicts; drop it") from None
        places = np.array(found, dtype=np.float64)
        if (places < 0).any():
            row = int((places < 0).argmax())
            raise ValueError(
                f"column {self.name!r} has no category {values[row]!r} (row {first + row}); "
                f"it has {_few(self.codes)}. Fit with all of them: "
                f"columns={{{self.name!r}: Category([...])}}"
            )
        return places


@dataclass(frozen=True)
class Schema:
    """Columns of a table.

    Parameters
    ----------
    columns : tuple of Column
    library : str or None
        Library of the frame: pandas, polars or pyarrow; None for an array.

    Examples
    --------
    >>> import pandas as pd
    >>> table = pd.DataFrame({"city": ["Cali", "Bogotá", "Cali"], "size": [1.5, 2.0, 2.5]})
    >>> schema = Schema.infer(table)
    >>> print(schema)
    column  kind                         dtype
    city    category of 2: Bogotá, Cali  str
    size    real                         float64
    >>> schema.encode(table)
    array([[1. , 1.5],
           [0. , 2. ],
           [1. , 2.5]])
    >>> schema.decode(np.array([[0.0, 1.0]]))
         city  size
    0  Bogotá   1.0
    """

    columns: tuple[Column, ...]
    library: str | None = None

    @classmethod
    def infer(cls, X: Any, columns: Any = "auto") -> "Schema":
        """Schema of a table, from its dtypes and values.

        In frames, text, bools and categorical dtypes are categories, whole numbers with few
        different values are integers, and a value that is common among others that are not is an
        atom. Other columns, and those of arrays, are real.

        Parameters
        ----------
        X : array-like of shape (n, d), a data frame, or a Look at its parts
        columns : "auto", kind, list of d kinds, dict of {name or number: kind} or None
            Kinds of all or some columns; the others are found. None makes all columns real.
        """
        given, library = X.read() if isinstance(X, Look) else read_columns(X)
        if not given:
            raise ValueError("the table has no columns")
        if not len(given[0].values):
            raise ValueError("the table has no rows")
        asked = asked_kinds(columns, [v.name for v in given])
        found = []
        for number, values in enumerate(given):
            kind = asked.get(number)
            if kind is None:
                auto = columns is not None and library is not None
                kind = _found_kind(values) if auto else _real(values)
            elif isinstance(kind, Category) and kind.values is None:
                kind = _category(values)
            found.append(Column(values.name, kind, values.dtype))
        return cls(tuple(found), library)

    @property
    def names(self) -> list[str | int]:
        """Names of the columns."""
        return [column.name for column in self.columns]

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """Kinds of the columns."""
        return tuple(column.kind for column in self.columns)

    @property
    def ends(self) -> list[tuple[float | None, float | None]] | None:
        """Known ends of real columns, a pair for each column; None where none has any."""
        real = [kind if isinstance(kind, Real) else Real() for kind in self.kinds]
        pairs = [(kind.lower, kind.upper) for kind in real]
        return None if all(pair == (None, None) for pair in pairs) else pairs

    @property
    def is_real(self) -> bool:
        """Whether all columns are real."""
        return all(isinstance(kind, Real) for kind in self.kinds)

    @property
    def is_table(self) -> bool:
        """Whether rows are a table, and not an array of real columns."""
        return self.library is not None or not self.is_real

    @classmethod
    def of_parts(
        cls,
        columns: Any,
        names: Sequence[str | int],
        infer: Callable[[Any], "Schema"],
        *,
        framed: bool,
    ) -> "Schema | None":
        """Schema of rows that are read in parts; None of numbers of which nothing is asked.

        It is what `infer` finds where labels are open, and of `framed` parts, which have dtypes.
        """
        asked = asked_kinds(columns, names)
        if framed or any(kind == Category() for kind in asked.values()):
            return infer(columns)
        if not asked:
            return None
        return cls(tuple(Column(name, asked.get(k, Real())) for k, name in enumerate(names)))

    def encode(self, X: Any, first: int = 0) -> Array:
        """Numbers of shape (n, d) from a table; NaN for gaps. Messages count rows from `first`."""
        given, library = read_columns(X)
        if library is not None and isinstance(self.columns[0].name, str):
            have = {values.name: values for values in given}
            for name in self.names:
                if name not in have:
                    lacks = f"the table lacks the column {name!r}, which the fit had; it has "
                    raise ValueError(lacks + _few(have))
            given = [have[name] for name in self.names]
        if len(given) != len(self.columns):
            raise ValueError(
                f"the table has {len(given)} columns, and the fit had {len(self.columns)}: "
                f"{_few(self.names)}"
            )
        pairs = zip(self.columns, given, strict=True)
        return np.stack([column.encode(values, first) for column, values in pairs], axis=1)

    def check(self, rows: Array, first: int = 0) -> None:
        """Reject numbers of shape (n, d) that their columns cannot have."""
        for column, values in zip(self.columns, rows.T, strict=True):
            column.check(values, first)

    def decode(self, X: Array, like: str | None = None) -> Any:
        """Table from numbers of shape (n, d); of another library, where one is named."""
        columns = [column.decode(x) for column, x in zip(self.columns, X.T, strict=True)]
        return make_frame(columns, like or self.library)

    def select(self, columns: Sequence[int]) -> "Schema":
        """Schema of some columns."""
        return replace(self, columns=tuple(self.columns[k] for k in columns))

    def __str__(self) -> str:
        lines = [("column", "kind", "dtype")]
        for column in self.columns:
            note = ", days since 1970" if is_date(column.dtype) else ""
            lines.append((str(column.name), f"{column.kind}{note}", column.dtype))
        name, kind = (max(len(line[k]) for line in lines) for k in (0, 1))
        return "\n".join(f"{a:{name}}  {b:{kind}}  {c}" for a, b, c in lines)


def asked_kinds(columns: Any, names: Sequence[str | int]) -> dict[int, Kind]:
    """Kinds that were asked for, by numbers of columns.

    Examples
    --------
    >>> asked_kinds({"age": "integer"}, ["city", "age"])
    {1: Integer()}
    """
    if columns is None or (isinstance(columns, str) and columns == "auto"):
        return {}
    if isinstance(columns, Kind | str):
        return {k: as_kind(columns, name) for k, name in enumerate(names)}
    if isinstance(columns, list | tuple):
        if len(columns) != len(names):
            raise ValueError(f"columns has {len(columns)} kinds for {len(names)} columns")
        columns = dict(enumerate(columns))
    if not isinstance(columns, Mapping):
        raise ValueError(
            f"columns={columns!r} must be 'auto', None, a kind, a list of one kind for each "
            "column, or a dict {column: kind}, such as {'age': 'integer'}"
        )
    asked = {}
    for key, kind in columns.items():
        place = list(names).index(key) if key in names else key
        if isinstance(place, bool) or not isinstance(place, int) or not 0 <= place < len(names):
            raise ValueError(f"columns names {key!r}, but the table has {_few(names)}")
        if place in asked:
            raise ValueError(f"columns names the column {names[place]!r} twice")
        asked[place] = as_kind(kind, key)
    return asked


def _found_kind(given: Values) -> Kind:
    """Kind of a column of a frame, from its dtype and values."""
    if not given.is_numeric:
        category, n_known = _category(given), len(given.known)
        labels = category.values or ()
        if given.labels is None and 20 < len(labels) > n_known / 2:
            raise ValueError(
                f"column {given.name!r} has {len(labels)} different texts in {n_known} rows, so "
                "it names the rows; drop it, or keep it with "
                f"columns={{{given.name!r}: 'category'}}"
            )
        return category
    numbers = given.values[np.isfinite(given.values)]
    values, counts = np.unique(numbers, return_counts=True)
    _reject_empty(given, values)
    if is_date(given.dtype):
        return Real()
    few = 1 < len(values) <= min(256, len(numbers) / 2)  # each twice on average
    if few and (values == np.rint(values)).all():
        return Integer()
    if not has_atom(counts / len(numbers)):
        return Real()
    place = int(counts.argmax())
    value, last = float(values[place]), place == len(values) - 1
    return Atom(value, Real(None if place else value, value if last else None))


def has_atom(share: Array) -> bool:
    """Whether one value has a large share of the rows while most others have a small one."""
    return bool(share.max() > ATOM and share.max() > RARE * np.median(share))


def _real(given: Values) -> Real:
    """A real column, if it holds numbers."""
    _numbers(given)
    _reject_empty(given, given.known)
    return Real()


def _category(given: Values) -> Category:
    """Category with all labels of a column: those of its dtype, or those seen, sorted."""
    labels = given.labels
    if labels is None:
        seen = set(given.known)
        labels = (False, True) if seen and seen <= {False, True} else tuple(sorted(seen))
    _reject_empty(given, labels)
    try:
        return Category(labels)
    except ValueError as error:
        raise ValueError(f"column {given.name!r}: {error}") from None


def _numbers(given: Values) -> Array:
    """Numbers of a column that must hold them; bools are 0 and 1."""
    if given.is_numeric or not any(isinstance(value, str) for value in given.known):
        return given.values.astype(np.float64)
    raise ValueError(
        f"column {given.name!r} holds text ({given.known[0]!r}) where numbers are wanted; convert "
        f"it, or make it a category: columns={{{given.name!r}: 'category'}}"
    )


def _reject_empty(given: Values, values: Sized) -> None:
    if not len(values):
        raise ValueError(f"column {given.name!r} has no value at all; drop it")


def _few(names: Any) -> str:
    listed = list(names)
    return ", ".join(map(repr, listed[:8])) + (", …" if len(listed) > 8 else "")

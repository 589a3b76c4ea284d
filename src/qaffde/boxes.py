"""Columns by number or name, and boxes of values, as arguments of the calculus."""

from collections.abc import Collection, Iterable, Mapping
from itertools import product
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from qaffde.kinds import Atom, Category, Integer, Periodic, Real
from qaffde.schema import Column as TableColumn
from qaffde.schema import Schema

Array = NDArray[np.float64]
Column = int | str
Interval = tuple[float, float]


def resolve_columns(columns: Iterable[Column], n: int, names: Array | None) -> list[int]:
    """Column numbers of numbers or names, in the order given.

    Examples
    --------
    >>> resolve_columns(["b", 0], 2, np.array(["a", "b"]))
    [1, 0]
    """
    if isinstance(columns, str | Integral):
        columns = [columns]
    found = [_resolve(column, n, names) for column in columns]
    if not found:
        raise ValueError("no column was given; name at least one")
    if len(set(found)) < len(found):
        raise ValueError(f"columns {list(columns)} name a column twice")
    return found


def _resolve(column: Column, n: int, names: Array | None) -> int:
    if isinstance(column, str):
        known = [] if names is None else [str(name) for name in names]
        if column in known:
            return known.index(column)
        have = f"the columns are {', '.join(known)}" if known else "the columns have no names"
        raise ValueError(f"column {column!r} is not known; {have}")
    if isinstance(column, bool | np.bool_) or not isinstance(column, Integral):
        raise ValueError(f"column {column!r} must be a number or a name")
    if not 0 <= column < n:
        raise ValueError(f"column {column} is not known; there are {n} columns, 0 to {n - 1}")
    return int(column)


def resolve_condition(
    values: Mapping[Column, ArrayLike], n: int, names: Array | None, schema: Schema | None = None
) -> tuple[list[int], Array, bool]:
    """Columns, their values of shape (m, t), and whether the caller asked for many conditions."""
    if not isinstance(values, Mapping):
        raise ValueError(f"a condition is a dict {{column: value}}, got {type(values).__name__}")
    columns = resolve_columns(values, n, names)
    if len(columns) == n:
        raise ValueError("every column is in the condition: no column is left to have a density")
    if any(np.ma.is_masked(value) for value in values.values()):
        raise ValueError("the condition has masked values; leave out what is not known")
    parts = [
        np.asarray(value, dtype=np.float64)
        if schema is None
        else schema.columns[k].encode_values(value)
        for k, value in zip(columns, values.values(), strict=True)
    ]
    try:
        given = np.stack(np.broadcast_arrays(*parts), axis=-1)
    except ValueError:
        raise ValueError(
            f"values have shapes {[p.shape for p in parts]}; give one value, or equally many, for "
            "each column"
        ) from None
    if given.ndim > 2:
        raise ValueError("values must be numbers or one-dimensional arrays")
    if not np.isfinite(given).all():
        raise ValueError("values of a condition must be finite; leave out what is not known")
    return columns, np.atleast_2d(given), given.ndim == 2


def resolve_region(
    region: Mapping[Column, Any], n: int, names: Array | None, schema: Schema | None
) -> tuple[Array, Array, dict[int, NDArray[np.bool_]]]:
    """Ends (m, d) of disjoint boxes, and masks (C,) of the categories of some columns.

    Examples
    --------
    >>> resolve_region({"b": (0, None)}, 2, np.array(["a", "b"]), None)
    (array([[-inf,   0.]]), array([[inf, inf]]), {})
    """
    intervals: list[list[Interval]] = [[(-np.inf, np.inf)] for _ in range(n)]
    sets = {}
    for number, wanted in zip(resolve_columns(region, n, names), region.values(), strict=True):
        name = number if names is None else str(names[number])
        column = TableColumn(name, Real()) if schema is None else schema.columns[number]
        if isinstance(column.kind, Category):
            sets[number] = _mask(column, wanted)
        else:
            intervals[number] = _intervals(column, wanted)
    boxes = np.array(list(product(*intervals)), dtype=np.float64)
    return boxes[:, :, 0], boxes[:, :, 1], sets


def _mask(column: TableColumn, wanted: Any) -> NDArray[np.bool_]:
    """Which categories are wanted."""
    several = isinstance(wanted, Collection) and not isinstance(wanted, str)
    codes = column.encode_values(list(wanted) if several else [wanted])
    if np.isnan(codes).any():
        raise ValueError(f"column {column.name!r}: None and NaN are no categories; leave them out")
    mask = np.zeros(len(column.codes), dtype=bool)
    mask[codes.astype(int)] = True
    return mask


def _intervals(column: TableColumn, wanted: Any) -> list[Interval]:
    """Disjoint closed intervals of numbers: those of a pair, or single numbers."""
    name, kind = column.name, column.kind
    listed = isinstance(wanted, list | set | np.ndarray)
    two = listed and len(wanted) == 2 and not isinstance(kind, Integer)
    if isinstance(wanted, tuple) or two:
        return _pair(column, tuple(wanted))
    if isinstance(kind, Real | Periodic):
        raise ValueError(
            f"column {name!r} is {kind}: give it a pair (lower, upper), with None for an open end"
        )
    values = np.unique(column.encode_values(list(wanted) if listed else [wanted]))
    if isinstance(kind, Atom) and (values != kind.value).any():
        raise ValueError(
            f"column {name!r} is {kind}: only {kind.value:g} has a probability of its own; give a "
            "pair (lower, upper) for the others"
        )
    return [(value, value) for value in values.tolist()]


def _pair(column: TableColumn, ends: tuple[Any, ...]) -> list[Interval]:
    """The interval between two ends, or two of them where it goes over the cut of a circle."""
    if len(ends) != 2:
        raise ValueError(f"column {column.name!r} has {len(ends)} ends; give (lower, upper)")
    low = -np.inf if ends[0] is None else float(column.encode_values(ends[0]))
    high = np.inf if ends[1] is None else float(column.encode_values(ends[1]))
    if np.isnan(low) or np.isnan(high):
        raise ValueError(f"column {column.name!r} has NaN as an end; use None for an open end")
    if low <= high:
        return [(low, high)]
    if isinstance(column.kind, Periodic):
        return [(low, np.inf), (-np.inf, high)]
    raise ValueError(
        f"column {column.name!r}: lower must not exceed upper, got {low:g} > {high:g}"
    )


def check_box(lower: Any, upper: Any, n: int) -> tuple[Array, Array]:
    """Ends of a box as arrays of shape (n,)."""
    if lower is None or upper is None:
        raise ValueError("give lower and upper, or one dict {column: (lower, upper), ...}")
    try:
        given = (np.asarray(end, dtype=np.float64) for end in (lower, upper))
        low, high = (np.broadcast_to(end, (n,)).copy() for end in given)
    except (TypeError, ValueError):
        raise ValueError(
            f"lower and upper must be numbers, or arrays of one number for each of {n} columns"
        ) from None
    if np.isnan(low).any() or np.isnan(high).any():
        raise ValueError("lower and upper must not be NaN; use -inf and inf for open ends")
    if (low > high).any():
        column = int(np.argmax(low > high))
        raise ValueError(
            f"lower must not exceed upper, but column {column} has {low[column]} > {high[column]}"
        )
    return low, high

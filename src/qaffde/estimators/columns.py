"""Columns by number or name, and boxes of values, as arguments of the calculus."""

from collections.abc import Iterable, Mapping
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Column = int | str
Array = NDArray[np.float64]


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
    values: Mapping[Column, ArrayLike], n: int, names: Array | None
) -> tuple[list[int], Array, bool]:
    """Columns, their values of shape (m, t), and whether the caller asked for many conditions."""
    if not isinstance(values, Mapping):
        raise ValueError(f"a condition is a dict {{column: value}}, got {type(values).__name__}")
    columns = resolve_columns(values, n, names)
    if len(columns) == n:
        raise ValueError("every column is in the condition: no column is left to have a density")
    if any(np.ma.is_masked(value) for value in values.values()):
        raise ValueError("the condition has masked values; leave out what is not known")
    parts = [np.asarray(value, dtype=np.float64) for value in values.values()]
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


def check_box(lower: Any, upper: Any, n: int) -> tuple[Array, Array]:
    """Ends of a box as arrays of shape (n,)."""
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

"""Blocks of rows: all of one size, whatever the chunks they came in, and checked."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

BATCH_ROWS = 1024
"""Rows in a batch of features; blocks are whole numbers of them."""
BLOCK_ROWS, BLOCK_NUMBERS = 1 << 16, 1 << 22


@dataclass(frozen=True, eq=False)
class Block:
    """Some rows that weigh.

    Parameters
    ----------
    rows : ndarray of shape (n, d)
    weight : ndarray of shape (n,)
    number : sequence of int
        Which rows of the source these are, from 0.
    """

    rows: Array
    weight: Array
    number: Sequence[int]


def block_size(d: int) -> int:
    """Rows in a block of d columns: a few dozen megabytes at most.

    Examples
    --------
    >>> block_size(2), block_size(1000)
    (65536, 4096)
    """
    most = min(BLOCK_ROWS, BLOCK_NUMBERS // max(d, 1))
    return max(BATCH_ROWS, most // BATCH_ROWS * BATCH_ROWS)


def reblocked(parts: Iterable[tuple[Array, Array]], size: int) -> Iterator[tuple[Array, Array]]:
    """The same rows and weights in blocks of `size` rows, the last one smaller.

    Examples
    --------
    >>> parts = ((np.ones((n, 1)), np.ones(n)) for n in (3, 1, 6))
    >>> [len(rows) for rows, _ in reblocked(parts, 4)]
    [4, 4, 2]
    """
    held: list[tuple[Array, Array]] = []
    n = 0
    for part in parts:
        held.append(part)
        n += len(part[0])
        if n >= size:
            rows, weight = _joined(held)
            whole = n - n % size
            for start in range(0, whole, size):
                yield rows[start : start + size], weight[start : start + size]
            held, n = [(rows[whole:].copy(), weight[whole:].copy())], n - whole
    if n:
        yield _joined(held)


def _joined(held: list[tuple[Array, Array]]) -> tuple[Array, Array]:
    if len(held) == 1:
        return held[0]
    return np.concatenate([rows for rows, _ in held]), np.concatenate([w for _, w in held])


def checked(
    rows: Array, weight: Array, first: int, names: Sequence[str] | None, where: str = ""
) -> Block:
    """Block of rows that are numbers, without those that do not weigh.

    Parameters
    ----------
    rows, weight : ndarrays of shapes (n, d), (n,)
    first : int
        Number of the first row.
    names : sequence of str, optional
        Of the columns, for messages.
    where : str
        What messages begin with.

    Raises
    ------
    ValueError
        That names the first row which is not finite, or whose weight is no weight.
    """
    if not np.isfinite(rows).all():
        row, column = np.argwhere(~np.isfinite(rows))[0]
        name = str(column) if names is None else repr(names[column])
        value = "NaN" if np.isnan(rows[row, column]) else "infinity"
        raise ValueError(
            f"{where}row {first + row} has {value} in column {name}; drop the row or fill it in"
        )
    if not (np.isfinite(weight) & (weight >= 0)).all():
        row = int(np.argmin(np.isfinite(weight) & (weight >= 0)))
        raise ValueError(
            f"{where}row {first + row} has the weight {weight[row]:g}; weights are finite and not "
            "negative"
        )
    if weight.all():
        return Block(rows, weight, range(first, first + len(rows)))
    kept = np.flatnonzero(weight)
    return Block(rows[kept], weight[kept], (first + kept).tolist())

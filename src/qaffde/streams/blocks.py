"""Blocks of rows: all of one size, whatever the chunks they came in, and checked."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qaffde.frames import LOOKED_AT_ROWS, Look
from qaffde.schema import Schema

Array = NDArray[np.float64]
Part = tuple[Array, Array]
"""Rows of shape (n, d) and their weights of shape (n,)."""
Progress = Callable[[str, int, int | None], None]
"""Told what is being done, rows done and rows in all, or None where only reading tells."""

BATCH_ROWS = 1024
"""Rows in a batch of features; blocks are whole numbers of them."""
BLOCK_ROWS, BLOCK_NUMBERS = 1 << 16, 1 << 22


@dataclass(frozen=True, eq=False)
class Block:
    """Rows (n, d) that weigh, their numbers from 0 and, of a file, how they stand there."""

    rows: Array
    weight: Array
    number: Sequence[int]
    table: Any = None


class Chunks(ABC):
    """Rows of any length, a block at a time; made by :func:`chunks`."""

    n_columns: int
    n_rows: int | None = None  # where it is known before reading
    names: list[str] | None = None  # of the columns, where the source has any
    again = True  # whether the rows can be read more than once
    progress: Progress | None = None  # told of every block
    framed = False  # whether parts have dtypes that tell kinds of columns
    schema: Schema | None = None  # by which tables become numbers
    has_gaps = False  # whether NaN stands for values that are missing
    n_seen: int | None = None  # rows of the first pass of a fit, which all others must have

    @abstractmethod
    def read(self) -> Iterator[Part]:
        """Rows and weights from the first row on, in parts of any size."""

    @abstractmethod
    def inferred(self, columns: Any) -> Schema:
        """Schema of the rows, which stay unread, with kinds that are asked for."""

    def infer(self, columns: Any) -> Schema | None:
        """Schema for kinds that are asked for; None of numbers of which nothing is asked."""
        names: Sequence[str | int] = self.names or range(self.n_columns)
        return Schema.of_parts(columns, names, self.inferred, framed=self.framed)

    def settle(self, schema: Schema | None, *, gaps: bool) -> None:
        """Read rows by a schema from now on; NaN may be `gaps`."""
        self.schema, self.has_gaps = schema, gaps

    def blocks(self, what: str = "reading") -> Iterator[Block]:
        """Rows in blocks of one size, so that the chunks they came in change no result.

        An error names the first row with a value that is not finite, or says that a later pass
        had other rows than the first; `what` is what progress calls the reading.
        """
        first = 0
        for rows, weight in reblocked(self.read(), block_size(self.n_columns)):
            if self.schema is not None and not self.schema.is_real:
                self.schema.check(rows, first)
            yield checked(rows, weight, first, self.names, gaps=self.has_gaps)
            first += len(rows)
            if self.progress is not None:
                self.progress(what, first, self.n_rows)
        if self.n_seen not in (None, first):
            raise ValueError(
                f"the source had {self.n_seen:,} rows when it was first read, and {first:,} now; "
                "it must not change during a fit"
            )
        self.n_seen = first

    def collect(self, max_bytes: float = math.inf) -> Part | None:
        """Rows of positive weight and their weights; None where they take more memory."""
        held, n_bytes = [(np.empty((0, self.n_columns)), np.empty(0))], 0
        for block in self.blocks():
            n_bytes += block.rows.nbytes + block.weight.nbytes
            if n_bytes > max_bytes:
                return None
            held.append((block.rows, block.weight))
        return _joined(held)

    def __repr__(self) -> str:
        rows = "rows" if self.n_rows is None else f"{self.n_rows:,} rows"
        times = "" if self.again else ", to be read once"
        return f"<Chunks of {rows} by {self.n_columns} columns{times}>"


def schema_of_parts(tables: Generator[Any], columns: Any, *, again: bool) -> Schema:
    """Schema by the first rows and, if they can be read `again`, the labels of all."""
    with closing(tables):
        looks = map(Look.at, tables)
        look = next(looks, None)
        if look is None:
            raise ValueError("the table has no rows")
        while look.n_rows < LOOKED_AT_ROWS and (more := next(looks, None)) is not None:
            look += more
        schema = Schema.infer(look, columns)  # refuses text that names each row
        if again and any(look.words):
            schema = Schema.infer(reduce(add, looks, look), columns)
        return schema


def block_size(d: int) -> int:
    """Rows in a block of d columns: a few dozen megabytes at most.

    Examples
    --------
    >>> block_size(2), block_size(1000)
    (65536, 4096)
    """
    most = min(BLOCK_ROWS, BLOCK_NUMBERS // max(d, 1))
    return max(BATCH_ROWS, most // BATCH_ROWS * BATCH_ROWS)


def reblocked(parts: Iterable[Part], size: int) -> Iterator[Part]:
    """The same rows and weights in blocks of `size` rows, the last one smaller.

    Examples
    --------
    >>> parts = ((np.ones((n, 1)), np.ones(n)) for n in (3, 1, 6))
    >>> [len(rows) for rows, _ in reblocked(parts, 4)]
    [4, 4, 2]
    """
    held: list[Part] = []
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


def _joined(held: list[Part]) -> Part:
    if len(held) == 1:
        return held[0]
    return np.concatenate([rows for rows, _ in held]), np.concatenate([w for _, w in held])


def as_part(rows: Any, weight: Any, what: str) -> Part:
    """Rows and weights, one each by default, as arrays of float64; errors say of `what`."""
    numbers = _numbers(rows, 2, what)
    if weight is None:
        return numbers, np.ones(len(numbers))
    weights = _numbers(weight, 1, f"the weights of {what}")
    if len(weights) != len(numbers):
        raise ValueError(f"{what} has {len(numbers)} rows and {len(weights)} weights")
    return numbers, weights


def _numbers(values: Any, n_dims: int, what: str) -> Array:
    """Array of float64 with so many dimensions."""
    try:
        numbers = np.array(values, dtype=np.float64, order="C")
    except (TypeError, ValueError) as error:
        raise ValueError(f"{what} does not hold numbers alone: {error}") from None
    if numbers.ndim != n_dims:
        shape = {1: "(n,)", 2: "(n, d)"}[n_dims]
        raise ValueError(f"{what} must have the shape {shape}, got {numbers.shape}")
    return numbers


def checked(
    rows: Array,
    weight: Array,
    first: int,
    names: Sequence[str] | None,
    where: str = "",
    *,
    gaps: bool = False,
) -> Block:
    """Block of rows without those whose weight is zero, or that have no value.

    Rows that are not finite are rejected, but for NaN if they may have `gaps`, and so are weights
    that are not finite or are negative. Messages begin with `where` and name the first such row,
    counted from `first`.
    """
    missing = np.isnan(rows)
    good = np.isfinite(rows) | (missing & gaps)
    if not good.all():
        row, column = np.argwhere(~good)[0]
        name = str(column) if names is None else repr(names[column])
        value = "NaN" if np.isnan(rows[row, column]) else "infinity"
        raise ValueError(
            f"{where}row {first + row} has {value} in column {name}; drop the row or fill it in"
        )
    fine = np.isfinite(weight) & (weight >= 0)
    if not fine.all():
        row = int(np.argmin(fine))
        raise ValueError(
            f"{where}row {first + row} has the weight {weight[row]:g}; weights are finite and not "
            "negative"
        )
    weighs = (weight > 0) & ~missing.all(1)
    if weighs.all():
        return Block(rows, weight, range(first, first + len(rows)))
    kept = np.flatnonzero(weighs)
    return Block(rows[kept], weight[kept], (first + kept).tolist())

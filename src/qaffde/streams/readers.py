"""Where chunks come from: arrays and iterables here, columns of files in `selection`."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from qaffde.streams.arrays import release_pages
from qaffde.streams.blocks import Array, Chunks, Part, block_size
from qaffde.streams.names import names_of


class ArrayChunks(Chunks):
    """An array in memory or on the disk, of which only blocks are copied.

    Pages of a memory-mapped file that were read are given back, so that a process does not seem
    to hold the whole file.
    """

    def __init__(self, X: NDArray[Any], weight: ArrayLike | None) -> None:
        if X.ndim != 2 or X.dtype.kind not in "fiub":
            raise ValueError(
                f"rows must be an array of numbers of shape (n, d), got {X.dtype} of shape "
                f"{X.shape}"
            )
        self.X = X
        self.n_rows, self.n_columns = X.shape
        self.weight = np.broadcast_to(np.asarray(1.0 if weight is None else weight), (len(X),))

    def read(self) -> Iterator[Part]:
        """Blocks of rows."""
        size = block_size(self.n_columns)
        for start in range(0, len(self.X), size):
            part = slice(start, start + size)
            yield (
                np.array(self.X[part], dtype=np.float64, order="C"),
                np.array(self.weight[part], dtype=np.float64),
            )
            for array in (self.X, self.weight):
                release_pages(array)


class IterableChunks(Chunks):
    """Chunks from an iterator, which can be read once, or from what makes iterators.

    Parameters
    ----------
    make : callable
        Returns an iterator of chunks: arrays, data frames or pairs (rows, weights).
    again : bool
        Whether it may be called more than once.
    columns : sequence of str, optional
        Columns of data frames.
    weights : str, optional
        Their column of weights.
    """

    def __init__(
        self,
        make: Callable[[], Iterable[Any]],
        columns: Sequence[str] | None,
        weights: str | None,
        *,
        again: bool,
    ) -> None:
        self.make, self.again = make, again
        self.columns, self.weights = columns, weights
        source = iter(make())
        head = next(source, None)
        if head is None:
            raise ValueError("the source has no chunks; an iterator can be read once only")
        rows, _, self.names = self._part(head, 0)
        self.n_columns = rows.shape[1]
        self.source: Iterator[Any] | None = None if again else chain([head], source)

    def read(self) -> Iterator[Part]:
        """Chunks as they come; those of an iterator are gone afterwards."""
        source = self.make() if self.source is None else self.source
        if not self.again:
            self.source = iter(())
        for number, chunk in enumerate(source):
            rows, weight, names = self._part(chunk, number)
            if rows.shape[1] != self.n_columns or names != self.names:
                raise ValueError(
                    f"chunk {number} has the columns {names or rows.shape[1]}, but the first one "
                    f"has {self.names or self.n_columns}; give all chunks the same"
                )
            if len(rows):
                yield rows, weight

    def _part(self, chunk: Any, number: int) -> tuple[Array, Array, list[str] | None]:
        weight = None
        if isinstance(chunk, tuple):
            if len(chunk) != 2:
                raise ValueError(
                    f"chunk {number} is a tuple of {len(chunk)}; a pair is (rows, weights)"
                )
            chunk, weight = chunk
        if type(chunk).__module__.startswith("pyarrow."):
            chunk = chunk.to_pandas()
        if self.weights is not None or self.columns is not None:
            chunk, weight = self._picked(chunk, weight, number)
        names = names_of(chunk)
        rows = _numbers(chunk, 2, f"chunk {number}")
        if weight is None:
            return rows, np.ones(len(rows)), names
        weight = _numbers(weight, 1, f"the weights of chunk {number}")
        if len(weight) != len(rows):
            raise ValueError(f"chunk {number} has {len(rows)} rows and {len(weight)} weights")
        return rows, weight, names

    def _picked(self, chunk: Any, weight: Any, number: int) -> tuple[Any, Any]:
        """Columns of a data frame."""
        found = names_of(chunk)
        if found is None:
            raise ValueError(f"chunk {number} is not a data frame, so it has no columns by name")
        columns = self.columns or [name for name in found if name != self.weights]
        wanted = [*columns, *([] if self.weights is None else [self.weights])]
        missing = [name for name in wanted if name not in found]
        if missing:
            raise ValueError(f"chunk {number} has no column {', '.join(missing)}")
        return chunk[list(columns)], weight if self.weights is None else chunk[self.weights]


def _numbers(values: Any, n_dims: int, what: str) -> Array:
    """Array of float64 with so many dimensions."""
    try:
        numbers = np.array(values, dtype=np.float64, order="C")
    except (TypeError, ValueError) as error:
        raise ValueError(f"{what} does not hold numbers alone: {error}") from None
    if numbers.ndim != n_dims:
        shape = "(n, d)" if n_dims == 2 else "(n,)"
        raise ValueError(f"{what} must have the shape {shape}, got {numbers.shape}")
    return numbers

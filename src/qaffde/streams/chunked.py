"""One face for every source of rows that is read a block at a time."""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from qaffde.streams.blocks import Block, block_size, checked, reblocked
from qaffde.streams.readers import ArrayReader, DatasetReader, IterableReader, Reader
from qaffde.training.progress import line_printer

LARGE = 1 << 24
"""Numbers in an array, 128 MB, beyond which it is read in blocks."""
EVERY_SECONDS = 5.0
Progress = Callable[[str, int, int | None], None]


class Chunks:
    """Rows of any length, a block at a time; made by :func:`chunks`.

    Parameters
    ----------
    reader : Reader
    progress : callable, optional
        Told what is being done, rows done and rows in all (None where only reading tells).
    """

    def __init__(self, reader: Reader, progress: Progress | None = None) -> None:
        self.reader, self.progress = reader, progress

    @property
    def names(self) -> list[str] | None:
        """Names of the columns, where the source has any."""
        return self.reader.names

    @property
    def n_columns(self) -> int:
        """Number of columns."""
        return self.reader.n_columns

    @property
    def n_rows(self) -> int | None:
        """Number of rows; None where only reading tells."""
        return self.reader.n_rows

    @property
    def again(self) -> bool:
        """Whether the rows can be read more than once."""
        return self.reader.again

    def blocks(self, what: str = "reading") -> Iterator[Block]:
        """Rows in blocks of one size, so that the chunks they came in change no result.

        Parameters
        ----------
        what : str
            What progress calls it.

        Raises
        ------
        ValueError
            That names the first row with a value that is not finite.
        """
        first = 0
        for rows, weight in reblocked(self.reader.read(), block_size(self.n_columns)):
            yield checked(rows, weight, first, self.names)
            first += len(rows)
            if self.progress is not None:
                self.progress(what, first, self.n_rows)

    def __repr__(self) -> str:
        rows = "rows" if self.n_rows is None else f"{self.n_rows:,} rows"
        times = "" if self.again else ", to be read once"
        return f"<Chunks of {rows} by {self.n_columns} columns{times}>"


def chunks(
    source: Any,
    *,
    columns: Sequence[str] | None = None,
    weights: Any = None,
    progress: bool | Progress = False,
) -> Chunks:
    """Rows for ``fit`` and ``partial_fit`` that need not fit into memory.

    Parameters
    ----------
    source : one of

        - an array, also one that is memory-mapped;
        - the path of a Parquet file or of a folder of them, or a ``pyarrow.dataset.Dataset``;
        - an iterable of chunks, each an array, a data frame or a pair (rows, weights). A list is
          read as often as needed, an iterator or generator once;
        - a function without arguments that returns such an iterable, called for every pass.
    columns : sequence of str, optional
        Columns of a data set or of data frames; all but the weights by default.
    weights : str or array-like of shape (n,), optional
        Column of weights or, for an array, the weights.
    progress : bool or callable, default=False
        True prints a line every five seconds; a function is called after each block with what is
        being done, the rows done and the rows in all, or None where only reading tells.

    Examples
    --------
    >>> import numpy as np
    >>> from qaffde import QAFFDE
    >>> rng = np.random.default_rng(0)
    >>> rows = chunks([rng.normal(size=(500, 2)) for _ in range(4)])
    >>> rows
    <Chunks of rows by 2 columns>
    >>> model = QAFFDE(random_state=0).fit(rows)
    >>> model.weight_sum_
    2000.0
    """
    report = print_progress() if progress is True else progress or None
    return Chunks(_reader(source, columns, weights), report)


def _reader(source: Any, columns: Sequence[str] | None, weights: Any) -> Reader:
    if isinstance(source, Chunks):
        if columns is not None or weights is not None:
            raise ValueError(
                "chunks have their columns and weights already: name them when making those"
            )
        return source.reader
    if isinstance(source, np.ndarray):
        if columns is not None or isinstance(weights, str):
            raise ValueError("an array has no column names; give weights as an array")
        return ArrayReader(source, weights)
    if weights is not None and not isinstance(weights, str):
        raise ValueError(
            "weights as an array belong to an array of rows; name a column, or give chunks as "
            "pairs (rows, weights)"
        )
    if isinstance(source, str | os.PathLike) or _is_dataset(source):
        return DatasetReader(source, columns, weights)
    if callable(source):
        return IterableReader(source, columns, weights, again=True)
    if not isinstance(source, Iterable):
        raise TypeError(
            "rows come from an array, a path of Parquet files, a data set, an iterable of chunks "
            f"or a function that returns one; got {type(source).__name__}"
        )
    once = isinstance(source, Iterator)
    return IterableReader(lambda: source, columns, weights, again=not once)


def as_chunks(X: Any, sample_weight: ArrayLike | None) -> Chunks | None:
    """Chunks of what is read in blocks; None for what is checked and kept in memory.

    Parameters
    ----------
    X : anything that ``fit`` takes
    sample_weight : array-like of shape (n,), optional
        Only arrays have weights beside them.
    """
    if isinstance(X, np.ndarray):
        large = X.ndim == 2 and X.dtype.kind in "fiu" and X.size > LARGE
        return chunks(X, weights=sample_weight) if large else None
    if not isinstance(X, Chunks | str | os.PathLike | Iterator) and not _is_dataset(X):
        return None
    if sample_weight is not None:
        raise ValueError(
            "sample_weight belongs to arrays; the weights of a stream come with its rows: "
            "chunks(source, weights=column), or chunks as pairs (rows, weights)"
        )
    return X if isinstance(X, Chunks) else chunks(X)


def _is_dataset(source: Any) -> bool:
    """Whether something is a data set of pyarrow, without importing that."""
    modules = {kind.__module__ for kind in type(source).__mro__}
    return "pyarrow._dataset" in modules


def print_progress() -> Progress:
    """Progress that prints a line every few seconds."""
    show, last = line_printer(), [time.monotonic()]

    def report(what: str, done: int, total: int | None) -> None:
        if time.monotonic() - last[0] >= EVERY_SECONDS:
            last[0] = time.monotonic()
            show(f"{what}: {done:,}{'' if total is None else f' of {total:,}'} rows")

    return report

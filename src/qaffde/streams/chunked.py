"""One face for every source of rows that is read a block at a time."""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from qaffde.streams.arrow import DatasetTable, is_dataset
from qaffde.streams.blocks import Chunks, Progress
from qaffde.streams.files import open_table
from qaffde.streams.readers import ArrayChunks, IterableChunks
from qaffde.streams.selection import Missing, TableChunks, pick_columns

LARGE = 1 << 24
"""Numbers in an array, 128 MB, beyond which it is read in blocks."""
EVERY_SECONDS = 5.0


def chunks(
    source: Any,
    *,
    columns: Sequence[str] | None = None,
    weights: Any = None,
    missing: Missing = "error",
    progress: bool | Progress = False,
) -> Chunks:
    """Rows for ``fit`` and ``partial_fit`` that need not fit into memory.

    Parameters
    ----------
    source : one of

        - an array, also one that is memory-mapped;
        - the path of a file (CSV, TSV, Parquet, Arrow, Feather, NPY, NPZ) or of a folder of
          Parquet files, or a ``pyarrow.dataset.Dataset``;
        - an iterable of chunks, each an array, a data frame or a pair (rows, weights). A list is
          read as often as needed, an iterator or generator once;
        - a function without arguments that returns such an iterable, called for every pass.
    columns : sequence of str, optional
        Columns of a file or of data frames; all but the weights by default. Those of a file also
        by number or range: ``["0-3"]``.
    weights : str or array-like of shape (n,), optional
        Column of weights or, for an array, the weights.
    missing : {"error", "drop", "impute"} or callable, default="error"
        What becomes of rows of a file that lack a value: an error, they are left out, or the mean
        of the column is filled in; a callable returns rows that have NaN filled in.
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
    >>> model.sums_.weight
    2000.0
    """
    rows = _opened(source, columns, weights, missing)
    rows.progress = print_progress() if progress is True else progress or None
    return rows


def _opened(source: Any, columns: Sequence[str] | None, weights: Any, missing: Missing) -> Chunks:
    is_file = isinstance(source, str | os.PathLike) or is_dataset(source)
    if missing != "error" and not is_file:
        raise ValueError("missing applies to files; drop rows of arrays and chunks, or fill them")
    if isinstance(source, Chunks):
        if columns is not None or weights is not None:
            raise ValueError(
                "chunks have their columns and weights already: name them when making those"
            )
        return copy(source)
    if isinstance(source, np.ndarray):
        if columns is not None or isinstance(weights, str):
            raise ValueError("an array has no column names; give weights as an array")
        return ArrayChunks(source, weights)
    if weights is not None and not isinstance(weights, str):
        raise ValueError(
            "weights as an array belong to an array of rows; name a column, or give chunks as "
            "pairs (rows, weights)"
        )
    if is_file:
        known = is_dataset(source)
        table = DatasetTable(source, "the data set") if known else open_table(source)
        return TableChunks(table, *pick_columns(table, columns, weights), missing=missing)
    if callable(source):
        return IterableChunks(source, columns, weights, again=True)
    if not isinstance(source, Iterable):
        raise TypeError(
            "rows come from an array, the path of a file, a data set, an iterable of chunks "
            f"or a function that returns one; got {type(source).__name__}"
        )
    once = isinstance(source, Iterator)
    return IterableChunks(lambda: source, columns, weights, again=not once)


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
    if not isinstance(X, Chunks | str | os.PathLike | Iterator) and not is_dataset(X):
        return None
    if sample_weight is not None:
        raise ValueError(
            "sample_weight belongs to arrays; the weights of a stream come with its rows: "
            "chunks(source, weights=column), or chunks as pairs (rows, weights)"
        )
    return X if isinstance(X, Chunks) else chunks(X)


def print_progress(show: Callable[[str], None] = print, unit: str = "rows") -> Progress:
    """Progress that shows a line every few seconds."""
    last = time.monotonic()

    def report(what: str, done: int, total: int | None) -> None:
        nonlocal last
        if time.monotonic() - last >= EVERY_SECONDS:
            last = time.monotonic()
            show(f"{what}: {done:,}{'' if total is None else f' of {total:,}'} {unit}")

    return report

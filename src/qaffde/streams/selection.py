"""Rows of numbers from the columns of a file, with missing values dropped or filled in."""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from qaffde.streams.arrow import import_pyarrow, matrix
from qaffde.streams.blocks import Array, Chunks, Part, Progress, check
from qaffde.streams.names import find_columns
from qaffde.streams.table import DataError, Table

Missing = Literal["error", "drop", "impute"] | Callable[[Array], Array]


class Batch(NamedTuple):
    """Some rows of a file.

    Parameters
    ----------
    rows : ndarray of shape (n, d)
    weight : ndarray of shape (n,)
    number : ndarray of int of shape (n,)
        Which rows of the file these are, from 0.
    table : pyarrow.RecordBatch
        The same rows as they stand in the file, with all columns that were asked for.
    """

    rows: Array
    weight: Array
    number: NDArray[np.intp]
    table: Any


class TableChunks(Chunks):
    """Numeric columns of a file.

    Parameters
    ----------
    table : Table
    columns : sequence of int
    weights : int, optional
        Column of weights.
    missing : {"error", "drop", "impute"} or callable, default="error"
        What becomes of rows that lack a value: an error names the first, they are left out, or
        values are filled in. The latter with the means of columns or, by a callable, with what it
        returns for rows that have NaN. Rows without a weight are left out.
    progress : callable, optional

    Attributes
    ----------
    n_read, n_kept, n_missing : int
        Rows read and kept, and values that were missing, in the last pass over the file.
    """

    def __init__(
        self,
        table: Table,
        columns: Sequence[int],
        weights: int | None = None,
        *,
        missing: Missing = "error",
        progress: Progress | None = None,
    ) -> None:
        if missing not in ("error", "drop", "impute") and not callable(missing):
            raise ValueError(f"missing={missing!r} is not known; choose error, drop or impute")
        self.table, self.columns, self.missing = table, list(columns), missing
        self.progress = progress
        self.weights = [] if weights is None else [weights]
        self.column_names = [table.names[j] for j in columns]
        self.names = self.column_names if table.named else None
        self.n_columns, self.n_rows = len(columns), table.n_rows
        self.n_read = self.n_kept = self.n_missing = 0
        _reject_words(table, self.columns + self.weights)

    def read(self) -> Iterator[Part]:
        """Rows and weights."""
        return ((batch.rows, batch.weight) for batch in self.batches())

    def batches(self, *others: int) -> Iterator[Batch]:
        """Rows together with how they stand in the file.

        Parameters
        ----------
        *others : int
            Further columns of that.
        """
        pa, d = import_pyarrow(), self.n_columns
        self.n_read = self.n_kept = self.n_missing = 0
        for table, values in self._values(*others):
            gaps = np.isnan(values)
            self._check(values, gaps)
            keep = ~np.any(gaps if self.missing == "drop" else gaps[:, d:], axis=1)
            kept, first = values[keep], self.n_read
            rows, weight = np.ascontiguousarray(kept[:, :d]), kept[:, d:].ravel()
            self.n_read, self.n_kept = self.n_read + len(keep), self.n_kept + len(rows)
            self.n_missing += int(gaps.sum())
            yield Batch(
                self._fill(rows) if np.isnan(rows).any() else rows,
                weight if self.weights else np.ones(len(rows)),
                first + np.flatnonzero(keep),
                table if keep.all() else table.filter(pa.array(keep)),
            )
        if not self.n_kept:
            without = " without missing values" if self.n_read else "s"
            raise DataError(f"{self.table.label} has no row{without}")

    def _values(self, *others: int) -> Iterator[tuple[Any, Array]]:
        numbers = self.columns + self.weights
        columns = sorted({*numbers, *others})
        for batch in self.table.read(columns, set(numbers)):
            yield batch, matrix(batch.select([columns.index(j) for j in numbers]))

    def _check(self, values: Array, gaps: NDArray[np.bool_]) -> None:
        first, d, label = self.n_read, self.n_columns, self.table.label
        if self.missing == "error" and gaps.any():
            row, column = np.argwhere(gaps)[0]
            name = self.table.names[(self.columns + self.weights)[column]]
            raise DataError(
                f"{label}: column {name!r} has no value in row {first + row}; use missing=drop or "
                "missing=impute"
            )
        filled = np.where(gaps, 0.0, values)
        weight = filled[:, d:].ravel()
        check(filled[:, :d], weight, first, self.column_names, f"{label}: ")

    def _fill(self, rows: Array) -> Array:
        if callable(self.missing):
            return self.missing(rows)
        return np.where(np.isnan(rows), self._means, rows)

    @cached_property
    def _means(self) -> Array:
        """Means of the columns, from a pass of its own."""
        total, count = np.zeros(self.n_columns), np.zeros(self.n_columns)
        for _, values in self._values():
            rows = values[~np.isnan(values[:, self.n_columns :]).any(axis=1), : self.n_columns]
            total += np.nansum(rows, axis=0)
            count += (~np.isnan(rows)).sum(0)
        if not count.all():
            name = self.column_names[int(np.argmin(count))]
            raise DataError(f"{self.table.label}: column {name!r} has no value at all")
        means: Array = total / count
        return means


def pick_columns(
    table: Table, columns: Sequence[str] | None, weights: str | None = None
) -> tuple[list[int], int | None]:
    """Numbers of the columns picked, or of all but the weights, and of the column of weights."""
    weight = None
    if weights is not None:
        weight, *more = find_columns([weights], table.names, table.label)
        if more:
            raise DataError(f"weights takes one column, got {weights!r}")
    if columns is None:
        chosen = [j for j in range(len(table.names)) if j != weight]
    else:
        chosen = find_columns(columns, table.names, table.label)
    if weight in chosen:
        raise DataError(f"the column {weights!r} of weights is among the columns as well")
    if not chosen:
        raise DataError(f"{table.label} has no column but that of the weights")
    return chosen, weight


def _reject_words(table: Table, columns: Sequence[int]) -> None:
    words = [table.names[j] for j in columns if not table.numeric[j]]
    if words:
        numbers = [name for name, is_one in zip(table.names, table.numeric, strict=True) if is_one]
        hint = f"columns={','.join(numbers[:12])}" if numbers else "other data"
        plural = "column is" if len(words) == 1 else "columns are"
        raise DataError(f"{table.label}: {plural} not numeric: {', '.join(words)}; try {hint}")

"""Rows of numbers from a table, with missing values seen to."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qaffde.cli.data.selection import Selection
from qaffde.cli.data.table import DataError
from qaffde.streams.arrow import matrix

Array = NDArray[np.float64]
Fill = Callable[[Array], Array]
"""Gives rows with NaN their missing values."""


class Missing(StrEnum):
    """What becomes of rows that lack a value."""

    error = "error"
    drop = "drop"
    impute = "impute"


@dataclass(frozen=True)
class Chunk:
    """Some rows, as a model wants them.

    Parameters
    ----------
    X : ndarray of shape (n, d)
    weight : ndarray of shape (n,) or None
    number : ndarray of int of shape (n,)
        Which rows of the data these are, from 0.
    batch : pyarrow.RecordBatch
        The same rows, with all columns that were asked for.
    n_read : int
        Rows that were read, those that were dropped included.
    n_missing : int
        Values that were missing.
    """

    X: Array
    weight: Array | None
    number: NDArray[np.int64]
    batch: Any
    n_read: int
    n_missing: int


def read_rows(
    selection: Selection,
    missing: Missing,
    fill: Fill | None = None,
    *,
    without: tuple[str, ...] | None = None,
) -> Iterator[Chunk]:
    """Chunks of rows.

    Parameters
    ----------
    selection : Selection
    missing : Missing
    fill : callable, optional
        For ``Missing.impute``; NaN stay where there is none.
    without : tuple of str, optional
        Batches have all columns but those of these names; only the selected ones by default.
    """
    table, first = selection.table, 0
    columns = selection.numbers
    if without is not None:
        rest = [j for j, name in enumerate(table.names) if name not in without]
        columns = sorted({*rest, *columns})
    for batch in table.read(columns, set(selection.numbers)):
        if batch.num_rows:
            yield _chunk(batch, columns, selection, missing, fill, first)
        first += batch.num_rows


def _chunk(
    batch: Any,
    columns: list[int],
    selection: Selection,
    missing: Missing,
    fill: Fill | None,
    first: int,
) -> Chunk:
    values = matrix(batch.select([columns.index(j) for j in selection.numbers]))
    _reject_infinite(values, selection, first)
    gaps = np.isnan(values)
    d, n = len(selection.columns), batch.num_rows
    if missing is Missing.error and gaps.any():
        _reject_missing(gaps, selection, first)
    keep: NDArray[np.bool_] = ~np.any(gaps if missing is Missing.drop else gaps[:, d:], axis=1)
    kept = values[keep]
    X, weight = kept[:, :d], kept[:, d] if selection.weights is not None else None
    if weight is not None and (weight < 0).any():
        raise DataError(f"{selection.table.label}: the column of weights has negative ones")
    if missing is Missing.impute and fill is not None and np.isnan(X).any():
        X = fill(X)
    rows = batch if keep.all() else batch.filter(_mask(keep))
    return Chunk(X, weight, first + np.flatnonzero(keep), rows, n, int(gaps.sum()))


def _mask(keep: NDArray[np.bool_]) -> Any:
    from qaffde.cli.data.table import import_pyarrow

    return import_pyarrow().array(keep)


def _reject_infinite(values: Array, selection: Selection, first: int) -> None:
    where = np.argwhere(np.isinf(values))
    if len(where):
        row, column = where[0]
        name = selection.table.names[selection.numbers[column]]
        raise DataError(
            f"{selection.table.label}: column {name!r} is infinite in row {first + row}; remove "
            "the row, or leave the value empty and use --missing"
        )


def _reject_missing(gaps: NDArray[np.bool_], selection: Selection, first: int) -> None:
    row, column = np.argwhere(gaps)[0]
    name = selection.table.names[selection.numbers[column]]
    raise DataError(
        f"{selection.table.label}: column {name!r} has no value in row {first + row}; use "
        "--missing drop or --missing impute"
    )


def read_all(selection: Selection, missing: Missing) -> tuple[Array, Array | None, int, int]:
    """All rows at once: X, weights, the number of rows read and of missing values.

    With ``Missing.impute`` a missing value becomes the mean of its column.
    """
    chunks = list(read_rows(selection, missing))
    if not chunks:
        raise DataError(f"{selection.table.label} has no rows")
    X = np.concatenate([chunk.X for chunk in chunks])
    if not len(X):
        raise DataError(f"{selection.table.label} has no row without missing values")
    weights = [chunk.weight for chunk in chunks if chunk.weight is not None]
    if missing is Missing.impute:
        with_value = ~np.isnan(X)
        means = column_means(np.where(with_value, X, 0).sum(0), with_value.sum(0), selection)
        X = np.where(with_value, X, means)
    n_read = sum(chunk.n_read for chunk in chunks)
    n_missing = sum(chunk.n_missing for chunk in chunks)
    return X, np.concatenate(weights) if weights else None, n_read, n_missing


def column_means(total: Array, count: Array, selection: Selection) -> Array:
    """Means of columns, each of which must have a value."""
    if not (count > 0).all():
        name = selection.table.names[selection.columns[int(np.argmin(count))]]
        raise DataError(f"{selection.table.label}: column {name!r} has no value at all")
    means: Array = total / count
    return means

"""Partitions of Dask's arrays and data frames, and sums over them by a tree."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from operator import add
from typing import Any

import numpy as np
import torch
from torch import Tensor

from qaffde.selection.summary import (
    MANY_ROWS,
    SAMPLE_ROWS,
    TOO_FEW,
    Check,
    Part,
    Source,
    Summary,
    Value,
    accept,
)
from qaffde.streams.blocks import Block, checked

FAN_IN = 8
"""Parts that one task of the tree adds up."""


def import_dask() -> Any:
    """The package dask, or an error that says how to install it."""
    try:
        import dask
    except ImportError as error:
        raise ImportError(
            "clusters need dask, which is not installed; run: pip install 'qaffde[distributed]'"
        ) from error
    return dask


def is_array(X: Any) -> bool:
    """Whether X is an array of Dask."""
    import_dask()
    import dask.array as da

    return isinstance(X, da.Array)


def is_frame(X: Any) -> bool:
    """Whether X is a data frame of Dask."""
    import_dask()
    import dask.dataframe as dd

    return isinstance(X, dd.DataFrame)


def one_block_of_columns(X: Any) -> Any:
    """Array of shape (n, d), n perhaps unknown, whose blocks have all columns."""
    if X.ndim != 2 or np.isnan(X.shape[1]):
        raise ValueError(
            f"rows must be a Dask array of shape (n, d) with d known, got shape {X.shape}"
        )
    return X.rechunk({1: -1}) if X.numblocks[1] > 1 else X


def column_names(X: Any) -> list[str]:
    """Names of the columns of a data frame, all of numbers."""
    words = [str(name) for name, kind in X.dtypes.items() if not _is_number(kind)]
    if words:
        raise ValueError(f"columns are not numeric: {', '.join(words)}; select others first")
    return [str(name) for name in X.columns]


def _is_number(kind: Any) -> bool:
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    return bool(is_numeric_dtype(kind) and not is_bool_dtype(kind))


@dataclass(frozen=True, eq=False)
class Partitions:
    """Parts of a collection, still to be computed.

    Parameters
    ----------
    rows, weights : lists of dask.delayed.Delayed; None for rows of equal weight
    n_columns : int
    names : list of str or None
    """

    rows: list[Any]
    weights: list[Any]
    n_columns: int
    names: list[str] | None

    @classmethod
    def of(cls, X: Any, sample_weight: Any = None) -> "Partitions":
        """Partitions of an array or a data frame, and of weights that are laid out alike."""
        if is_array(X):
            X = one_block_of_columns(X)
            rows, names, d = X.to_delayed().ravel().tolist(), None, int(X.shape[1])
        elif is_frame(X):
            names = column_names(X)
            rows, d = X.to_delayed(), len(names)
        else:
            raise TypeError(
                f"rows must be a Dask array or data frame, got {type(X).__name__}; other data go "
                "to model.fit"
            )
        return cls(rows, _weights(X, sample_weight, len(rows)), d, names)


def _weights(X: Any, weight: Any, n_parts: int) -> list[Any]:
    """Weights of each partition."""
    if weight is None:
        return [None] * n_parts
    import dask.array as da

    chunks = X.chunks[0] if is_array(X) else ()
    known = bool(chunks) and not any(np.isnan(size) for size in chunks)
    if known:
        weight = weight if isinstance(weight, da.Array) else da.asarray(weight)
        if weight.shape != (X.shape[0],):
            raise ValueError(
                f"sample_weight has the shape {weight.shape}, but X has {X.shape[0]} rows"
            )
        return list(weight.rechunk((chunks,)).to_delayed().ravel())
    parts = list(np.ravel(weight.to_delayed())) if hasattr(weight, "to_delayed") else []
    if len(parts) != n_parts:
        raise ValueError(
            f"sample_weight must be a Dask collection with the {n_parts} partitions of X, which "
            f"has rows of unknown number; got {len(parts)}"
        )
    return parts


class DaskSource(Source):
    """Rows in the partitions of a Dask collection, wherever Dask computes them.

    Parameters
    ----------
    X : dask array of shape (n, d), or dask data frame
        Numbers of rows may be unknown, partitions may be empty.
    sample_weight : dask array or series of shape (n,), optional
        In the partitions of X, where its numbers of rows are unknown.
    client : distributed.Client, optional
        The scheduler; Dask's current one by default.
    minimum : int, default=2
        Rows that there must be.
    sample_partitions : int, optional
        Partitions that a summary looks at, drawn by its seed; all by default.
    """

    def __init__(
        self,
        X: Any,
        sample_weight: Any = None,
        *,
        client: Any = None,
        minimum: int = 2,
        sample_partitions: int | None = None,
    ) -> None:
        self.partitions = Partitions.of(X, sample_weight)
        self.n_columns, self.names = self.partitions.n_columns, self.partitions.names
        self.client, self.minimum = client, minimum
        n = len(self.partitions.rows)
        self.n_summarized = n if sample_partitions is None else min(sample_partitions, n)
        self.partly_seen = self.n_summarized < n

    def summarize(self, seed: int, check: Check = accept, *, brief: bool = False) -> Summary:
        """Summary of all rows, or an estimate of it from some partitions."""
        return self._summary(seed, check, SAMPLE_ROWS, brief=brief)

    def _summary(self, seed: int, check: Check, max_rows: int, *, brief: bool = False) -> Summary:
        n_parts = len(self.partitions.rows)
        some = [0] if brief else self._drawn(seed)
        task = partial(summarize_part, check=check, seed=seed, max_rows=max_rows)
        found: Summary | None = self._total(task, some)
        if len(some) < n_parts and (found is None or found.moments.n < self.minimum):
            some = list(range(n_parts))
            found = self._total(task, some)
        if found is None or found.moments.n < self.minimum:
            raise ValueError(TOO_FEW)
        summary = found.sorted_by_keys()
        return replace(summary, moments=summary.moments.scaled(n_parts / len(some)))

    def _drawn(self, seed: int) -> list[int]:
        n = len(self.partitions.rows)
        if not self.partly_seen:
            return list(range(n))
        drawn = np.random.default_rng(seed).choice(n, self.n_summarized, replace=False)
        return sorted(drawn.tolist())

    def total(self, task: Callable[[Part], Value]) -> Value:
        """Sum of a task over all partitions, by a tree."""
        found: Value | None = self._total(task, range(len(self.partitions.rows)))
        if found is None:
            raise ValueError("no row has a positive weight")
        return found

    def rows(self, seed: int) -> tuple[Tensor, Tensor]:
        """A sample of a million rows."""
        sample = self._summary(seed, accept, MANY_ROWS)
        return sample.rows, sample.weight

    def _total(self, task: Callable[[Part], Value], some: Sequence[int]) -> Value | None:
        """Sum of a task over some partitions; None where they have no rows."""
        delayed = import_dask().delayed
        given = delayed(task, traverse=False)
        parts, weights = self.partitions.rows, self.partitions.weights
        found = [
            delayed(on_part)(given, parts[number], weights[number], number, self.names)
            for number in some
        ]
        root = tree(found, delayed(total))
        computed = root.compute() if self.client is None else self.client.compute(root).result()
        result: Value | None = computed
        return result


def tree(parts: list[Any], combine: Callable[[list[Any]], Any]) -> Any:
    """Combine parts in groups, and the results again, until one is left.

    The shape of the tree depends on the number of parts alone, so that sums are the same
    whoever adds them up.

    Examples
    --------
    >>> tree([1, 2, 3, 4, 5, 6, 7, 8, 9], lambda group: group)
    [[1, 2, 3, 4, 5, 6, 7, 8], [9]]
    """
    while len(parts) > 1:
        groups = [parts[k : k + FAN_IN] for k in range(0, len(parts), FAN_IN)]
        parts = [combine(group) for group in groups]
    return parts[0]


def total(found: Iterable[Any]) -> Any:
    """Sum of what was found, None where nothing was."""
    some = [part for part in found if part is not None]
    return reduce(add, some) if some else None


def on_part(
    task: Callable[[Part], Any],
    rows: Any,
    weight: Any,
    number: int,
    names: list[str] | None,
) -> Any:
    """Result of a task on one partition, None if that has no rows; its errors name it."""
    block = as_block(rows, weight, number, names)
    if not len(block.weight):
        return None
    part = torch.from_numpy(block.rows), torch.from_numpy(block.weight), block.number
    return with_number(number, task, part)


def summarize_part(part: Part, check: Check, seed: int, max_rows: int) -> Summary:
    """Summary of one partition."""
    rows, weight, number = part
    check(rows, number)
    return Summary.of(rows, weight, seed, max_rows)


def with_number(number: int, function: Callable[..., Any], *args: Any) -> Any:
    """Call a function, whose errors then name the partition."""
    try:
        return function(*args)
    except ValueError as error:
        raise ValueError(f"partition {number}: {error}") from None


def as_block(rows: Any, weight: Any, number: int, names: Sequence[str] | None) -> Block:
    """Rows of a partition, checked."""
    where = f"partition {number}: "
    try:
        numbers = np.array(rows, dtype=np.float64, order="C")
        masses = np.ones(len(numbers)) if weight is None else np.array(weight, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{where}it does not hold numbers alone: {error}") from None
    if masses.shape != (len(numbers),):
        raise ValueError(f"{where}it has {len(numbers)} rows and weights of shape {masses.shape}")
    return checked(numbers, masses, 0, names, where)

"""Partitions of Dask's arrays and data frames, and sums over them by a tree."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any

import numpy as np
import torch

from qaffde.distributed.gathered import Gathered
from qaffde.estimators.compute import Compute
from qaffde.estimators.frame import Frame
from qaffde.estimators.sources import TOO_FEW, Source
from qaffde.estimators.sums import Part, Sums
from qaffde.estimators.survey import Check, Look, Survey
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
    """Rows in the partitions of a collection, wherever Dask computes them.

    Parameters
    ----------
    partitions : Partitions
    client : distributed.Client, optional
        The scheduler; Dask's current one by default.
    minimum : int
        Rows that there must be.
    n_surveyed : int, optional
        Partitions that a survey looks at, drawn by its seed; all by default.
    """

    def __init__(
        self, partitions: Partitions, client: Any, minimum: int, n_surveyed: int | None = None
    ) -> None:
        self.partitions, self.client, self.minimum = partitions, client, minimum
        self.n_surveyed = n_surveyed
        self.endless = n_surveyed is not None and n_surveyed < len(partitions.rows)

    def survey(self, check: Check, seed: int, *, brief: bool = False) -> Survey:
        """Sample, weights, ends and moments of all rows, or of what some partitions tell."""
        some = [0] if brief else self._surveyed(seed)
        look: Look | None = self._total(look_at, (check, seed), some)
        n_parts = len(self.partitions.rows)
        if len(some) < n_parts and (look is None or look.totals.n < self.minimum):
            some = list(range(n_parts))
            look = self._total(look_at, (check, seed), some)
        if look is None or look.totals.n < self.minimum:
            raise ValueError(TOO_FEW)
        survey = look.survey(any_order=True)
        return replace(survey, totals=survey.totals.scaled(n_parts / len(some)))

    def _surveyed(self, seed: int) -> list[int]:
        n = len(self.partitions.rows)
        if not self.endless:
            return list(range(n))
        drawn = np.random.default_rng(seed).choice(n, self.n_surveyed, replace=False)
        return sorted(drawn.tolist())

    def sums(self, frame: Frame, compute: Compute) -> Sums:
        """Add up the density matrices of all partitions."""
        sums: Sums | None = self._total(sum_up, (frame, compute))
        if sums is None:
            raise ValueError("no row has a positive weight")
        return sums

    def gather(self, frame: Frame, compute: Compute) -> Gathered:
        """Add up density matrices, ends and moments of all partitions, in one pass."""
        gathered: Gathered | None = self._total(gather, (frame, compute))
        if gathered is None or gathered.totals.n < self.minimum:
            raise ValueError(TOO_FEW)
        return gathered

    def _total(
        self, task: Callable[..., Any], shared: tuple[Any, ...], some: Sequence[int] | None = None
    ) -> Any:
        """What a task finds in all partitions, or some, added up; None where they have no rows."""
        delayed = import_dask().delayed
        given = delayed(shared, traverse=False)
        numbers = range(len(self.partitions.rows)) if some is None else some
        found = [
            delayed(on_part)(
                task,
                self.partitions.rows[number],
                self.partitions.weights[number],
                number,
                self.partitions.names,
                given,
            )
            for number in numbers
        ]
        root = tree(found, delayed(total))
        if self.client is not None:
            return self.client.compute(root).result()
        return root.compute()


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
    task: Callable[..., Any],
    rows: Any,
    weight: Any,
    number: int,
    names: list[str] | None,
    given: tuple[Any, ...],
) -> Any:
    """What a task finds in one partition, None if that has no rows; its errors name it."""
    block = as_block(rows, weight, number, names)
    if not len(block.weight):
        return None
    part = torch.from_numpy(block.rows), torch.from_numpy(block.weight), block.number
    return with_number(number, task, part, *given)


def look_at(part: Part, check: Check, seed: int) -> Look:
    """Look at one partition."""
    rows, weight, number = part
    check(rows, number)
    return Look.at(rows, weight, seed)


def sum_up(part: Part, frame: Frame, compute: Compute) -> Sums:
    """Density matrix of one partition."""
    return Sums.over(frame, [part], compute)


def gather(part: Part, frame: Frame, compute: Compute) -> Gathered:
    """Density matrix, ends and moments of one partition."""
    return Gathered.over(frame, part, compute)


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

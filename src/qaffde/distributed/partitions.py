"""Partitions of Dask's arrays and data frames: sums over them by a tree, and their scores."""

from collections.abc import Callable, Iterable, Sequence
from copy import copy
from dataclasses import replace
from functools import reduce
from operator import add
from typing import Any

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from qaffde.estimators.base import DensityEstimator, declare_columns
from qaffde.estimators.qaffde import QAFFDE
from qaffde.extras import import_extra
from qaffde.frames import LOOKED_AT_ROWS, Look
from qaffde.schema import Schema
from qaffde.selection.policy import MANY_ROWS
from qaffde.selection.sources import TOO_FEW
from qaffde.selection.summary import Check, Part, Source, Summary, Value, accept
from qaffde.streams.blocks import Block, as_part, checked

FAN_IN = 8
"""Parts that one task of the tree adds up."""
FEWEST_LOOKED_AT = 1000
"""Rows of each partition that tell kinds of columns, if there are many partitions."""


def import_dask() -> Any:
    """The package dask, or an error that says how to install it."""
    return import_extra("dask", "distributed", "clusters need")


def is_array(X: Any) -> bool:
    """Whether X is an array of Dask, not a data frame; a TypeError for anything else."""
    import_dask()
    import dask.array as da
    import dask.dataframe as dd

    if not isinstance(X, da.Array | dd.DataFrame):
        raise TypeError(
            f"rows must be a Dask array or data frame, got {type(X).__name__}; other data go to "
            "model.fit and model.score_samples"
        )
    return isinstance(X, da.Array)


def one_block_of_columns(X: Any) -> Any:
    """Array of shape (n, d), n perhaps unknown, whose blocks have all columns."""
    if X.ndim != 2 or np.isnan(X.shape[1]):
        raise ValueError(
            f"rows must be a Dask array of shape (n, d) with d known, got shape {X.shape}"
        )
    return X.rechunk({1: -1}) if X.numblocks[1] > 1 else X


def column_names(X: Any) -> list[str]:
    """Names of the columns of a data frame."""
    return [str(name) for name in X.columns]


def words_of(X: Any) -> list[str]:
    """Names of the columns of a data frame that are not numbers."""
    return [str(name) for name, kind in X.dtypes.items() if kind.kind not in "iuf"]


def _weights(X: Any, weight: Any, n_parts: int) -> list[Any]:
    """Weights of each partition."""
    if weight is None:
        return [None] * n_parts
    import dask.array as da

    if is_array(X) and not np.isnan(X.shape[0]):
        weight = da.asarray(weight)
        if weight.shape != X.shape[:1]:
            raise ValueError(
                f"sample_weight has the shape {weight.shape}, but X has {X.shape[0]} rows"
            )
        weight = weight.rechunk(X.chunks[:1])
    parts = list(np.ravel(weight.to_delayed())) if hasattr(weight, "to_delayed") else []
    if len(parts) != n_parts:
        raise ValueError(
            f"sample_weight must be a Dask collection with the {n_parts} partitions of X, which "
            f"has rows of unknown number; got {len(parts)}"
        )
    return parts


class DaskSource(Source):
    """Rows in the partitions of a Dask collection, for ``fit`` and ``partial_fit``.

    ρ is a sum over rows, so that each partition of a fit of QAFFDE has its own and a tree adds
    them up. One pass summarizes the rows; on the summary the client selects the plan; a second
    pass sums up ρ. With numbers for `bandwidth` and known ends, a given `plan` or one that is
    kept by `warm_start`, the second is the only one. Neither the number of workers nor the order
    in which they finish changes the result; the order of the partitions changes it by rounding
    only. Other estimators are fitted to a sample of a million rows.

    Parameters
    ----------
    X : dask array of shape (n, d), or dask data frame
        Numbers of rows may be unknown, partitions may be empty.
    sample_weight : dask array or series of shape (n,), optional
        In the partitions of X, where its numbers of rows are unknown.
    client : distributed.Client, optional
        Dask's current scheduler by default: the last client made, or else threads.

    Examples
    --------
    >>> import dask.array as da
    >>> from qaffde import QAFFDE
    >>> X = np.random.default_rng(0).normal(size=(3000, 2))
    >>> model = QAFFDE(random_state=0).fit(DaskSource(da.from_array(X, chunks=(1000, 2))))
    >>> model.score_samples([[0.0, 0.0]]).round()  # the true log-density is -1.84
    array([-2.])
    """

    def __init__(self, X: Any, sample_weight: Any = None, *, client: Any = None) -> None:
        self.framed, self.gaps = not is_array(X), False
        if self.framed:
            self.parts, self.names, self.words = X.to_delayed(), column_names(X), words_of(X)
        else:
            X = one_block_of_columns(X)
            self.parts, self.names, self.words = X.to_delayed().ravel().tolist(), None, []
        self.n_columns, self.client = int(X.shape[1]), client
        self.weights = _weights(X, sample_weight, len(self.parts))

    def infer(self, columns: Any) -> Schema | None:
        """Schema for kinds that are asked for; text is refused where it cannot be a category."""
        schema = super().infer(columns)
        if self.words and not (schema is not None and schema.is_table):
            raise ValueError(
                f"columns are not numeric: {', '.join(self.words)}; select others first, or leave "
                "columns and parameters of features at 'auto'"
            )
        return schema

    def inferred(self, columns: Any) -> Schema:
        """Schema by some partitions; by all of them where there is text, which has labels."""
        n = len(self.parts)
        some = range(n) if self.words or not self.framed else range(0, n, -(-n // FAN_IN))
        delayed = import_dask().delayed
        most = max(LOOKED_AT_ROWS // n, FEWEST_LOOKED_AT)
        found = [delayed(look)(self.parts[k], k, most) for k in some]
        seen = self._computed(tree(found, delayed(total)))
        if seen is None:
            raise ValueError(TOO_FEW)
        return Schema.infer(seen, columns)

    def settled(self, schema: Schema | None, *, gaps: bool) -> "DaskSource":
        """The same source, whose partitions are encoded by a schema from now on."""
        self.schema, self.gaps = schema, gaps
        return self

    def summarize(self, seed: int, check: Check = accept, *, brief: bool = False) -> Summary:
        """Summary of all rows, or of those of the first partition if these will do."""
        task, every = self.task(seed, check), range(len(self.parts))
        for some in (every[:1], every) if brief else (every,):
            found: Summary | None = self._total(task, some)
            if found is not None and found.moments.n > 1:
                return found.sorted_by_keys()
        raise ValueError(TOO_FEW)

    def total(self, task: Callable[[Part], Value]) -> Value:
        """Sum of a task over all partitions, by a tree."""
        found: Value | None = self._total(task, range(len(self.parts)))
        if found is None:
            raise ValueError("no row has a positive weight")
        return found

    def rows(self, seed: int) -> tuple[Tensor, Tensor]:
        """A sample of a million rows."""
        large = copy(self)
        large.max_rows = MANY_ROWS
        sample = large.summarize(seed)
        return sample.rows, sample.weight

    def _total(self, task: Callable[[Part], Value], some: Sequence[int]) -> Any:
        """Sum of a task over some partitions; None where they have no rows."""
        delayed = import_dask().delayed
        given, part = delayed(task, traverse=False), delayed(on_part)
        how = {"names": self.names, "schema": self.schema, "gaps": self.gaps}
        found = [part(given, self.parts[k], self.weights[k], k, **how) for k in some]
        return self._computed(tree(found, delayed(total)))

    def _computed(self, root: Any) -> Any:
        return root.compute(scheduler=self.client)


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


def look(rows: Any, number: int, most: int) -> Look | None:
    """Look at one partition, None if that has no rows; its errors name it."""
    return with_number(number, Look.at, rows, most) if len(rows) else None


def on_part(task: Callable[[Part], Any], rows: Any, weight: Any, number: int, **how: Any) -> Any:
    """Result of a task on one partition, None if that has no rows; its errors name it."""
    block = as_block(rows, weight, number, **how)
    if not len(block.weight):
        return None
    part = torch.from_numpy(block.rows), torch.from_numpy(block.weight), block.number
    return with_number(number, task, part)


def with_number(number: int, function: Callable[..., Any], *args: Any) -> Any:
    """Call a function, whose errors then name the partition."""
    try:
        return function(*args)
    except ValueError as error:
        raise ValueError(f"partition {number}: {error}") from None


def as_block(
    rows: Any,
    weight: Any,
    number: int,
    names: Sequence[str] | None,
    schema: Schema | None = None,
    *,
    gaps: bool = False,
) -> Block:
    """Rows of a partition, encoded by a schema, if there is one, and checked."""
    where = f"partition {number}"
    if schema is not None:
        rows = with_number(number, schema.encode, rows)
        if not schema.is_real:
            with_number(number, schema.check, rows)
    return checked(*as_part(rows, weight, where), 0, names, f"{where}: ", gaps=gaps)


def score_samples(model: DensityEstimator, X: Any) -> Any:
    """Log-density of each row of a Dask array or data frame by any fitted estimator, lazily.

    Returns
    -------
    dask array of shape (n,), in the chunks of X, or dask series with the index of X
    """
    check_is_fitted(model)
    shared = import_dask().delayed(_light(model), traverse=False)
    if is_array(X):
        X = one_block_of_columns(X)
        declare_columns(model, int(X.shape[1]), None, reset=False)
        options = {"drop_axis": 1, "dtype": np.float64, "meta": np.empty(0)}
        return X.map_blocks(log_densities, model=shared, **options)
    import pandas as pd

    declare_columns(model, X.shape[1], column_names(X), reset=False)
    meta = pd.Series(name="log_density", dtype=np.float64)
    return X.map_partitions(log_densities, shared, meta=meta)


def _light(model: Any) -> Any:
    """The model as workers need it: its density read, and without the sums behind that."""
    if not isinstance(model, QAFFDE):
        return model
    nothing = replace(model.sums_, rho=model.sums_.rho.new_empty(0, 0))
    return copy(model).restore(model.plan_, nothing, model.density_)


def log_densities(
    rows: Any,
    model: DensityEstimator,
    block_id: Sequence[int] = (),
    partition_info: dict[str, Any] | None = None,
) -> Any:
    """Log-densities of a block of an array or a partition of a data frame; errors name it."""
    number = block_id[0] if partition_info is None else partition_info["number"]
    found = with_number(number, model.score_samples, rows) if len(rows) else np.empty(0)
    if partition_info is None:
        return found
    import pandas as pd

    return pd.Series(found, index=rows.index, name="log_density")

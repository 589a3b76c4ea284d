"""QAFFDE on Dask's arrays and data frames.

ρ is a sum over rows, so that each partition has its own and a tree adds them up. What is fitted
is an ordinary estimator, which scores, is saved and is merged anywhere.
"""

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from qaffde.distributed.partitions import (
    DaskSource,
    as_block,
    column_names,
    import_dask,
    is_array,
    one_block_of_columns,
    with_number,
)
from qaffde.estimators.base import DensityEstimator, declare_columns
from qaffde.estimators.qaffde import QAFFDE
from qaffde.frames import is_date
from qaffde.kinds import Real
from qaffde.parameters import check_count, holds_numbers
from qaffde.schema import Column, Schema, asked_kinds

Model = TypeVar("Model", bound=QAFFDE)


def fit(
    model: Model,
    X: Any,
    sample_weight: Any = None,
    *,
    client: Any = None,
    sample_partitions: int | None = None,
) -> Model:
    """Fit a QAFFDE to a Dask collection, in place; this computes.

    One pass summarizes the rows; on the summary the client selects the plan; a second pass sums
    up ρ. With numbers for `bandwidth` and known ends, a given `plan` or one that is kept by
    `warm_start`, the second is the only one. Neither the number of workers nor the order in which
    they finish changes the result; the order of the partitions changes it by rounding only.

    Parameters
    ----------
    model : QAFFDE
        Is fitted and returned; on an error it stays as it was.
    X : dask array of shape (n, d), or dask data frame
        Numbers of rows may be unknown, partitions may be empty.
    sample_weight : dask array or series of shape (n,), optional
        In the partitions of X, where its numbers of rows are unknown.
    client : distributed.Client, optional
        Dask's current scheduler by default: the last client made, or else threads.
    sample_partitions : int, optional
        The plan is selected on so many partitions, drawn at random, and the others are read once.
        What "auto" takes is then, as in :meth:`qaffde.QAFFDE.partial_fit`, what no row can fall
        out of; a box needs known ends.

    Examples
    --------
    >>> import dask.array as da
    >>> X = np.random.default_rng(0).normal(size=(3000, 2))
    >>> model = fit(QAFFDE(random_state=0), da.from_array(X, chunks=(1000, 2)))
    >>> model.score_samples([[0.0, 0.0]]).round()  # the true log-density is -1.84
    array([-2.])
    """
    _check_model(model)
    if sample_partitions is not None:
        check_count("sample_partitions", sample_partitions)
    source = DaskSource(X, sample_weight, client=client, sample_partitions=sample_partitions)
    if sample_partitions is not None:
        asked = asked_kinds(model.columns, source.names or range(source.n_columns))
        kinds = [asked.get(k, Real()) for k in range(source.n_columns)]
        schema = Schema(tuple(Column(k, kind) for k, kind in enumerate(kinds)))
        ends = schema.ends if schema.is_real else None
        open_box = model.base_measure == "box" or ends is not None
        if open_box and not holds_numbers(ends):
            raise ValueError(
                "sample_partitions needs ends that no row can fall out of: give both ends of all "
                "columns, or another base_measure"
            )
    return model.fit(source)


def partial_fit(model: Model, X: Any, sample_weight: Any = None, *, client: Any = None) -> Model:
    """Add the rows of a Dask collection to a fit, in place; parameters are those of :func:`fit`.

    As in :meth:`qaffde.QAFFDE.partial_fit`, a first call leaves room for rows to come.
    """
    _check_model(model)
    minimum = 1 if model.__sklearn_is_fitted__() else 2
    return model.partial_fit(DaskSource(X, sample_weight, client=client, minimum=minimum))


def _check_model(model: QAFFDE) -> None:
    if not isinstance(model, QAFFDE):
        raise TypeError(
            f"only QAFFDE is a sum over partitions, got {type(model).__name__}; others are fitted "
            "to a sample of a million rows by model.fit(DaskSource(X)), and QAFFDESGD on several "
            "processes by qaffde.distributed.fit_shard"
        )


def _shared(model: Any) -> Any:
    """The fitted model as workers need it: its density read, and without the sums behind that."""
    check_is_fitted(model)
    light = model
    if isinstance(model, QAFFDE):
        light = copy(model)
        nothing = replace(model.sums_, rho=model.sums_.rho.new_empty(0, 0))
        light.restore(model.plan_, nothing, model.density_)
    return import_dask().delayed(light, traverse=False)


def score_samples(model: DensityEstimator, X: Any) -> Any:
    """Log-density of each row of a Dask array or data frame by any fitted estimator, lazily.

    Returns
    -------
    dask array of shape (n,), in the chunks of X, or dask series with the index of X
    """
    shared = _shared(model)
    if is_array(X):
        X = one_block_of_columns(X)
        declare_columns(model, int(X.shape[1]), None, reset=False)
        options = {"drop_axis": 1, "dtype": np.float64, "meta": np.empty(0)}
        return X.map_blocks(log_densities, model=shared, **options)
    import pandas as pd

    declare_columns(model, X.shape[1], column_names(X), reset=False)
    meta = pd.Series(name="log_density", dtype=np.float64)
    return X.map_partitions(log_densities, shared, meta=meta)


def log_densities(
    rows: Any,
    model: DensityEstimator,
    block_id: Sequence[int] = (),
    partition_info: dict[str, Any] | None = None,
) -> Any:
    """Log-densities of a block of an array or a partition of a data frame; errors name it."""
    number = block_id[0] if partition_info is None else partition_info["number"]
    names = None if partition_info is None else [str(name) for name in rows.columns]
    found = np.empty(0)
    if len(rows):  # a partition may have none
        if not _takes_gaps(model):
            as_block(rows, None, number, names)
        found = with_number(number, model.score_samples, rows)
    if names is None:
        return found
    import pandas as pd

    return pd.Series(found, index=rows.index, name="log_density")


def _takes_gaps(model: DensityEstimator) -> bool:
    """Whether the fit was to a table with kinds of columns or gaps."""
    if getattr(getattr(model, "plan_", None), "schema", None) is not None:
        return True
    return model.schema_ is not None and not model.schema_.is_real


def sample(
    model: Any,
    n_samples: int,
    random_state: Any = None,
    *,
    chunks: int | Sequence[int] = 100_000,
    as_frame: bool = False,
) -> Any:
    """Exact independent draws, lazily.

    Parameters
    ----------
    model : fitted density estimator
    n_samples : int
    random_state : int, RandomState instance or None, default=None
        Each chunk has a seed of its own, settled now: computing twice gives the same rows.
    chunks : int or sequence of int, default=100_000
        Rows of the chunks.
    as_frame : bool, default=False
        Whether to return a data frame with the column names, and dtypes, of the fit. Draws with
        categories or dates are one always.

    Returns
    -------
    dask array of shape (n_samples, d), or dask data frame
    """
    numbers = import_dask().delayed(_numbers)
    import dask.array as da

    shared = _shared(model)
    check_count("n_samples", n_samples)
    names = list(getattr(model, "feature_names_in_", ()))
    if as_frame and not names:
        raise ValueError("the fit has no column names; leave as_frame out, or fit a data frame")
    d = int(model.n_features_in_)
    sizes = da.core.normalize_chunks((chunks, d), shape=(n_samples, d))[0]
    seeds = check_random_state(random_state).randint(2**31 - 1, size=len(sizes))
    schema = model.schema_
    others = () if schema is None else (c.codes or is_date(c.dtype) for c in schema.columns)
    if schema is not None and (as_frame or any(others)):
        import dask.dataframe as dd

        schema = replace(schema, library="pandas")
        draw = import_dask().delayed(_framed_draws)
        frames = [draw(shared, n, int(s), schema) for n, s in zip(sizes, seeds, strict=True)]
        return dd.from_delayed(frames, meta=schema.decode(np.empty((0, d))))
    parts = [
        da.from_delayed(numbers(shared, n, int(seed)), shape=(n, d), dtype=np.float64)
        for n, seed in zip(sizes, seeds, strict=True)
    ]
    rows = da.concatenate(parts)
    return rows.to_dask_dataframe(columns=names) if as_frame else rows


def _framed_draws(model: Any, n: int, seed: int, schema: Schema) -> Any:
    return schema.decode(schema.encode(model.sample(n, random_state=seed)))


def _numbers(model: Any, n: int, seed: int) -> NDArray[np.float64]:
    return np.asarray(model.sample(n, random_state=seed), dtype=np.float64)

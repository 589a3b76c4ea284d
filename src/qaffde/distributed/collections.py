"""QAFFDE on Dask's arrays and data frames.

ρ is a sum over rows, so that each partition has its own and a tree adds them up. What is fitted
is an ordinary estimator, which scores, is saved and is merged anywhere.
"""

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from qaffde.distributed.partitions import (
    DaskSource,
    Partitions,
    column_names,
    import_dask,
    is_array,
    is_frame,
    one_block_of_columns,
)
from qaffde.estimators.base import DensityEstimator
from qaffde.estimators.parameters import check_count
from qaffde.estimators.qaffde import QAFFDE
from qaffde.estimators.sources import all_or_nothing, declare_columns

Model = TypeVar("Model", bound=QAFFDE)
SAMPLE_CHUNK = 100_000


@all_or_nothing
def fit(model: Model, X: Any, sample_weight: Any = None, *, client: Any = None) -> Model:
    """Fit a QAFFDE to a Dask collection, in place; this computes.

    One pass draws a sample and gathers weights, ends and moments; on the sample the client
    chooses bandwidth, base measure and features; a second pass sums up ρ. With numbers for
    `bandwidth` and `bounds`, or on a frame that is kept by `warm_start`, the second is the only
    one. Neither the number of workers nor the order in which they finish changes the result; the
    order of the partitions changes it by rounding only.

    Parameters
    ----------
    model : QAFFDE
        On an error it stays as it was.
    X : dask array of shape (n, d), or dask data frame
        Numbers of rows may be unknown, partitions may be empty.
    sample_weight : dask array or series of shape (n,), optional
        In the partitions of X, where its numbers of rows are unknown.
    client : distributed.Client, optional
        Dask's current scheduler by default: the last client made, or else threads.

    Returns
    -------
    QAFFDE
        `model`, fitted.

    Examples
    --------
    >>> import dask.array as da
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(3000, 2))
    >>> model = fit(QAFFDE(random_state=0), da.from_array(X, chunks=(1000, 2)))
    >>> model.score_samples([[0.0, 0.0]]).round()  # the true log-density is -1.84
    array([-2.])
    """
    partitions = _checked(model, X, sample_weight)
    warm = bool(model.warm_start) and model.__sklearn_is_fitted__()
    declare_columns(model, partitions.n_columns, partitions.names, reset=not warm)
    return model._fit(DaskSource(partitions, client, minimum=2), warm=warm)


@all_or_nothing
def partial_fit(model: Model, X: Any, sample_weight: Any = None, *, client: Any = None) -> Model:
    """Add the rows of a Dask collection to a fit, in place; parameters are those of :func:`fit`.

    As in :meth:`qaffde.QAFFDE.partial_fit`, a first call leaves room for rows to come.
    """
    partitions = _checked(model, X, sample_weight)
    first = not model.__sklearn_is_fitted__()
    declare_columns(model, partitions.n_columns, partitions.names, reset=first)
    return model._extend(DaskSource(partitions, client, minimum=2 if first else 1))


def _checked(model: QAFFDE, X: Any, sample_weight: Any) -> Partitions:
    if not isinstance(model, QAFFDE):
        raise TypeError(
            f"only QAFFDE is a sum over partitions, got {type(model).__name__}; QAFFDESGD runs on "
            "several processes with qaffde.distributed.fit_shard"
        )
    model._check_parameters()
    return Partitions.of(X, sample_weight)


def score_samples(model: DensityEstimator, X: Any) -> Any:
    """Log-density of each row, lazily.

    Parameters
    ----------
    model : fitted density estimator
        Any of this package.
    X : dask array of shape (n, d), or dask data frame

    Returns
    -------
    dask array of shape (n,), in the chunks of X, or dask series with the index of X
    """
    check_is_fitted(model)
    model.density_  # noqa: B018 (read here once, not in every worker)
    shared = import_dask().delayed(model, traverse=False)
    if is_array(X):
        X = one_block_of_columns(X)
        declare_columns(model, int(X.shape[1]), None, reset=False)
        return X.map_blocks(
            log_densities, model=shared, drop_axis=1, dtype=np.float64, meta=np.empty(0)
        )
    if not is_frame(X):
        raise TypeError(
            f"rows must be a Dask array or data frame, got {type(X).__name__}; other data go to "
            "model.score_samples"
        )
    import pandas as pd

    declare_columns(model, X.shape[1], column_names(X), reset=False)
    meta = pd.Series(name="log_density", dtype=np.float64)
    return X.map_partitions(log_density_series, shared, meta=meta)


def log_densities(rows: Any, model: DensityEstimator) -> NDArray[np.float64]:
    """Log-densities of a block, which may have no rows."""
    return model.score_samples(rows) if len(rows) else np.empty(0)


def log_density_series(rows: Any, model: DensityEstimator) -> Any:
    """Log-densities of a partition of a data frame."""
    import pandas as pd

    return pd.Series(log_densities(rows, model), index=rows.index, name="log_density")


def sample(
    model: Any,
    n_samples: int,
    random_state: Any = None,
    *,
    chunks: int | Sequence[int] = SAMPLE_CHUNK,
) -> Any:
    """Exact independent draws, lazily.

    Parameters
    ----------
    model : fitted density estimator
        Any of this package that draws.
    n_samples : int
    random_state : int, RandomState instance or None, default=None
        Each chunk has a seed of its own, settled now: computing twice gives the same rows.
    chunks : int or sequence of int, default=100_000
        Rows of the chunks.

    Returns
    -------
    dask array of shape (n_samples, d)
    """
    import_dask()
    import dask.array as da
    from dask.delayed import delayed

    check_is_fitted(model)
    check_count("n_samples", n_samples)
    model.density_  # noqa: B018
    d = int(model.n_features_in_)
    sizes = da.core.normalize_chunks((chunks, d), shape=(n_samples, d))[0]
    seeds = check_random_state(random_state).randint(2**31 - 1, size=len(sizes))
    shared = delayed(model, traverse=False)
    parts = [
        da.from_delayed(delayed(draw)(shared, n, int(seed)), shape=(n, d), dtype=np.float64)
        for n, seed in zip(sizes, seeds, strict=True)
    ]
    return da.concatenate(parts)


def draw(model: Any, n: int, seed: int) -> NDArray[np.float64]:
    """Draw the rows of one chunk."""
    rows: NDArray[np.float64] = model.sample(n, random_state=seed)
    return rows

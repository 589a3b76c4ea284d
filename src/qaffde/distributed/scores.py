"""Log-densities of Dask's arrays and data frames."""

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from qaffde.distributed.partitions import (
    column_names,
    import_dask,
    is_array,
    one_block_of_columns,
    with_number,
)
from qaffde.estimators.base import DensityEstimator, declare_columns
from qaffde.estimators.qaffde import QAFFDE


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

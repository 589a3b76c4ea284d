"""Numbers behind the pictures: views, grids and levels."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qaffde.estimators.columns import Column, resolve_columns
from qaffde.estimators.regions import weighted_quantile

Array = NDArray[np.float64]

VIEW_DRAWS = 2000
VIEW_TAIL, VIEW_MARGIN = 0.002, 0.08
MAX_SHOWN = 2000


def names_of(model: Any) -> list[str]:
    """Names of a model's columns, made up where its fit had none."""
    names = getattr(model, "feature_names_in_", None)
    return (
        [f"x{j}" for j in range(model.n_features_in_)] if names is None else list(map(str, names))
    )


def numbers_of(model: Any, columns: Iterable[Column] | None) -> list[int]:
    """Numbers of some columns of a model, all by default."""
    if columns is None:
        return list(range(model.n_features_in_))
    return resolve_columns(
        columns, model.n_features_in_, getattr(model, "feature_names_in_", None)
    )


def marginal_of(model: Any, columns: Sequence[int]) -> Any:
    """Density of some columns: the model itself where these are all, else its exact marginal."""
    if list(columns) == list(range(model.n_features_in_)):
        return model
    if not hasattr(model, "marginal"):
        raise ValueError(
            f"{type(model).__name__} has no exact marginals; fit a QAFFDE, or draw all its columns"
        )
    return model.marginal(columns)


def rows_of(X: Any, model: Any) -> Array | None:
    """Data as an array of the model's columns, in its order."""
    if X is None:
        return None
    names = getattr(model, "feature_names_in_", None)
    if names is not None and hasattr(X, "columns"):
        X = X[list(names)]
    rows = np.asarray(X, dtype=np.float64)
    if rows.ndim != 2 or rows.shape[1] != model.n_features_in_:
        raise ValueError(
            f"X has shape {rows.shape}, but the density has {model.n_features_in_} columns"
        )
    finite: Array = rows[np.isfinite(rows).all(1)]
    if not len(finite):
        raise ValueError("X has no finite row")
    return finite


def shown_rows(rows: Array, random_state: int) -> Array:
    """Not more rows than a picture can show."""
    if len(rows) <= MAX_SHOWN:
        return rows
    rng = np.random.default_rng(random_state)
    return rows[rng.choice(len(rows), MAX_SHOWN, replace=False)]


def log_density(model: Any, points: Array) -> Array:
    """Log-density at points, with the names that the model knows its columns by."""
    names = getattr(model, "feature_names_in_", None)
    if names is not None:
        import pandas as pd

        return np.asarray(model.score_samples(pd.DataFrame(points, columns=list(names))))
    return np.asarray(model.score_samples(points))


def find_view(model: Any, rows: Array | None, random_state: int) -> Array:
    """Ends (2, d) of what to show: all but the tails of the data or, without them, of draws."""
    if rows is None:
        if not hasattr(model, "sample"):
            raise ValueError(
                f"{type(model).__name__} draws no samples: pass X to say where to look"
            )
        rows = model.sample(VIEW_DRAWS, random_state=random_state)
    ends = np.quantile(rows, [VIEW_TAIL, 1 - VIEW_TAIL], axis=0)
    width = np.where(ends[1] > ends[0], ends[1] - ends[0], 1.0)
    view: Array = ends + VIEW_MARGIN * width * np.array([[-1.0], [1.0]])
    return view


def plane(view: Array, n: int) -> tuple[Array, Array, Array]:
    """Two axes of n points over a view (2, 2), and all points (n², 2), the first fastest."""
    x, y = (np.linspace(view[0, j], view[1, j], n) for j in range(2))
    return x, y, np.stack([part.ravel() for part in np.meshgrid(x, y)], axis=1)


def mass_levels(log_p: Array, masses: Sequence[float]) -> Array:
    """Densities at the edges of the regions that hold these masses, from a regular grid."""
    flat = log_p.ravel()
    levels = weighted_quantile(flat, np.exp(flat - flat.max()), 1 - np.asarray(masses))
    return np.asarray(np.exp(levels))

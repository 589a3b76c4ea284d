"""Panels: computed values that know how to draw themselves; and the rows that they show."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from qaffde.boxes import Column, resolve_columns
from qaffde.kinds import Atom, Category, Integer
from qaffde.plot.cells import Array, Scale, axis_ends, kinds_of
from qaffde.streams.names import column_names, names_in

VIEW_TAIL, VIEW_MARGIN = 0.002, 0.08
MAX_SHOWN = 2000
"""Rows that a picture can show, and draws that say where to look."""


class Panel(ABC):
    """Values of one picture; `size` is that of a figure of its own, in inches."""

    size: tuple[float, float] = (5.2, 3.6)

    def make_axes(self, plt: Any) -> Any:
        """Axes of a figure of its own."""
        return plt.figure(figsize=self.size, layout="constrained").add_subplot()

    @abstractmethod
    def draw(self, ax: Any) -> None:
        """Draw into axes."""


@dataclass(frozen=True)
class Wishes:
    """Options of a picture, whatever its kind; see :meth:`DensityDisplay.from_estimator`."""

    columns: Iterable[Column] | None = None
    given: Mapping[Column, Any] | None = None
    masses: tuple[float, ...] = (0.5, 0.9)
    n_points: int | None = None
    random_state: int = 0


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
    """Data as numbers of the model's columns, in its order."""
    if X is None:
        return None
    names, schema = names_in(model), getattr(model, "schema_", None)
    if schema is not None:
        rows: Array = schema.encode(X)
    else:
        if names is not None and hasattr(X, "columns"):
            X = X[names]
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
    rng = np.random.default_rng(random_state)
    few = len(rows) <= MAX_SHOWN
    return rows if few else rows[rng.choice(len(rows), MAX_SHOWN, replace=False)]


def find_scales(
    model: Any, columns: Sequence[int], rows: Array | None, n: int, random_state: int
) -> list[Scale]:
    """Scales of some columns: all but the tails of the data or, without them, of draws."""
    rows = draws_of(model, random_state) if rows is None else rows
    names, kinds, found = column_names(model), kinds_of(model), []
    for j in columns:
        kind, atom = kinds[j], None
        low, high = axis_ends(kind, rows[:, j], VIEW_TAIL, VIEW_MARGIN)
        counted = isinstance(kind, Integer | Category)
        edges = np.arange(low, high + 0.5) if counted else np.linspace(low, high, n + 1)
        if isinstance(kind, Atom):
            atom = marginal_of(model, [j]).probability({0: kind.value})
        found.append(Scale(names[j], kind, edges, atom))
    return found


def draws_of(model: Any, random_state: int) -> Array:
    """Draws that say where to look, as numbers."""
    if not hasattr(model, "sample"):
        raise ValueError(f"{type(model).__name__} draws no samples: pass X to say where to look")
    rows = rows_of(model.sample(MAX_SHOWN, random_state=random_state), model)
    assert rows is not None
    return rows

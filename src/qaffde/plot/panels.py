"""Panels: computed values that know how to draw themselves; their views, cells and levels."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from qaffde.estimators.calculus import BornEstimator
from qaffde.estimators.columns import Column, resolve_columns
from qaffde.kinds import Atom, Integer, Kind, Real
from qaffde.nn import BornMixture, TableDensity, expand
from qaffde.nn.calculus.slices import Slices, cell_edges
from qaffde.nn.table_cells import Side, plane_of, side_of
from qaffde.plot.scales import Scale, scale_of
from qaffde.plot.style import percent
from qaffde.streams.names import framed, names_in

Array = NDArray[np.float64]

VIEW_TAIL, VIEW_MARGIN = 0.002, 0.08
MAX_SHOWN = 2000
"""Rows that a picture can show, and draws that say where to look."""
SUBPOINTS = {1: 8, 2: 1}
"""Points in a cell, along each axis, of a density without a distribution function."""
PLANE_CELLS, PLANE_NODES = 128, (64, 128, 256)
"""Cells along each axis at least, and nodes tried, of a plane with one."""
HIGH, FEW, MOST = 3, 1 / 64, 0.8
"""Spikes are that many times higher than usual, no more of the cells, and less of the mass."""
MAX_LABELS = 3


class Panel(ABC):
    """Values of one picture; `size` is that of a figure of its own, in inches."""

    size: tuple[float, float] = (5.2, 3.6)

    def make_axes(self, figure: Any) -> Any:
        """Axes of a figure of its own."""
        return figure.add_subplot()

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


def kinds_of(model: Any) -> list[Kind]:
    """Kinds of the model's columns."""
    schema = getattr(model, "schema_", None)
    return [Real()] * model.n_features_in_ if schema is None else list(schema.kinds)


def shown_rows(rows: Array, random_state: int) -> Array:
    """Not more rows than a picture can show."""
    if len(rows) <= MAX_SHOWN:
        return rows
    rng = np.random.default_rng(random_state)
    return rows[rng.choice(len(rows), MAX_SHOWN, replace=False)]


def spread(rows: Array, scales: Sequence[Scale]) -> Array:
    """Rows (m, d), spread within the cells of values that are counted, so that all are seen."""
    counted = np.array([scale.is_counted for scale in scales])
    shift = np.random.default_rng(0).uniform(-0.3, 0.3, rows.shape)
    return np.asarray(rows + np.where(counted, shift, 0.0))


def log_density(model: Any, points: Array) -> Array:
    """Log-density at points, with the names that the model knows its columns by."""
    if getattr(model, "schema_", None) is None:
        return np.asarray(model.score_samples(framed(points, names_in(model))))
    with torch.no_grad():
        return np.asarray(model.density_.log_prob(torch.as_tensor(points)).numpy())


def draws_of(model: Any, random_state: int) -> Array:
    """Draws that say where to look, as numbers."""
    rows = rows_of(model.sample(MAX_SHOWN, random_state=random_state), model)
    assert rows is not None
    return rows


def find_scales(
    model: Any, names: Sequence[str], rows: Array | None, n: int, random_state: int
) -> list[Scale]:
    """Scales of all columns: all but the tails of the data or, without them, of draws."""
    if rows is None:
        if not hasattr(model, "sample"):
            raise ValueError(
                f"{type(model).__name__} draws no samples: pass X to say where to look"
            )
        rows = draws_of(model, random_state)
    ends = np.quantile(rows, [VIEW_TAIL, 1 - VIEW_TAIL], axis=0)
    width = np.where(ends[1] > ends[0], ends[1] - ends[0], 1.0)
    low, high = ends + VIEW_MARGIN * width * np.array([[-1.0], [1.0]])
    found = []
    for j, kind in enumerate(kinds_of(model)):
        whole = isinstance(kind, Integer)
        pair = (ends[0, j], ends[1, j]) if whole else (float(low[j]), float(high[j]))
        scale = scale_of(names[j], kind, pair, n)
        if isinstance(kind, Atom):
            share = marginal_of(model, [j]).probability({0: kind.value})
            scale = replace(scale, atom=share)
        found.append(scale)
    return found


def cell_density(model: Any, scales: Sequence[Scale]) -> Array:
    """Density of one or two columns, as means over the cells of their scales.

    They are integrals where the model has a distribution function, so that nothing is lost that
    is narrower than a cell; else means over a few points of each cell.
    """
    mixture, n = _mixture_of(model), len(scales[0].points)
    if mixture is None:
        return _means(model, scales)
    if isinstance(mixture, TableDensity) and mixture.lines is None:
        return _table_masses(mixture, scales) / cell_size(scales)
    ends = [scale.ends for scale in scales]
    if len(ends) == 1:
        return _side(mixture, ends[0], n)[1:-1].numpy() / cell_size(scales)
    parts = -(-PLANE_CELLS // n)
    sides = [_side(mixture.marginal([k]), pair, n * parts) for k, pair in enumerate(ends)]
    nothing = torch.empty(0, dtype=torch.float64)
    fine = Slices(mixture).plane(nothing, ends, sides, PLANE_NODES).mass[1:-1, 1:-1]
    return fine.reshape(n, parts, n, parts).sum((1, 3)).numpy() / cell_size(scales)


def _table_masses(density: TableDensity, scales: Sequence[Scale]) -> Array:
    """Masses of cells of a table, beside its atoms."""
    alone = [density] if len(scales) == 1 else [density.marginal([k]) for k in (0, 1)]
    pairs = list(zip(scales, alone, strict=True))
    sides = [side_of(column, torch.as_tensor(scale.edges)) for scale, column in pairs]
    mass = (sides[0].mass if len(scales) == 1 else plane_of(density, *sides)).numpy()
    kept = [_kept(scale, side) for scale, side in zip(scales, sides, strict=True)]
    return np.asarray(kept[0] @ mass if len(kept) == 1 else kept[0] @ mass @ kept[1].T)


def _kept(scale: Scale, side: Side) -> Array:
    """Which cells (n, m) of a side are those of a scale."""
    if scale.is_counted:
        return (scale.points[:, None] == side.points.numpy()).astype(np.float64)
    return np.eye(len(scale.points), len(side.points), 1)


def _mixture_of(model: Any) -> BornMixture | TableDensity | None:
    """The density as a sum of terms that can be integrated, if it is one."""
    if not isinstance(model, BornEstimator):
        return None
    try:
        return expand(model.density_)
    except (TypeError, ValueError):  # of an infinite base measure
        return None


def _side(mixture: BornMixture | TableDensity, ends: tuple[float, float], n: int) -> torch.Tensor:
    """Masses (n + 2,) of even cells of one column and, first and last, beyond them."""
    return mixture.cdf(cell_edges(*ends, n)[:, None])[0].diff()


def _means(model: Any, scales: Sequence[Scale]) -> Array:
    """Means over even points of the cells."""
    parts = [SUBPOINTS[len(scales)]] * len(scales)
    axes = [_subpoints(scale, n) for scale, n in zip(scales, parts, strict=True)]
    points = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, len(scales))
    shape = [size for s, n in zip(scales, parts, strict=True) for size in (len(s.points), n)]
    values = np.exp(log_density(model, points)).reshape(shape)
    return np.asarray(values.mean(tuple(range(1, 2 * len(scales), 2))))


def _subpoints(scale: Scale, n: int) -> Array:
    inside = (np.arange(n) + 0.5) / n - 0.5
    return np.asarray((scale.points[:, None] + scale.step * inside).ravel())


def cell_size(scales: Sequence[Scale]) -> float:
    """Measure of the cells."""
    return float(np.prod([scale.step for scale in scales]))


def share_text(mass: float) -> str:
    """Words for the mass that is drawn, if that is not all."""
    return "" if abs(mass - 1) < 5e-4 else f"{percent(mass)} drawn"


def ceiling(density: Array) -> float:
    """Height at which a picture ends, that of its spikes apart."""
    values = np.sort(density, axis=None)
    *rest, usual = values[: density.size - int(density.size * FEW)]
    few = sum(rest) > (1 - MOST) * values.sum()
    return float(1.25 * usual if few and values[-1] > HIGH * usual else values[-1])


def label_spikes(ax: Any, x: Array, density: Array, top: float, row: int = 0) -> None:
    """Say how much mass the largest spikes hold that are cut off, from a row of text on."""
    runs = np.flatnonzero(np.diff(density > top, prepend=False, append=False)).reshape(-1, 2)
    masses = [density[slice(*run)].sum() * (x[1] - x[0]) for run in runs]
    for k in np.argsort(masses)[::-1][:MAX_LABELS]:
        at, row = x[slice(*runs[k])].mean(), row + 1
        side = "right" if at > x.mean() else "left"
        ax.annotate(
            f"{percent(masses[k])} here",
            (at, 1 - 0.07 * row),
            xycoords=ax.get_xaxis_transform(),
            xytext=({"left": 5, "right": -5}[side], 0),
            textcoords="offset points",
            ha=side,
            fontsize=8,
        )

"""Views of tables: columns of several kinds, as densities on even cells.

A value that is counted (an integer, a category) fills the unit interval about its number, and an
atom the cell that it lies in, so that the page has one kind of picture.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from qaffde.estimators.regions import cell_levels
from qaffde.explore.requests import Ends, RequestError, State
from qaffde.explore.views import (
    LEVELS,
    MARGIN,
    MASSES,
    N_DRAWS,
    VIEW,
    Explorer,
    Picture,
    cell_quantiles,
    draws,
    widened,
)
from qaffde.kinds import Atom, Category, Integer, Kind, Periodic, Real
from qaffde.nn import TableDensity
from qaffde.nn.calculus.slices import nothing
from qaffde.parameters import generator_from
from qaffde.schema import Schema
from qaffde.streams.names import column_names

Array = NDArray[np.float64]
CELLS = {1: 256, 2: 128}
DRAFT_CELLS = {1: 128, 2: 48}


class TableExplorer:
    """A fitted density of a table, made ready for pictures of any of its columns.

    Parameters
    ----------
    model : estimator whose density is a :class:`~qaffde.nn.TableDensity`
    random_state : int, default=0
        Of the draws that say where to look.

    Attributes
    ----------
    names : list of str
    view : ndarray of shape (2, d)
        Ends of the axes.
    medians : ndarray of shape (d,)
    columns : list of dict
        What the page is told of the columns beside them.
    """

    def __init__(self, model: Any, random_state: int = 0) -> None:
        self.density: TableDensity = model.density_
        schema: Schema = model.schema_
        self.kinds, self.names = schema.kinds, column_names(model)
        rows = self.density.sample(N_DRAWS, generator_from(random_state)).numpy()
        ends = [_view(kind, values) for kind, values in zip(self.kinds, rows.T, strict=True)]
        self.view: Array = np.array(ends).T
        middle = np.quantile(rows, 0.5, axis=0, method="closest_observation")
        self.medians: Array = np.clip(middle, *self.view)
        self.columns = [_told(kind) for kind in self.kinds]

    def picture(self, state: State, check: Callable[[], None] = nothing) -> Picture:
        """All that is shown of a state."""
        density = self._shown(state)
        n = (DRAFT_CELLS if state.draft else CELLS)[len(state.shown)]
        axes = [_Axis(self.kinds[c], self._ends(c), n) for c in state.shown]
        mass = _cell_masses(density, axes)
        sides = [mass] if mass.ndim == 1 else [mass.sum(1), mass.sum(0)]
        area = math.prod(axis.step for axis in axes)
        rng = np.random.default_rng(state.seed)
        shares = draws(mass, rng.random((state.samples, mass.ndim)))
        low, high = self.view[:, state.shown]
        return Picture(
            [axis.ends for axis in axes],
            mass / area,
            float(mass.sum()),
            [s / axis.step for s, axis in zip(sides, axes, strict=True) if mass.ndim == 2],
            low + (high - low) * shares,
            cell_levels(mass, MASSES) / area,
            [
                _quantiles(density.marginal([k]), axis, side)
                for k, (axis, side) in enumerate(zip(axes, sides, strict=True))
            ],
            None if state.box is None else _probability(density, axes, state.box),
            0,
        )

    def _shown(self, state: State) -> TableDensity:
        """Density of the columns shown, where others have values."""
        if not state.given:
            return self.density.marginal(state.shown)
        given = torch.tensor([*state.given.values()], dtype=torch.float64)
        rest = [c for c in range(len(self.names)) if c not in state.given]
        try:
            conditional = self.density.condition([*state.given], given)
        except ValueError:
            raise RequestError(
                "the model has no density at these values; move them nearer to the data"
            ) from None
        return conditional.marginal([rest.index(c) for c in state.shown])

    def _ends(self, column: int) -> Ends:
        low, high = self.view[:, column]
        return float(low), float(high)


def make_explorer(model: Any, random_state: int = 0) -> Explorer | TableExplorer:
    """Explorer of a fitted density, whatever its columns are."""
    is_table = isinstance(getattr(model, "density_", None), TableDensity)
    return (TableExplorer if is_table else Explorer)(model, random_state)


class _Axis:
    """Even cells of a column, and the points at which its density is evaluated.

    Parameters
    ----------
    kind : Kind
    ends : pair of float
    n : int
        Number of cells.
    """

    def __init__(self, kind: Kind, ends: Ends, n: int) -> None:
        self.kind, self.ends, self.n = kind, ends, n
        self.step = (ends[1] - ends[0]) / n
        edges = np.linspace(*ends, n + 1)
        middles = (edges[1:] + edges[:-1]) / 2
        if isinstance(kind, Integer | Category):
            self.points = np.arange(round(ends[0] + 0.5), round(ends[1] + 0.5), dtype=np.float64)
            self.spread = _overlaps(edges, self.points)
        elif isinstance(kind, Atom) and ends[0] <= kind.value <= ends[1]:
            self.points = np.append(middles, kind.value)
            cell = min(int((kind.value - ends[0]) / self.step), n - 1)
            self.spread = np.vstack([self.step * np.eye(n), np.eye(n)[cell]])
        else:
            self.points, self.spread = middles, self.step * np.eye(n)


def _overlaps(edges: Array, codes: Array) -> Array:
    """Lengths (K, n) that unit intervals about codes have in common with cells."""
    low = np.maximum(edges[:-1], codes[:, None] - 0.5)
    high = np.minimum(edges[1:], codes[:, None] + 0.5)
    return np.asarray(np.clip(high - low, 0, None))


def _cell_masses(density: TableDensity, axes: list[_Axis]) -> Array:
    """Masses (n,) or (n, n) of the cells, from densities at their points."""
    grids = torch.cartesian_prod(*(torch.as_tensor(axis.points) for axis in axes))
    values = density.log_prob(grids.reshape(-1, len(axes))).exp().numpy()
    values = values.reshape([len(axis.points) for axis in axes])
    if len(axes) == 1:
        return np.asarray(values @ axes[0].spread)
    return np.asarray(axes[0].spread.T @ values @ axes[1].spread)


def _probability(density: TableDensity, axes: list[_Axis], box: tuple[Ends, ...]) -> float:
    """Probability of a box; categories are in it if their numbers are."""
    ends: Tensor = torch.tensor(box, dtype=torch.float64).T.clone()
    sets = {}
    for k, axis in enumerate(axes):
        if isinstance(axis.kind, Category):
            codes = torch.as_tensor(axis.points)
            sets[k] = (codes >= ends[0, k]) & (codes <= ends[1, k])
            ends[:, k] = torch.tensor([-torch.inf, torch.inf])
    value, _ = density.probability(ends[:1], ends[1:], sets)
    return float(value.clamp(0, 1))


def _quantiles(column: TableDensity, axis: _Axis, mass: Array) -> Array:
    """Quantiles of a column, from the masses of its cells; thrice the most probable category."""
    low, high = axis.ends
    if isinstance(axis.kind, Category):
        return np.full(3, axis.points[(axis.spread @ mass).argmax()])
    before = torch.tensor([[np.nextafter(low, -np.inf)]], dtype=torch.float64)
    below = float(column.cdf(before)[0])  # an atom at the end is not below it
    shares = np.clip((LEVELS - below) / max(mass.sum(), 1e-300), 0, 1)
    found = low + (high - low) * cell_quantiles(mass, shares)
    return np.rint(found) if isinstance(axis.kind, Integer) else found


def _view(kind: Kind, values: Array) -> Ends:
    """Ends of an axis."""
    if isinstance(kind, Category):
        return -0.5, len(kind.values or ()) - 0.5
    if isinstance(kind, Periodic):
        return kind.start, kind.start + kind.period
    low, high = np.quantile(values, VIEW)
    if isinstance(kind, Integer):
        return math.floor(low) - 0.5, math.ceil(high) + 0.5
    rest = kind.rest if isinstance(kind, Atom) else kind
    low, high = widened(np.array([[low], [high]]), MARGIN)[:, 0].tolist()
    if isinstance(rest, Real):
        low = low if rest.lower is None else max(low, rest.lower)
        high = high if rest.upper is None else min(high, rest.upper)
    return low, high


def _told(kind: Kind) -> dict[str, Any]:
    told: dict[str, Any] = {"kind": type(kind).__name__.lower()}
    if isinstance(kind, Category):
        told["labels"] = [str(label) for label in kind.values or ()]
    return told

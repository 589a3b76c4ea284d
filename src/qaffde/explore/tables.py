"""Views of tables: columns of several kinds, as densities on even cells.

A value that is counted (an integer, a category) fills the unit interval about its number, and an
atom the cell that it lies in, so that the page has one kind of picture. Masses of cells are
integrals, and quantiles those of the quantile function, but in a draft.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from qaffde.explore.requests import Ends, RequestError, State
from qaffde.explore.views import (
    CELLS,
    LEVELS,
    MARGIN,
    N_DRAWS,
    NO_DENSITY,
    VIEW,
    Explorer,
    Picture,
    cell_quantiles,
    ends_of,
    picture_of,
    widened,
)
from qaffde.kinds import Atom, Category, Integer, Kind, Periodic, Real
from qaffde.nn import TableDensity, expand
from qaffde.nn.calculus.slices import nothing
from qaffde.nn.table_cells import Side, plane_of, side_of
from qaffde.parameters import generator_from
from qaffde.streams.names import column_names

Array = NDArray[np.float64]
DRAFT_CELLS = {1: 128, 2: 48}


class TableExplorer:
    """An :class:`~qaffde.explore.Explorer` of a :class:`~qaffde.nn.TableDensity`."""

    def __init__(self, model: Any, random_state: int = 0) -> None:
        self.density: TableDensity = model.density_
        self.kinds: Sequence[Kind] = (
            [Real()] * self.density.n_dims if model.schema_ is None else model.schema_.kinds
        )
        self.names = column_names(model)
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
        ends = ends_of(self.view, state.shown)
        axes = [_Axis(self.kinds[c], pair, n) for c, pair in zip(state.shown, ends, strict=True)]
        alone = [density] if len(axes) == 1 else [density.marginal([k]) for k in (0, 1)]
        exact = [
            side_of(column, torch.as_tensor(axis.edges), draft=state.draft)
            for column, axis in zip(alone, axes, strict=True)
        ]
        spreads = [axis.spread(side) for axis, side in zip(axes, exact, strict=True)]
        sides = [s.mass.numpy() @ spread for s, spread in zip(exact, spreads, strict=True)]
        mass = sides[0]
        if len(axes) == 2:
            mass = spreads[0].T @ plane_of(density, *exact).numpy() @ spreads[1]
        columns = zip(alone, axes, exact, strict=True)
        quantiles = [_quantiles(*column, draft=state.draft) for column in columns]
        probability = None if state.box is None else _probability(density, axes, state.box)
        return picture_of(self.view, state, mass, sides, quantiles, probability)

    def _shown(self, state: State) -> TableDensity:
        """Density of the columns shown, where others have values."""
        if not state.given:
            return self.density.marginal(state.shown)
        given = torch.tensor([*state.given.values()], dtype=torch.float64)
        rest = [c for c in range(len(self.names)) if c not in state.given]
        try:
            conditional = self.density.condition([*state.given], given)
        except ValueError:
            raise RequestError(NO_DENSITY) from None
        return conditional.marginal([rest.index(c) for c in state.shown])


def make_explorer(model: Any, random_state: int = 0) -> Explorer | TableExplorer:
    """Explorer of a fitted density, whatever its columns are."""
    density = getattr(model, "density_", None)
    is_table = isinstance(density, TableDensity) and expand(density).lines is None
    return (TableExplorer if is_table else Explorer)(model, random_state)


class _Axis:
    """Even cells of a column."""

    def __init__(self, kind: Kind, ends: Ends, n: int) -> None:
        self.kind, self.ends, self.step = kind, ends, (ends[1] - ends[0]) / n
        self.edges = np.linspace(*ends, n + 1)

    def spread(self, side: Side) -> Array:
        """Shares (m, n) that the even cells have of those of a side."""
        n = len(self.edges) - 1
        if isinstance(self.kind, Integer | Category):
            return _overlaps(self.edges, side.points.numpy())
        shares = np.eye(len(side.mass), n, -1)
        if isinstance(self.kind, Atom) and self.ends[0] <= self.kind.value <= self.ends[1]:
            shares[-1, min(int((self.kind.value - self.ends[0]) / self.step), n - 1)] = 1
        return shares


def _overlaps(edges: Array, codes: Array) -> Array:
    """Lengths (K, n) that unit intervals about codes have in common with cells."""
    low = np.maximum(edges[:-1], codes[:, None] - 0.5)
    high = np.minimum(edges[1:], codes[:, None] + 0.5)
    return np.asarray(np.clip(high - low, 0, None))


def _probability(density: TableDensity, axes: list[_Axis], box: tuple[Ends, ...]) -> float:
    """Probability of a box; categories are in it if their numbers are."""
    ends: Tensor = torch.tensor(box, dtype=torch.float64).T.clone()
    sets = {}
    for k, axis in enumerate(axes):
        if isinstance(axis.kind, Category):
            codes = torch.arange(len(axis.kind.values or ()))
            sets[k] = (codes >= ends[0, k]) & (codes <= ends[1, k])
            ends[:, k] = torch.tensor([-torch.inf, torch.inf])
    value, _ = density.probability(ends[:1], ends[1:], sets)
    return float(value.clamp(0, 1))


def _quantiles(column: TableDensity, axis: _Axis, side: Side, *, draft: bool) -> Array:
    """Quantiles of a column, of a draft from its cells; thrice the most probable category."""
    if isinstance(axis.kind, Category):
        return np.full(3, float(side.mass.argmax()))
    if not draft:
        return np.asarray(column.ppf(torch.as_tensor(LEVELS)).numpy())
    low, high = axis.ends
    shown = side.mass.numpy() @ axis.spread(side)
    first = side.points < low if isinstance(axis.kind, Integer) else 0
    below = float(side.mass[first].sum())
    shares = np.clip((LEVELS - below) / max(shown.sum(), 1e-300), 0, 1)
    found = low + (high - low) * cell_quantiles(shown, shares)
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
        low, high = np.clip([low, high], *rest.ends).tolist()
    return low, high


def _told(kind: Kind) -> dict[str, Any]:
    told: dict[str, Any] = {"kind": type(kind).__name__.lower()}
    if isinstance(kind, Category):
        told["labels"] = [str(label) for label in kind.values or ()]
    return told

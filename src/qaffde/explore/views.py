"""Views of a model on the page: densities of one or two columns where others have values.

The page has one kind of picture, of even cells: a value that is counted (an integer, a category)
fills the unit interval about its number, and an atom the cell that it lies in. Masses of cells are
integrals, and quantiles those of the distribution function, but in a draft.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from qaffde.explore.requests import Ends, RequestError, State
from qaffde.functional.regions import cell_levels
from qaffde.kinds import Category, Integer, Kind
from qaffde.nn import BornMixture, TableDensity
from qaffde.nn.calculus.slices import Cells, Slices, cell_edges, nothing
from qaffde.parameters import generator_from
from qaffde.plot.cells import Array, Scale, axis_ends, kinds_of, table_masses
from qaffde.streams.names import column_names

Check = Callable[[], None]

CELLS, DRAFT_CELLS = {1: 256, 2: 128}, {1: 128, 2: 48}
"""Cells along each axis of a curve or a plane, whose masses the page gets; of drafts of tables."""
NODES = {1: (48, 64, 96, 128), 2: (16, 20, 24, 32, 48, 64)}
"""Points along each axis at which the polynomials of a draft may be evaluated."""
PLANE_NODES = (64, 128, 256)
"""The same of a plane at rest, tried in turn."""
BUDGET = 0.012
"""Seconds that the density of a draft may take, of 33 ms for everything."""
OVERHEAD = 4e7
"""Multiplications that take as long as all else of one evaluation."""
MAX_BYTES = 400_000_000
MASSES = np.array([0.5, 0.9])
LEVELS = np.array([0.05, 0.5, 0.95])
N_DRAWS = 2000
NO_DENSITY = "the model has no density at these values; move them nearer to the data"
VIEW_TAIL, VIEW_MARGIN = 0.01, 0.12


@dataclass(frozen=True)
class Picture:
    """Picture of one state; densities are conditional on the columns given."""

    ends: list[Ends]
    density: Array  # (m,) or (m, m), means over even cells
    covered: float  # mass of those cells
    sides: list[Array]
    samples: Array
    levels: Array
    quantiles: list[Array]
    probability: float | None
    nodes: int


@dataclass(frozen=True)
class Evaluated:
    """Values of the last state, kept for one that differs only in its box or draws."""

    mass: Array  # (m,) or (m, m), of even cells
    sides: list[Array]  # masses (m,) of the cells of each axis
    quantiles: list[Array]
    probability: Callable[[State, Check], float]  # of the box of a state
    nodes: int = 0


class Explorer:
    """A fitted density, made ready for pictures of any of its columns.

    Parameters
    ----------
    model : estimator with the calculus
        Fitted, with a finite base measure.
    random_state : int, default=0
        Of the draws that say where to look.

    Attributes
    ----------
    names : list of str
    kinds : list of Kind
    view : ndarray of shape (2, d)
        Ends of the axes.
    medians : ndarray of shape (d,)
    columns : list of dict
        What the page is told of them.
    """

    def __init__(self, model: Any, random_state: int = 0) -> None:
        whole = range(model.n_features_in_)
        self.density: BornMixture | TableDensity = model.marginal(whole).density
        self.names, self.kinds = column_names(model), kinds_of(model)
        rows = self.density.sample(N_DRAWS, generator_from(random_state)).numpy()
        columns = zip(self.kinds, rows.T, strict=True)
        ends = [axis_ends(kind, x, VIEW_TAIL, VIEW_MARGIN) for kind, x in columns]
        self.view: Array = np.clip(np.array(ends).T, *_support(self.density))
        middle = np.quantile(rows, 0.5, axis=0, method="closest_observation")
        self.medians: Array = np.clip(middle, *self.view)
        found = zip(self.names, self.kinds, self.view.T.tolist(), self.medians, strict=True)
        self.columns: list[dict[str, Any]] = [
            {"name": name, "kind": type(kind).__name__.lower(), "ends": ends, "median": float(m)}
            | ({"labels": list(map(str, kind.values or ()))} if isinstance(kind, Category) else {})
            for name, kind, ends, m in found
        ]
        self._slices: OrderedDict[tuple[int, ...], Slices] = OrderedDict()
        self._seconds = 5e-11  # a multiplication
        self._last: tuple[Hashable, bool, Evaluated] | None = None

    def share_view(self, other: "Explorer") -> None:
        """Give both densities, of the same columns, axes that hold what both have to show."""
        mine, theirs = self.columns, other.columns
        kinds = [[{**c, "ends": None, "median": None} for c in each] for each in (mine, theirs)]
        if kinds[0] != kinds[1]:
            raise ValueError(
                f"the models have columns {', '.join(self.names)} and {', '.join(other.names)}; "
                "two models beside each other need the same columns with the same kinds and labels"
            )
        view = np.array(
            [
                np.minimum(self.view[0], other.view[0]),
                np.maximum(self.view[1], other.view[1]),
            ]
        )
        self.view = other.view = view
        for explorer in (self, other):
            for column, ends in zip(explorer.columns, view.T.tolist(), strict=True):
                column["ends"] = ends

    def picture(self, state: State, check: Check = nothing) -> Picture:
        """All that is shown of a state.

        Parameters
        ----------
        state : State
        check : callable, optional
            Called now and then, unless a draft is made; stops the work by raising.
        """
        check = nothing if state.draft else check
        key = state.shown, tuple(state.given.items())
        if self._last is None or self._last[0] != key or (self._last[1] and not state.draft):
            is_table = isinstance(self.density, TableDensity) and self.density.lines is None
            evaluate = self._table if is_table else self._draft if state.draft else self._exact
            given = torch.tensor([*state.given.values()], dtype=torch.float64)
            self._last = key, state.draft, evaluate(state, given, check)
        last = self._last[2]
        steps = np.ptp(self.view[:, state.shown], axis=0) / len(last.mass)
        ticks = np.random.default_rng(state.seed).random((state.samples, last.mass.ndim))
        sides = [side / step for side, step in zip(last.sides, steps, strict=True)]
        probability = None if state.box is None else last.probability(state, check)
        return Picture(
            self._ends(state),
            last.mass / steps.prod(),
            float(last.mass.sum()),
            sides if last.mass.ndim == 2 else [],
            self._placed(state.shown, draws(last.mass, ticks)),
            cell_levels(last.mass, MASSES) / steps.prod(),
            last.quantiles,
            probability if probability is None else float(np.clip(probability, 0, 1)),
            last.nodes,
        )

    def _ends(self, state: State) -> list[Ends]:
        """Ends of the axes of the columns shown."""
        return [(float(low), float(high)) for low, high in self.view[:, state.shown].T]

    def _placed(self, columns: int | Sequence[int], shares: Array) -> Array:
        """Points of columns from shares of their axes."""
        low, high = self.view[:, columns]
        return np.asarray(low + (high - low) * shares)

    def _quantiles(self, column: int, below: float, mass: Array) -> Array:
        """Quantiles of a column by its cells and the mass below them."""
        levels = np.clip((LEVELS - below) / max(mass.sum(), 1e-300), 0, 1)
        return self._placed(column, cell_quantiles(mass, levels))

    def _table(self, state: State, given: Tensor, check: Check) -> Evaluated:
        """Values of a table of columns of several kinds."""
        density = self.density
        assert isinstance(density, TableDensity)
        rest = [c for c in range(len(self.names)) if c not in state.given]
        if state.given:
            try:
                density = density.condition([*state.given], given)
            except ValueError:
                raise RequestError(NO_DENSITY) from None
        density = density.marginal([rest.index(c) for c in state.shown])
        n = (DRAFT_CELLS if state.draft else CELLS)[len(state.shown)]
        kinds, ends = [self.kinds[c] for c in state.shown], self._ends(state)
        pairs = zip(kinds, ends, strict=True)
        scales = [Scale("", kind, np.linspace(*pair, n + 1)) for kind, pair in pairs]
        mass, sides, values = table_masses(density, scales, atoms=True, draft=state.draft)
        quantiles = []
        for k, (kind, side) in enumerate(zip(kinds, values, strict=True)):
            if isinstance(kind, Category):  # thrice the most probable one
                found = np.full(3, float(side.mass.argmax()))
            elif state.draft:
                first = side.points < ends[k][0] if isinstance(kind, Integer) else 0
                found = self._quantiles(state.shown[k], float(side.mass[first].sum()), sides[k])
                found = np.rint(found) if isinstance(kind, Integer) else found
            else:
                found = density.marginal([k]).ppf(torch.as_tensor(LEVELS)).numpy()
            quantiles.append(found)
        return Evaluated(
            mass, sides, quantiles, lambda s, _: _box_probability(density, kinds, s.box)
        )

    def _exact(self, state: State, given: Tensor, check: Check) -> Evaluated:
        """Values of a sum of terms, by the distribution functions of the columns shown."""
        joint = self._joint(state, given)
        columns = [self.slices((*state.given, c)).column(given, check) for c in state.shown]
        ends, n = self._ends(state), CELLS[len(columns)]
        pairs = zip(columns, ends, strict=True)
        sides = [column.cdf(cell_edges(*pair, n)).diff() for column, pair in pairs]
        cells = Cells(sides[0], n)
        if len(sides) == 2:
            log_mass = columns[0].log_mass
            cells = joint.plane(given, log_mass, ends, sides, PLANE_NODES, check)

        def probability(state: State, check: Check) -> float:
            assert state.box is not None
            if state.draft:
                return self._covered(cells, state)
            if len(columns) == 1:
                below, above = columns[0].cdf(torch.tensor(state.box[0], dtype=torch.float64))
                return float(above - below)
            return joint.probability(given, columns[0].log_mass, state.box, check)

        quantiles = [column.ppf(torch.tensor(LEVELS)).numpy() for column in columns]
        inner = [side[1:-1].numpy() for side in sides]
        return Evaluated(_inner(cells), inner, quantiles, probability, cells.nodes)

    def _draft(self, state: State, given: Tensor, check: Check) -> Evaluated:
        """Masses at as many nodes as the time for a draft allows, all else from their sums."""
        joint, k = self._joint(state, given), len(state.shown)
        budget, start = BUDGET / self._seconds - OVERHEAD, time.thread_time()
        cells = joint.masses(
            given, self._ends(state), CELLS[k], NODES[k], budget=budget, draft=True
        )
        ratio = (time.thread_time() - start) / ((cells.work + OVERHEAD) * self._seconds)
        self._seconds *= float(np.clip(ratio, 0.5, 2.0)) ** 0.3  # slowly: others come and go
        mass = cells.mass.numpy()
        sides = [mass] if k == 1 else [mass.sum(1), mass.sum(0)]
        pairs = zip(state.shown, sides, strict=True)
        quantiles = [self._quantiles(c, side[0], side[1:-1]) for c, side in pairs]
        inner = [side[1:-1] for side in sides]
        return Evaluated(
            _inner(cells), inner, quantiles, lambda s, _: self._covered(cells, s), cells.nodes
        )

    def _joint(self, state: State, given: Tensor) -> Slices:
        joint = self.slices((*state.given, *state.shown))
        if not joint.reaches(given):
            raise RequestError(NO_DENSITY)
        return joint

    def slices(self, columns: tuple[int, ...]) -> Slices:
        """Density of some columns, ready for grids; the latest ones are kept."""
        if columns not in self._slices:
            self._slices[columns] = Slices(self.density.marginal(columns))
            kept = self._slices.values()
            while len(kept) > 4 and sum(each.nbytes for each in kept) > MAX_BYTES:
                self._slices.popitem(last=False)
        self._slices.move_to_end(columns)
        return self._slices[columns]

    def _covered(self, cells: Cells, state: State) -> float:
        """Mass of the cells that a box covers."""
        found: Any = cells.mass.numpy()
        for c, ends in zip(state.shown, state.box or (), strict=True):
            n, (low, high) = len(found) - 2, self.view[:, c]
            found = overlaps(n, *((np.array(ends) - low) / (high - low))) @ found
        return float(found)


def _inner(cells: Cells) -> Array:
    """Masses of cells without those that reach to infinity."""
    return cells.mass[(slice(1, -1),) * cells.mass.ndim].numpy()


def _box_probability(
    density: TableDensity, kinds: Sequence[Kind], box: tuple[Ends, ...] | None
) -> float:
    """Probability of a box; categories are in it if their numbers are."""
    ends: Tensor = torch.tensor(box, dtype=torch.float64).T.clone()
    sets = {}
    for k, kind in enumerate(kinds):
        if isinstance(kind, Category):
            codes = torch.arange(len(kind.values or ()))
            sets[k] = (codes >= ends[0, k]) & (codes <= ends[1, k])
            ends[:, k] = torch.tensor([-torch.inf, torch.inf])
    return float(density.probability(ends[:1], ends[1:], sets)[0])


def _support(density: BornMixture | TableDensity) -> Array:
    """Ends (2, d) of what bounded terms reach; infinite where there are none.

    Beyond the box of a box base is only the background: axes end at the box.
    """
    lines = density.lines if isinstance(density, TableDensity) else density
    terms = () if lines is None else lines.terms
    ends = [term.support.numpy() for term in terms if term.law.bounded]
    if not ends:
        return np.array([[-np.inf], [np.inf]]).repeat(density.n_dims, 1)
    found = torch.from_numpy(np.array([np.min(ends, axis=0)[0], np.max(ends, axis=0)[1]]))
    return (density.maps.inverse(found) if isinstance(density, TableDensity) else found).numpy()


def cell_quantiles(mass: Array, levels: Array) -> Array:
    """Places, in shares of the range of the cells, below which there are these shares of the mass.

    Parameters
    ----------
    mass : ndarray of shape (m,), or (n, m) for cells of each level
    levels : ndarray of shape (n,)

    Examples
    --------
    >>> cell_quantiles(np.array([1.0, 1.0]), np.array([0.0, 0.25, 1.0]))
    array([0.  , 0.25, 1.  ])
    """
    cells = np.broadcast_to(mass, (len(levels), mass.shape[-1]))
    below = np.cumsum(cells, axis=1)
    target = levels * below[:, -1]
    cell = np.minimum((below < target[:, None]).sum(1), cells.shape[1] - 1)
    rows = np.arange(len(levels))
    inside = cells[rows, cell]
    rest = target - (below[rows, cell] - inside)
    share = np.divide(rest, inside, out=np.zeros_like(rest), where=inside > 0)
    return np.asarray((cell + np.clip(share, 0, 1)) / cells.shape[1])


def draws(mass: Array, levels: Array) -> Array:
    """Points (n, k), in shares of the range of the cells, at levels of shape (n, k) in [0, 1].

    The first column is drawn from the mass along the first axis, the second from the cells there.
    The same levels give points that move little when the density does.
    """
    if mass.ndim == 1:
        return cell_quantiles(mass, levels[:, 0])[:, None]
    first = cell_quantiles(mass.sum(1), levels[:, 0])
    strips = np.minimum((first * len(mass)).astype(int), len(mass) - 1)
    return np.column_stack([first, cell_quantiles(mass[strips], levels[:, 1])])


def overlaps(n: int, low: float, high: float) -> Array:
    """Shares (n + 2,) of n even cells of [0, 1], and of those beyond, between two ends.

    Examples
    --------
    >>> overlaps(2, 0.25, np.inf)
    array([0. , 0.5, 1. , 1. ])
    """
    inside = [np.clip(end * n - np.arange(n), 0, 1) for end in (low, high)]
    beyond = (float(low == -np.inf), float(high == np.inf))
    return np.concatenate([beyond[:1], inside[1] - inside[0], beyond[1:]])

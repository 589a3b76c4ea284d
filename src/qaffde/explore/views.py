"""Views of a model on the page: densities of one or two columns where others have values."""

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from qaffde.estimators.regions import cell_levels
from qaffde.explore.requests import Ends, RequestError, State
from qaffde.nn import BornMixture, TableDensity
from qaffde.nn.calculus.integrals import Column
from qaffde.nn.calculus.slices import Cells, Slices, cell_edges, nothing
from qaffde.parameters import generator_from
from qaffde.streams.names import column_names

Array = NDArray[np.float64]

CELLS = {1: 256, 2: 128}
"""Cells along each axis of a curve or a plane, whose masses the page gets."""
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
VIEW, MARGIN = (0.01, 0.99), 0.12
"""Quantiles of draws that the axes span, and what is added at either end, as a share."""


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
    """Values of the last state, kept for one that differs only in its box or draws.

    Sides are masses of even cells; the first and the last reach to infinity.
    """

    key: Hashable
    given: Tensor
    cells: Cells
    sides: list[Array]
    quantiles: list[Array]
    columns: list[Column]  # but of a draft


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
    view : ndarray of shape (2, d)
        Ends of the axes.
    medians : ndarray of shape (d,)
    columns : list of dict
        What the page is told of the columns beside them.
    """

    def __init__(self, model: Any, random_state: int = 0) -> None:
        self.density: BornMixture | TableDensity = model.marginal(
            range(model.n_features_in_)
        ).density
        self.names = column_names(model)
        self.columns: list[dict[str, Any]] = [{"kind": "real"} for _ in self.names]
        rows = self.density.sample(N_DRAWS, generator_from(random_state)).numpy()
        support = _support(self.density)
        self.view: Array = np.clip(widened(np.quantile(rows, VIEW, axis=0), MARGIN), *support)
        self.medians: Array = np.clip(np.median(rows, axis=0), *self.view)
        self._slices: OrderedDict[tuple[int, ...], Slices] = OrderedDict()
        self._seconds = 5e-11  # a multiplication
        self._check: Callable[[], None] = nothing
        self._last: Evaluated | None = None

    def picture(self, state: State, check: Callable[[], None] = nothing) -> Picture:
        """All that is shown of a state.

        Parameters
        ----------
        state : State
        check : callable, optional
            Called now and then, unless a draft is made; stops the work by raising.
        """
        self._check = nothing if state.draft else check
        key = state.shown, tuple(state.given.items())
        last = self._last
        if last is None or last.key != key or not (last.columns or state.draft):
            self._last = last = self._evaluated(key, state)
        mass = last.cells.mass[(slice(1, -1),) * len(state.shown)].numpy()
        sides, probability = [side[1:-1] for side in last.sides], self._probability(state, last)
        return picture_of(
            self.view, state, mass, sides, last.quantiles, probability, last.cells.nodes
        )

    def _evaluated(self, key: Hashable, state: State) -> Evaluated:
        columns = tuple(state.given)
        given = torch.tensor([*state.given.values()], dtype=torch.float64)
        joint = self.slices((*columns, *state.shown))
        if not joint.reaches(given):
            raise RequestError(NO_DENSITY)
        if state.draft:
            return self._drafted(key, state.shown, joint, given)
        found = [self.slices((*columns, c)).column(given, self._check) for c in state.shown]
        ends, n = ends_of(self.view, state.shown), CELLS[len(found)]
        pairs = zip(found, ends, strict=True)
        sides = [column.cdf(cell_edges(*pair, n)).diff() for column, pair in pairs]
        cells = Cells(sides[0], n)
        if len(sides) == 2:
            cells = joint.plane(given, ends, sides, PLANE_NODES, self._check)
        quantiles = [column.ppf(torch.tensor(LEVELS)).numpy() for column in found]
        return Evaluated(key, given, cells, [s.numpy() for s in sides], quantiles, found)

    def _drafted(
        self, key: Hashable, shown: tuple[int, ...], joint: Slices, given: Tensor
    ) -> Evaluated:
        """Masses at as many nodes as the time for a draft allows, all else from their sums."""
        ends, k = ends_of(self.view, shown), len(shown)
        budget, start = BUDGET / self._seconds - OVERHEAD, time.thread_time()
        cells = joint.masses(given, ends, CELLS[k], NODES[k], budget=budget, draft=True)
        self._learn_speed(cells.work, time.thread_time() - start)
        mass = cells.mass.numpy()
        sides = [mass] if k == 1 else [mass.sum(1), mass.sum(0)]
        quantiles = []
        for c, side in zip(shown, sides, strict=True):
            inside = side[1:-1]
            levels = np.clip((LEVELS - side[0]) / max(inside.sum(), 1e-300), 0, 1)
            quantiles.append(placed(self.view, c, cell_quantiles(inside, levels)))
        return Evaluated(key, given, cells, sides, quantiles, [])

    def slices(self, columns: tuple[int, ...]) -> Slices:
        """Density of some columns, ready for grids; the latest ones are kept."""
        if columns not in self._slices:
            self._slices[columns] = Slices(self.density.marginal(columns))
            self._forget()
        self._slices.move_to_end(columns)
        return self._slices[columns]

    def _forget(self) -> None:
        while sum(s.nbytes for s in self._slices.values()) > MAX_BYTES and len(self._slices) > 4:
            self._slices.popitem(last=False)

    def _learn_speed(self, work: float, seconds: float) -> None:
        """Follow the time of a multiplication, slowly: other programs come and go."""
        ratio = seconds / ((work + OVERHEAD) * self._seconds)
        self._seconds *= float(np.clip(ratio, 0.5, 2.0)) ** 0.3

    def _probability(self, state: State, last: Evaluated) -> float | None:
        """Probability of the box: exact, but of a draft from the cells that it covers."""
        if state.box is None:
            return None
        if state.draft:
            found: Any = last.cells.mass.numpy()
            for c, ends in zip(state.shown, state.box, strict=True):
                n, (low, high) = len(found) - 2, self.view[:, c]
                found = overlaps(n, *((np.array(ends) - low) / (high - low))) @ found
        elif len(state.shown) == 1:
            below, above = last.columns[0].cdf(torch.tensor(state.box[0], dtype=torch.float64))
            found = float(above - below)
        else:
            joint = self.slices((*state.given, *state.shown))
            log_mass = last.columns[0].log_mass
            found = joint.probability(last.given, log_mass, state.box, self._check)
        return float(np.clip(found, 0, 1))


def picture_of(
    view: Array,
    state: State,
    mass: Array,
    sides: list[Array],
    quantiles: list[Array],
    probability: float | None,
    nodes: int = 0,
) -> Picture:
    """Picture of the masses of even cells, and of those along each axis, between ends (2, d)."""
    steps = np.ptp(view[:, state.shown], axis=0) / len(mass)
    ticks = np.random.default_rng(state.seed).random((state.samples, mass.ndim))
    return Picture(
        ends_of(view, state.shown),
        mass / steps.prod(),
        float(mass.sum()),
        [side / step for side, step in zip(sides, steps, strict=True) if mass.ndim == 2],
        placed(view, state.shown, draws(mass, ticks)),
        cell_levels(mass, MASSES) / steps.prod(),
        quantiles,
        probability,
        nodes,
    )


def ends_of(view: Array, columns: Sequence[int]) -> list[Ends]:
    """Ends of the axes of some columns."""
    return [(float(low), float(high)) for low, high in view[:, columns].T]


def placed(view: Array, columns: int | Sequence[int], shares: Array) -> Array:
    """Points of columns from shares of their axes."""
    low, high = view[:, columns]
    return np.asarray(low + (high - low) * shares)


def widened(ends: Array, share: float) -> Array:
    """Ends (2, d) with a share of their width added on either side."""
    width = np.where(ends[1] > ends[0], ends[1] - ends[0], 1.0)
    return np.asarray(ends + share * width * np.array([[-1.0], [1.0]]))


def _support(density: BornMixture | TableDensity) -> Array:
    """Ends (2, d) of what bounded terms reach; infinite where there are none.

    Beyond the box of a box base is only the background: axes end at the box.
    """
    if isinstance(density, TableDensity):
        assert density.lines is not None
        inner = torch.from_numpy(_support(density.lines))
        return density.maps.inverse(inner).numpy()
    ends = [term.support.numpy() for term in density.terms if term.law.bounded]
    if not ends:
        return np.array([[-np.inf], [np.inf]]).repeat(density.n_dims, 1)
    return np.array([np.min(ends, axis=0)[0], np.max(ends, axis=0)[1]])


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

"""Views of a model on the page: densities of one or two columns where others have values."""

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from qaffde.explore import grids
from qaffde.explore.requests import Ends, RequestError, State
from qaffde.explore.slices import Slices
from qaffde.nn import BornMixture
from qaffde.nn.calculus.integrals import legendre

Array = NDArray[np.float64]

NODES = {1: (48, 64, 96, 128), 2: (16, 20, 24, 32, 48, 64)}
"""Points along each axis at which a density of one or two columns may be evaluated."""
POINTS = {1: 257, 2: 129}
"""Points along each axis that the page gets, from splines through the nodes."""
SIDE_NODES = 128
BUDGET = 0.012
"""Seconds that the density of a draft may take, of 33 ms for everything."""
OVERHEAD = 4e7
"""Multiplications that take as long as all else of one evaluation."""
MAX_BYTES = 400_000_000
MASSES = np.array([0.5, 0.9])
LEVELS = np.array([0.05, 0.5, 0.95])
N_DRAWS = 2000
VIEW, MARGIN = (0.01, 0.99), 0.12
"""Quantiles of draws that the axes span, and what is added at either end, as a share."""
REACH = 0.5
"""How far open ends of a box go beyond the axes, as a share of them."""


@dataclass(frozen=True)
class Picture:
    """Picture of one state; densities are conditional on the columns given."""

    ends: list[Ends]
    density: Array
    sides: list[Array]
    samples: Array
    levels: Array
    quantiles: list[Array]
    probability: float | None
    log_given: float
    nodes: int


@dataclass(frozen=True)
class Evaluated:
    """Values of the last state, kept for one that differs only in its box or draws."""

    key: Hashable
    given: Tensor
    log_given: float
    values: Array
    sides: list[Array]
    draft: bool


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
    """

    def __init__(self, model: Any, random_state: int = 0) -> None:
        d = model.n_features_in_
        self.density: BornMixture = model.marginal(range(d)).density
        names = getattr(model, "feature_names_in_", None)
        self.names = [f"column {j + 1}" for j in range(d)] if names is None else [*map(str, names)]
        rows = model.sample(N_DRAWS, random_state=random_state)
        support = _support(self.density)
        self.view: Array = np.clip(_widened(np.quantile(rows, VIEW, axis=0), MARGIN), *support)
        self.reach: Array = np.clip(_widened(self.view, REACH), *support)
        self.medians: Array = np.clip(np.median(rows, axis=0), *self.view)
        self._slices: OrderedDict[tuple[int, ...], Slices] = OrderedDict()
        self._seconds = 5e-11  # a multiplication
        self._check: Callable[[], None] | None = None
        self._last: Evaluated | None = None

    def picture(self, state: State, check: Callable[[], None] | None = None) -> Picture:
        """All that is shown of a state.

        Parameters
        ----------
        state : State
        check : callable, optional
            Called now and then, unless a draft is made; stops the work by raising.
        """
        self._check = None if state.draft else check
        key = state.shown, tuple(state.given.items())
        last = self._last
        if last is None or last.key != key or (last.draft and not state.draft):
            self._last = last = self._evaluated(key, state)
        density = grids.refined(last.values, POINTS[len(state.shown)])
        return Picture(
            [self._ends(c) for c in state.shown],
            density,
            last.sides,
            self._samples(state, density),
            grids.mass_levels(density, MASSES),
            self._quantiles(state, last.sides or [density]),
            self._probability(state, last),
            last.log_given,
            len(last.values),
        )

    def _evaluated(self, key: Hashable, state: State) -> Evaluated:
        columns, given = tuple(state.given), torch.tensor([*state.given.values()]).double()
        log_given = self.slices(columns).log_at(given, draft=state.draft) if columns else 0.0
        if not math.isfinite(log_given):
            raise RequestError(
                "the model has no density at these values; move them nearer to the data"
            )
        joint = self.slices((*columns, *state.shown))
        n, work = NODES[len(state.shown)][-1], 0.0
        if state.draft:
            n, work = self._draft_nodes(joint, state, given)
        axes = [self._axis(c, n) for c in state.shown]
        start = time.thread_time()
        values = joint.on_grid(
            given, axes, log_shift=log_given, draft=state.draft, check=self._check
        ).numpy()
        if state.draft:
            self._learn_speed(work, time.thread_time() - start)
        sides = self._sides(state, given, log_given, values)
        return Evaluated(key, given, log_given, values, sides, state.draft)

    def slices(self, columns: tuple[int, ...]) -> Slices:
        """Density of some columns, ready for grids; the latest ones are kept."""
        if columns not in self._slices:
            self._slices[columns] = Slices(self.density.marginal(columns))
        self._slices.move_to_end(columns)
        while sum(s.nbytes for s in self._slices.values()) > MAX_BYTES and len(self._slices) > 4:
            self._slices.popitem(last=False)
        return self._slices[columns]

    def _draft_nodes(self, joint: Slices, state: State, given: Tensor) -> tuple[int, float]:
        """As many nodes as the time for a draft allows, and their work."""
        choices, k = NODES[len(state.shown)], len(state.shown)
        coarse = [self._axis(c, choices[0]) for c in state.shown]
        least = joint.work(given, coarse, draft=True) / choices[0] ** k
        most = BUDGET / self._seconds - OVERHEAD
        n = max((n for n in choices if least * n**k <= most), default=choices[0])
        return n, least * n**k

    def _learn_speed(self, work: float, seconds: float) -> None:
        """Follow the time of a multiplication, slowly: other programs come and go."""
        ratio = seconds / ((work + OVERHEAD) * self._seconds)
        self._seconds *= float(np.clip(ratio, 0.5, 2.0)) ** 0.3

    def _sides(self, state: State, given: Tensor, log_given: float, values: Array) -> list[Array]:
        """Marginals of the two columns of a plane; those of a draft are sums of the plane."""
        if values.ndim == 1:
            return []
        m = POINTS[1]
        if state.draft:
            weights = grids.integral_weights(len(values), 0, 1)
            first, second = (np.ptp(self._ends(c)) for c in state.shown)
            parts = [values @ weights * second, weights @ values * first]
            return [grids.refined(part, m) for part in parts]
        found = []
        for c in state.shown:
            side, axis = self.slices((*state.given, c)), self._axis(c, SIDE_NODES)
            curve = side.on_grid(given, [axis], log_shift=log_given, check=self._check)
            found.append(grids.refined(curve.numpy(), m))
        return found

    def _probability(self, state: State, last: Evaluated) -> float | None:
        """Probability of the box: of a draft from its splines, else by quadrature in the box."""
        if state.box is None:
            return None
        sides, values = list(zip(state.shown, state.box, strict=True)), last.values
        if state.draft:
            weights = [self._spline_weights(c, ends, len(values)) for c, ends in sides]
        else:
            rules = [self._rule(c, ends) for c, ends in sides]
            weights, axes = [rule[1].numpy() for rule in rules], [rule[0] for rule in rules]
            joint = self.slices((*state.given, *state.shown))
            values = joint.on_grid(
                last.given, axes, log_shift=last.log_given, check=self._check
            ).numpy()
        for weight in weights:
            values = weight @ values
        return float(np.clip(values, 0, 1))

    def _spline_weights(self, column: int, ends: Ends, n: int) -> Array:
        low, high = self._ends(column)
        shares = ((end - low) / (high - low) for end in ends)
        return grids.integral_weights(n, *shares) * (high - low)

    def _rule(self, column: int, ends: Ends) -> tuple[Tensor, Tensor]:
        """Gauss–Legendre nodes and weights between two ends, π/2 as dense as the finest axis."""
        low, high = torch.tensor(np.clip(ends, *self.reach[:, column]))
        share = float(high - low) / np.ptp(self._ends(column))
        return legendre(math.ceil(math.pi / 2 * NODES[2][-1] * share) + 12, low, high)

    def _samples(self, state: State, density: Array) -> Array:
        """Draws (n, k) from the density as it is shown, which move with it."""
        rng = np.random.default_rng(state.seed)
        shares = grids.draws(density, rng.random((state.samples, density.ndim)))
        return self._placed(shares, state.shown)

    def _quantiles(self, state: State, curves: Sequence[Array]) -> list[Array]:
        pairs = zip(state.shown, curves, strict=True)
        return [self._placed(grids.quantiles(curve, LEVELS), c) for c, curve in pairs]

    def _placed(self, shares: Array, columns: int | Sequence[int]) -> Array:
        low, high = self.view[:, columns]
        placed: Array = low + (high - low) * shares
        return placed

    def _ends(self, column: int) -> Ends:
        low, high = self.view[:, column]
        return float(low), float(high)

    def _axis(self, column: int, n: int) -> Tensor:
        return torch.linspace(*self._ends(column), n, dtype=torch.float64)


def _widened(ends: Array, share: float) -> Array:
    width = np.where(ends[1] > ends[0], ends[1] - ends[0], 1.0)
    wider: Array = ends + share * width * np.array([[-1.0], [1.0]])
    return wider


def _support(density: BornMixture) -> Array:
    """Ends (2, d) of what bounded terms reach; infinite where there are none.

    Beyond the box of a box base is only the background: axes end at the box.
    """
    ends = [term.support.numpy() for term in density.terms if term.law.bounded]
    if not ends:
        return np.array([[-np.inf], [np.inf]]).repeat(density.n_dims, 1)
    return np.array([np.min(ends, axis=0)[0], np.max(ends, axis=0)[1]])

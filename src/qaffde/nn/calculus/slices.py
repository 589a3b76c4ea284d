"""Masses of cells of one or two columns, where others have given values, many a second.

A density of some columns given others is a sum of terms. What does not depend on the values given
is computed once: frequencies in the data's own units, and coefficients in single precision, which
costs 1e-7 of the highest density. What is left for every new condition are waves, which on a grid
are products of waves along its axes, and one matrix product for each term that matters there.

Points of a grid would miss whatever is narrower than a cell. Narrow are the bases of terms, whose
masses in cells are closed forms; the polynomials that multiply them are wide, and are read at the
nodes of a grid and between them by splines. Along a single column all integrals are exact.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain

import numpy as np
import torch
from scipy.interpolate import make_interp_spline
from scipy.stats import qmc
from torch import Tensor

from qaffde.functional.chebyshev import antiderivative
from qaffde.nn.calculus.bases import Bases
from qaffde.nn.calculus.column_series import density_series, nodes_of
from qaffde.nn.calculus.families import Family
from qaffde.nn.calculus.integrals import Column, ColumnIntegral, legendre, scattered_points
from qaffde.nn.calculus.mixture import BornMixture, constant_form
from qaffde.nn.calculus.terms import Term
from qaffde.nn.columns import TableColumn
from qaffde.nn.maps import MapTable
from qaffde.nn.table import TableDensity

Check = Callable[[], None]
Ends = tuple[float, float]

FAINT = {False: 1e-8, True: 3e-4}
"""Share of the mass of an ordinary cell that is left out, of exact pictures and drafts."""
PEAKED = 10
"""Times the mean, the mass of an ordinary cell at most: a spike makes no other cell faint."""
FAR = -1e300
"""Logarithm of a density below which there is none."""
REACH = 5.7
"""Deviations beyond which, and in units of one over them frequencies, a Gaussian has 1e-8."""
SHORT = 0.01
"""Mass that the strips of a plane may be short of before more nodes are tried."""
MAX_POINTS, LOG_SCATTERED = 160_000, 14
"""Of the quadrature of a term; beyond, the binary logarithm of its quasi-random points."""
FINER = 2
"""Cells of a mapped column for each cell of the picture."""
SCALINGS = 10


def nothing() -> None:
    """Stop no work."""


class Slices:
    """A density of its last columns, one or two, where its first ones have given values.

    Examples
    --------
    >>> from qaffde.nn import BornDensity, BoxMeasure, FourierFeatures, expand
    >>> features = FourierFeatures.draw("paired", 8, bandwidth=torch.ones(2))
    >>> unit = BoxMeasure(torch.zeros(2), torch.ones(2))
    >>> density = expand(BornDensity(features, torch.ones(1, 8), unit))
    >>> given = torch.tensor([0.3]).double()
    >>> found = Slices(density).column(given).cdf(torch.tensor([0.8]).double())
    >>> torch.allclose(found, density.condition([0], given).cdf(torch.tensor([[0.8]]))[0])
    True
    """

    def __init__(self, density: BornMixture | TableDensity) -> None:
        self.columns: list[TableColumn] | None = None
        if isinstance(density, TableDensity):
            self.columns, lines = density.each(), density.lines
            assert lines is not None
            density = lines
        self.log_mass = float(density.log_mass)
        one = constant_form(density.n_dims)  # for all terms whose form is constant: one family
        terms = [
            term if term.form.W.any() else replace(term, log_coefficient=term.log_mass, form=one)
            for term in density.terms
        ]
        groups: dict[int, list[Term]] = {}
        for term in terms:
            groups.setdefault(id(term.form.coefficients), []).append(term)
        self.families = [Family.of(members[0]) for members in groups.values()]
        laws: dict[type, list[tuple[int, Term]]] = {}
        for k, members in enumerate(groups.values()):
            for term in members:
                laws.setdefault(type(term.law), []).append((k, term))
        self.bases = [Bases.of(pairs) for pairs in laws.values()]

    @property
    def nbytes(self) -> int:
        """Memory that is kept."""
        return sum(family.nbytes for family in self.families)

    def reaches(self, given: Tensor) -> bool:
        """Whether there is any density where columns have these values."""
        if self.columns is not None and len(given):
            given, log_slope = self._maps(0, len(given))(given[None])
            if float(log_slope) == -math.inf:
                return False
            given = given[0]
        return max(float(bases.log_weight.max()) for bases in self._at(given)) > FAR

    def column(self, given: Tensor, check: Check = nothing) -> "Column":
        """Exact distribution of the only column that is shown."""
        given = self._placed(given)
        kept, log_scale = self._given(given)
        parts = []
        for k, base in _each(kept):
            check()
            family = self.families[k]
            slope = family.slopes[:, -1:].abs().amax() * base.scale
            form = replace(base.form, W=slope)
            x = base.offset + base.scale[0] * nodes_of(form, base.law, 0)
            density = density_series(form, base.law, family.on_grid(given, [x])[None])
            series = antiderivative(base.log_coefficient.exp() * density)
            parts.append(ColumnIntegral(base, series))
        maps = None if self.columns is None else self._maps(-1, None)
        return Column(parts, log_scale, maps)

    def probability(
        self, given: Tensor, log_mass: float, box: Sequence[Ends], check: Check = nothing
    ) -> float:
        """Probability of a box of two columns, to about 1e-6: a quadrature for each term.

        Where a term is a narrow ridge it is to about 1e-5, by quasi-random points. The mass of
        all terms is that of :class:`Column`, of either column.
        """
        total, bounds = 0.0, torch.tensor(box, dtype=torch.float64).T
        if self.columns is not None:
            bounds = self._maps(len(given), None).edges(bounds)
        given = self._placed(given)
        for k, base in _each(self._given(given, log_mass)[0]):
            check()
            family = self.families[k]
            spread, steep = base.scale.diagonal(), torch.zeros_like(base.offset)
            if not base.law.bounded:
                spread = REACH * base.scale.square().sum(1).sqrt()
                steep = REACH * torch.linalg.inv(base.scale).square().sum(0).sqrt()
            low, high = bounds[0].max(base.offset - spread), bounds[1].min(base.offset + spread)
            if bool((low < high).all()):
                omega = 2 * family.slopes[:, len(given) :].abs().amax(0) + steep
                sizes = ((omega * (high - low) / 4).ceil() + 10).int().tolist()
                axes, rows, mass = _quadrature(base, low, high, sizes)
                mass = mass * base.log_coefficient.exp()
                kept = mass > FAINT[False] * mass.max()
                total += float(mass[kept] @ family.on_grid(given, axes, rows[kept]))
        return min(total, 1.0)

    def masses(
        self,
        given: Tensor,
        ends: Sequence[Ends],
        n_cells: int,
        nodes: Sequence[int],
        *,
        budget: float = math.inf,
        draft: bool = False,
        check: Check = nothing,
    ) -> "Cells":
        """Masses of even cells between the ends of each axis, and of what lies beyond them.

        `nodes` are increasing numbers of points along each axis that polynomials may be read at;
        the most that a budget of multiplications allows are taken. A draft leaves out whatever a
        picture that moves does not show. `check` is called before each part of the work, and may
        raise to stop it.
        """
        edges, fine, spans = [cell_edges(*pair, n_cells) for pair in ends], n_cells, ends
        if self.columns is not None:  # even cells of z, and shares of them
            own = [self._maps(len(given) + k, len(given) + k + 1) for k in range(len(ends))]
            placed = [g.edges(edge[:, None])[:, 0] for g, edge in zip(own, edges, strict=True)]
            spans = [_finite_ends(place) for place in placed]
            given, fine = self._placed(given), FINER * n_cells
            edges = [cell_edges(*span, fine) for span in spans]
        kept = self._given(given, draft=draft)[0]
        parts = sum(bases.masses(edges, len(self.families), draft=draft) for bases in kept)
        assert isinstance(parts, Tensor)
        mass = parts.sum(0)
        floor = FAINT[draft] * min(float(mass.max()), PEAKED * float(mass.mean()))
        seen = (parts >= floor).double()

        def rows_of(k: int, n: int) -> Tensor:
            """Nodes with cells that have mass beside them."""
            return _along(seen[k], [_near(n, fine)]).flatten().nonzero()[:, 0]

        work = [family.work(draft=draft) for family in self.families]
        least = sum(len(rows_of(k, nodes[0])) * each for k, each in enumerate(work))
        works = {n: least * (n / nodes[0]) ** len(ends) for n in nodes}
        n = max((n for n in nodes if works[n] <= budget), default=nodes[0])
        axes = [torch.linspace(*span, n, dtype=torch.float64) for span in spans]
        for k, family in enumerate(self.families):
            check()
            rows = rows_of(k, n)
            if len(rows):
                q = family.on_grid(given, axes, rows, draft=draft)
                values = q.mean().repeat(n ** len(ends))  # where there is no mass beside it
                values[rows] = q
                values = values.reshape([n] * len(ends))
                parts[k] *= _along(values, [_refinement(n, fine)]).clamp_(min=0)
        mass = parts.sum(0)
        if self.columns is not None:
            mass = _along(mass, [_overlaps(*pair) for pair in zip(placed, edges, strict=True)])
        return Cells(mass / mass.sum(), n, works[n])

    def plane(
        self,
        given: Tensor,
        log_mass: float,
        ends: Sequence[Ends],
        sides: Sequence[Tensor],
        nodes: Sequence[int],
        check: Check = nothing,
    ) -> "Cells":
        """Masses of the cells of a plane whose strips have the exact masses of the two columns.

        These are the two `sides`, each of shape (n_cells + 2,). Between the ends there is the
        exact probability. More nodes are taken, as long as there are any, where that moves mass.
        """
        inside = self.probability(given, log_mass, ends, check)
        within = torch.zeros(len(sides[0]), len(sides[1]), dtype=torch.bool)
        within[1:-1, 1:-1] = True
        for n in nodes:
            cells = self.masses(given, ends, len(sides[0]) - 2, [n], check=check)
            mass = with_sides(cells.mass, sides[0], sides[1], within, inside)
            before, after = (m[within] / m[within].sum() for m in (cells.mass, mass))
            if float((after - before).abs().sum()) < SHORT:
                break
        return replace(cells, mass=mass)

    def _maps(self, start: int, stop: int | None) -> MapTable:
        """Maps of some columns."""
        assert self.columns is not None
        return MapTable.of(self.columns[start:stop])

    def _placed(self, given: Tensor) -> Tensor:
        """Values of the columns given, behind their maps."""
        if self.columns is None or not len(given):
            return given
        z: Tensor = self._maps(0, len(given))(given[None])[0][0]
        return z

    def _at(self, given: Tensor) -> list[Bases]:
        """Bases of the columns shown."""
        return [bases.condition(given) for bases in self.bases]

    def _given(
        self, given: Tensor, log_mass: float | None = None, *, draft: bool = False
    ) -> tuple[list[Bases], float]:
        """Bases of the columns shown, all but those that have a faint share together.

        Their weights are relative to `log_mass`, or to the largest: the second value.
        """
        found = self._at(given)
        order = torch.cat([bases.log_weight for bases in found]).sort().values
        faint = int((order.softmax(0).cumsum(0) < FAINT[draft]).sum())
        log_scale = float(order[-1]) if log_mass is None else log_mass
        return [bases.above(float(order[faint]), log_scale) for bases in found], log_scale


def _each(kept: Iterable[Bases]) -> Iterator[tuple[int, Term]]:
    """Number of the family, and base, of each term."""
    return chain.from_iterable(bases.each() for bases in kept)


@dataclass(frozen=True)
class Cells:
    """Masses of cells, with the nodes and multiplications that they took.

    Along each axis the first and the last cell reach to infinity.
    """

    mass: Tensor  # (m + 2,) or (m + 2, m + 2)
    nodes: int
    work: float = 0.0


def with_sides(
    mass: Tensor, first: Tensor, second: Tensor, within: Tensor, inside: float | Tensor
) -> Tensor:
    """Masses (m, k) of cells, scaled strip by strip along both axes in turn to those of sides.

    So are the cells that lie `within` a box, and all others, to the mass inside it and the rest
    (Deming and Stephan, 1940).
    """
    mass = mass + torch.finfo(mass.dtype).eps * torch.outer(first, second)
    for _ in range(SCALINGS):
        mass = mass * (first / mass.sum(1)).nan_to_num(0)[:, None]
        mass = mass * (second / mass.sum(0)).nan_to_num(0)
        shares = inside / mass[within].sum(), (1 - inside) / mass[~within].sum()
        mass = mass * torch.where(within, *shares).nan_to_num(0, 0)
    return mass


def cell_edges(low: float, high: float, n: int) -> Tensor:
    """Edges (n + 3,) of n even cells and of the two beyond them.

    Examples
    --------
    >>> cell_edges(0.0, 1.0, 2)
    tensor([  -inf, 0.0000, 0.5000, 1.0000,    inf], dtype=torch.float64)
    """
    edges = torch.linspace(low, high, n + 1, dtype=torch.float64)
    infinite = edges.new_tensor([torch.inf])
    return torch.cat([-infinite, edges, infinite])


def _finite_ends(edges: Tensor) -> Ends:
    """Least and largest of the finite ones of edges."""
    finite = edges[edges.isfinite()]
    return float(finite.min()), float(finite.max())


def _overlaps(edges: Tensor, fine: Tensor) -> Tensor:
    """Shares (m, n) of fine cells that lie in coarse ones, given the edges of both.

    The first and the last fine cell reach to infinity; only equal ends cut them.
    """
    low, high = fine[:-1], fine[1:]
    width = (high - low).clamp(min=1e-300)
    below = ((edges[:, None] - low) / width).clamp(0, 1)
    below[:, 0] = (edges >= high[0]).to(below)
    below[:, -1] = (edges == torch.inf).to(below)
    return below.diff(dim=0)


def _quadrature(
    base: Term, low: Tensor, high: Tensor, sizes: Sequence[int]
) -> tuple[list[Tensor], Tensor, Tensor]:
    """Axes of a grid in a box, numbers of its points, and the mass of the base each stands for.

    Both have two columns. A narrow ridge, for which Gauss–Legendre rules are too long, has
    quasi-random points of its own: the diagonal of the grid of their coordinates.
    """
    if math.prod(sizes) > MAX_POINTS:
        n = 2**LOG_SCATTERED
        levels = torch.from_numpy(qmc.Sobol(2, seed=0).random_base2(LOG_SCATTERED))
        u, weight = scattered_points(base, low, high, levels)
        axes = list(base.offset[:, None] + base.scale @ u.mT)
        return axes, torch.arange(n) * (n + 1), weight / n
    rules = [legendre(n, a, b) for n, a, b in zip(sizes, low, high, strict=True)]
    axes = [nodes for nodes, _ in rules]
    points, weights = (torch.cartesian_prod(*parts) for parts in zip(*rules, strict=True))
    mass = weights.prod(1) * base.log_base(base.whiten(points)).exp()
    return axes, torch.arange(len(mass)), mass


def _along(values: Tensor, matrices: Sequence[Tensor]) -> Tensor:
    """Values, of one or two dimensions, with a matrix applied along each, or one along all."""
    for k in range(values.ndim):
        values = (matrices[k % len(matrices)] @ values).movedim(0, -1)
    return values


@lru_cache(maxsize=32)
def _refinement(n: int, n_cells: int) -> Tensor:
    """Matrix (n_cells + 2, n) from n even nodes to the middles of cells, by cubic splines.

    Beyond the axis it is as at its ends.
    """
    spline = make_interp_spline(np.linspace(0, 1, n), np.eye(n))
    middles = (np.arange(-1, n_cells + 1) + 0.5) / n_cells
    return torch.as_tensor(spline(np.clip(middles, 0, 1)))


@lru_cache(maxsize=32)
def _near(n: int, n_cells: int) -> Tensor:
    """Matrix (n, n_cells + 2) that is one where a cell is not farther than the next node."""
    cells = ((torch.arange(-1, n_cells + 1).double() + 0.5) / n_cells).clamp(0, 1) * (n - 1)
    return ((torch.arange(n)[:, None] - cells).abs() <= 1).double()

r"""Moments, and probabilities of boxes: closed forms where they are affordable, else draws.

Where the coordinates are independent under the base, the integral over a box is a closed form. A
Gaussian with correlations has none: the outer coordinates are integrated by Gauss–Legendre
quadrature and the last one by its series, to rounding, from a table of q on a grid that all boxes
share. Both grow with the frequencies of q, the table also as a power of the number of columns.
Beyond :data:`AFFORDABLE`, a term is a mean over randomized quasi-random points of the base within
the box (Genz, "Numerical computation of multivariate normal probabilities", 1992): unbiased, as
good for a narrow box as for a wide one, and with an error from independent repetitions.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import qmc
from torch import Tensor

from qaffde.functional.chebyshev import (
    antiderivative,
    chebyshev_basis,
    coefficients,
    series_length,
)
from qaffde.nn.calculus.base_laws import Law, UniformLaw
from qaffde.nn.calculus.column_series import (
    density_series,
    n_nodes,
    nodes_of,
    series_between,
    values_along,
)
from qaffde.nn.calculus.polynomial import BLOCK, WAVES
from qaffde.nn.calculus.terms import Term
from qaffde.nn.maps import MapTable

AFFORDABLE = 5e9
"""Multiplications that the probability of one box may cost, about half a second."""
REPETITIONS = 8
CONFIDENCE = 3.5
"""Standard errors of a mean of eight that hold 99 % (Student's t)."""
UNSEEN = 4.6
"""Divided by N, the largest probability of what N draws miss in one of a hundred cases."""
MIN_POINTS, MAX_POINTS = 2**6, 2**13
"""Quasi-random points of a repetition."""
MAX_SECTIONS = 1024
"""Points that quantiles are sought among at once."""


def box_probability(
    terms: Sequence[Term], lower: Tensor, upper: Tensor, shares: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Integral (n,) of a sum of terms over boxes, and the error of each, zero for a closed form.

    The terms have total mass one, after multiplication by `shares` of shape (n, K) if they are
    given. Boxes have ends of shape (n, d), of which at least one is finite in each column.
    """
    budget = AFFORDABLE / len(terms)
    parts = [_term_probability(term, lower, upper, budget) for term in terms]
    if shares is not None:
        parts = [(a * share, b * share) for (a, b), share in zip(parts, shares.T, strict=True)]
    means = torch.stack(torch.broadcast_tensors(*(mean for mean, _ in parts))).sum(0)
    error = torch.stack([unseen for _, unseen in parts]).sum(0)
    if len(means) > 1:
        error = error + CONFIDENCE * means.std(0) / math.sqrt(len(means))
    return means.mean(0).clamp(0, 1), error


def _term_probability(
    term: Term, lower: Tensor, upper: Tensor, budget: float
) -> tuple[Tensor, Tensor]:
    """Integral over boxes, and what its points may have missed, (n,).

    The integral is of shape (1, n) where it is exact, else it has a row for each repetition.
    """
    nothing = torch.zeros(len(lower), dtype=torch.float64)
    if term.n_dims == 1:
        integral = ColumnIntegral.of(term)
        return (integral(upper[:, 0]) - integral(lower[:, 0]))[None], nothing
    independent = bool((term.scale == term.scale.diagonal().diag()).all())
    if (_product_cost if independent else _nested_cost)(term) > budget:
        return _scattered_probability(term, lower, upper, budget)
    integrate = _product_probability if independent else _nested_probability
    return term.log_coefficient.exp() * integrate(term, lower, upper)[None], nothing


@dataclass(frozen=True)
class ColumnIntegral:
    """Integral of a term of one column from −∞ to x.

    By a series (1, m) on the law's reach; a constant form has none and needs none.
    """

    term: Term
    series: Tensor | None

    @classmethod
    def of(cls, term: Term) -> "ColumnIntegral":
        """Integrate the series of a term."""
        if not term.form.W.any():
            return cls(term, None)
        q = values_along(term.form, term.law, torch.empty(1, 0, dtype=torch.float64))
        density = density_series(term.form, term.law, q) * term.log_coefficient.exp()
        return cls(term, antiderivative(density))

    def __call__(self, x: Tensor) -> Tensor:
        """Values (n,) at x of shape (n,)."""
        law = self.term.law
        u = (x - self.term.offset[0]) / self.term.scale[0, 0]
        below = u.new_full((1,), -torch.inf)
        if self.series is None:
            return self.term.log_mass.exp() * law.between(below, u, torch.zeros_like(below))[1]
        return torch.cat([series_between(self.series, law, below, v) for v in u.split(BLOCK)])


@dataclass(frozen=True)
class Column:
    """Distribution of one column as a sum of integrals, which are divided by a scale."""

    parts: list[ColumnIntegral]
    log_scale: float = 0.0
    maps: MapTable | None = None

    def cdf(self, x: Tensor) -> Tensor:
        """Distribution function (n,) at x of shape (n,)."""
        return self._cdf(x if self.maps is None else self.maps.edges(x[:, None])[:, 0])

    def _cdf(self, x: Tensor) -> Tensor:
        return (self.below(x).sum(1) / self.total).clamp(0, 1)

    @property
    def log_mass(self) -> float:
        """Logarithm of the integral of all terms."""
        return self.log_scale + math.log(self.total)

    @cached_property
    def total(self) -> float:
        """Integral of all parts."""
        return float(self.below(torch.tensor([torch.inf], dtype=torch.float64)).sum())

    def below(self, x: Tensor) -> Tensor:
        """Integrals (n, K) of each part up to x of shape (n,)."""
        return torch.stack([part(x) for part in self.parts], 1)

    def ppf(self, q: Tensor) -> Tensor:
        """Quantiles (n,)."""
        reach = torch.stack([part.term.reach[:, 0] for part in self.parts])
        found = quantiles(self._cdf, q, reach[:, 0].min(), reach[:, 1].max())
        return found if self.maps is None else self.maps.inverse(found[:, None])[:, 0]


def quantiles(
    cdf: Callable[[Tensor], Tensor], q: Tensor, low: Tensor, high: Tensor, bits: int = 64
) -> Tensor:
    """Points (n,) between ends, of shape () or (n,), where an increasing function reaches q (n,).

    By sections: of few levels many at once, which cost as much as one.
    """
    low, high = (end.expand_as(q) for end in (low, high))
    m = 2 ** int(math.log2(min(max(MAX_SECTIONS / max(len(q), 1), 2), 64)))
    shares = torch.arange(m + 1, dtype=torch.float64) / m
    for _ in range(math.ceil(bits / math.log2(m))):
        edges = torch.lerp(low[:, None], high[:, None], shares)  # (n, m + 1)
        short = cdf(edges[:, 1:-1].flatten()).reshape(len(q), -1) < q[:, None]
        place = short.sum(1, keepdim=True)
        low, high = (edges.gather(1, place + k)[:, 0] for k in (0, 1))
    return (low + high) / 2


def _product_cost(term: Term) -> float:
    """Multiplications of a closed form for one box."""
    H, d = term.form.W.shape
    if isinstance(term.law, UniformLaw):
        return WAVES * H**2 * d
    return 8.0 * H**2 * sum(series_length(float(omega)) for omega in _top(term) * term.law.reach)


def _product_probability(term: Term, lower: Tensor, upper: Tensor) -> Tensor:
    """Integral (n,) of l·q over boxes, where C is diagonal."""
    ends = ((end - term.offset) / term.scale.diagonal() for end in (lower, upper))
    low, high = (end.clamp(-term.law.reach, term.law.reach) for end in ends)
    integrate = _uniform_product if isinstance(term.law, UniformLaw) else _normal_product
    found = torch.zeros(len(low), dtype=torch.float64)
    for row in (low < high).all(1).nonzero()[:, 0].tolist():
        found[row] = integrate(term, low[row], high[row])
    return found


def _uniform_product(term: Term, low: Tensor, high: Tensor) -> Tensor:
    """A part of a box is a box: the mean of q on it, times its volume."""
    center, half = (low + high) / 2, (high - low) / 2
    form = replace(term.form, W=term.form.W * half, b=term.form.b + term.form.W @ center)
    mean = form.integrated(0, term.law)
    return mean.coefficients(mean.b[None])[0] * half.prod()


def _normal_product(term: Term, low: Tensor, high: Tensor) -> Tensor:
    """Closed sum with E[1{u in box} e^{iω·u}] at all differences and sums of frequencies.

    The expectation over one coordinate is a Gauss–Legendre sum, so the D × D values are one
    product: exact to rounding, and far cheaper than D² values of the complex error function.
    """
    form, law = term.form, term.law
    difference = torch.ones((), dtype=torch.complex128)
    total = torch.ones((), dtype=torch.complex128)
    for w, top, a, b in zip(form.W.T, _top(term), low, high, strict=True):
        y, g = legendre(series_length(float(top * (b - a) / 2)), a, b)
        wave = torch.exp(1j * w[:, None] * y)
        weighted = wave * (g * law.log_density(y[:, None]).exp())
        difference = difference * (weighted.conj() @ wave.mT)
        total = total * (weighted @ wave.mT)
    inside = form.coefficients.pairs.schur(difference, total)
    return inside.of_waves(form.b.cos()[None], form.b.sin()[None])[0]


def _nested_cost(term: Term) -> float:
    """Multiplications of the table of q, and of the quadrature of one box."""
    form, law = term.form, term.law
    sizes = [float(n_nodes(form, law, column)) for column in range(term.n_dims)]
    outer = [_n_outer(term, column) for column in range(term.n_dims - 1)]
    contractions = [math.prod([*outer[: j + 1], *sizes[j:]]) for j in range(len(outer))]
    each = WAVES if term.shortcut else len(form.W) * form.coefficients.cost
    ends = WAVES / 2 * math.prod(outer) * series_length(float(_top(term)[-1]) * law.reach)
    rules = sum(n**3 for n in outer)  # of n nodes
    return math.prod(sizes) * each + sum(contractions) + ends + rules


def _nested_probability(term: Term, lower: Tensor, upper: Tensor) -> Tensor:
    """Integral (n,) of l·q over boxes: a table of the integral along the last coordinate."""
    d, form, law = term.n_dims, term.form, term.law
    axes = [nodes_of(form, law, column) for column in range(d)]
    if term.shortcut is None:
        q = values_along(form, law, torch.cartesian_prod(*axes[:-1]).reshape(-1, d - 1))
    else:
        q = term.shortcut.on_grid(*axes)
    table = antiderivative(density_series(form, law, q))
    table = table.reshape(*(len(axis) for axis in axes[:-1]), -1)
    for column in range(d - 1):
        table = coefficients(table.movedim(column, -1)).movedim(-1, column)
    return torch.stack([_quadrature(term, table, *box) for box in zip(lower, upper, strict=True)])


def _quadrature(term: Term, table: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """Quadrature over the coordinates before the last, within ends that move with them.

    `table`, of shape (m_1, …, m_d), has the coefficients of the integral along the last one.
    """
    law = term.law
    u, g = torch.empty(1, 0, dtype=torch.float64), torch.ones(1, dtype=torch.float64)
    series = table[None]
    for j in range(term.n_dims - 1):
        ends = (_moving_end(term, end, u) for end in (lower, upper))
        low, high = (end.clamp(-law.reach, law.reach) for end in ends)
        y, step = legendre(_n_outer(term, j), low[:, None], high[:, None])  # (n, m) each
        g = (g[:, None] * step * law.log_density(y[..., None]).exp()).flatten()
        u = torch.cat([u.repeat_interleave(y.shape[1], 0), y.reshape(-1, 1)], 1)
        basis = chebyshev_basis(y / law.reach, series.shape[1])
        series = (basis @ series.flatten(2)).reshape(len(u), *series.shape[2:])
    low, high = (_moving_end(term, end, u) for end in (lower, upper))
    return g @ series_between(series, law, low, high)


def _scattered_probability(
    term: Term, lower: Tensor, upper: Tensor, budget: float
) -> tuple[Tensor, Tensor]:
    """Means (repetitions, n) over quasi-random points of the base within each box.

    Each coordinate is a quantile of the law between its ends, given those before it; the mass
    between the ends is its weight. Columns come in the order of their masses, the least first,
    which leaves the least variance. What N points may have missed, (n,), is a part 4.6/N of the
    base, at 99 %, with values as large as the largest seen.
    """
    d, form = term.n_dims, term.form
    cost = REPETITIONS * (len(form.W) * form.coefficients.cost + 4 * WAVES * d)
    n_points = min(max(budget / cost / len(lower), MIN_POINTS), MAX_POINTS)
    engines = (qmc.Sobol(d, seed=seed) for seed in range(REPETITIONS))
    levels = torch.from_numpy(
        np.concatenate([engine.random_base2(int(math.log2(n_points))) for engine in engines])
    )
    spread = term.scale.norm(dim=1)
    low, high = ((end - term.offset) / spread for end in (lower, upper))
    order = term.law.between(low, high, torch.zeros_like(low))[1].argsort(1)
    found = [
        _scattered(term.reordered(columns.tolist()), a[columns], b[columns], levels)
        for columns, a, b in zip(order, lower, upper, strict=True)
    ]
    values = term.log_coefficient.exp() * torch.stack(found)
    means = values.reshape(len(lower), REPETITIONS, -1).mean(2).T
    return means, values.amax(1) * UNSEEN / len(levels)


def _scattered(term: Term, lower: Tensor, upper: Tensor, levels: Tensor) -> Tensor:
    """Values (n,) at the points of one box whose mean is the integral of l·q."""
    u, weight = scattered_points(term, lower, upper, levels)
    return weight * term.form(u)


def scattered_points(
    term: Term, lower: Tensor, upper: Tensor, levels: Tensor
) -> tuple[Tensor, Tensor]:
    """Points u (n, d) of a term's base within one box, at levels (n, d), and their weights (n,).

    The mean of the weights is the mass of the base in the box.
    """
    u, weight = levels[:, :0], levels.new_ones(len(levels))
    for level in levels.T:
        v, mass = term.law.between(_moving_end(term, lower, u), _moving_end(term, upper, u), level)
        u, weight = torch.cat([u, v[:, None]], 1), weight * mass
    return u, weight


def _moving_end(term: Term, end: Tensor, u: Tensor) -> Tensor:
    """End (n,) of the next coordinate of u, given those before it, of shape (n, j)."""
    j = u.shape[1]
    return (end[j] - term.offset[j] - u @ term.scale[j, :j]) / term.scale[j, j]


def _n_outer(term: Term, j: int) -> int:
    """Nodes of an outer coordinate: its own frequencies, and those of the ends that move."""
    top = _top(term)
    slope = (term.scale[j + 1 :, j] / term.scale.diagonal()[j + 1 :]).abs()
    omega = float(top[j] + slope @ top[j + 1 :]) * term.law.reach
    return series_length(omega)


def _top(term: Term) -> Tensor:
    """Highest frequency (d,) of l·q along each coordinate."""
    return 2 * term.form.W.abs().amax(0) + term.law.bandwidth


@lru_cache(maxsize=64)
def _rule(n: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    return np.polynomial.legendre.leggauss(n)


def legendre(n: int, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """Gauss–Legendre nodes and weights between ends that broadcast against (n,)."""
    nodes, weights = (torch.from_numpy(part) for part in _rule(n))
    half = (high - low) / 2
    return (low + high) / 2 + half * nodes, half * weights


def panels(edges: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Nodes and weights (..., (k − 1) n) of Gauss–Legendre rules between edges (..., k)."""
    nodes, weights = legendre(n, edges[..., :-1, None], edges[..., 1:, None])
    return nodes.flatten(-2), weights.flatten(-2)


def term_mean(term: Term, x: Tensor, mean_q: Tensor) -> Tensor:
    r"""Means (n, d − t) of the last columns of a term, given the first, `x` of shape (n, t).

    Along a coordinate v of the law, :math:`E[v e^{i\omega v}] = i E[v \sin \omega v]`: one form in
    the cosines and sines of the phases that x gives. `mean_q` (n,) is the mean of q over the last
    columns, given x.
    """
    t, u = x.shape[1], term.whiten(x)
    pairs = term.form.coefficients.pairs
    moment = PairMoments(term.law, term.form.W[:, t:])
    forms = [pairs.schur(-1j * moment(-1, k), 1j * moment(1, k)) for k in range(term.n_dims - t)]

    def first_moments(u: Tensor) -> Tensor:
        theta = term.form.phases(u)
        c, s = theta.cos(), theta.sin()
        return torch.stack([form.of_waves(c, s) for form in forms], 1)

    v = torch.cat([first_moments(block) for block in u.split(BLOCK)])
    return term.unwhiten(u, v / mean_q[:, None])


def term_second_moment(term: Term, origin: Tensor) -> Tensor:
    """E[(x − origin)(x − origin)ᵀ] of a term divided by its mass, of shape (d, d)."""
    d, form = term.n_dims, term.form
    moment = PairMoments(term.law, form.W)
    c, s = form.b.cos()[None], form.b.sin()[None]
    mass = (term.log_mass - term.log_coefficient).exp()
    second = torch.empty(d, d, dtype=torch.float64)
    for i in range(d):
        for j in range(i + 1):
            at_pairs = (moment(sign, i, j) for sign in (-1, 1))
            value = form.coefficients.pairs.schur(*at_pairs).of_waves(c, s)[0]
            second[i, j] = second[j, i] = value / mass
    mean = term_mean(term, torch.empty(1, 0, dtype=torch.float64), mass[None])[0]
    shift = mean - term.offset
    about_offset = term.scale @ second @ term.scale.T
    covariance = about_offset - torch.outer(shift, shift)
    return covariance + torch.outer(mean - origin, mean - origin)


class PairMoments:
    """Moments of a product law at all differences and sums of frequencies (D, d), each (D, D)."""

    def __init__(self, law: Law, W: Tensor) -> None:
        self.law, self.W = law, W
        self._plain: dict[tuple[int, int], Tensor] = {}

    def __call__(self, sign: int, *columns: int) -> Tensor:
        """E[u_t sin ω·u], or E[u_s u_t cos ω·u] of two columns, at ω = w_i + sign·w_j."""
        found = [self._along(t, sign, columns.count(t)) for t in range(self.W.shape[1])]
        sines = -1 if len(set(columns)) == 2 else 1
        return sines * math.prod(found, start=torch.ones((), dtype=self.W.dtype))

    def _along(self, t: int, sign: int, order: int) -> Tensor:
        """Moment of one column; those of order zero are in all products and are kept."""
        if not order and (t, sign) in self._plain:
            return self._plain[t, sign]
        w = self.W[:, t]
        found = self.law.characteristic(w[:, None] + sign * w, order)
        if not order:
            self._plain[t, sign] = found
        return found

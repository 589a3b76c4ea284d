"""Probabilities of boxes under one term."""

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from qaffde.functional.chebyshev import antiderivative, series_length
from qaffde.nn.calculus.base_laws import UniformLaw
from qaffde.nn.calculus.column_series import density_series, series_between, values_along
from qaffde.nn.calculus.polynomial import BLOCK
from qaffde.nn.calculus.terms import Term

MAX_NESTED_DIMS = 3
SCATTERED_POINTS = 2**15


def term_probability(term: Term, lower: Tensor, upper: Tensor) -> Tensor:
    """Integral of a term over a box with ends of shape (d,), infinite ones allowed.

    Where the coordinates are independent under the base, it is a closed form. A Gaussian with
    correlations has none on a box: in two and three dimensions the outer coordinates are
    integrated by Gauss–Legendre quadrature and the last one by its series, to rounding; beyond,
    all of them by quasi-random points, to about 1e-4.
    """
    keep = ((lower > -torch.inf) | (upper < torch.inf)).nonzero()[:, 0].tolist()
    if len(keep) < term.n_dims:
        rest = [c for c in range(term.n_dims) if c not in keep]
        term = term.reordered([*keep, *rest]).marginal(len(keep))
        return term_probability(term, lower[keep], upper[keep]) if keep else term.log_mass.exp()
    if term.n_dims == 1:
        above, below = ColumnIntegral.of(term)(torch.cat([upper, lower]))
        return above - below
    if not bool((term.scale == term.scale.diagonal().diag()).all()):
        integrate = (
            _nested_probability if term.n_dims <= MAX_NESTED_DIMS else _scattered_probability
        )
        return term.log_coefficient.exp() * integrate(term, lower, upper)
    low, high = _whitened_ends(term, lower, upper)
    if bool((high <= low).any()):
        return torch.zeros((), dtype=torch.float64)
    if isinstance(term.law, UniformLaw):
        return _uniform_probability(term, low, high)
    return term.log_coefficient.exp() * _product_probability(term, low, high)


@dataclass(frozen=True)
class ColumnIntegral:
    """Integral of a term of one column from −∞ to x.

    Parameters
    ----------
    term : Term
    series : Tensor of shape (1, m)
        Of the integral along the law's reach.
    """

    term: Term
    series: Tensor

    @classmethod
    def of(cls, term: Term) -> "ColumnIntegral":
        """Integrate the series of a term."""
        q = values_along(term.form, term.law, torch.empty(1, 0, dtype=torch.float64))
        density = density_series(term.form, term.law, q) * term.log_coefficient.exp()
        return cls(term, antiderivative(density))

    def __call__(self, x: Tensor) -> Tensor:
        """Values (n,) at x of shape (n,)."""
        law = self.term.law
        u = (x - self.term.offset[0]) / self.term.scale[0, 0]
        below = u.new_full((1,), -torch.inf)
        return torch.cat([series_between(self.series, law, below, v) for v in u.split(BLOCK)])


def _whitened_ends(term: Term, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
    """Ends in units of u, cut to the law's reach, for a diagonal C."""
    ends = ((end - term.offset) / term.scale.diagonal() for end in (lower, upper))
    low, high = (end.clamp(-term.law.reach, term.law.reach) for end in ends)
    return low, high


def _uniform_probability(term: Term, low: Tensor, high: Tensor) -> Tensor:
    """A part of a box is a box: the mass of the term rescaled to it."""
    center, half = (low + high) / 2, (high - low) / 2
    form = replace(term.form, W=term.form.W * half, b=term.form.b + term.form.W @ center)
    return replace(term, form=form).log_mass.exp() * half.prod()


def _product_probability(term: Term, low: Tensor, high: Tensor) -> Tensor:
    """Closed sum with E[1{u in box} e^{iω·u}] at all differences and sums of frequencies.

    The expectation over one coordinate is a Gauss–Legendre sum, so the D × D values are one
    product: exact to rounding, and far cheaper than D² values of the complex error function.
    """
    form, law = term.form, term.law
    difference = torch.ones((), dtype=torch.complex128)
    total = torch.ones((), dtype=torch.complex128)
    for w, a, b in zip(form.W.T, low, high, strict=True):
        omega = (2 * float(w.abs().max()) + law.bandwidth) * float(b - a) / 2
        y, g = legendre(series_length(omega), a, b)
        wave = torch.exp(1j * w[:, None] * y)
        weighted = wave * (g * law.log_density(y[:, None]).exp())
        difference = difference * (weighted.conj() @ wave.mT)
        total = total * (weighted @ wave.mT)
    inside = form.coefficients.pairs.schur(difference, total)
    return inside.of_waves(form.b.cos()[None], form.b.sin()[None])[0]


def _nested_probability(term: Term, lower: Tensor, upper: Tensor) -> Tensor:
    """Quadrature over the coordinates before the last, within ends that move with them."""
    d, law = term.n_dims, term.law
    u, g = torch.empty(1, 0, dtype=torch.float64), torch.ones(1, dtype=torch.float64)
    for j in range(d - 1):
        ends = (_moving_end(term, end, u) for end in (lower, upper))
        low, high = (end.clamp(-law.reach, law.reach) for end in ends)
        y, step = legendre(_n_outer(term, j), low[:, None], high[:, None])  # (n, m) each
        g = (g[:, None] * step * law.log_density(y[..., None]).exp()).flatten()
        u = torch.cat([u.repeat_interleave(y.shape[1], 0), y.reshape(-1, 1)], 1)
    blocks = zip(u.split(BLOCK), g.split(BLOCK), strict=True)
    return torch.stack([(h * _inner(term, v, lower, upper)).sum() for v, h in blocks]).sum()


def _scattered_probability(term: Term, lower: Tensor, upper: Tensor) -> Tensor:
    """Mean over quasi-random points of the normal law within the box (Genz, 1992).

    Each coordinate is a quantile of the normal law between its ends, given those before it; the
    mass between the ends is its weight.
    """
    engine = torch.quasirandom.SobolEngine(term.n_dims, scramble=True, seed=0)
    levels = engine.draw(SCATTERED_POINTS, dtype=torch.float64)
    u, weight = levels[:, :0], levels.new_ones(len(levels))
    for level in levels.T:
        low, high = (_moving_end(term, end, u) for end in (lower, upper))
        flipped = low > 0  # the upper tail has digits where the distribution function is near one
        low, high = torch.where(flipped, -high, low), torch.where(flipped, -low, high)
        below, above = torch.special.ndtr(low), torch.special.ndtr(high)
        quantile = torch.special.ndtri(below + level * (above - below))
        quantile = torch.where(flipped, -quantile, quantile)
        u = torch.cat([u, quantile.clamp(-term.law.reach, term.law.reach)[:, None]], 1)
        weight = weight * (above - below)
    return (weight * term.form(u)).mean()


def _inner(term: Term, u: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """Integral (n,) over the last coordinate, given the others, of shape (n, d − 1)."""
    low, high = (_moving_end(term, end, u) for end in (lower, upper))
    density = density_series(term.form, term.law, values_along(term.form, term.law, u))
    return series_between(antiderivative(density), term.law, low, high)


def _moving_end(term: Term, end: Tensor, u: Tensor) -> Tensor:
    """End (n,) of the next coordinate of u, given those before it, of shape (n, j)."""
    j = u.shape[1]
    return (end[j] - term.offset[j] - u @ term.scale[j, :j]) / term.scale[j, j]


def _n_outer(term: Term, j: int) -> int:
    """Nodes of an outer coordinate: its own frequencies, and those of the ends that move."""
    top = 2 * term.form.W.abs().amax(0) + term.law.bandwidth
    slope = (term.scale[j + 1 :, j] / term.scale.diagonal()[j + 1 :]).abs()
    omega = float(top[j] + slope @ top[j + 1 :]) * term.law.reach
    return series_length(omega)


def legendre(n: int, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """Gauss–Legendre nodes and weights between ends that broadcast against (n,)."""
    nodes, weights = (torch.as_tensor(part) for part in np.polynomial.legendre.leggauss(n))
    half = (high - low) / 2
    return (low + high) / 2 + half * nodes, half * weights

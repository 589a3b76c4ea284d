r"""First and second moments of one term, from derivatives of its characteristic function."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from qaffde.nn.calculus.base_laws import Law
from qaffde.nn.calculus.polynomial import BLOCK
from qaffde.nn.calculus.terms import Term


def term_mean(term: Term, x: Tensor, mean_q: Tensor) -> Tensor:
    r"""Means (n, d − t) of the last columns of a term, given the first, `x` of shape (n, t).

    Along a coordinate v of the law, :math:`E[v e^{i\omega v}] = i E[v \sin \omega v]`: one form in
    the cosines and sines of the phases that x gives. `mean_q` (n,) is the mean of q over the last
    columns, given x.
    """
    t, u = x.shape[1], term.whiten(x)
    if not term.form.W.any():
        return term.unwhiten(u, u.new_zeros(len(u), term.n_dims - t))
    pairs = term.form.coefficients.pairs
    moments = PairMoments(term.law, term.form.W[:, t:])
    forms = [
        pairs.schur(-1j * moments.first(k, -1), 1j * moments.first(k, 1))
        for k in range(term.n_dims - t)
    ]

    def first_moments(u: Tensor) -> Tensor:
        theta = term.form.phases(u)
        c, s = theta.cos(), theta.sin()
        return torch.stack([form.of_waves(c, s) for form in forms], 1)

    v = torch.cat([first_moments(block) for block in u.split(BLOCK)])
    return term.unwhiten(u, v / mean_q[:, None])


def term_second_moment(term: Term, origin: Tensor) -> Tensor:
    """E[(x − origin)(x − origin)ᵀ] of a term divided by its mass, of shape (d, d)."""
    d, form = term.n_dims, term.form
    if not form.W.any():
        shift = term.offset - origin
        variance = term.law.characteristic(torch.zeros(d, dtype=torch.float64), 2)
        return (term.scale * variance) @ term.scale.T + torch.outer(shift, shift)
    moments = PairMoments(term.law, form.W)
    c, s = form.b.cos()[None], form.b.sin()[None]
    mass = (term.log_mass - term.log_coefficient).exp()
    second = torch.empty(d, d, dtype=torch.float64)
    for i in range(d):
        for j in range(i + 1):
            at_pairs = (moments.second(i, j, sign) for sign in (-1, 1))
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
        self._plain = {
            sign: [law.characteristic(self._omega(t, sign)) for t in range(W.shape[1])]
            for sign in (-1, 1)
        }

    def first(self, t: int, sign: int) -> Tensor:
        """E[u_t sin ω·u] at ω = w_i + sign·w_j."""
        return self._moment(t, sign, 1) * self._others([t], sign)

    def second(self, s: int, t: int, sign: int) -> Tensor:
        """E[u_s u_t cos ω·u] at ω = w_i + sign·w_j."""
        if s == t:
            return self._moment(t, sign, 2) * self._others([t], sign)
        both = self._moment(s, sign, 1) * self._moment(t, sign, 1)
        return -both * self._others([s, t], sign)

    def _omega(self, t: int, sign: int) -> Tensor:
        w = self.W[:, t]
        return w[:, None] + sign * w

    def _moment(self, t: int, sign: int, order: int) -> Tensor:
        return self.law.characteristic(self._omega(t, sign), order)

    def _others(self, columns: Sequence[int], sign: int) -> Tensor:
        plain = self._plain[sign]
        kept = [factor for t, factor in enumerate(plain) if t not in columns]
        return math.prod(kept, start=torch.ones((), dtype=self.W.dtype))

r"""First and second moments of one term, from derivatives of its characteristic function."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from qaffde.nn.laws import Law
from qaffde.nn.terms import Term


def term_mean(term: Term, x: Tensor) -> Tensor:
    r"""Means (n, d − t) of the last columns of a term, given the first, `x` of shape (n, t).

    Along a coordinate v of the law, :math:`E[v \cos(\alpha + wv) \cos(\beta + w'v)]` leaves
    :math:`-\cos\alpha \sin\beta\, E[v \cos wv \sin w'v]` and its mirror: one bilinear form in the
    cosines and sines of the phases that x gives.
    """
    t = x.shape[1]
    u = term.whiten(x)
    theta = term.form.b + u @ term.form.W[:, :t].T  # (n, D)
    c, s = theta.cos(), theta.sin()
    mass = term.form.integrated(t, term.law).at(theta)
    pairs = PairMoments(term.law, term.form.W[:, t:])
    columns = []
    for k in range(term.n_dims - t):
        cross = (pairs.first(k, 1) - pairs.first(k, -1)) / 2  # E[v_k cos w_i·v sin w_j·v]
        bilinear = term.form.Q.mul(cross).T - term.form.P * cross
        columns.append(2 * ((c @ bilinear) * s).sum(1) / mass)
    v = torch.stack(columns, 1)
    return term.offset[t:] + u @ term.scale[t:, :t].T + v @ term.scale[t:, t:].T


def term_second_moment(term: Term, origin: Tensor) -> Tensor:
    """E[(x − origin)(x − origin)ᵀ] of a term divided by its mass, of shape (d, d)."""
    d, form = term.n_dims, term.form
    pairs = PairMoments(term.law, form.W)
    c, s = form.b.cos(), form.b.sin()
    even, odd = torch.outer(c, c), torch.outer(s, s)
    with_cosines = form.P * even + form.Q * odd
    with_sines = form.Q * even + form.P * odd
    plus, minus = (with_cosines + with_sines) / 2, (with_cosines - with_sines) / 2
    mass = (term.log_mass - term.log_coefficient).exp()
    second = torch.empty(d, d, dtype=torch.float64)
    for i in range(d):
        for j in range(i + 1):
            value = (plus * pairs.second(i, j, -1) + minus * pairs.second(i, j, 1)).sum()
            second[i, j] = second[j, i] = value / mass
    mean = term_mean(term, torch.empty(1, 0, dtype=torch.float64))[0]
    shift = mean - term.offset
    about_offset = term.scale @ second @ term.scale.T
    covariance = about_offset - torch.outer(shift, shift)
    return covariance + torch.outer(mean - origin, mean - origin)


class PairMoments:
    """Moments of a product law at all differences and sums of D frequencies, each (D, D).

    Parameters
    ----------
    law : Law
    W : Tensor of shape (D, d)
    """

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

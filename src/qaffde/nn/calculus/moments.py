r"""First and second moments of one term, from derivatives of its characteristic function."""

import math

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

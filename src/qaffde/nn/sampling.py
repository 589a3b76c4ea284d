r"""Exact draws, coordinate by coordinate, from one-dimensional conditionals.

The density of one coordinate u given those before it, with those after it integrated out, is a
law times a trigonometric polynomial. It is read at Chebyshev nodes, integrated as a series and
inverted by bisection: the distribution function of a draw is right to about 1e-10.
"""

from collections.abc import Callable

import torch
from torch import Generator, Tensor

from qaffde.functional.chebyshev import (
    antiderivative,
    chebyshev_basis,
    chebyshev_nodes,
    coefficients,
    invert_increasing,
    series_at,
    series_length,
)
from qaffde.nn.laws import Law
from qaffde.nn.terms import Term, TrigonometricForm

ROWS = 4096


def sample_term(term: Term, x: Tensor, generator: Generator) -> Tensor:
    """Draws (n, d − t) of the last columns of a term, given the first, `x` of shape (n, t)."""
    t = x.shape[1]
    u = term.whiten(x)
    for j in range(t, term.n_dims):
        form = term.form.integrated(j + 1, term.law)
        read = _reader(form, term.law, u)
        draws = [_draw(form, term.law, read(v), generator) for v in u.split(ROWS)]
        u = torch.cat([u, torch.cat(draws)[:, None]], 1)
    return (term.offset + u @ term.scale.T)[:, t:]


def _draw(form: TrigonometricForm, law: Law, q: Tensor, generator: Generator) -> Tensor:
    slope = density_series(form, law, q)
    series = antiderivative(slope)
    level = torch.rand(len(series), generator=generator, dtype=torch.float64)
    total = series.sum(1)  # every T_k(1) is one
    return law.reach * invert_increasing(series, slope, level * total)


def nodes_of(form: TrigonometricForm, law: Law, column: int) -> Tensor:
    """Points of one coordinate that determine q along it: its frequencies are 2·max|w|."""
    omega = 2 * float(form.W[:, column].abs().max()) * law.reach
    return law.reach * chebyshev_nodes(series_length(omega))


def values_along(form: TrigonometricForm, law: Law, u: Tensor) -> Tensor:
    """Values (n, m) of q at the nodes of the last coordinate, given the others, (n, d − 1)."""
    nodes = nodes_of(form, law, -1)
    angle = nodes[:, None] * form.W[:, -1]  # (m, D)
    start = form.b + u @ form.W[:, :-1].T  # (n, D)
    step = max(1, ROWS // len(nodes))
    return torch.cat([_on_grid(form, theta, angle) for theta in start.split(step)])


def _on_grid(form: TrigonometricForm, theta: Tensor, angle: Tensor) -> Tensor:
    """Values (n, m) of q at all sums of phases (n, D) and (m, D), by the addition theorem."""
    c, s = theta.cos()[:, None], theta.sin()[:, None]
    cosines = torch.addcmul(c * angle.cos(), s, angle.sin(), value=-1).flatten(0, 1)
    if form.factor is not None:
        return form.of_waves(cosines, cosines).reshape(-1, len(angle))
    sines = torch.addcmul(s * angle.cos(), c, angle.sin()).flatten(0, 1)
    return form.of_waves(cosines, sines).reshape(-1, len(angle))


def density_series(form: TrigonometricForm, law: Law, q: Tensor) -> Tensor:
    """Series (n, m), on the law's reach, of law·q along the last coordinate.

    Parameters
    ----------
    q : Tensor of shape (n, m')
        Values at the nodes of the last coordinate.
    """
    omega = (2 * float(form.W[:, -1].abs().max()) + law.bandwidth) * law.reach
    y = chebyshev_nodes(max(series_length(omega), q.shape[1]))
    fine = coefficients(q) @ chebyshev_basis(y, q.shape[1]).T
    density = fine * law.log_density(law.reach * y[:, None]).exp()
    return coefficients(density) * law.reach


def series_between(series: Tensor, law: Law, lower: Tensor, upper: Tensor) -> Tensor:
    """Integral (n,) between two ends of shape (n,), row by row."""
    ends = (end.clamp(-law.reach, law.reach) / law.reach for end in (upper, lower))
    above, below = (series_at(series, end) for end in ends)
    return above - below


def _reader(form: TrigonometricForm, law: Law, u: Tensor) -> Callable[[Tensor], Tensor]:
    """How to get q at the nodes of the next coordinate, given the coordinates before it.

    The first coordinate has one density for all rows. The second is read from a table of q on the
    nodes of both, which costs no more than scoring a few thousand points. Beyond, every row is
    read at every node.
    """
    j = u.shape[1]
    if j == 0:
        shared = values_along(form, law, u[:1])
        return lambda v: shared.expand(len(v), -1)
    nodes = nodes_of(form, law, 0)
    if j == 1 and len(u) > len(nodes) and u.abs().max() <= law.reach:
        table = values_along(form, law, nodes[:, None])
        spectrum = coefficients(table.T).T  # (m_1, m_2)
        return lambda v: chebyshev_basis(v[:, 0] / law.reach, len(nodes)) @ spectrum
    return lambda v: values_along(form, law, v)

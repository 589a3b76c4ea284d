r"""Chebyshev series of a trigonometric polynomial along one column.

Along one coordinate a form is a trigonometric polynomial in one variable: its values at a few
nodes determine it everywhere on the law's reach, to rounding, and with it every integral.
"""

import torch
from torch import Tensor

from qaffde.functional.chebyshev import (
    chebyshev_basis,
    chebyshev_nodes,
    coefficients,
    series_at,
    series_length,
)
from qaffde.nn.calculus.base_laws import Law
from qaffde.nn.calculus.polynomial import BLOCK, TrigonometricForm

MAX_NODES = 8192
"""Along one coordinate; a series through them takes half a gigabyte."""
GRID_POINTS = 4096
"""Points whose waves are computed at once."""


def nodes_of(form: TrigonometricForm, law: Law, column: int) -> Tensor:
    """Points of one coordinate that determine q along it: its frequencies are 2·max|w|."""
    n = n_nodes(form, law, column)
    if n > MAX_NODES:
        raise ValueError(
            f"the density is too fine for an exact answer: along one column it has {n} nodes, and "
            f"at most {MAX_NODES} are computed; fit with a larger bandwidth"
        )
    return law.reach * chebyshev_nodes(n)


def n_nodes(form: TrigonometricForm, law: Law, column: int) -> int:
    """Number of those points."""
    return series_length(2 * float(form.W[:, column].abs().max()) * law.reach)


def values_along(form: TrigonometricForm, law: Law, u: Tensor) -> Tensor:
    """Values (n, m) of q at the nodes of the last coordinate, given the others, (n, d − 1)."""
    nodes = nodes_of(form, law, -1)
    angle = nodes[:, None] * form.W[:, -1]  # (m, H)
    start = form.phases(u)  # (n, H)
    step = max(1, GRID_POINTS // len(nodes))
    return torch.cat([_on_grid(form, theta, angle) for theta in start.split(step)])


def _on_grid(form: TrigonometricForm, theta: Tensor, angle: Tensor) -> Tensor:
    """Values (n, m) of q at all sums of phases (n, H) and (m, H), by the addition theorem."""
    c, s = theta.cos()[:, None], theta.sin()[:, None]
    cosines = torch.addcmul(c * angle.cos(), s, angle.sin(), value=-1).flatten(0, 1)
    sines = cosines
    if form.coefficients.needs_sines:
        sines = torch.addcmul(s * angle.cos(), c, angle.sin()).flatten(0, 1)
    return form.coefficients.of_waves(cosines, sines).reshape(-1, len(angle))


def density_series(form: TrigonometricForm, law: Law, q: Tensor, column: int = -1) -> Tensor:
    """Series (n, m), on the law's reach, of law·q along one coordinate, from q at its nodes."""
    omega = (2 * float(form.W[:, column].abs().max()) + law.bandwidth) * law.reach
    y = chebyshev_nodes(max(series_length(omega), q.shape[1]))
    fine = coefficients(q) @ chebyshev_basis(y, q.shape[1]).T
    density = fine * law.log_density(law.reach * y[:, None]).exp()
    return coefficients(density) * law.reach


def series_between(series: Tensor, law: Law, lower: Tensor, upper: Tensor) -> Tensor:
    """Integral (n,) between two ends of shape (n,), row by row."""
    ends = (end.clamp(-law.reach, law.reach) / law.reach for end in (upper, lower))
    above, below = (series_at(series, end) for end in ends)
    return above - below


def values_of_column(form: TrigonometricForm, law: Law, u: Tensor) -> Tensor:
    """Values (n,) of a form of one coordinate at u of shape (n, 1).

    Many points are read from the series, which costs as much as the form at its nodes; few, and
    those beyond the law's reach, from the form itself.
    """
    few = n_nodes(form, law, 0) < min(len(u), MAX_NODES)
    near = (u[:, 0].abs() <= law.reach) & few
    q = torch.empty_like(u[:, 0])
    q[~near] = form(u[~near])
    if near.any():
        nodes = nodes_of(form, law, 0)
        series = coefficients(form(nodes[:, None]))
        bases = (chebyshev_basis(y / law.reach, len(nodes)) for y in u[near, 0].split(BLOCK))
        q[near] = torch.cat([basis @ series for basis in bases]).clamp_(min=0)
    return q

r"""Exact draws from one term, by rejection or coordinate by coordinate: whichever costs less.

Rejection is cheapest where q is nearly flat, in any dimension: propose from the base and accept
with probability q(u) / max q. The bound of q is proven, not searched for
(:attr:`~qaffde.nn.calculus.polynomial.Coefficients.bound`), so the draws are exact. A draw takes
:math:`\max q / E[q]` proposals on average, each of the cost of scoring one point.

Drawing in sequence is cheaper where q has peaks, and given rare values: the density of one
coordinate u given those before it, with those after it integrated out, is a law times a
trigonometric polynomial. It is read at Chebyshev nodes, integrated as a series and inverted by
Newton's method: the distribution function of a draw is right to about 1e-10. On a lattice of two
columns the nodes are read from a table of a short series, which is cheaper than either.
"""

from collections.abc import Callable

import torch
from torch import Generator, Tensor

from qaffde.functional.chebyshev import (
    antiderivative,
    chebyshev_basis,
    coefficients,
    invert_increasing,
)
from qaffde.nn.calculus.base_laws import Law
from qaffde.nn.calculus.column_series import density_series, n_nodes, nodes_of, values_along
from qaffde.nn.calculus.polynomial import BLOCK, WAVES, TrigonometricForm
from qaffde.nn.calculus.terms import Shortcut, Term

ROWS = 4096
"""Rows that are drawn at once."""
TABLED = 2000.0
"""Cost of a coordinate that is read from a table, in the currency of Coefficients.cost."""
MIN_PROPOSALS = 256
"""In one evaluation: few rows are tried several times at once."""


def sample_term(
    term: Term,
    x: Tensor,
    mean_q: Tensor,
    generator: Generator,
    outside: Tensor | None = None,
) -> Tensor:
    """Draws (n, d − t) of the last columns of a term, given the first, `x` of shape (n, t).

    `mean_q` (n,) is the mean of q over the last columns, given x and the columns from `outside`.
    """
    u = term.whiten(x)
    form, given = term.form, u
    if outside is not None:
        d, e = term.n_dims, outside.shape[1]
        form, given = form.moved([*range(d, d + e), *range(d)]), torch.cat([outside, u], 1)
    if x.shape[1] == 0 and term.shortcut is not None:
        return term.unwhiten(u, draw_in_plane(term.shortcut, term.law, len(x), generator))
    cost = sequential_cost(form, term.law, given.shape[1])
    q = form.coefficients
    quick = q.bound * q.cost <= cost * mean_q
    drawn = torch.empty(len(x), term.n_dims - x.shape[1], dtype=torch.float64)
    for rows, draw in ((quick, draw_by_rejection), (~quick, draw_in_sequence)):
        if rows.any():
            drawn[rows] = draw(form, term.law, given[rows], generator)
    return term.unwhiten(u, drawn)


def draw_in_plane(values: Shortcut, law: Law, n: int, generator: Generator) -> Tensor:
    """Draws (n, 2), from a table of q on the nodes of both coordinates."""
    form = values.form
    table = values.on_grid(*(nodes_of(form, law, column) for column in range(2)))
    slopes = density_series(form, law, table)  # (m_1, m_2)
    mass = antiderivative(slopes).sum(1)  # every T_k(1) is one
    u = _draw(density_series(form, law, mass[None], column=0), law, n, generator)
    read = _between_rows(slopes, law)
    draws = [_draw(read(v), law, len(v), generator) for v in u[:, None].split(ROWS)]
    return torch.stack([u, torch.cat(draws)], 1)


def draw_in_sequence(form: TrigonometricForm, law: Law, u: Tensor, generator: Generator) -> Tensor:
    """Draws (n, d − t) of the last coordinates, row by row given the first, `u` (n, t)."""
    t = u.shape[1]
    for j in range(t, form.W.shape[1]):
        marginal = form.integrated(j + 1, law)
        read = _reader(marginal, law, u)
        draws = [
            _draw(density_series(marginal, law, read(v)), law, len(v), generator)
            for v in u.split(ROWS)
        ]
        u = torch.cat([u, torch.cat(draws)[:, None]], 1)
    return u[:, t:]


def sequential_cost(form: TrigonometricForm, law: Law, t: int) -> float:
    """Cost of drawing a row's coordinates from t on in sequence."""
    H, d = form.W.shape
    evaluations = [WAVES + 3 * H] * (d - 1 - t) + [form.coefficients.cost]
    return sum(
        TABLED if j < 2 else n_nodes(form, law, j) * each for j, each in enumerate(evaluations, t)
    )


def _draw(slope: Tensor, law: Law, n: int, generator: Generator) -> Tensor:
    """Draws (n,) of densities whose series are (n, m), or (1, m) if it is one for all."""
    return _quantiles(slope, law, torch.rand(n, generator=generator, dtype=torch.float64))


def _quantiles(slope: Tensor, law: Law, level: Tensor) -> Tensor:
    """Quantiles (n,) of the same densities."""
    series = antiderivative(slope)
    total = series.sum(1)  # every T_k(1) is one
    return law.reach * invert_increasing(series, slope, level * total)


def term_quantiles(term: Term, level: Tensor) -> Tensor:
    """Quantiles (n, 1) of a term of one column."""
    nothing = torch.empty(1, 0, dtype=torch.float64)
    slope = density_series(term.form, term.law, values_along(term.form, term.law, nothing))
    u = torch.cat([_quantiles(slope, term.law, part) for part in level.split(ROWS)])
    return term.unwhiten(nothing, u[:, None])


def _reader(form: TrigonometricForm, law: Law, u: Tensor) -> Callable[[Tensor], Tensor]:
    """How to get q at the nodes of the next coordinate, given the coordinates before it.

    The first coordinate has one density for all rows. The second is read from a table of q on the
    nodes of both, which costs no more than scoring a few thousand points. Beyond, every row is
    read at every node.
    """
    j = u.shape[1]
    if j == 0:
        shared = values_along(form, law, u[:1])
        return lambda v: shared
    if j == 1 and len(u) > n_nodes(form, law, 0) and u.abs().max() <= law.reach:
        table = values_along(form, law, nodes_of(form, law, 0)[:, None])
        return _between_rows(table, law)
    return lambda v: values_along(form, law, v)


def _between_rows(table: Tensor, law: Law) -> Callable[[Tensor], Tensor]:
    """Rows (n, m_2) at coordinates (n, 1) from those (m_1, m_2) at the nodes, by their series."""
    spectrum = coefficients(table.T).T
    return lambda v: chebyshev_basis(v[:, 0] / law.reach, len(spectrum)) @ spectrum


def draw_by_rejection(
    form: TrigonometricForm, law: Law, u: Tensor, generator: Generator
) -> Tensor:
    """Draws (n, d − t) of the last coordinates, row by row given the first, `u` (n, t)."""
    return torch.cat([_draw_block(form, law, v, generator) for v in u.split(BLOCK)])


def _draw_block(form: TrigonometricForm, law: Law, u: Tensor, generator: Generator) -> Tensor:
    start, W = form.phases(u), form.W[:, u.shape[1] :]
    drawn = torch.empty(len(u), W.shape[1], dtype=torch.float64)
    waiting = torch.arange(len(u))
    while len(waiting):
        tries = -(-MIN_PROPOSALS // len(waiting))
        v = law.draw(len(waiting) * tries, W.shape[1], generator)
        theta = torch.addmm(start[waiting].repeat_interleave(tries, 0), v, W.T)
        level = form.coefficients.bound * torch.rand(len(v), generator=generator, dtype=v.dtype)
        accepted = (level < form.coefficients(theta)).reshape(-1, tries)
        row, first = accepted.any(1), accepted.int().argmax(1)
        drawn[waiting[row]] = v.reshape(len(waiting), tries, -1)[row, first[row]]
        waiting = waiting[~row]
    return drawn

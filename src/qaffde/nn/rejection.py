r"""Exact draws by rejection: propose from the base, accept with probability q(u) / max q.

The bound of q is proven, not searched for (:attr:`~qaffde.nn.coefficients.Coefficients.bound`), so
the draws are exact. A draw takes :math:`\max q / E[q]` proposals on average, and each costs one
evaluation of q, as scoring a point does: no dimension enters. Where q is a sum of layers, every
proposal first draws its layer, by the bounds, and evaluates that layer only.
"""

import torch
from torch import Generator, Tensor

from qaffde.nn.coefficients import Coefficients
from qaffde.nn.forms import BLOCK, TrigonometricForm
from qaffde.nn.laws import Law

MIN_PROPOSALS = 256
"""In one evaluation: few rows are tried several times at once."""


def rejection_cost(coefficients: Coefficients) -> float:
    """Cost of a draw where the mean of q is one."""
    return sum(layer.bound * layer.cost for layer in coefficients.layers)


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
        accepted = _accepted(form.coefficients, theta, generator).reshape(-1, tries)
        row, first = accepted.any(1), accepted.int().argmax(1)
        drawn[waiting[row]] = v.reshape(len(waiting), tries, -1)[row, first[row]]
        waiting = waiting[~row]
    return drawn


def _accepted(coefficients: Coefficients, theta: Tensor, generator: Generator) -> Tensor:
    """Which proposals, of phases (n, H), to accept."""
    bounds = torch.tensor([layer.bound for layer in coefficients.layers], dtype=torch.float64)
    chosen = torch.multinomial(bounds, len(theta), replacement=True, generator=generator)
    level = bounds[chosen] * torch.rand(len(theta), generator=generator, dtype=torch.float64)
    q = torch.empty_like(level)
    for number, layer in enumerate(coefficients.layers):
        mine = chosen == number
        q[mine] = layer(theta[mine])
    return level < q

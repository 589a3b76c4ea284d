"""Quadratures under a density of one column: integrals of the inverse maps of columns."""

from collections.abc import Callable

import torch
from torch import Tensor

from qaffde.nn.calculus.integrals import legendre
from qaffde.nn.calculus.mixture import BornMixture

TAILS = (1e-9, 1e-6, 1e-4, 1e-3, 0.01)
"""Quantiles, and the same from above, at which panels of a quadrature end."""
N_QUANTILES = 16
"""Number of even ones between them."""
COARSE, PANELS, NODES, PLANE_NODES = 256, 48, 8, 7
"""Points that find where a conditional has mass; panels there; nodes of a panel."""
MAX_PLANE_KNOTS = 16
"""Knots of a map at which the panels of a plane end."""


def panel_rule(
    column: BornMixture, knots: Tensor, *, plane: bool = False
) -> tuple[Tensor, Tensor]:
    """Nodes and weights, of shape (m,), for integrals under a density of one column.

    Gauss–Legendre rules between quantiles, ends of boxes and knots of the map (k,): between them
    the integrand is smooth. In a plane, nodes and knots are fewer.
    """
    knots = _thinned(knots, MAX_PLANE_KNOTS) if plane else knots
    edges = _edges(column, N_QUANTILES)
    edges = torch.cat([edges, knots.clamp(edges[0], edges[-1])]).unique()
    nodes, weights = legendre(PLANE_NODES if plane else NODES, edges[:-1, None], edges[1:, None])
    return nodes.flatten(), weights.flatten()


def row_rules(
    column: BornMixture, knots: Tensor, log_prob_at: Callable[[Tensor], Tensor], n: int
) -> tuple[Tensor, Tensor]:
    """Nodes and masses (n, m) for integrals under n conditionals of a column.

    ``log_prob_at(z)`` are the log-densities (n, m) of the conditionals at z of shape (n, m), and
    `column` is the marginal. Even panels cover what has mass in each row.
    """
    coarse = _edges(column, COARSE)
    log_p = log_prob_at(coarse.expand(n, -1))
    near = log_p > log_p.amax(1, keepdim=True) - 30
    first, last = near.int().argmax(1), near.shape[1] - 1 - near.flip(1).int().argmax(1)
    low = coarse[(first - 1).clamp(min=0)][:, None]
    high = coarse[(last + 1).clamp(max=len(coarse) - 1)][:, None]
    even = torch.lerp(low, high, torch.linspace(0, 1, PANELS + 1, dtype=torch.float64))
    edges = [term.reach[:, 0] for term in column.terms if term.law.bounded]
    breaks = torch.cat([_thinned(knots, PANELS), *edges]).expand(n, -1)
    cuts = torch.cat([even, breaks.clamp(low, high)], 1).sort(1)[0]
    nodes, weights = legendre(NODES, cuts[:, :-1, None], cuts[:, 1:, None])
    z = nodes.flatten(1)
    return z, log_prob_at(z).exp() * weights.flatten(1)


def _edges(column: BornMixture, n: int) -> Tensor:
    """About n quantiles of a density of one column, ends of its terms, and steps to the last."""
    levels = torch.linspace(0, 1, n + 1, dtype=torch.float64)[1:-1]
    tails = torch.tensor(TAILS, dtype=torch.float64)
    quantiles = column.ppf(torch.cat([tails, levels, 1 - tails]))
    reach = torch.stack([term.reach[:, 0] for term in column.terms])
    low, high = reach[:, 0].min(), reach[:, 1].max()
    steps = torch.linspace(0, 1, 9, dtype=torch.float64)
    far = torch.lerp(low, quantiles.min(), steps), torch.lerp(quantiles.max(), high, steps)
    ends = [term.reach[:, 0] for term in column.terms if term.law.bounded]
    return torch.cat([quantiles, *far, *ends]).clamp(low, high).unique()


def _thinned(knots: Tensor, most: int) -> Tensor:
    return knots[:: max(1, -(-len(knots) // most))]

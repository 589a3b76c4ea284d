"""Masses of the cells of a picture of one or two columns of a table.

They are integrals, so that no mode is lost that is narrower than a cell.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from qaffde.nn.calculus.integrals import quantiles
from qaffde.nn.calculus.slices import with_sides
from qaffde.nn.columns import AtomColumn, CodeColumn
from qaffde.nn.table import TableDensity

BITS = 24
"""Of the place of a point in a narrow cell."""
NARROW = 0.1
"""Share of a cell's mass that the density at its middle may miss."""
SMALL = 1e-4
"""Mass of cells that are evaluated at their middles in any case."""
FLOOR = -1e5
"""Logarithm of a density below which there is none."""


@dataclass(frozen=True, eq=False)
class Side:
    """Cells of one column: a point of each, their masses, and whether they lie within the ends.

    All are of shape (m,).

    All codes are cells. Those of numbers are one below the first edge, n between the edges, one
    above the last edge and, where the column has an atom, that.
    """

    points: Tensor
    mass: Tensor
    within: Tensor
    ends: tuple[float, float] = (-torch.inf, torch.inf)


def side_of(density: TableDensity, edges: Tensor, *, draft: bool = False) -> Side:
    """Cells of a density of one column.

    Parameters
    ----------
    density : TableDensity
    edges : Tensor of shape (n + 1,)
        Even ones; codes need none.
    draft : bool, default=False
        Whether all points may be the middles of their cells.
    """
    column = density.column(0)
    if isinstance(column, CodeColumn):
        codes = column.decode(torch.arange(column.size, dtype=torch.float64)[:, None])
        return Side(codes, density.log_prob(codes[:, None]).exp(), torch.ones_like(codes) > 0)
    value, at = torch.nan, edges.new_zeros(1)
    if isinstance(column, AtomColumn):
        value = column.value
        point = edges.new_full((1, 1), value)
        at = density.probability(point, point)[0]

    def below(x: Tensor) -> Tensor:
        """Mass at most x, but for the atom."""
        return density.cdf(x[:, None])[0] - at * (x >= value)

    step = edges[1] - edges[0]
    cumulative = torch.cat([edges.new_zeros(1), below(edges), 1 - at])
    mass = cumulative.diff().clamp(min=0)
    points = torch.cat([edges - step / 2, edges[-1:] + step / 2])
    if not draft:
        drawn = density.log_prob(points[:, None]).exp() * step
        narrow = ((drawn - mass).abs() > NARROW * mass) & (mass > SMALL)
        narrow[[0, -1]] = False
        if narrow.any():
            low, high = (points[narrow] + side * step / 2 for side in (-1, 1))
            half = cumulative[:-1][narrow] + mass[narrow] / 2
            points[narrow] = quantiles(below, half, low, high, BITS)
    points = torch.where(points == value, points + step / 4, points)
    if isinstance(column, AtomColumn):
        points, mass = torch.cat([points, at.new_tensor([value])]), torch.cat([mass, at])
    ends = float(edges[0]), float(edges[-1])
    return Side(points, mass, (points >= ends[0]) & (points <= ends[1]), ends)


def plane_of(density: TableDensity, first: Side, second: Side) -> Tensor:
    """Masses (m, k) of the cells of two columns.

    The density at the cells' points, scaled along both axes until the sums are the masses of the
    sides, and those between their ends have the probability of that box.
    """
    lower, upper = torch.tensor([first.ends, second.ends], dtype=torch.float64).mT[:, None]
    inside = density.probability(lower, upper)[0]
    within = torch.outer(first.within, second.within)
    log_p = density.log_prob(torch.cartesian_prod(first.points, second.points))
    log_p = log_p.reshape(len(first.points), -1).clamp(min=FLOOR)
    mass = (log_p - log_p.amax(1, keepdim=True)).exp()
    return with_sides(mass, first.mass, second.mass, within, inside)

"""Random maps of columns around random Born densities, and quadrature in the units of the data."""

import numpy as np
import torch

from qaffde.nn import RealColumn, TableDensity
from qaffde.nn.maps import MapTable
from tests.calculus_models import FAR, LOWER, UPPER, grid, integral, random_density  # noqa: F401 (for the tests)

INF = float("inf")
ENDS = {"line": (-INF, INF), "from": (-0.5, INF), "up to": (-INF, 9.0), "between": (-1.0, 9.0)}
"""Ends of columns whose knots lie between 0 and 8."""


def random_map(ends, seed, K=5, tails=(0.0, 0.2)):
    g = torch.Generator().manual_seed(seed)
    steps = torch.rand(3, K, generator=g, dtype=torch.float64) + 0.3
    return RealColumn(
        steps[0].cumsum(0),
        1.5 * steps[1].cumsum(0) - 3,
        steps[2],
        torch.tensor(tails, dtype=torch.float64),
        torch.tensor(ENDS[ends], dtype=torch.float64),
        torch.full((2,), 1e-9, dtype=torch.float64),
    )


def random_maps(kinds, seed=0):
    """Maps of columns: names of ends, or None for the identity."""
    return MapTable.of(random_columns(kinds, seed))


def random_columns(kinds, seed=0):
    return tuple(
        RealColumn() if kind is None else random_map(kind, 10 * seed + k)
        for k, kind in enumerate(kinds)
    )


def random_mapped(base, kinds, seed=0):
    return TableDensity(random_density(base, len(kinds), seed), random_columns(kinds, seed))


def axis(density, column, lower=-INF, upper=INF, n=24):
    """Nodes and weights in the units of the data, split where anything has a kink."""
    inner, own = density.density, density.column(column)
    maps = MapTable.of([own])
    breaks = np.array([-FAR, -9.0, -4.5, LOWER, 0.3, UPPER, 5.0, 9.0, FAR])
    breaks = inner.location[column].item() + inner.scale[column].item() * breaks
    breaks = np.sort(np.concatenate([breaks, own.values.numpy()]))
    ends = maps.edges(torch.tensor([[lower], [upper]], dtype=torch.float64))[:, 0].numpy()
    breaks = np.clip(breaks, *np.clip(ends, breaks[0], breaks[-1]))
    nodes, weights = np.polynomial.legendre.leggauss(n)
    center, half = (breaks[1:] + breaks[:-1]) / 2, np.diff(breaks) / 2
    z = torch.tensor((center[:, None] + half[:, None] * nodes).ravel())[:, None]
    x = maps.inverse(z)
    log_slope = maps(x)[1]
    return x[:, 0], torch.tensor((half[:, None] * weights).ravel()) / log_slope.exp()

"""Random densities of mixed tables, and sums and quadratures that do not know their algebra."""

import numpy as np
import torch

from qaffde.nn import (
    AtomColumn,
    CircleColumn,
    CircleFactor,
    CodeColumn,
    CodeFactor,
    FactoredMixture,
    RealColumn,
    TableDensity,
    expand,
)
from qaffde.nn.maps import MapTable
from tests.calculus_models import random_density
from tests.mapped_models import random_map

KINDS = ("real", "bounded", "circle", "integer", "category", "atom")
ATOM, FAR = 1.0, 24.0


def random_column(kind, seed):
    return {
        "real": lambda: RealColumn(),
        "bounded": lambda: random_map("between", seed),
        "circle": lambda: CircleColumn(24.0, -2.0),
        "integer": lambda: CodeColumn(6, first=-2),
        "category": lambda: CodeColumn(4, has_order=False),
        "atom": lambda: AtomColumn(ATOM, random_map("between", seed)),
    }[kind]()


def random_factor(part, K, g):
    if part.kind == "codes":
        return CodeFactor(
            torch.randn(K, part.size, generator=g, dtype=torch.float64).log_softmax(1)
        )
    mean, spread = torch.rand(2, K, generator=g, dtype=torch.float64)
    return CircleFactor(mean, 0.05 + 0.3 * spread)


def random_table(kinds, seed=0, D=8):
    """Density of columns of these kinds; its terms have Fourier features on the lines."""
    g = torch.Generator().manual_seed(seed)
    columns = [random_column(kind, seed + k) for k, kind in enumerate(kinds)]
    parts = [part for column in columns for part in column.parts]
    n_lines = sum(part.is_line for part in parts)
    lines, K = None, 3
    if n_lines:
        lines = expand(random_density("mixture", n_lines, seed, D=D, rank=2))
        K = len(lines.terms)
    factors = [random_factor(part, K, g) for part in parts if not part.is_line]
    log_weights = torch.randn(K, generator=g, dtype=torch.float64)
    return TableDensity(FactoredMixture(parts, log_weights, lines, factors), columns)


def legendre_axis(breaks, n=24):
    nodes, weights = np.polynomial.legendre.leggauss(n)
    center, half = (breaks[1:] + breaks[:-1]) / 2, np.diff(breaks) / 2
    return (
        torch.tensor((part[:, None] * a + b[:, None]).ravel())
        for part, a, b in ((half, nodes, center), (half, weights, 0 * center))
    )


def line_axis(column, lower, upper, n):
    maps = MapTable.of([column])
    breaks = np.unique(np.concatenate([np.linspace(-FAR, FAR, 9), [-3, 3], column.values]))
    ends = maps.edges(torch.tensor([[lower], [upper]], dtype=torch.float64))[:, 0].numpy()
    breaks = np.unique(np.clip(breaks, *np.clip(ends, -FAR, FAR)))
    if len(breaks) < 2:
        return torch.empty(2, 0, dtype=torch.float64)
    z, weights = legendre_axis(breaks, n)
    x = maps.inverse(z[:, None])
    return x[:, 0], weights / maps(x)[1].exp()


def axis(column, lower=-np.inf, upper=np.inf, n=24):
    """Values of a column and the weights of its measure, between closed ends."""
    if isinstance(column, CircleColumn):
        ends = np.clip([lower, upper], column.start, column.start + column.period)
        return tuple(legendre_axis(np.linspace(*ends, 9), n))
    if isinstance(column, CodeColumn):
        x = torch.arange(column.size, dtype=torch.float64) + column.first
        x = x[(x >= lower) & (x <= upper)]
        return x, torch.ones_like(x)
    if isinstance(column, AtomColumn):
        x, weights = line_axis(column.rest, lower, upper, n)
        inside = torch.tensor([column.value] if lower <= column.value <= upper else []).double()
        return torch.cat([x, inside]), torch.cat([weights, torch.ones_like(inside)])
    return line_axis(column, lower, upper, n)

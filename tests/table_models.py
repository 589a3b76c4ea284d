"""Random densities of mixed tables, and sums and quadratures that do not know their algebra."""

import numpy as np
import torch

from qaffde.nn import (
    AtomColumn,
    BornDensity,
    CircleColumn,
    CircleFactor,
    CodeColumn,
    CodeFactor,
    FactoredMeasure,
    FactoredMixture,
    FourierFeatures,
    GaussianMeasure,
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


def random_waves(parts, g, D):
    """Born density of parts, with waves over all of them, on a mixture of three components."""
    lines = [part for part in parts if part.is_line]
    C = 0.4 * torch.randn(3, len(lines), len(lines), generator=g, dtype=torch.float64)
    C = C @ C.mT + 0.3 * torch.eye(len(lines), dtype=torch.float64)
    means = torch.randn(3, len(lines), generator=g, dtype=torch.float64)
    weights = torch.rand(3, generator=g, dtype=torch.float64) + 0.2
    factors = [random_factor(part, 3, g) for part in parts if not part.is_line]
    measure = FactoredMeasure(parts, GaussianMeasure(weights / weights.sum(), means, C), factors)
    W = torch.randn(D // 2, len(parts), generator=g, dtype=torch.float64)
    circles = [k for k, part in enumerate(parts) if part.kind == "circle"]
    W[:, circles] = 2 * torch.pi * W[:, circles].round()
    W, b = W.repeat_interleave(2, 0), torch.tensor([0, -torch.pi / 2]).double().repeat(D // 2)
    L = torch.randn(3, D, generator=g, dtype=torch.float64)
    return BornDensity(FourierFeatures(W, b, torch.ones_like(b)), L, measure).requires_grad_(False)


def random_table(kinds, seed=0, D=8, *, waves=False):
    """Density of columns of these kinds; its terms have Fourier features on the lines.

    With `waves` they are Fourier features of all parts.
    """
    g = torch.Generator().manual_seed(seed)
    columns = [random_column(kind, seed + k) for k, kind in enumerate(kinds)]
    parts = [part for column in columns for part in column.parts]
    n_lines = sum(part.is_line for part in parts)
    if waves:
        return expand(TableDensity(random_waves(parts, g, D), columns))
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

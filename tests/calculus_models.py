"""Random Born densities, and quadrature that knows nothing of their algebra."""

import numpy as np
import torch

from qaffde.nn import (
    BornDensity,
    BoxMeasure,
    DefensiveDensity,
    FourierFeatures,
    GaussianMeasure,
    StandardizedDensity,
)

KINDS = ("box", "gaussian", "mixture")
FAR = 30.0  # nine standard deviations of the widest component drawn here
LOWER, UPPER = -1.3, 1.9


def random_density(kind, d, seed=0, D=14, rank=3, epsilon=0.05, frequencies="random"):
    g = torch.Generator().manual_seed(seed)
    bandwidth = torch.full((d,), 0.8, dtype=torch.float64)
    period = 9 * torch.ones_like(bandwidth)
    features = FourierFeatures.draw(frequencies, D, bandwidth, period, generator=g)
    factor = torch.randn(rank, features.n_features, generator=g, dtype=torch.float64)
    born = BornDensity(features, factor, random_measure(kind, d, g)).requires_grad_(False)
    spread = 4 * torch.eye(d, dtype=torch.float64)
    defended = DefensiveDensity(born, epsilon, torch.zeros(d, dtype=torch.float64), spread)
    location, scale = torch.arange(d) / 4, 1 + torch.arange(d) / 5
    return StandardizedDensity(defended, location.double(), scale.double())


def random_measure(kind, d, g):
    if kind == "box":
        ends = torch.tensor([[LOWER], [UPPER]], dtype=torch.float64).expand(2, d)
        return BoxMeasure(*ends)
    K = 1 if kind == "gaussian" else 3
    A = torch.randn(K, d, d, generator=g, dtype=torch.float64)
    covariances = A @ A.mT / d + 0.4 * torch.eye(d, dtype=torch.float64)
    means = torch.randn(K, d, generator=g, dtype=torch.float64)
    weights = torch.rand(K, generator=g, dtype=torch.float64) + 0.1
    return GaussianMeasure(weights / weights.sum(), means, covariances)


def axis(density, column, lower=-np.inf, upper=np.inf, n=48):
    """Nodes and weights along a column, split where a box ends."""
    breaks = np.array([-FAR, -4.5, LOWER, UPPER, 5.0, FAR])
    breaks = density.location[column].item() + density.scale[column].item() * breaks
    breaks = np.clip(breaks, float(lower), float(upper))
    nodes, weights = np.polynomial.legendre.leggauss(n)
    centre, half = (breaks[1:] + breaks[:-1]) / 2, np.diff(breaks) / 2
    keep = half > 0
    points = (centre[keep, None] + half[keep, None] * nodes).ravel()
    return torch.tensor(points), torch.tensor((half[keep, None] * weights).ravel())


def grid(axes):
    """Points (m, k) and weights (m,) of the product of axes."""
    points = torch.cartesian_prod(*[a[0] for a in axes]).reshape(-1, len(axes))
    weights = torch.cartesian_prod(*[a[1] for a in axes]).reshape(-1, len(axes)).prod(1)
    return points, weights


def integral(density, axes, values=None):
    """Integral of values(x)·p(x) over a product of axes, by brute force."""
    points, weights = grid(axes)
    total = 0.0
    for x, w in zip(points.split(50_000), weights.split(50_000), strict=True):
        p = w * density.log_prob(x).exp()
        total = total + (p.sum() if values is None else p @ values(x))
    return total


def marginal_by_quadrature(density, columns, x):
    """Density (n,) of some columns at x (n, k), the others summed over their axes."""
    d = len(density.location)
    rest = [c for c in range(d) if c not in columns]
    if not rest:
        return density.log_prob(x[:, [columns.index(c) for c in range(d)]]).exp()
    points, weights = grid([axis(density, c) for c in rest])
    found = []
    for row in x:
        full = torch.empty(len(points), d, dtype=torch.float64)
        full[:, columns], full[:, rest] = row, points
        found.append(weights @ density.log_prob(full).exp())
    return torch.stack(found)

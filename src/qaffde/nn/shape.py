r"""The shape of a log-density: its derivatives, its modes and their basins.

Modes are the ends of ascents by Newton's method with absolute curvatures (Dauphin et al., 2014),
which leaves saddle points, from draws of the density. Two modes are joined at the highest saddle
on a path between them, and the prominence of a mode is how far it rises over the saddle to a
higher one: its persistence (Chazal et al., 2013). Ripples of an estimate have little of it.
"""

from collections.abc import Callable

import torch
from scipy.spatial import cKDTree
from torch import Tensor

from qaffde.nn.base import Density

MAX_STEPS, HALVINGS = 200, 12
CONVERGED, SAME = 1e-7, 1e-3
"""Steps that end an ascent, and ends that are one mode, in deviations of the draws."""
LONGEST = 0.5
"""Step of an ascent, in deviations of the draws."""
FLAT = 1e-6
"""Curvature, in squared deviations, that counts as this much."""
NEIGHBORS = 12
"""Of a draw, on paths between modes."""
BETWEEN = (0.25, 0.5, 0.75)
"""Places on an edge of a path where its density is looked at."""


def derivatives(density: Density, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Log-density (n,), its gradient (n, d) and Hessian (n, d, d) at x of shape (n, d)."""
    with torch.enable_grad():
        z = x.detach().clone().requires_grad_()
        log_p = density.log_prob(z)
        (slope,) = torch.autograd.grad(log_p.sum(), z, create_graph=True)
        rows = [torch.autograd.grad(s.sum(), z, retain_graph=True)[0] for s in slope.T]
    return log_p.detach(), slope.detach(), torch.stack(rows, 1)


def ascend(density: Density, x: Tensor, unit: Tensor) -> Tensor:
    """Ends (n, d) of ascents from x of shape (n, d); `unit` (d,) are deviations of columns."""
    x, moving = x.clone(), torch.ones(len(x), dtype=torch.bool)
    for _ in range(MAX_STEPS):
        rows = moving.nonzero()[:, 0]
        if not len(rows):
            break
        start = x[rows]
        log_p, slope, curvature = derivatives(density, start)
        lam, V = torch.linalg.eigh(curvature * unit[:, None] * unit)
        along = (V.mT @ (slope * unit)[..., None])[..., 0] / lam.abs().clamp(min=FLAT)
        step = (V @ along[..., None])[..., 0]
        length = step.norm(dim=1, keepdim=True)
        step = step * (LONGEST / length.clamp(min=LONGEST)) * unit
        found, open_rows = start.clone(), torch.ones(len(rows), dtype=torch.bool)
        for _ in range(HALVINGS):
            trial = start[open_rows] + step[open_rows]
            better = density.log_prob(trial) > log_p[open_rows]
            numbers = open_rows.nonzero()[:, 0]
            found[numbers[better]] = trial[better]
            open_rows[numbers[better]] = False
            step = step / 2
            if not open_rows.any():
                break
        x[rows] = found
        moving[rows] = ((found - start) / unit).norm(dim=1) > CONVERGED
    return x


def distinct(ends: Tensor, log_p: Tensor, unit: Tensor) -> Tensor:
    """Numbers (n,) of the different ones among ends (n, d), the highest first."""
    label = torch.full((len(ends),), -1)
    for row in log_p.argsort(descending=True).tolist():
        if label[row] < 0:
            near = ((ends - ends[row]) / unit).norm(dim=1) < SAME
            label[near & (label < 0)] = int(label.max()) + 1
    return label


def saddles(
    log_prob: Callable[[Tensor], Tensor], x: Tensor, basin: Tensor, unit: Tensor
) -> list[tuple[float, int, int]]:
    """Heights of the highest edges between draws x (n, d) of two basins (n,), highest first."""
    tree = cKDTree((x / unit).numpy())
    near = torch.from_numpy(tree.query((x / unit).numpy(), min(NEIGHBORS + 1, len(x)))[1])
    first = torch.arange(len(x)).repeat_interleave(near.shape[1])
    second = near.flatten()
    cross = basin[first] != basin[second]
    first, second = first[cross], second[cross]
    if not len(first):
        return []
    places = [torch.lerp(x[first], x[second], share) for share in (0.0, *BETWEEN, 1.0)]
    lowest = torch.stack([log_prob(place) for place in places]).amin(0)
    heights: dict[tuple[int, int], float] = {}
    pairs = torch.stack([basin[first], basin[second]], 1).sort(1).values.tolist()
    for (a, b), height in zip(pairs, lowest.tolist(), strict=True):
        heights[a, b] = max(height, heights.get((a, b), height))
    return sorted(((height, a, b) for (a, b), height in heights.items()), reverse=True)


def persistence(
    height: list[float], edges: list[tuple[float, int, int]], least: float
) -> tuple[list[int], list[float]]:
    """Mode that each mode belongs to, and prominences of those that stay.

    Parameters
    ----------
    height : list of K floats
        Log-densities of modes.
    edges : list of (height, mode, mode)
        Saddles, the highest first.
    least : float
        Prominence below which a mode belongs to the higher one behind its saddle.

    Examples
    --------
    >>> persistence([3.0, 2.0, 2.5], [(1.9, 0, 1), (0.5, 1, 2)], least=0.5)
    ([0, 0, 2], [inf, 0.10000000000000009, 2.0])
    """
    root, kept = list(range(len(height))), list(range(len(height)))
    prominence = [float("inf")] * len(height)

    def top(of: list[int], k: int) -> int:
        while of[k] != k:
            k = of[k]
        return k

    for saddle, *pair in edges:
        low, high = sorted(pair, key=lambda k: height[top(root, k)])
        peak = top(root, low)
        if peak != top(root, high):
            root[peak], prominence[peak] = top(root, high), height[peak] - saddle
            if prominence[peak] < least:
                kept[top(kept, peak)] = top(kept, high)
    return [top(kept, k) for k in range(len(height))], prominence

r"""The shape of a log-density: its derivatives, its modes and their basins.

Modes are the ends of ascents by Newton's method with absolute curvatures (Dauphin et al., 2014),
which leaves saddle points, from draws of the density. Two modes are joined at the highest saddle
on a path between them, and the prominence of a mode is how far it rises over the saddle to a
higher one: its persistence (Chazal et al., 2013). Ripples of an estimate have little of it.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial import cKDTree
from torch import Tensor

from qaffde.extras import Printed
from qaffde.nn.base import Density

BLOCK = 2048
"""Rows whose derivatives are computed at once."""
MAX_STEPS, HALVINGS = 200, 12
CONVERGED, SAME = 1e-7, 1e-3
"""Steps that end an ascent, and ends that are one mode, in deviations of the draws."""
LONGEST = 0.5
"""Step of an ascent, in deviations of the draws."""
FLAT = 1e-6
"""Curvature, in squared deviations, that counts as this much."""
NEIGHBORS = 12
"""Of a draw, on paths between modes."""
PLACES = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Where the density on an edge of a path is looked at."""
SADDLE_STEPS, STEP = 40, 0.01
"""Of a walk to a saddle, and deviations to its sides from where one ascends."""

Edges = list[tuple[float, int, int]]
"""Heights of saddles, and the two modes that each joins."""


@dataclass(frozen=True, eq=False)
class Modes(Printed):
    r"""Modes of a density, the highest first.

    Attributes
    ----------
    points : ndarray of shape (m, d)
    log_density : ndarray of shape (m,)
    mass : ndarray of shape (m,)
        Share of the draws that lie in the basin of each mode, from which one ascends to it: within
        about :math:`\sqrt{\alpha (1 - \alpha) / n}` for n draws.
    prominence : ndarray of shape (m,)
        How far the log-density falls on the best way to a higher mode; infinite for the highest.
    """

    points: NDArray[np.float64]
    log_density: NDArray[np.float64]
    mass: NDArray[np.float64]
    prominence: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.points)

    def __str__(self) -> str:
        lines = ["log-density  mass   prominence  point"]
        parts = zip(self.log_density, self.mass, self.prominence, self.points, strict=True)
        for log_p, mass, prominence, point in parts:
            where = ", ".join(f"{x:.4g}" for x in point)
            lines.append(f"{log_p:>11.4f}  {mass:.3f}  {prominence:>10.3f}  {where}")
        return "\n".join(lines)


def slope_of(values: Tensor, z: Tensor, *, again: bool) -> Tensor:
    """Gradients (n, d) of values (n,) in z, `again` if there are more; zero of constants."""
    if not values.requires_grad:
        return torch.zeros_like(z)
    options: Any = {"create_graph": again, "retain_graph": True, "materialize_grads": True}
    return torch.autograd.grad(values.sum(), z, **options)[0]


def derivatives(density: Density, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Log-density (n,), its gradient (n, d) and Hessian (n, d, d) at x of shape (n, d)."""
    with torch.enable_grad():
        z = x.detach().clone().requires_grad_()
        log_p = density.log_prob(z)
        slope = slope_of(log_p, z, again=True)
        rows = [slope_of(part, z, again=False) for part in slope.T]
    return log_p.detach(), slope.detach(), torch.stack(rows, 1)


def axes_of(curvature: Tensor, unit: Tensor) -> tuple[Tensor, Tensor]:
    """Curvatures (n, d) along their axes (n, d, d); none where there is no density."""
    scaled = (curvature * unit[:, None] * unit).nan_to_num(0, 0, 0)
    lam, V = torch.linalg.eigh(scaled)
    return lam, V


def newton_step(
    slope: Tensor,
    curvature: Tensor,
    unit: Tensor,
    *,
    down: int = 0,
    rest: int = 0,
    longest: float = LONGEST,
) -> Tensor:
    """Steps (n, d) up, but down along the `down` directions of the largest curvature.

    Along the `rest` directions of the largest curvature there is no step.
    """
    lam, V = axes_of(curvature, unit)
    slope = (slope * unit).nan_to_num(0, 0, 0)
    along = (V.mT @ slope[..., None])[..., 0] / lam.abs().clamp(min=FLAT)
    along[:, len(unit) - down :] *= -1
    along[:, len(unit) - rest :] = 0
    step = (V @ along[..., None])[..., 0]
    return step * (longest / step.norm(dim=1, keepdim=True).clamp(min=longest)) * unit


def find_modes(density: Density, x: Tensor, prominence: float, mass: float) -> Modes:
    """Modes that one ascends to from draws x of shape (n, d).

    Those below a prominence or a mass belong to the mode behind their lowest saddle.
    """
    unit = x.std(0)
    fits = (unit > 0) & unit.isfinite()
    if not fits.all():
        column = int(fits.int().argmin())
        raise ValueError(
            f"draws of column {column} have the standard deviation {float(unit[column]):g}, by "
            "which no modes can be told apart in float64; take other units"
        )
    ends = torch.cat([ascend(density, part, unit) for part in x.split(BLOCK)])
    with torch.no_grad():
        log_p = density.log_prob(ends)
    basin = distinct(ends, log_p, unit)
    inside = (log_p.masked_fill(basin != k, -torch.inf) for k in range(int(basin.max()) + 1))
    best = torch.stack([own.argmax() for own in inside])
    height = log_p[best]
    with torch.no_grad():
        edges = saddles(density, x, basin, ends[best], unit)
    share, heights = (basin.bincount() / len(x)).tolist(), height.tolist()
    owner = persistence(heights, edges, prominence)[0]
    owner = without_light(owner, share, edges, mass)
    edges = [(level, owner[a], owner[b]) for level, a, b in edges if owner[a] != owner[b]]
    rises = persistence(heights, edges, 0.0)[1]
    kept = sorted(set(owner))
    masses = [sum(m for m, k in zip(share, owner, strict=True) if k == own) for own in kept]
    points = ends[best[kept]].numpy(), height[kept].numpy()
    return Modes(*points, np.array(masses), np.array(rises)[kept])


def ascend(density: Density, x: Tensor, unit: Tensor) -> Tensor:
    """Ends (n, d) of ascents from x of shape (n, d); `unit` (d,) are deviations of columns."""
    x, moving = x.clone(), torch.arange(len(x))
    for _ in range(MAX_STEPS):
        start = x[moving]
        log_p, slope, curvature = derivatives(density, start)
        step = newton_step(slope, curvature, unit)
        open_rows = torch.arange(len(moving))
        for _ in range(HALVINGS):
            trial = start[open_rows] + step[open_rows]
            better = density.log_prob(trial) > log_p[open_rows]
            x[moving[open_rows[better]]] = trial[better]
            open_rows, step = open_rows[~better], step / 2
            if not len(open_rows):
                break
        moving = moving[((x[moving] - start) / unit).norm(dim=1) > CONVERGED]
        if not len(moving):
            break
    return x


def ridge_points(density: Density, x: Tensor) -> Tensor:
    """Points (m, d) of ridges, by ascents from draws x (n, d) across them.

    On a ridge of dimension one the slope is along the direction of the largest curvature, and the
    other curvatures are negative (Ozertem and Erdogmus, 2011).
    """
    unit, moving = x.std(0), torch.ones(len(x), dtype=torch.bool)
    with torch.no_grad():
        least = density.log_prob(x).min()
    for _ in range(MAX_STEPS):
        log_p, slope, curvature = derivatives(density, x)
        step = newton_step(slope, curvature, unit, rest=1)
        moving = (step / unit).norm(dim=1) > SAME
        if not moving.any():
            break
        x = x + step * moving[:, None]
    crest = axes_of(curvature, unit)[0][:, :-1].amax(1) < 0
    return x[crest & ~moving & (log_p >= least)]


def saddle(density: Density, x: Tensor, unit: Tensor) -> tuple[Tensor, Tensor]:
    """Ends (n, d) of walks from x (n, d) to saddles, and the way (n, d) that rises there."""
    for _ in range(SADDLE_STEPS):
        _, slope, curvature = derivatives(density, x)
        x = x + newton_step(slope, curvature, unit, down=1, longest=LONGEST / 5)
    curvature = derivatives(density, x)[2]
    return x, axes_of(curvature, unit)[1][..., -1] * unit


def distinct(ends: Tensor, log_p: Tensor, unit: Tensor) -> Tensor:
    """Numbers (n,) of the different ones among ends (n, d), the highest first."""
    label = torch.full((len(ends),), -1)
    for row in log_p.argsort(descending=True).tolist():
        if label[row] < 0:
            near = ((ends - ends[row]) / unit).norm(dim=1) < SAME
            label[near & (label < 0)] = int(label.max()) + 1
    return label


def saddles(density: Density, x: Tensor, basin: Tensor, peaks: Tensor, unit: Tensor) -> Edges:
    """Heights of the saddles between basins (n,) of draws x (n, d), the highest first.

    The best edge between neighbors of two basins is below their saddle, from where a walk to the
    saddle begins. It counts if one ascends from it to these two peaks (K, d).
    """
    scaled = (x / unit).numpy()
    near = torch.from_numpy(cKDTree(scaled).query(scaled, min(NEIGHBORS + 1, len(x)))[1])
    first, second = torch.arange(len(x)).repeat_interleave(near.shape[1]), near.flatten()
    cross = basin[first] != basin[second]
    first, second = first[cross], second[cross]
    if not len(first):
        return []
    places = torch.stack([torch.lerp(x[first], x[second], share) for share in PLACES])
    heights = torch.stack([density.log_prob(place) for place in places])
    lowest, at = heights.min(0)
    pairs, group = (
        torch.stack([basin[first], basin[second]], 1)
        .sort(1)
        .values.unique(dim=0, return_inverse=True)
    )
    best = torch.stack(
        [lowest.masked_fill(group != k, -torch.inf).argmax() for k in range(len(pairs))]
    )
    found, way = saddle(density, places[at[best], best], unit)
    sides = [ascend(density, found + side * STEP * way, unit) for side in (-1, 1)]
    reached = torch.stack([torch.cdist(end / unit, peaks / unit).argmin(1) for end in sides], 1)
    agrees = (reached.sort(1).values == pairs).all(1)
    height = torch.where(agrees, density.log_prob(found), lowest[best])
    height = torch.maximum(height.nan_to_num(-torch.inf), lowest[best])
    edges = zip(height.tolist(), *pairs.T.tolist(), strict=True)
    return sorted(edges, reverse=True)


def persistence(height: list[float], edges: Edges, least: float) -> tuple[list[int], list[float]]:
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
    >>> persistence([3.0, 2.0, 2.5], [(1.5, 0, 1), (0.5, 1, 2)], least=1.0)
    ([0, 0, 2], [inf, 0.5, 2.0])
    """
    root, kept = list(range(len(height))), list(range(len(height)))
    prominence = [float("inf")] * len(height)
    for level, *pair in edges:
        low, high = sorted(pair, key=lambda k: height[_top(root, k)])
        peak, summit = _top(root, low), _top(root, high)
        if peak != summit:
            root[peak], prominence[peak] = summit, height[peak] - level
            if prominence[peak] < least:
                kept[_top(kept, peak)] = _top(kept, high)
    return [_top(kept, k) for k in range(len(height))], prominence


def without_light(owner: list[int], mass: list[float], edges: Edges, least: float) -> list[int]:
    """Mode that each mode belongs to, once those of less than a mass join their neighbors.

    Examples
    --------
    >>> without_light([0, 1, 1], [0.9, 0.02, 0.01], [(1.5, 0, 1)], least=0.05)
    [0, 0, 0]
    """
    owner, held = list(owner), [0.0] * len(owner)
    for k, m in enumerate(mass):
        held[owner[k]] += m
    for k in sorted(set(owner), key=lambda k: held[k]):
        ways = ((_top(owner, a), _top(owner, b)) for _, a, b in edges)
        other = next((a if b == k else b for a, b in ways if k in (a, b) and a != b), k)
        if held[k] < least and other != k:
            owner[k], held[other] = other, held[other] + held[k]
    return [_top(owner, k) for k in range(len(owner))]


def _top(root: list[int], k: int) -> int:
    while root[k] != k:
        k = root[k]
    return k

"""Values on even grids: finer ones, integrals, levels, quantiles and draws."""

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import make_interp_spline

Array = NDArray[np.float64]


@lru_cache(maxsize=16)
def _spline(n: int) -> Any:
    """Cubic splines on [0, 1] through each unit vector of n values, as one."""
    return make_interp_spline(np.linspace(0, 1, n), np.eye(n))


@lru_cache(maxsize=32)
def refinement(n: int, m: int) -> Array:
    """Matrix (m, n) from n values on an even grid to m values of the spline through them.

    Examples
    --------
    >>> (refinement(5, 9) @ np.arange(5.0)).round(9)
    array([0. , 0.5, 1. , 1.5, 2. , 2.5, 3. , 3.5, 4. ])
    """
    matrix: Array = _spline(n)(np.linspace(0, 1, m))
    return matrix


def integral_weights(n: int, low: float, high: float) -> Array:
    """Weights (n,) that integrate the spline between two ends, in shares of the grid's range.

    Examples
    --------
    >>> round(float(integral_weights(9, 0, 0.5) @ np.linspace(0, 1, 9)), 9)
    0.125
    """
    below, above = _antiderivative(n)(np.clip([low, high], 0, 1))
    weights: Array = above - below
    return weights


@lru_cache(maxsize=16)
def _antiderivative(n: int) -> Any:
    return _spline(n).antiderivative()


def refined(values: Array, m: int) -> Array:
    """Values of the spline, in one or two dimensions, on an even grid of m points along each."""
    for _ in range(values.ndim):
        values = np.moveaxis(refinement(len(values), m) @ values, 0, -1)
    return np.maximum(values, 0)


def mass_levels(values: Array, masses: Array) -> Array:
    """Heights above which an even grid has these shares of its total.

    Examples
    --------
    >>> mass_levels(np.array([1.0, 4.0, 3.0, 2.0]), np.array([0.4, 0.7]))
    array([4., 3.])
    """
    falling = np.sort(values, axis=None)[::-1]
    mass = np.cumsum(falling)
    levels: Array = falling[np.searchsorted(mass, masses * mass[-1] * (1 - 1e-12))]
    return levels


def quantiles(values: Array, levels: Array) -> Array:
    """Places, in shares of the grid's range, below which a curve has these shares of its mass.

    Between the points of the grid the curve is a straight line, so its integral a parabola.

    Parameters
    ----------
    values : ndarray of shape (m,), or (n, m) for a curve of each level
    levels : ndarray of shape (n,)

    Examples
    --------
    >>> quantiles(np.array([1.0, 1.0, 1.0]), np.array([0.0, 0.25, 1.0]))
    array([0.  , 0.25, 1.  ])
    """
    curves = np.broadcast_to(values, (len(levels), values.shape[-1]))
    steps = (curves[:, 1:] + curves[:, :-1]) / 2
    mass = np.cumsum(steps, axis=1)
    target = levels * mass[:, -1]
    cell = np.minimum((mass < target[:, None]).sum(1), steps.shape[1] - 1)
    rows = np.arange(len(levels))
    rest = np.maximum(target - (mass[rows, cell] - steps[rows, cell]), 0)
    left, slope = curves[rows, cell], curves[rows, cell + 1] - curves[rows, cell]
    root = left + np.sqrt(np.maximum(left**2 + 2 * slope * rest, 0))
    share = np.divide(2 * rest, root, out=np.zeros_like(rest), where=root > 0)
    found: Array = (cell + np.clip(share, 0, 1)) / steps.shape[1]
    return found


def draws(values: Array, levels: Array) -> Array:
    """Points (n, k), in shares of the grid's range, at levels of shape (n, k) in [0, 1].

    The first column is drawn from the mass along the first axis, the second from the row there.
    The same levels give points that move little when the density does.
    """
    if values.ndim == 1:
        return quantiles(values, levels[:, 0])[:, None]
    along = (values[:, 1:] + values[:, :-1]).sum(1)
    first = quantiles(along, levels[:, 0])
    at = first * (len(values) - 1)
    below = np.minimum(at.astype(int), len(values) - 2)
    share = (at - below)[:, None]
    rows = (1 - share) * values[below] + share * values[below + 1]
    return np.column_stack([first, quantiles(rows, levels[:, 1])])

r"""Highest-density regions: the smallest sets that hold a given mass.

.. math:: R_\alpha = \{x : \log p(x) \ge c_\alpha\}, \quad \int_{R_\alpha} p(x)\,dx = \alpha

Under the density itself :math:`\log p(x)` is a random variable, and :math:`c_\alpha` is its
quantile at :math:`1 - \alpha` (Hyndman, "Computing and graphing highest density regions", 1996).
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

N_POINTS = 10_000


def check_mass(mass: ArrayLike) -> Array:
    """Masses in (0, 1) as an array."""
    try:
        levels = np.asarray(mass, dtype=np.float64)
    except (TypeError, ValueError):
        levels = np.array(np.nan)
    if not ((levels > 0) & (levels < 1)).all():
        raise ValueError(f"mass={mass!r} must be one or several numbers in (0, 1)")
    return levels


def weighted_quantile(values: Array, weight: Array, q: ArrayLike) -> Any:
    """Quantiles of weighted values; each value stands in the middle of its weight.

    Examples
    --------
    >>> weighted_quantile(np.array([1.0, 4.0, 2.0]), np.array([1.0, 2.0, 1.0]), [0.125, 0.75])
    array([1., 4.])
    """
    order = np.argsort(values)
    share = weight[order] / weight.sum()
    return np.interp(np.asarray(q), share.cumsum() - share / 2, values[order])


def cell_levels(cells: Array, masses: ArrayLike) -> Array:
    """Masses of cells at the edges of the smallest regions that hold these masses of one.

    Examples
    --------
    >>> cell_levels(np.array([0.5, 0.2, 0.1]), [0.6, 0.75])
    array([0.2, 0.1])
    """
    values = np.append(cells.ravel(), 0)
    weight = np.append(cells.ravel(), max(1 - cells.sum(), 0))
    return np.asarray(weighted_quantile(values, weight, 1 - np.asarray(masses)))

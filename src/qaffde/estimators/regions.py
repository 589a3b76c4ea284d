r"""Highest-density regions: the smallest sets that hold a given mass.

.. math:: R_\alpha = \{x : \log p(x) \ge c_\alpha\}, \quad \int_{R_\alpha} p(x)\,dx = \alpha

Under the density itself :math:`\log p(x)` is a random variable, and :math:`c_\alpha` is its
quantile at :math:`1 - \alpha` (Hyndman, "Computing and graphing highest density regions", 1996).
"""

from typing import Any, Protocol

import numpy as np
from numpy.random import RandomState
from numpy.typing import ArrayLike, NDArray

from qaffde.estimators.parameters import check_count

Array = NDArray[np.float64]
Seed = int | RandomState | None

N_POINTS = 10_000
TAIL = 1e-7
"""Mass that the cells leave out at either end."""


class Drawable(Protocol):
    """What a density must offer to have its regions found."""

    n_features_in_: Any

    def score_samples(self, X: ArrayLike) -> Array:
        """Log-density of each row."""

    def _log_density(self, rows: Array) -> Array:
        """The same of rows that need no check."""

    def sample(self, n_samples: int = 1, random_state: Seed = None) -> Array:
        """Exact independent draws."""

    def ppf(self, q: ArrayLike) -> Array:
        """Quantiles of a density of one column."""

    def hdr_level(
        self, mass: ArrayLike, n_samples: int = N_POINTS, random_state: Seed = None
    ) -> Any:
        """Log-density at the edge of the highest-density region of each mass."""


class RegionMixin:
    """Highest-density regions of a density with exact draws."""

    def hdr_level(
        self: Drawable, mass: ArrayLike, n_samples: int = N_POINTS, random_state: Seed = None
    ) -> Any:
        r"""Log-density at the edge of the smallest region of a given mass.

        The quantile of the log-density over draws from the density itself. The mass of the
        region found is off by about :math:`\sqrt{\alpha(1-\alpha)/n}`: 0.005 at one half, 0.001
        at 0.99, with the default n. A density of one column is summed over n equal cells instead,
        and nothing is drawn.

        Parameters
        ----------
        mass : float or array-like
            α in (0, 1), one or several.
        n_samples : int, default=10000
        random_state : int, RandomState instance or None, default=None

        Returns
        -------
        float, or ndarray of the shape of `mass`
        """
        levels = _check_mass(mass)
        check_count("n_samples", n_samples)
        if self.n_features_in_ > 1:
            log_p = self._log_density(self.sample(n_samples, random_state))
            return weighted_quantile(log_p, np.ones_like(log_p), 1 - levels)
        log_p = self._log_density(_cells(self, n_samples))
        return weighted_quantile(log_p, np.exp(log_p), 1 - levels)

    def in_hdr(
        self: Drawable,
        X: ArrayLike,
        mass: float,
        n_samples: int = N_POINTS,
        random_state: Seed = None,
    ) -> NDArray[np.bool_]:
        """Whether each row lies in the smallest region of a given mass; see :meth:`hdr_level`.

        Parameters
        ----------
        X : array-like of shape (n, d)
        mass : float
        n_samples : int, default=10000
        random_state : int, RandomState instance or None, default=None

        Returns
        -------
        ndarray of bool, of shape (n,)
        """
        if np.ndim(mass):
            raise ValueError(f"mass must be one number here, got {mass!r}")
        return self.score_samples(X) >= self.hdr_level(mass, n_samples, random_state)


def _check_mass(mass: ArrayLike) -> Array:
    try:
        levels = np.asarray(mass, dtype=np.float64)
    except (TypeError, ValueError):
        levels = np.array(np.nan)
    if not ((levels > 0) & (levels < 1)).all():
        raise ValueError(f"mass={mass!r} must be one or several numbers in (0, 1)")
    return levels


def _cells(model: Drawable, n: int) -> Array:
    """Middles (n, 1) of equal cells that cover a density of one column."""
    lower, upper = model.ppf([TAIL, 1 - TAIL])
    return (lower + (np.arange(n) + 0.5) / n * (upper - lower))[:, None]


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

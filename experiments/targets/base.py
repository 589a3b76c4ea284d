"""The interface of a benchmark density: exact samples and their exact log-density."""

from abc import ABC, abstractmethod
from numbers import Integral

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri
from sklearn.utils import check_array, check_scalar

FloatArray = NDArray[np.float64]
RandomState = int | np.random.Generator | None

TAIL_MASS = 1e-9
_BLOCK = 256  # rows at a time: intermediate arrays stay in the processor's cache


class Target(ABC):
    """A density that is known by formula and sampled exactly (no Markov chain).

    This class owns the public methods: validation, casting and shapes. A subclass is final, sets
    ``name`` and ``n_dims``, and writes ``support``, ``_sample`` and ``_log_prob``, which trust
    their arguments.

    Attributes
    ----------
    name : str
        Name in the registry, as in the paper's tables.
    n_dims : int
        Number of columns.
    """

    name: str
    n_dims: int

    def sample(self, n_samples: int, random_state: RandomState = None) -> FloatArray:
        """Draw independent points from the density.

        Parameters
        ----------
        n_samples : int
            Number of points, at least one.
        random_state : None, int or numpy.random.Generator
            Source of randomness. The same integer gives the same points; a generator is advanced.

        Returns
        -------
        ndarray of shape (n_samples, n_dims), float64
        """
        check_scalar(n_samples, "n_samples", Integral, min_val=1)
        return self._sample(int(n_samples), np.random.default_rng(random_state))

    def log_prob(self, X: ArrayLike) -> FloatArray:
        """Logarithm of the density, computed in the log domain; ``-inf`` where it is zero.

        Parameters
        ----------
        X : array-like of shape (n, n_dims)

        Returns
        -------
        ndarray of shape (n,), float64
        """
        points: FloatArray = check_array(X, dtype=np.float64, input_name="X")
        if points.shape[1] != self.n_dims:
            raise ValueError(f"{self.name} has {self.n_dims} columns, X has {points.shape[1]}")
        with np.errstate(over="ignore"):  # a square beyond 1e308 is a density of exactly zero
            blocks = np.array_split(points, -(-len(points) // _BLOCK))
            return np.concatenate([self._log_prob(rows) for rows in blocks])

    @property
    @abstractmethod
    def support(self) -> FloatArray:
        """Box for plots and quadrature, (n_dims, 2): columns are the lower and upper ends.

        An end of the true support is given as it is; an infinite tail is cut so that the mass
        outside the box is below 1e-9 in all.
        """

    @abstractmethod
    def _sample(self, n_samples: int, rng: np.random.Generator) -> FloatArray: ...

    @abstractmethod
    def _log_prob(self, X: FloatArray) -> FloatArray: ...

    def __repr__(self) -> str:
        return f"<Target {self.name}, n_dims={self.n_dims}>"


def tail_quantile(n_tails: int) -> float:
    r"""Quantile z at which ``n_tails`` standard normal tails hold 1e-9 together.

    .. math:: \texttt{n\_tails} \cdot (1 - \Phi(z)) = 10^{-9}

    Examples
    --------
    >>> round(tail_quantile(1), 4)
    5.9978
    """
    return float(-ndtri(TAIL_MASS / n_tails))


def gaussian_support(centers: FloatArray, stds: FloatArray | float) -> FloatArray:
    """Box (d, 2) that holds all but 1e-9 of any mixture of Gaussians with these centers.

    By the union bound over its 2d faces, whatever the weights and the correlations.

    Parameters
    ----------
    centers : ndarray of shape (n_components, d)
    stds : ndarray broadcastable to the shape of ``centers``
        Marginal standard deviations.

    Examples
    --------
    >>> gaussian_support(np.array([[0.0], [10.0]]), 1.0).round(2)
    array([[-6.11, 16.11]])
    """
    margin = tail_quantile(2 * centers.shape[1]) * stds
    return np.stack([np.min(centers - margin, axis=0), np.max(centers + margin, axis=0)], axis=1)

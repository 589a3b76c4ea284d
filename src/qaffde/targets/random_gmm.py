"""Random mixtures of Gaussians in any dimension."""

import numpy as np
from scipy.stats import random_correlation

from qaffde.targets.base import (
    FloatArray,
    RandomState,
    Target,
    as_generator,
    check_positive_integer,
)
from qaffde.targets.gaussians import EqualGaussians


class RandomGMM(Target):
    r"""Mixture of 10 d equal Gaussians with random means and correlations.

    .. math:: p(x) = \frac{1}{10 d} \sum_k N(x;\, \mu_k, s^2 C_k), \qquad \mu_k \sim U(0, 1)^d

    The eigenvalues of the correlation matrix C_k are uniform, scaled to sum to d; the matrix
    itself is drawn by the algorithm of Davies and Higham (2000).

    Parameters
    ----------
    n_dims : int
        Dimension d.
    scale : float, default=1.0
        Marginal standard deviation s of every component. 1 is the paper's text, and the modes
        overlap; 0.2 keeps them apart.
    random_state : None, int, numpy.random.Generator or numpy.random.RandomState, default=0
        Draws the means and the correlations, not the samples.

    Attributes
    ----------
    means : ndarray of shape (10 d, d)
    covariances : ndarray of shape (10 d, d, d)

    Examples
    --------
    >>> target = RandomGMM(3, scale=0.2, random_state=0)
    >>> target.sample(5, random_state=1).shape
    (5, 3)
    >>> bool(np.allclose(np.diagonal(target.covariances, 0, 1, 2), 0.2**2))
    True
    """

    name = "random_gmm"

    def __init__(self, n_dims: int, scale: float = 1.0, random_state: RandomState = 0) -> None:
        check_positive_integer("n_dims", n_dims)
        if not 0 < scale < np.inf:
            raise ValueError(f"scale must be a positive number, got {scale!r}")
        rng = as_generator(random_state)
        self.n_dims = int(n_dims)
        self.scale = scale
        self.means = rng.uniform(size=(10 * n_dims, n_dims))
        correlations = np.stack([_random_correlation(n_dims, rng) for _ in self.means])
        self.covariances = scale**2 * correlations
        self._mixture = EqualGaussians(self.name, self.means, self.covariances)

    @property
    def support(self) -> FloatArray:
        """Box (n_dims, 2) that holds all but 1e-9 of the mass."""
        return self._mixture.support

    def _sample(self, n_samples: int, rng: np.random.Generator) -> FloatArray:
        return self._mixture._sample(n_samples, rng)

    def _log_prob(self, X: FloatArray) -> FloatArray:
        return self._mixture._log_prob(X)


def _random_correlation(n_dims: int, rng: np.random.Generator) -> FloatArray:
    if n_dims == 1:  # SciPy wants two columns
        return np.ones((1, 1))
    eigenvalues = rng.uniform(size=n_dims)
    eigenvalues *= n_dims / eigenvalues.sum()
    return random_correlation.rvs(eigenvalues, random_state=rng)

"""Mixtures of equally weighted Gaussians: binomial, bimodal_l, star_eight and random ones."""

from numbers import Integral

import numpy as np
from scipy.special import logsumexp
from scipy.stats import random_correlation
from sklearn.utils import check_scalar

from experiments.targets.base import FloatArray, RandomState, Target, gaussian_support


class EqualGaussians(Target):
    r"""Mixture of K Gaussians with equal weights.

    .. math:: p(x) = \frac1K \sum_{k=1}^K N(x;\, \mu_k, \Sigma_k)

    Parameters
    ----------
    name : str
    means : ndarray of shape (K, d)
    covariances : ndarray of shape (K, d, d)

    Examples
    --------
    >>> target = EqualGaussians("standard", np.zeros((1, 2)), np.eye(2)[None])
    >>> bool(np.isclose(target.log_prob([[0.0, 0.0]])[0], -np.log(2 * np.pi)))
    True
    """

    def __init__(self, name: str, means: FloatArray, covariances: FloatArray) -> None:
        self.name = name
        self.n_dims = means.shape[1]
        self.means = means
        self.covariances = covariances
        self._factors = np.linalg.cholesky(covariances)  # Σ = L Lᵀ, (K, d, d)
        self._whiteners = np.linalg.inv(self._factors)  # (K, d, d)

    @property
    def support(self) -> FloatArray:
        """Box (n_dims, 2) that holds all but 1e-9 of the mass."""
        return gaussian_support(self.means, np.sqrt(np.diagonal(self.covariances, 0, 1, 2)))

    def _sample(self, n_samples: int, rng: np.random.Generator) -> FloatArray:
        labels = rng.integers(len(self.means), size=n_samples)
        X = rng.standard_normal((n_samples, self.n_dims))
        for k, (mean, factor) in enumerate(zip(self.means, self._factors, strict=True)):
            X[labels == k] = mean + X[labels == k] @ factor.T
        return X

    def _log_prob(self, X: FloatArray) -> FloatArray:
        squares = [
            np.square(whitener @ (X.T - mean[:, None])).sum(axis=0)
            for mean, whitener in zip(self.means, self._whiteners, strict=True)
        ]  # one component at a time, never (K, d, n)
        log_peaks = np.linalg.slogdet(self._whiteners).logabsdet - np.log(len(self.means))
        log_p = logsumexp(log_peaks[:, None] - np.stack(squares) / 2, axis=0)
        return log_p - self.n_dims / 2 * np.log(2 * np.pi)


def binomial() -> EqualGaussians:
    """One Gaussian, N([1, -1], diag(1, 4)): "binomial" is the paper's name for a bivariate normal.

    Examples
    --------
    >>> round(float(binomial().log_prob([[1.0, -1.0]])[0]), 6)  # -log(2π · 1 · 2)
    -2.531024
    """
    return EqualGaussians("binomial", np.array([[1.0, -1.0]]), np.diag([1.0, 4.0])[None])


def bimodal_l() -> EqualGaussians:
    """Two Gaussians in the shape of an L: ½N([1, -1], diag(1, 4)) + ½N([-2, 2], diag(4, 1)).

    Examples
    --------
    >>> bimodal_l().sample(5, random_state=0).shape
    (5, 2)
    """
    means = np.array([[1.0, -1.0], [-2.0, 2.0]])
    return EqualGaussians("bimodal_l", means, np.stack([np.diag([1.0, 4.0]), np.diag([4.0, 1.0])]))


def star_eight() -> EqualGaussians:
    r"""Eight narrow Gaussians, the rays of a star (Liu et al., 2021).

    Ray i, at the angle :math:`t = 2\pi i / 8`, has center and covariance

    .. math:: \mu = 3 (\cos t, \sin t), \qquad
        \Sigma = R(t)\, \mathrm{diag}(1, 0.16^2)\, R(t)^\top .

    Examples
    --------
    >>> target = star_eight()
    >>> bool(np.allclose(*target.log_prob([[3.0, 0.0], [0.0, -3.0]])))  # all rays are alike
    True
    """
    angles = 2 * np.pi * np.arange(8) / 8
    rays = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    normals = np.stack([-np.sin(angles), np.cos(angles)], axis=1)
    rotations = np.stack([rays, normals], axis=2)  # columns: along and across the ray
    covariances = rotations @ np.diag([1.0, 0.16**2]) @ rotations.transpose(0, 2, 1)
    return EqualGaussians("star_eight", 3 * rays, covariances)


def random_gmm(n_dims: int, scale: float = 1.0, random_state: RandomState = 0) -> EqualGaussians:
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
    random_state : None, int or numpy.random.Generator, default=0
        Draws the means and the correlations, not the samples.

    Examples
    --------
    >>> target = random_gmm(3, scale=0.2, random_state=0)
    >>> target.sample(5, random_state=1).shape
    (5, 3)
    >>> bool(np.allclose(np.diagonal(target.covariances, 0, 1, 2), 0.2**2))
    True
    """
    check_scalar(n_dims, "n_dims", Integral, min_val=1)
    if not 0 < scale < np.inf:
        raise ValueError(f"scale must be a positive number, got {scale!r}")
    rng = np.random.default_rng(random_state)
    means = rng.uniform(size=(10 * n_dims, n_dims))
    correlations = np.stack([_random_correlation(n_dims, rng) for _ in means])
    return EqualGaussians("random_gmm", means, scale**2 * correlations)


def _random_correlation(n_dims: int, rng: np.random.Generator) -> FloatArray:
    if n_dims == 1:  # SciPy wants two columns
        return np.ones((1, 1))
    eigenvalues = rng.uniform(size=n_dims)
    eigenvalues *= n_dims / eigenvalues.sum()
    return random_correlation.rvs(eigenvalues, random_state=rng)

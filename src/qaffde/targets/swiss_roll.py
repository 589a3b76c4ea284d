"""The planar swiss roll: a spiral with Gaussian noise."""

from functools import cache

import numpy as np

from qaffde.targets.base import FloatArray, Target, gaussian_support

_NOISE = 0.4
_N_NODES = 512  # log-density right to 1e-11 inside `support` (256 nodes: 3e-5)


class SwissRoll(Target):
    r"""Spiral with isotropic noise.

    .. math:: t \sim U(0, 2\pi), \qquad
        x \mid t \sim N(c(t),\, 0.4^2 I), \qquad c(t) = (t \sin 2t,\, t \cos 2t)

    The density :math:`p(x) = \frac{1}{2\pi}\int_0^{2\pi} N(x; c(t), 0.4^2 I)\, dt` has no closed
    form. Gauss-Legendre quadrature in t, summed in the log domain, is right to about 1e-11.

    Examples
    --------
    >>> target = SwissRoll()
    >>> bool(target.log_prob([[0.0, 2 * np.pi]]) > target.log_prob([[5.0, 5.0]]))
    True
    """

    name = "swiss_roll"
    n_dims = 2

    @property
    def support(self) -> FloatArray:
        """Box (2, 2) that holds all but 1e-9 of the mass."""
        return gaussian_support(_spiral(np.linspace(0, 2 * np.pi, 4001)), _NOISE)

    def _sample(self, n_samples: int, rng: np.random.Generator) -> FloatArray:
        t = rng.uniform(0, 2 * np.pi, n_samples)
        return rng.normal(_spiral(t), _NOISE)

    def _log_prob(self, X: FloatArray) -> FloatArray:
        slopes, offsets = _quadrature()
        log_terms = X @ slopes + offsets  # (n, nodes)
        log_peak = log_terms.max(axis=1)
        log_terms -= log_peak[:, None]
        log_sum = log_peak + np.log(np.exp(log_terms).sum(axis=1))
        log_noise = np.sum(X**2, axis=1) / (2 * _NOISE**2) + np.log(2 * np.pi * _NOISE**2)
        return log_sum - log_noise


def _spiral(t: FloatArray) -> FloatArray:
    return np.stack([t * np.sin(2 * t), t * np.cos(2 * t)], axis=1)


@cache
def _quadrature() -> tuple[FloatArray, FloatArray]:
    """Slopes (2, nodes) and offsets (nodes,) of the log-integrand, which is linear in x.

    log(w N(x; c, s² I)) = x·c / s² + (log w - ‖c‖² / 2s²) + (terms without t)
    """
    nodes, weights = np.polynomial.legendre.leggauss(_N_NODES)
    centers = _spiral(np.pi * (nodes + 1))
    offsets = np.log(weights / 2) - np.sum(centers**2, axis=1) / (2 * _NOISE**2)
    return centers.T / _NOISE**2, offsets

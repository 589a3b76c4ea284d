"""The arc of Papamakarios et al. (2017): a Gaussian bent along a parabola."""

import numpy as np

from qaffde.targets.base import FloatArray, Target, tail_quantile


class Arc(Target):
    r"""Gaussian around a parabola.

    .. math:: x_2 \sim N(0, 4), \qquad x_1 \mid x_2 \sim N(x_2^2 / 4, 1)

    Examples
    --------
    >>> round(float(Arc().log_prob([[0.0, 0.0]])[0]), 6)  # -log(2π · 2)
    -2.531024
    """

    name = "arc"
    n_dims = 2

    @property
    def support(self) -> FloatArray:
        """Box (2, 2) with all but 1e-9 of the mass; x₁ = Z² + ε with Z, ε standard normal."""
        z = tail_quantile(4)
        return np.array([[-z, z**2 + z], [-2 * z, 2 * z]])

    def _sample(self, n_samples: int, rng: np.random.Generator) -> FloatArray:
        x_2 = rng.normal(0, 2, n_samples)
        return np.stack([rng.normal(x_2**2 / 4, 1), x_2], axis=1)

    def _log_prob(self, X: FloatArray) -> FloatArray:
        x_1, x_2 = X.T
        return -((x_2 / 2) ** 2 + (x_1 - x_2**2 / 4) ** 2) / 2 - np.log(4 * np.pi)

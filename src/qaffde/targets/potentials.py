"""The four energies of Rezende and Mohamed (2015), as densities that integrate to one."""

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np
from scipy.special import expit, logsumexp

from qaffde.targets.base import FloatArray, Target, gaussian_support, tail_quantile


class RingPotential(Target):
    r"""Energy 1 (potential_1): the two ends of a ring.

    .. math:: p(x) = \frac{e^{-U(x)}}{Z}, \qquad
        U(x) = \frac12 \left(\frac{\|x\| - 2}{0.4}\right)^2
             - \log\left(e^{-\frac12 ((x_1 - 2)/0.6)^2} + e^{-\frac12 ((x_1 + 2)/0.6)^2}\right)

    Z is found once by quadrature in polar coordinates, which converges exponentially.

    Samples are exact, by rejection. In polar coordinates the density is proportional to
    :math:`r\, e^{-(r-2)^2/2s^2} g(r\cos\theta)` on r > 0, with s = 0.4 and g the sum of the two
    bumps. Two bounds hold everywhere: :math:`r \le 2 e^{(r-2)/2}`, from
    :math:`1 + u \le e^u`, and :math:`g \le 1 + e^{-\frac12(2/0.6)^2}`, as one bump is at most
    one and the other, on the far side, at most its value at x₁ = 0. By the first, the radial
    factor is at most a multiple of :math:`N(r;\, 2 + s^2/2, s^2)`. So r from that normal and a
    uniform angle are accepted with probability

    .. math:: \frac{r}{2} e^{-(r-2)/2} \cdot \frac{g(r\cos\theta)}{1 + e^{-\frac12 (2/0.6)^2}}
        \le 1 \quad (r > 0), \qquad 0 \quad (r \le 0).

    About half of the proposals are accepted.

    Examples
    --------
    >>> target = RingPotential()
    >>> log_p = target.log_prob([[2.0, 0.0], [-2.0, 0.0], [0.0, 2.0]])
    >>> [round(float(v), 4) for v in log_p]
    [-1.8775, -1.8775, -6.7399]
    """

    name = "potential_1"
    n_dims = 2

    @property
    def support(self) -> FloatArray:
        """Box (2, 2) with all but 1e-9 of the mass.

        The target's tail is at most the proposal's over the acceptance rate, which is above ¼.
        """
        radius = _RING_PROPOSAL_MEAN + _RING_STD * tail_quantile(4)
        return np.array([[-radius, radius], [-radius, radius]])

    def _sample(self, n_samples: int, rng: np.random.Generator) -> FloatArray:
        X = np.empty((0, 2))
        while len(X) < n_samples:
            X = np.concatenate([X, _accepted_ring_points(n_samples, rng)])
        return X[:n_samples]

    def _log_prob(self, X: FloatArray) -> FloatArray:
        radius = np.hypot(X[:, 0], X[:, 1])
        return _log_ring(radius) + _log_bumps(X[:, 0]) - np.log(_ring_normalizer())


_RING_RADIUS, _RING_STD = 2.0, 0.4
_BUMP_CENTER, _BUMP_STD = 2.0, 0.6
_RING_PROPOSAL_MEAN = _RING_RADIUS + _RING_STD**2 / _RING_RADIUS
_BUMPS_BOUND = 1 + np.exp(-((_BUMP_CENTER / _BUMP_STD) ** 2) / 2)


def _log_ring(radius: FloatArray) -> FloatArray:
    return -(((radius - _RING_RADIUS) / _RING_STD) ** 2) / 2


def _log_bumps(x_1: FloatArray) -> FloatArray:
    right = (x_1 - _BUMP_CENTER) / _BUMP_STD
    left = (x_1 + _BUMP_CENTER) / _BUMP_STD
    return np.logaddexp(-(right**2) / 2, -(left**2) / 2)


@cache
def _ring_normalizer() -> float:
    """Z = ∫∫ r exp(-U) dθ dr: trapezoidal in θ (periodic), Gauss-Legendre in r up to 2 + 10 s."""
    nodes, weights = np.polynomial.legendre.leggauss(128)
    half = (_RING_RADIUS + 10 * _RING_STD) / 2
    radius = half * (nodes + 1)
    angles = 2 * np.pi * np.arange(512) / 512
    bumps = np.exp(_log_bumps(np.outer(radius, np.cos(angles)))).mean(axis=1)
    return float(2 * np.pi * half * np.sum(weights * radius * np.exp(_log_ring(radius)) * bumps))


def _accepted_ring_points(n_proposals: int, rng: np.random.Generator) -> FloatArray:
    radius = rng.normal(_RING_PROPOSAL_MEAN, _RING_STD, n_proposals)
    angle = rng.uniform(0, 2 * np.pi, n_proposals)
    X = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    scaled = radius / _RING_RADIUS
    acceptance = scaled * np.exp(1 - scaled + _log_bumps(X[:, 0])) / _BUMPS_BOUND
    return X[rng.uniform(size=n_proposals) < acceptance]  # never where the radius is negative


class Ridge(NamedTuple):
    """A share of the mass that lies around the curve x₂ = center(x₁) with a Gaussian profile."""

    weight: float
    std: float
    center: Callable[[FloatArray], FloatArray]


class RidgePotential(Target):
    r"""Energies 2, 3 and 4: ridges along curves over an interval.

    .. math:: x_1 \sim U(-4, 4), \qquad
        x_2 \mid x_1 \sim \sum_k a_k\, N(c_k(x_1), \sigma_k^2)

    On :math:`|x_1| \le 4` this *is* :math:`e^{-U} / Z` for Rezende's U: each of its bumps
    :math:`e^{-\frac12 ((x_2 - c_k) / \sigma_k)^2}` integrates to :math:`\sigma_k\sqrt{2\pi}` over
    x₂, whatever x₁ is, so :math:`a_k \propto \sigma_k` and
    :math:`Z = 8 \sum_k \sigma_k\sqrt{2\pi}`.

    Parameters
    ----------
    name : str
    ridges : tuple of Ridge
        Their weights sum to one.
    """

    n_dims = 2
    half_width = 4.0

    def __init__(self, name: str, ridges: tuple[Ridge, ...]) -> None:
        self.name = name
        self.ridges = ridges

    @property
    def support(self) -> FloatArray:
        """Box (2, 2): [-4, 4] in x₁, all but 1e-9 of the mass in x₂."""
        x_1 = np.linspace(-self.half_width, self.half_width, 4001)
        centers = np.concatenate([ridge.center(x_1) for ridge in self.ridges])
        stds = np.repeat([ridge.std for ridge in self.ridges], len(x_1))
        heights = gaussian_support(centers[:, None], stds[:, None])
        return np.concatenate([[[-self.half_width, self.half_width]], heights])

    def _sample(self, n_samples: int, rng: np.random.Generator) -> FloatArray:
        x_1 = rng.uniform(-self.half_width, self.half_width, n_samples)
        labels = rng.choice(len(self.ridges), n_samples, p=[r.weight for r in self.ridges])
        x_2 = rng.standard_normal(n_samples)
        for k, ridge in enumerate(self.ridges):
            rows = labels == k
            x_2[rows] = ridge.center(x_1[rows]) + ridge.std * x_2[rows]
        return np.stack([x_1, x_2], axis=1)

    def _log_prob(self, X: FloatArray) -> FloatArray:
        x_1, x_2 = X.T
        inside = np.abs(x_1) <= self.half_width
        x_1 = np.where(inside, x_1, 0)
        log_terms = np.stack(
            [
                np.log(weight / std) - ((x_2 - center(x_1)) / std) ** 2 / 2
                for weight, std, center in self.ridges
            ]
        )
        log_width = np.log(2 * self.half_width)
        log_p = logsumexp(log_terms, axis=0) - np.log(2 * np.pi) / 2 - log_width
        return np.where(inside, log_p, -np.inf)


def _wave(x_1: FloatArray) -> FloatArray:  # Rezende's w₁
    return np.sin(2 * np.pi * x_1 / 4)


def _wave_less_bump(x_1: FloatArray) -> FloatArray:  # w₁ - w₂
    return _wave(x_1) - 3 * np.exp(-(((x_1 - 1) / 0.6) ** 2) / 2)


def _wave_less_step(x_1: FloatArray) -> FloatArray:  # w₁ - w₃
    return _wave(x_1) - 3 * expit((x_1 - 1) / 0.3)


def potential_2() -> RidgePotential:
    r"""Energy 2: one ridge of width 0.4 along :math:`w_1 = \sin(2\pi x_1/4)`.

    Examples
    --------
    >>> [float(v) for v in potential_2().log_prob([[0.0, 0.0], [4.5, 0.0]]).round(6)]
    [-2.082089, -inf]
    """
    return RidgePotential("potential_2", (Ridge(1.0, 0.4, _wave),))


def potential_3() -> RidgePotential:
    r"""Energy 3: w₁, and w₁ - w₂ with :math:`w_2 = 3 e^{-\frac12((x_1-1)/0.6)^2}`, width 0.35.

    Examples
    --------
    >>> potential_3().sample(3, random_state=0).shape
    (3, 2)
    """
    return RidgePotential(
        "potential_3", (Ridge(0.5, 0.35, _wave), Ridge(0.5, 0.35, _wave_less_bump))
    )


def potential_4() -> RidgePotential:
    r"""Energy 4: w₁ of width 0.4, and w₁ - w₃ of width 0.35, :math:`w_3 = 3/(1+e^{-(x_1-1)/0.3})`.

    Examples
    --------
    >>> potential_4().sample(3, random_state=0).shape
    (3, 2)
    """
    return RidgePotential(
        "potential_4",
        (Ridge(0.4 / 0.75, 0.4, _wave), Ridge(0.35 / 0.75, 0.35, _wave_less_step)),
    )

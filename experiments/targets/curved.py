"""Densities along curves in the plane: energies of Rezende and Mohamed, arc and swiss roll."""

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np
from scipy.special import expit, logsumexp

from experiments.targets.base import FloatArray, Target, gaussian_support, tail_quantile


class RingPotential(Target):
    r"""Energy 1 (potential_1): the two ends of a ring.

    .. math:: p(x) = \frac{e^{-U(x)}}{Z}, \qquad
        U(x) = \frac12 \left(\frac{\|x\| - 2}{0.4}\right)^2
             - \log\left(e^{-\frac12 ((x_1 - 2)/0.6)^2} + e^{-\frac12 ((x_1 + 2)/0.6)^2}\right)

    Z is found once by quadrature in polar coordinates, which converges exponentially.

    Samples are exact, by rejection in polar coordinates, where the density is proportional to
    :math:`r\, e^{-(r-2)^2/2s^2} g(r\cos\theta)` with s = 0.4 and g the sum of the two bumps. As
    :math:`r \le 2 e^{(r-2)/2}`, the radial factor is at most a multiple of
    :math:`N(r;\, 2 + s^2/2, s^2)`; and :math:`g \le 1 + e^{-\frac12(2/0.6)^2}`, as one bump is at
    most one and the other at most its value at x₁ = 0. So r from that normal and a uniform angle
    are accepted with probability

    .. math:: \frac{r}{2} e^{-(r-2)/2} \cdot \frac{g(r\cos\theta)}{1 + e^{-\frac12 (2/0.6)^2}}
        \le 1 \quad (r > 0), \qquad 0 \quad (r \le 0),

    which about half of the proposals are.

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


def ridge_potentials() -> tuple[RidgePotential, ...]:
    r"""Energies 2, 3 and 4, of ridges along :math:`w_1 = \sin(2\pi x_1/4)` and lower curves.

    Energy 2 is one ridge of width 0.4 along w₁. Energy 3 has w₁ and w₁ - w₂ with
    :math:`w_2 = 3 e^{-\frac12((x_1-1)/0.6)^2}`, both of width 0.35. Energy 4 has w₁ of width 0.4
    and w₁ - w₃ of width 0.35 with :math:`w_3 = 3/(1+e^{-(x_1-1)/0.3})`.

    Examples
    --------
    >>> second, *_ = ridge_potentials()
    >>> [float(v) for v in second.log_prob([[0.0, 0.0], [4.5, 0.0]]).round(6)]
    [-2.082089, -inf]
    """
    narrow, wide = 0.35, 0.4
    shares = wide / (wide + narrow), narrow / (wide + narrow)
    return (
        RidgePotential("potential_2", (Ridge(1.0, wide, _wave),)),
        RidgePotential(
            "potential_3", (Ridge(0.5, narrow, _wave), Ridge(0.5, narrow, _wave_less_bump))
        ),
        RidgePotential(
            "potential_4",
            (Ridge(shares[0], wide, _wave), Ridge(shares[1], narrow, _wave_less_step)),
        ),
    )


_NOISE = 0.4
_N_NODES = 512  # log-density right to 1e-11 inside `support` (256 nodes: 3e-5)


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
        log_sum = logsumexp(X @ slopes + offsets, axis=1)  # over the nodes
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

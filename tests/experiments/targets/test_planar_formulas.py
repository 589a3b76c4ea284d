"""Each planar log-density against an independent, naive formula."""

import math
import tracemalloc
from itertools import pairwise

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import logsumexp
from scipy.stats import multivariate_normal, norm

from experiments.targets import PLANAR, TARGETS, random_gmm

rng = np.random.default_rng(0)
POINTS = rng.uniform([-4, -4], [4, 4], (40, 2))


def naive_binomial(x):
    return multivariate_normal.pdf(x, [1, -1], np.diag([1, 4]))


def naive_bimodal_l(x):
    return (naive_binomial(x) + multivariate_normal.pdf(x, [-2, 2], np.diag([4, 1]))) / 2


def naive_arc(x):
    return norm.pdf(x[1], 0, 2) * norm.pdf(x[0], x[1] ** 2 / 4, 1)


def naive_star_eight(x):
    density = 0.0
    for i in range(8):
        t = 2 * np.pi * i / 8
        R = np.array([[np.cos(t), -np.sin(t)], [np.sin(t), np.cos(t)]])
        covariance = R @ np.diag([1, 0.16**2]) @ R.T
        density += multivariate_normal.pdf(x, [3 * np.cos(t), 3 * np.sin(t)], covariance) / 8
    return density


def naive_swiss_roll(x):
    def integrand(t):
        squared = (x[0] - t * math.sin(2 * t)) ** 2 + (x[1] - t * math.cos(2 * t)) ** 2
        return math.exp(-squared / (2 * 0.16)) / (2 * math.pi * 0.16)

    edges = pairwise(np.linspace(0, 2 * np.pi, 17))
    pieces = [quad(integrand, *ends, epsabs=1e-20, epsrel=1e-12)[0] for ends in edges]
    return sum(pieces) / (2 * np.pi)


def energy(number, x_1, x_2):
    """Table 1 of Rezende and Mohamed (2015), without the walls."""
    w_1 = np.sin(2 * np.pi * x_1 / 4)
    w_2 = 3 * np.exp(-0.5 * ((x_1 - 1) / 0.6) ** 2)
    w_3 = 3 / (1 + np.exp(-(x_1 - 1) / 0.3))
    if number == 1:
        bumps = np.exp(-0.5 * ((x_1 - 2) / 0.6) ** 2) + np.exp(-0.5 * ((x_1 + 2) / 0.6) ** 2)
        return 0.5 * ((np.hypot(x_1, x_2) - 2) / 0.4) ** 2 - np.log(bumps)
    if number == 2:
        return 0.5 * ((x_2 - w_1) / 0.4) ** 2
    first, second, shift = {3: (0.35, 0.35, w_2), 4: (0.4, 0.35, w_3)}[number]
    return -np.log(
        np.exp(-0.5 * ((x_2 - w_1) / first) ** 2)
        + np.exp(-0.5 * ((x_2 - w_1 + shift) / second) ** 2)
    )


def naive_potential(number):
    """Density e^{-U}/Z with Z by midpoints on a square; x₁ within [-4, 4] for energies 2 to 4."""
    half, n = (6, 600) if number == 1 else (4, 4000)
    x_1 = half * (2 * np.arange(n) + 1 - n) / n
    x_2 = np.arange(-8, 8, 0.05)
    with np.errstate(divide="ignore"):
        Z = np.exp(-energy(number, x_1[:, None], x_2)).sum() * 0.05 * 2 * half / n
    return lambda x: np.exp(-energy(number, *x)) / Z


NAIVE = {
    "arc": naive_arc,
    "bimodal_l": naive_bimodal_l,
    "binomial": naive_binomial,
    "potential_1": naive_potential(1),
    "potential_2": naive_potential(2),
    "potential_3": naive_potential(3),
    "potential_4": naive_potential(4),
    "star_eight": naive_star_eight,
    "swiss_roll": naive_swiss_roll,
}


@pytest.mark.parametrize("name", PLANAR)
def test_log_prob_equals_the_naive_formula(name):
    naive = np.array([NAIVE[name](x) for x in POINTS])
    positive = naive > 1e-200  # where the naive formula does not underflow
    assert positive.sum() > 20
    log_p = TARGETS[name].log_prob(POINTS)
    np.testing.assert_allclose(log_p[positive], np.log(naive[positive]), rtol=0, atol=1e-9)


def test_log_prob_is_exact_where_the_density_underflows():
    np.testing.assert_allclose(
        TARGETS["binomial"].log_prob([[101.0, -1.0]]), -(100**2) / 2 - np.log(4 * np.pi)
    )
    far = np.array([20.0, -15.0])
    t = np.linspace(0, 2 * np.pi, 200_001)
    squared = (far[0] - t * np.sin(2 * t)) ** 2 + (far[1] - t * np.cos(2 * t)) ** 2
    expected = logsumexp(-squared / 0.32) - np.log(200_000) - np.log(0.32 * np.pi)
    assert expected < -1000
    np.testing.assert_allclose(TARGETS["swiss_roll"].log_prob(far[None]), expected, rtol=1e-11)


@pytest.mark.parametrize("name", ["potential_2", "potential_3", "potential_4"])
def test_density_is_zero_beyond_the_interval(name):
    log_p = TARGETS[name].log_prob([[-4.0, 0.0], [4.0, 0.0], [-4.001, 0.0], [1e300, 0.0]])
    assert np.isfinite(log_p[:2]).all()
    assert (log_p[2:] == -np.inf).all()


@pytest.mark.parametrize("target", [TARGETS["swiss_roll"], random_gmm(10)], ids=repr)
def test_scoring_many_points_takes_little_memory(target):
    X = target.sample(20_000, random_state=0)
    target.log_prob(X[:1])
    tracemalloc.start()
    target.log_prob(X)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10e6  # the full array of (points, nodes) is 80 MB

"""Splines, levels, quantiles and draws on even grids, against what is known."""

import numpy as np
from scipy import stats

from qaffde.explore import grids

EDGE = 4.0
X = np.linspace(-EDGE, EDGE, 64)


def test_refined_values_lie_on_the_function():
    plane = np.exp(-(X[:, None] ** 2) - X**2 / 2)
    fine = np.linspace(-EDGE, EDGE, 129)
    expected = np.exp(-(fine[:, None] ** 2) - fine**2 / 2)
    np.testing.assert_allclose(grids.refined(plane, 129), expected, atol=2e-4)


def test_axes_of_a_plane_keep_their_order():
    plane = np.outer(X, np.ones(64)) + EDGE
    fine = grids.refined(plane, 129)
    assert np.ptp(fine[:, 0]) > 7
    np.testing.assert_allclose(np.ptp(fine, axis=1), 0, atol=1e-9)


def test_integrals_agree_with_the_normal_law():
    weights = grids.integral_weights(64, (1 + EDGE) / 8, (2 + EDGE) / 8)
    found = 2 * EDGE * weights @ stats.norm.pdf(X)
    assert abs(found - (stats.norm.cdf(2) - stats.norm.cdf(1))) < 1e-6


def test_open_ends_are_those_of_the_grid():
    weights = grids.integral_weights(64, -np.inf, np.inf)
    assert abs(weights.sum() - 1) < 1e-12


def test_quantiles_invert_the_normal_law():
    fine = np.linspace(-EDGE, EDGE, 257)
    levels = np.array([0.01, 0.5, 0.9])
    found = grids.quantiles(stats.norm.pdf(fine), levels) * 2 * EDGE - EDGE
    np.testing.assert_allclose(found, stats.norm.ppf(levels), atol=2e-3)


def test_a_curve_without_mass_has_quantiles_inside():
    found = grids.quantiles(np.zeros(9), np.array([0.0, 0.5, 1.0]))
    assert ((found >= 0) & (found <= 1)).all()


def test_draws_follow_a_plane():
    fine = np.linspace(-EDGE, EDGE, 129)
    law = stats.multivariate_normal([0, 0.5], [[1, 0.6], [0.6, 0.8]])
    plane = law.pdf(np.stack(np.meshgrid(fine, fine, indexing="ij"), -1))
    drawn = grids.draws(plane, np.random.default_rng(0).random((20_000, 2))) * 2 * EDGE - EDGE
    np.testing.assert_allclose(drawn.mean(0), [0, 0.5], atol=0.03)
    np.testing.assert_allclose(np.cov(drawn.T), [[1, 0.6], [0.6, 0.8]], atol=0.04)


def test_levels_hold_the_mass_of_the_normal_law():
    fine = np.linspace(-6, 6, 2001)
    (level,) = grids.mass_levels(stats.norm.pdf(fine), np.array([0.9]))
    assert abs(level - stats.norm.pdf(stats.norm.ppf(0.95))) < 1e-3

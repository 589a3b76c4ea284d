"""Quantiles, draws and regions of even cells, against what is known."""

import numpy as np
import pytest
from scipy import stats

from qaffde.explore import views
from qaffde.functional.regions import cell_levels

EDGE = 4.0
EDGES = np.linspace(-EDGE, EDGE, 129)
NORMAL = np.diff(stats.norm.cdf(EDGES))


def test_overlaps_agree_with_the_normal_law():
    weights = views.overlaps(128, (1 + EDGE) / 8, (2 + EDGE) / 8)
    expected = stats.norm.cdf(2) - stats.norm.cdf(1)
    assert weights[1:-1] @ NORMAL == pytest.approx(expected, abs=1e-9)
    halves = views.overlaps(128, 0.5, 0.5 + 1 / 256)
    assert halves[1:-1] @ NORMAL == pytest.approx(NORMAL[64] / 2)


def test_open_ends_hold_what_is_beyond():
    assert (views.overlaps(64, -np.inf, np.inf) == 1).all()
    assert views.overlaps(64, -9, 9)[[0, -1]].tolist() == [0, 0]


def test_quantiles_invert_the_normal_law():
    levels = np.array([0.01, 0.5, 0.9])
    found = views.cell_quantiles(NORMAL, levels) * 2 * EDGE - EDGE
    np.testing.assert_allclose(found, stats.norm.ppf(levels), atol=2e-3)


def test_quantiles_of_a_spike_are_in_its_cell():
    mass = np.where(np.arange(128) == 40, 0.4, 0.6 / 127)
    found = views.cell_quantiles(mass, np.array([0.2, 0.4, 0.58])) * 128
    assert ((found >= 40) & (found <= 41)).all()


def test_a_curve_without_mass_has_quantiles_inside():
    found = views.cell_quantiles(np.zeros(9), np.array([0.0, 0.5, 1.0]))
    assert ((found >= 0) & (found <= 1)).all()


def test_draws_follow_a_plane():
    middles = (EDGES[1:] + EDGES[:-1]) / 2
    law = stats.multivariate_normal([0, 0.5], [[1, 0.6], [0.6, 0.8]])
    plane = law.pdf(np.stack(np.meshgrid(middles, middles, indexing="ij"), -1))
    drawn = views.draws(plane, np.random.default_rng(0).random((20_000, 2))) * 2 * EDGE - EDGE
    np.testing.assert_allclose(drawn.mean(0), [0, 0.5], atol=0.03)
    np.testing.assert_allclose(np.cov(drawn.T), [[1, 0.6], [0.6, 0.8]], atol=0.04)


def test_regions_count_what_is_beyond():
    mass = np.array([0.4, 0.2, 0.1, 0.1])
    levels = cell_levels(mass, np.array([0.55, 0.78]))
    assert [mass[mass >= level].sum() for level in levels] == pytest.approx([0.6, 0.8])

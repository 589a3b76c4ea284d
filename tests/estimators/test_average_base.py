"""QAFFDE-SGD on many columns, whose base is an average of mixtures."""

import re

import numpy as np
import pytest

from experiments.targets import random_gmm
from qaffde import QAFFDESGD, load


@pytest.fixture(scope="module")
def rows():
    return random_gmm(4, 0.5).sample(2500, 1)


@pytest.fixture(scope="module")
def model(rows):
    return QAFFDESGD(random_state=0).fit(rows)


def test_one_constant_feature_is_a_density_with_all_its_calculus(model, rows, tmp_path):
    assert model.n_fourier_features_ == 1
    assert re.fullmatch(r"mixture of [2-4] × \d+(, shrinkage [\d.]+)? alone", model.plan_.base)
    (chosen,) = [trial.name for trial in model.plan_.trials if trial.chosen]
    assert chosen == model.plan_.base
    drawn = model.sample(4000, random_state=0)
    np.testing.assert_allclose(drawn.mean(0), model.mean(), atol=0.03)
    np.testing.assert_allclose(np.cov(drawn.T), model.covariance(), atol=0.02)
    whole = model.score_samples(rows[:5])
    given = model.conditional_score_samples(rows[:5], [0, 1])
    np.testing.assert_allclose(whole, given + model.marginal([0, 1]).score_samples(rows[:5, :2]))
    model.save(tmp_path / "model.qaffde")
    np.testing.assert_array_equal(load(tmp_path / "model.qaffde").score_samples(rows[:5]), whole)


def test_a_number_of_features_is_kept(rows):
    model = QAFFDESGD(n_features=64, random_state=0).fit(rows)
    assert model.n_fourier_features_ == 64
    assert "alone" not in model.plan_.base


def test_an_average_beats_a_mixture_of_its_size(model, rows):
    """On new rows of a mixture of many Gaussians of which few rows tell."""
    fresh = random_gmm(4, 0.5).sample(20_000, 2)
    size = int(model.plan_.base.split()[-2])
    alone = QAFFDESGD(base_measure=size, n_features=2, random_state=0).fit(rows)
    assert model.score(fresh) > alone.score(fresh)

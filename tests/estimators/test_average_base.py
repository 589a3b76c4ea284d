"""QAFFDE-SGD on many columns, whose base is averaged over a posterior."""

import numpy as np
import pytest

from qaffde import QAFFDESGD, SelectionPolicy, load
from qaffde.targets import RandomGMM


@pytest.fixture(scope="module")
def rows():
    return RandomGMM(4, 0.2).sample(2500, 1)


@pytest.fixture
def model(rows):
    policy = SelectionPolicy(averaged_choice_work=400, averaged_work=800)
    return QAFFDESGD(policy=policy, random_state=0).fit(rows)


def test_one_constant_feature_is_a_density_with_all_its_calculus(model, rows, tmp_path):
    assert model.n_fourier_features_ == 1
    drawn = model.sample(4000, random_state=0)
    np.testing.assert_allclose(drawn.mean(0), model.mean(), atol=0.03)
    np.testing.assert_allclose(np.cov(drawn.T), model.covariance(), atol=0.02)
    whole = model.score_samples(rows[:5])
    given = model.conditional_score_samples(rows[:5], [0, 1])
    np.testing.assert_allclose(whole, given + model.marginal([0, 1]).score_samples(rows[:5, :2]))
    model.save(tmp_path / "model.qaffde")
    np.testing.assert_array_equal(load(tmp_path / "model.qaffde").score_samples(rows[:5]), whole)


def test_a_number_of_features_is_kept(rows):
    policy = SelectionPolicy(averaged_choice_work=200, averaged_work=200)
    model = QAFFDESGD(n_features=64, policy=policy, random_state=0).fit(rows)
    assert model.n_fourier_features_ == 64

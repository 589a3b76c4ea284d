"""The compressed kernel estimate: exact for few rows, of constant cost for many."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.utils.estimator_checks import parametrize_with_checks

from qaffde.estimators import KernelMixture

RNG = np.random.default_rng(0)
X = RNG.normal(size=(3000, 2)) @ [[1.0, 0.9], [0.0, 0.3]] + [5.0, -100.0]


@parametrize_with_checks([KernelMixture(8, random_state=0)])
def test_scikit_learn(estimator, check):
    check(estimator)


def test_each_of_few_rows_is_a_kernel():
    rows, weight = X[:40], RNG.uniform(0.5, 2, 40)
    model = KernelMixture(bandwidth=1.0, whitening=0.0).fit(rows, sample_weight=weight)
    share = weight / weight.sum()
    std = np.sqrt(np.cov(rows.T, aweights=weight, ddof=0).diagonal())
    h = (1 / (share**2).sum()) ** (-1 / 6)
    kernels = [multivariate_normal(row, np.diag((h * std) ** 2)).pdf(X) for row in rows]
    np.testing.assert_allclose(model.score_samples(X), np.log(share @ kernels), rtol=1e-8)


@pytest.mark.parametrize("whitening", [0.0, 0.5, 1.0])
def test_it_integrates_to_one(whitening):
    model = KernelMixture(32, whitening=whitening, random_state=0).fit(X)
    axes = [np.linspace(c.min() - 3, c.max() + 3, 400) for c in X.T]
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), -1)
    p = np.exp(model.score_samples(grid.reshape(-1, 2))).reshape(400, 400)
    assert np.trapezoid(np.trapezoid(p, axes[1]), axes[0]) == pytest.approx(1, abs=1e-3)


def test_groups_keep_the_density_of_all_rows():
    few = KernelMixture(512, random_state=0).fit(X)
    exact = KernelMixture(len(X)).fit(X)
    assert len(few.density_.centers) == 512
    assert np.abs(few.score_samples(X) - exact.score_samples(X)).mean() < 0.1


def test_one_kernel_is_the_mahalanobis_distance():
    model = KernelMixture(1, whitening=1.0, random_state=0).fit(X)
    away = (X - X.mean(0)) @ np.linalg.inv(np.cov(X.T))
    distance = (away * (X - X.mean(0))).sum(1)
    assert np.corrcoef(model.score_samples(X), distance)[0, 1] < -0.999


def test_draws_have_the_moments_of_the_rows():
    drawn = KernelMixture(64, random_state=0).fit(X).sample(20_000, random_state=0)
    np.testing.assert_allclose(drawn.mean(0), X.mean(0), atol=0.03)
    np.testing.assert_allclose(np.corrcoef(drawn.T), np.corrcoef(X.T), atol=0.1)


def test_more_columns_than_rows():
    rows = RNG.normal(size=(30, 100))
    assert np.isfinite(KernelMixture().fit(rows).score_samples(rows)).all()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"n_kernels": 0}, "n_kernels"),
        ({"bandwidth": 0.0}, "bandwidth"),
        ({"whitening": 1.5}, "whitening=1.5 must be a number from 0 to 1"),
    ],
)
def test_parameters_are_checked(wrong, message):
    with pytest.raises(ValueError, match=message):
        KernelMixture(**wrong).fit(X)

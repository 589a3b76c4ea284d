"""Kernel density estimate and Gaussian mixture against naive computations."""

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

from experiments.targets import get_target
from qaffde.baselines import GMM, KDE


def test_the_kernel_estimate_is_the_naive_sum(X):
    h, weight = np.array([0.4, 0.9]), np.arange(1.0, 101.0)
    rows, points = X[:100], X[100:120]
    kernels = [multivariate_normal.logpdf(points, row, np.diag(h**2)) for row in rows]
    expected = logsumexp(kernels, axis=0, b=(weight / weight.sum())[:, None])
    model = KDE(h).fit(rows, sample_weight=weight)
    assert np.allclose(model.score_samples(points), expected)
    assert np.array_equal(model.bandwidth_, h)


@pytest.mark.parametrize("rule", ["scott", "silverman"])  # in two columns they are the same
def test_rules_are_in_standard_deviations(X, rule):
    assert np.allclose(KDE(rule).fit(X).bandwidth_, len(X) ** (-1 / 6) * X.std(0))


def test_auto_bandwidth_has_the_best_held_out_likelihood():
    target = get_target("star_eight")
    X, fresh = target.sample(1000, 0), target.sample(500, 1)
    chosen = KDE(random_state=0).fit(X)
    scores = [KDE(chosen.bandwidth_ * f).fit(X).score(fresh) for f in (0.6, 1.7)]
    assert chosen.score(fresh) > max(scores) - 0.02
    assert chosen.score(fresh) > KDE("scott").fit(X).score(fresh) + 0.1


def test_auto_mixture_finds_the_number_of_modes():
    target = get_target("star_eight")
    model = GMM(random_state=0).fit(target.sample(4000, 0))
    assert model.n_components_ in (8, 16)
    X = target.sample(2000, 1)
    assert target.log_prob(X).mean() - model.score(X) < 0.05


def test_one_component_is_the_gaussian_of_the_moments(X):
    expected = multivariate_normal.logpdf(X, X.mean(0), np.cov(X.T, ddof=0))
    assert np.allclose(GMM(1).fit(X).score_samples(X), expected, atol=1e-5)


def test_few_rows_are_one_component():
    X = np.random.default_rng(0).normal(size=(12, 2))
    assert GMM().fit(X).n_components_ == 1

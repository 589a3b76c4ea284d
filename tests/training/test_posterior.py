"""Mixtures averaged over their posterior."""

import math

import numpy as np
import pytest
import torch
from sklearn.mixture import GaussianMixture
from torch.distributions import MultivariateNormal

from qaffde.nn import GaussianMeasure
from qaffde.targets import RandomGMM
from qaffde.training.posterior import N_DRAWS, Monomials, posterior_mixture


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.fixture
def mixture():
    A = torch.randn(3, 4, 4, generator=generator(), dtype=torch.float64)
    weights = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)
    means = torch.randn(3, 4, generator=generator(1), dtype=torch.float64)
    return GaussianMeasure(weights, means, A @ A.mT + torch.eye(4, dtype=torch.float64))


@pytest.fixture
def rows():
    return torch.randn(50, 4, generator=generator(2), dtype=torch.float64)


def test_log_terms_are_weighted_normal_densities(mixture, rows):
    parts = zip(mixture.weights, mixture.means, mixture.covariances, strict=True)
    expected = [MultivariateNormal(m, S).log_prob(rows) + w.log() for w, m, S in parts]
    torch.testing.assert_close(Monomials(rows).log_terms(mixture), torch.stack(expected, dim=1))


def test_moments_are_those_of_the_labelled_rows(rows):
    labels = torch.arange(50) % 3
    count, mean, scatter = Monomials(rows).moments(labels, 4)
    assert count.tolist() == [17, 17, 16, 0]
    for label in range(3):
        of = rows[labels == label].numpy()
        np.testing.assert_allclose(mean[label], of.mean(0))
        np.testing.assert_allclose(scatter[label], np.cov(of.T, bias=True) * len(of), atol=1e-12)
    assert not scatter[3].any()


def test_one_component_has_the_posterior_of_a_gaussian():
    rows = torch.randn(2000, 4, generator=generator(), dtype=torch.float64)
    draws = [posterior_mixture(rows, N_DRAWS, generator(seed), n_sweeps=40) for seed in range(10)]
    means = torch.cat([draw.means for draw in draws])
    covariances = torch.cat([draw.covariances for draw in draws])
    error = means.std(0) * math.sqrt(2000)
    np.testing.assert_allclose(error, 1.0, rtol=0.35)
    np.testing.assert_allclose(means.mean(0), rows.mean(0), atol=0.02)
    np.testing.assert_allclose(covariances.mean(0), torch.cov(rows.T), atol=0.03)
    spread = covariances[:, 0, 0].std() * math.sqrt(2000 / 2)
    assert 0.7 < spread < 1.4


def test_a_strong_prior_pulls_to_the_unit_covariance():
    rows = 0.1 * torch.randn(500, 4, generator=generator(), dtype=torch.float64)
    free = posterior_mixture(rows, N_DRAWS, generator(), n_sweeps=20)
    held = posterior_mixture(rows, N_DRAWS, generator(), n_sweeps=20, strength=500.0)
    variance = [draw.covariances.diagonal(dim1=1, dim2=2).mean() for draw in (free, held)]
    assert variance[0] < 0.02
    assert 0.4 < variance[1] < 0.6


@pytest.mark.parametrize("scale", [1.0, 0.2])
def test_beats_expectation_maximisation_of_the_true_size(scale):
    target = RandomGMM(5, scale)
    train, test = (torch.as_tensor(target.sample(n, s)) for n, s in ((6000, 1), (5000, 2)))
    location, deviation = train.mean(0), train.std(0)
    found = posterior_mixture(
        (train - location) / deviation, N_DRAWS * 40, generator(), n_sweeps=100
    )
    log_p = found.log_density((test - location) / deviation) - deviation.log().sum()
    plain = GaussianMixture(50, random_state=0).fit(train.numpy())
    assert log_p.mean() > plain.score(test.numpy())


def test_goes_on_from_an_earlier_average():
    target = RandomGMM(4, 0.2)
    rows = torch.as_tensor(target.sample(3000, 1))
    rows = (rows - rows.mean(0)) / rows.std(0)
    start = posterior_mixture(rows, N_DRAWS * 40, generator(), n_sweeps=30)
    new, old = (
        posterior_mixture(rows, N_DRAWS * 40, generator(1), n_sweeps=1, start=begin)
        for begin in (None, start)
    )
    last = start.means[-40:]
    far, near = ((found.means[-40:] - last).norm(dim=1).median() for found in (new, old))
    assert near < 0.5 < far


def test_the_same_seed_gives_the_same_mixture(rows):
    first, second = (posterior_mixture(rows, 2 * N_DRAWS, generator(3), n_sweeps=9) for _ in "ab")
    assert torch.equal(first.means, second.means)
    assert torch.equal(first.weights, second.weights)


def test_rows_on_a_plane_stay_finite():
    rows = torch.randn(400, 3, generator=generator(), dtype=torch.float64)
    flat = torch.cat([rows, rows[:, :1]], dim=1)
    found = posterior_mixture(flat, 3 * N_DRAWS, generator(), n_sweeps=20)
    assert found.log_density(flat).isfinite().all()

"""Random mixtures of Gaussians against naive and closed forms, d = 1 to 10, both scales."""

import numpy as np
import pytest
from scipy.special import logsumexp, ndtr
from scipy.stats import chisquare, kstest, multivariate_normal

from experiments.targets import random_gmm

DIMS = range(1, 11)
SCALES = [1.0, 0.2]
every_scale = pytest.mark.parametrize(
    ("target", "scale"),
    [(random_gmm(d, scale=s, random_state=d), s) for s in SCALES for d in DIMS],
    ids=repr,
)
every_mixture = pytest.mark.parametrize(
    "target", [random_gmm(d, scale=s, random_state=d) for s in SCALES for d in DIMS], ids=repr
)


@every_mixture
def test_log_prob_equals_the_naive_mixture(target):
    X = target.sample(20, random_state=0)
    logs = [
        multivariate_normal.logpdf(X, mean, covariance)
        for mean, covariance in zip(target.means, target.covariances, strict=True)
    ]
    expected = logsumexp(logs, axis=0) - np.log(10 * target.n_dims)
    np.testing.assert_allclose(target.log_prob(X), expected, rtol=1e-9, atol=1e-9)


@every_scale
def test_parameters_are_as_described(target, scale):
    d = target.n_dims
    assert target.means.shape == (10 * d, d)
    assert target.covariances.shape == (10 * d, d, d)
    assert ((target.means > 0) & (target.means < 1)).all()
    np.testing.assert_allclose(np.diagonal(target.covariances, 0, 1, 2), scale**2)
    np.testing.assert_allclose(target.covariances, target.covariances.transpose(0, 2, 1))
    assert (np.linalg.eigvalsh(target.covariances) > 0).all()


def z_scores(values, expected):
    """How many standard errors the means of the columns are from the expected values."""
    return np.abs(values.mean(axis=0) - expected) / (values.std(axis=0) / np.sqrt(len(values)))


def products(X, mean):
    centred = X - mean
    return (centred[:, :, None] * centred[:, None, :]).reshape(len(X), -1)


@every_scale
def test_moments_of_the_samples(target, scale):
    X = target.sample(20_000, random_state=0)
    mean = target.means.mean(axis=0)
    within = target.covariances.mean(axis=0)
    between = np.cov(target.means.T, ddof=0).reshape(within.shape)
    assert z_scores(X, mean).max() < 4.5
    assert z_scores(products(X, mean), (within + between).ravel()).max() < 4.5
    if scale < 1:  # the test can fail: without the scatter of the means it does
        assert z_scores(products(X, mean), within.ravel()).max() > 20


@every_mixture
def test_projections_follow_one_dimensional_mixtures(target):
    X = target.sample(2000, random_state=1)
    direction = np.random.default_rng(0).standard_normal(target.n_dims)
    centres = target.means @ direction
    stds = np.sqrt(np.einsum("i,kij,j->k", direction, target.covariances, direction))
    u = ndtr(((X @ direction)[:, None] - centres) / stds).mean(axis=1)
    assert kstest(u, "uniform").pvalue > 1e-3


def test_components_have_equal_weights():
    target = random_gmm(2, scale=1e-3, random_state=0)  # so narrow that the nearest mean tells
    X = target.sample(20_000, random_state=0)
    nearest = np.linalg.norm(X[:, None] - target.means, axis=2).argmin(axis=1)
    counts = np.bincount(nearest, minlength=20)
    assert chisquare(counts).pvalue > 1e-3
    assert np.ptp(counts) > 20  # multinomial, not stratified


def test_eigenvalues_are_uniform_before_they_are_scaled():
    """For d = 2 they are 1 ± ρ with |ρ| = |u - v| / (u + v), so P(|ρ| ≤ a) = 2a / (1 + a)."""
    rho = np.abs([random_gmm(2, random_state=i).covariances[:, 0, 1] for i in range(20)]).ravel()
    assert kstest(rho, lambda a: 2 * a / (1 + a)).pvalue > 1e-3


def test_seed_decides_the_mixture():
    first, same, other = (random_gmm(3, random_state=seed) for seed in (4, 4, 5))
    np.testing.assert_array_equal(first.covariances, same.covariances)
    assert not np.allclose(first.means, other.means)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"n_dims": 0}, ValueError, "n_dims == 0, must be >= 1"),
        ({"n_dims": 2.0}, TypeError, "n_dims must be an instance of int, not float"),
        ({"n_dims": 2, "scale": 0.0}, ValueError, "scale must be a positive number, got 0.0"),
        ({"n_dims": 2, "scale": np.nan}, ValueError, "scale must be a positive number, got nan"),
        ({"n_dims": 2, "random_state": "a"}, TypeError, "SeedSequence expects int"),
    ],
)
def test_bad_options(options, error, message):
    with pytest.raises(error, match=message):
        random_gmm(**options)

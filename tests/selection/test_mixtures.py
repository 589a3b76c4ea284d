"""Mixtures by expectation–maximization, and averages of them over their posterior."""

import math
import warnings

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture
from torch.distributions import MultivariateNormal

from experiments.targets import random_gmm
from qaffde import SelectionPolicy
from qaffde.nn import GaussianMeasure
from qaffde.selection.base_measure import (
    MAX_ITER,
    N_DRAWS,
    TOLERANCE,
    BaseSpec,
    Monomials,
    average_mixture,
    average_of,
    fit_mixture,
    last_draw,
)


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
    terms = torch.cat(list(Monomials(rows).log_terms(mixture)), dim=1)
    torch.testing.assert_close(terms, torch.stack(expected))


def test_log_densities_are_those_of_the_measure(mixture, rows):
    torch.testing.assert_close(Monomials(rows).log_density(mixture), mixture.log_density(rows))


@pytest.mark.parametrize("weighted", [False, True])
def test_moments_are_those_of_the_labelled_rows(rows, weighted):
    labels = torch.arange(50) % 3
    weight = torch.arange(50).double() + 1 if weighted else torch.ones(50, dtype=torch.float64)
    values = Monomials(rows, weight)
    count, mean, scatter = values.moments(values.sums_of_labels(labels, 4))
    for label in range(3):
        of, w = rows[labels == label].numpy(), weight[labels == label].numpy()
        assert count[label].item() == pytest.approx(w.sum())
        np.testing.assert_allclose(mean[label], np.average(of, axis=0, weights=w))
        expected = np.cov(of.T, bias=True, aweights=w) * w.sum()
        np.testing.assert_allclose(scatter[label], expected, atol=1e-10)
    assert count[3] == 0
    assert not scatter[3].any()


# Expectation–maximization


RIDGE = 1e-7


def standardized(rows):
    return (rows - rows.mean(0)) / rows.std(0)


@pytest.fixture(scope="module")
def data():
    return standardized(torch.as_tensor(random_gmm(3, 0.2).sample(2000, 1)))


@pytest.fixture(scope="module")
def start(data):
    """Six Gaussians around rows."""
    covariances = 0.3 * torch.eye(3, dtype=torch.float64).expand(6, 3, 3)
    weights = torch.full((6,), 1 / 6, dtype=torch.float64)
    return GaussianMeasure(weights, data[:6].clone(), covariances)


def steps(rows, n_steps, start=None, k=6, ridge=RIDGE):
    return fit_mixture(rows, k, generator(), ridge=ridge, start=start, max_iter=n_steps)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("given", [False, True], ids=["clusters", "start"])
def test_every_iteration_raises_the_likelihood(data, start, weighted, given):
    weight = torch.rand(2000, generator=generator(), dtype=torch.float64) if weighted else None
    rows, begin = Monomials(data, weight), start if given else None
    values = [
        float(rows.log_density(steps(rows, n, begin, ridge=0.0)) @ rows.weight)
        for n in range(1, 25)
    ]
    gains = np.diff(values) / float(rows.weight.sum())
    assert gains.min() > -1e-12
    assert gains.sum() > 0.01


def of_sklearn(data, start, max_iter, tol):
    model = GaussianMixture(
        len(start.weights),
        weights_init=start.weights.numpy(),
        means_init=start.means.numpy(),
        precisions_init=torch.linalg.inv(start.covariances).numpy(),
        reg_covar=RIDGE,
        max_iter=max_iter,
        tol=tol,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(data.numpy())


def test_two_iterations_are_those_of_scikit_learn(data, start):
    found = steps(Monomials(data), 2, start)
    expected = of_sklearn(data, start, 2, TOLERANCE)
    np.testing.assert_allclose(found.weights, expected.weights_, rtol=1e-6)
    np.testing.assert_allclose(found.means, expected.means_, atol=1e-6)
    np.testing.assert_allclose(found.covariances, expected.covariances_, atol=1e-6)
    score = float(found.log_density(data).mean())
    assert score == pytest.approx(expected.score(data.numpy()), abs=1e-8)


def test_extrapolation_is_ahead_of_as_many_plain_iterations(data, start):
    expected = of_sklearn(data, start, MAX_ITER, 0.0)
    found = steps(Monomials(data), MAX_ITER, start)
    assert found.log_density(data).mean() > expected.score(data.numpy()) - 1e-4


def test_no_further_iteration_after_the_deadline(data, start):
    options = {"ridge": RIDGE, "start": start}
    late = fit_mixture(Monomials(data), 6, generator(), deadline=0.0, **options)
    two = fit_mixture(Monomials(data), 6, generator(), max_iter=2, **options)
    torch.testing.assert_close(late.means, two.means)


def test_from_clusters_it_is_as_likely_as_that_of_scikit_learn(data):
    found = fit_mixture(Monomials(data), 8, generator(), ridge=RIDGE)
    expected = GaussianMixture(8, random_state=0, tol=TOLERANCE, max_iter=200).fit(data.numpy())
    assert found.log_density(data).mean() > expected.score(data.numpy()) - 0.03


@pytest.mark.parametrize("k", [1, 6])
def test_whole_weights_are_repeated_rows(data, start, k):
    copies = torch.arange(len(data)) % 4
    begin = start if k == 6 else None
    weighted = steps(Monomials(data, copies.double()), 20, begin, k)
    repeated = steps(Monomials(data.repeat_interleave(copies, dim=0)), 20, begin, k)
    for name, value in weighted.state_dict().items():
        torch.testing.assert_close(value, repeated.state_dict()[name])


def test_weights_of_any_size_are_relative(data):
    weight = torch.rand(2000, generator=generator(), dtype=torch.float64)
    one, two = (steps(Monomials(data, f * weight), 20) for f in (1.0, 1000.0))
    torch.testing.assert_close(one.means, two.means)
    torch.testing.assert_close(one.covariances, two.covariances)


def test_one_gaussian_has_the_moments_of_the_rows(data):
    found = fit_mixture(Monomials(data), 1, generator(), ridge=RIDGE)
    torch.testing.assert_close(found.means[0], data.mean(0))
    expected = torch.cov(data.T, correction=0) + RIDGE * torch.eye(3)
    torch.testing.assert_close(found.covariances[0], expected)


def hostile_rows():
    plane = torch.randn(400, 3, generator=generator(), dtype=torch.float64)
    points = plane[:4]
    lattice = torch.cartesian_prod(*[torch.arange(4).double()] * 3)
    return {
        "rows on a plane": torch.cat([plane, plane[:, :1]], dim=1),
        "four points, a hundred copies each": standardized(points.repeat(100, 1)),
        "few values in each column": standardized(lattice.repeat(7, 1)),
        "one row far away": standardized(torch.cat([plane, plane[:1] + 1e6])),
        "a constant but for rounding": torch.cat([plane, 1e-9 * plane[:, :1]], dim=1),
    }


@pytest.mark.parametrize("name", hostile_rows())
@pytest.mark.parametrize("k", [1, 2, 8, 32])
def test_a_mixture_survives(name, k):
    rows = hostile_rows()[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # of k-means: fewer distinct points
        found = fit_mixture(Monomials(rows), k, generator(), ridge=RIDGE)
    assert found.weights.sum().item() == pytest.approx(1.0)
    assert (found.weights > 0).all()
    assert all(value.isfinite().all() for value in found.state_dict().values())
    assert (torch.linalg.eigvalsh(found.covariances) > 0).all()
    assert found.log_density(rows).isfinite().all()


def test_a_start_of_another_size_is_not_used(data, start):
    found, expected = (steps(Monomials(data), 5, begin, k=3) for begin in (start, None))
    assert torch.equal(found.means, expected.means)


def test_the_same_seed_gives_the_same_mixture(data):
    first, second = (steps(Monomials(data), 10).state_dict() for _ in "ab")
    assert all(torch.equal(value, second[name]) for name, value in first.items())


# Averages over the posterior


def average(rows, k, seed=0, n_sweeps=20, strength=0.0):
    values = Monomials(rows)
    begin = fit_mixture(values, k, generator(seed), ridge=RIDGE)
    return average_mixture(values, begin, generator(seed), strength=strength, n_sweeps=n_sweeps)


def test_one_component_has_the_posterior_of_a_gaussian():
    rows = torch.randn(2000, 4, generator=generator(), dtype=torch.float64)
    draws = [average(rows, 1, seed, n_sweeps=40) for seed in range(10)]
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
    free, held = (average(rows, 1, strength=strength) for strength in (0.0, 500.0))
    variance = [draw.covariances.diagonal(dim1=1, dim2=2).mean() for draw in (free, held)]
    assert variance[0] < 0.02
    assert 0.4 < variance[1] < 0.6


@pytest.mark.parametrize("scale", [1.0, 0.2])
def test_an_average_beats_expectation_maximization_of_the_true_size(scale):
    target = random_gmm(5, scale)
    train, test = (torch.as_tensor(target.sample(n, s)) for n, s in ((6000, 1), (5000, 2)))
    location, deviation = train.mean(0), train.std(0)
    found = average((train - location) / deviation, 40, n_sweeps=100)
    log_p = found.log_density((test - location) / deviation) - deviation.log().sum()
    plain = GaussianMixture(50, random_state=0).fit(train.numpy())
    assert log_p.mean() > plain.score(test.numpy())


SHORT = SelectionPolicy(averaged_work=40)
SPEC = BaseSpec("mixture", 40, strength=0.0)


def test_the_last_draw_is_a_mixture_of_its_own():
    rows = torch.randn(500, 3, generator=generator(), dtype=torch.float64)
    found = average(rows, 5)
    last = last_draw(found)
    assert len(found.weights) == 5 * N_DRAWS
    assert last.weights.sum().item() == pytest.approx(1.0)
    assert torch.equal(last.means, found.means[-5:])
    draws = [found.weights[5 * i : 5 * i + 5].sum().item() for i in range(N_DRAWS)]
    assert draws == pytest.approx([1 / N_DRAWS] * N_DRAWS)


def test_goes_on_from_an_earlier_average():
    rows = standardized(torch.as_tensor(random_gmm(4, 0.2).sample(3000, 1)))
    weight = torch.ones(3000, dtype=torch.float64)
    start = average(rows, 40, n_sweeps=30)
    new, old = (
        average_of(SPEC, rows, weight, generator(1), SHORT, begin) for begin in (None, start)
    )
    last = start.means[-40:]
    far, near = ((found.means[-40:] - last).norm(dim=1).median() for found in (new, old))
    assert near < 0.5 < far


def test_weights_of_an_average_are_those_of_a_resample():
    rows = torch.cat([torch.full((500, 2), -1.0), torch.full((500, 2), 1.0)]).double()
    rows = rows + 0.1 * torch.randn(1000, 2, generator=generator(), dtype=torch.float64)
    weight = torch.where(rows[:, 0] > 0, 4.0, 1.0).double()
    spec = BaseSpec("mixture", 2, strength=0.0)
    found = average_of(spec, rows, weight, generator(), SHORT)
    assert found.weights[found.means[:, 0] > 0].sum().item() == pytest.approx(0.8, abs=0.02)


def test_the_same_seed_gives_the_same_average(rows):
    first, second = (average(rows, 2, seed=3, n_sweeps=9) for _ in "ab")
    assert torch.equal(first.means, second.means)
    assert torch.equal(first.weights, second.weights)


def test_rows_on_a_plane_stay_finite():
    rows = torch.randn(400, 3, generator=generator(), dtype=torch.float64)
    flat = torch.cat([rows, rows[:, :1]], dim=1)
    assert average(flat, 3).log_density(flat).isfinite().all()

"""Mixtures by expectation–maximization, and averages of them."""

import time
import warnings

import numpy as np
import pytest
import torch
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture
from torch.distributions import MultivariateNormal

from experiments.targets import random_gmm
from qaffde import QAFFDE, SelectionPolicy
from qaffde.nn import GaussianMeasure
from qaffde.selection import base_measure
from qaffde.selection.base_measure import (
    BaseSpec,
    Monomials,
    Prior,
    average,
    fit_mixture,
    members,
    start_mixture,
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
PRIOR = Prior(RIDGE)
GAIN = SelectionPolicy().mixture_gain


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


def steps(rows, n_steps, start=None, k=6, prior=PRIOR):
    return fit_mixture(rows, k, generator(), prior=prior, start=start, max_iter=n_steps)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("given", [False, True], ids=["clusters", "start"])
def test_every_iteration_raises_the_likelihood(data, start, weighted, given):
    weight = torch.rand(500, generator=generator(), dtype=torch.float64) if weighted else None
    rows, begin = Monomials(data[:500], weight), start if given else None
    values = [
        float(rows.log_density(steps(rows, n, begin, prior=Prior(0.0))) @ rows.weight)
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
    expected = of_sklearn(data, start, 2, GAIN)
    np.testing.assert_allclose(found.weights, expected.weights_, rtol=1e-6)
    np.testing.assert_allclose(found.means, expected.means_, atol=1e-6)
    np.testing.assert_allclose(found.covariances, expected.covariances_, atol=1e-6)
    score = float(found.log_density(data).mean())
    assert score == pytest.approx(expected.score(data.numpy()), abs=1e-8)


def test_extrapolation_is_ahead_of_as_many_plain_iterations(data, start):
    expected = of_sklearn(data, start, 40, 0.0)
    found = steps(Monomials(data), 40, start)
    assert found.log_density(data).mean() > expected.score(data.numpy()) - 1e-4


def test_no_further_iteration_after_the_deadline(data, start):
    options = {"prior": PRIOR, "start": start}
    late = fit_mixture(Monomials(data), 6, generator(), deadline=0.0, **options)
    torch.testing.assert_close(late.means, start.means)


def test_from_clusters_it_is_as_likely_as_that_of_scikit_learn(data):
    found = fit_mixture(Monomials(data), 8, generator(), prior=PRIOR)
    expected = GaussianMixture(8, random_state=0, tol=GAIN, max_iter=200).fit(data.numpy())
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
    one, two = (steps(Monomials(data, f * weight), 20) for f in (1.0, 1024.0))
    torch.testing.assert_close(one.means, two.means)
    torch.testing.assert_close(one.covariances, two.covariances)


def test_one_gaussian_has_the_moments_of_the_rows(data):
    found = fit_mixture(Monomials(data), 1, generator(), prior=PRIOR)
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
        found = fit_mixture(Monomials(rows), k, generator(), prior=PRIOR)
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


# Averages of mixtures, and starts


def test_an_average_is_the_mean_density_of_its_members(data):
    rows = Monomials(data)
    two = [fit_mixture(rows, 6, generator(s), prior=PRIOR, max_iter=4) for s in (0, 1)]
    mean = torch.stack([mixture.log_density(data).exp() for mixture in two]).mean(0)
    pooled = average(two)
    torch.testing.assert_close(pooled.log_density(data).exp(), mean)
    for found, expected in zip(members(pooled, 2), two, strict=True):
        torch.testing.assert_close(found.state_dict(), expected.state_dict())


def test_a_final_average_goes_on_from_the_one_that_was_judged(data):
    spec, policy = BaseSpec("mixture", 6, n_mixtures=2), SelectionPolicy(last_iterations=2)
    ones = torch.ones(len(data), dtype=torch.float64)
    judged = spec.fit(data[:1000], ones[:1000], ones[:3], generator(), policy)
    final = spec.fit(data, ones, ones[:3], generator(), policy, judged)
    assert str(spec) == "mixture of 2 × 6"
    assert len(final.weights) == 12
    assert (final.means - judged.means).norm(dim=1).median() < 0.1
    assert final.log_density(data).mean() > judged.log_density(data).mean()


def test_sums_of_a_mixture_give_back_its_moments(data, start):
    rows = Monomials(data)
    count, mean, scatter = rows.moments(rows.sums_of_mixture(start))
    torch.testing.assert_close(count, start.weights * len(data))
    torch.testing.assert_close(mean, start.means)
    torch.testing.assert_close(scatter / count[:, None, None], start.covariances)


def test_sums_over_some_rows_stand_for_those_of_all(data, start):
    part, twice = Monomials(data[:500]), Monomials(data)
    value, sums = twice.expectation(start, slice(500))
    expected, own = part.expectation(start)
    assert value == pytest.approx(expected, abs=1e-12)
    torch.testing.assert_close(sums, 4 * own)


def test_float32_costs_digits_only(data, start):
    (value, sums), (single, rough) = (
        Monomials(data, dtype=dtype).expectation(start) for dtype in (torch.float64, torch.float32)
    )
    assert single == pytest.approx(value, abs=1e-5)
    torch.testing.assert_close(rough, sums, atol=1e-3, rtol=1e-4)


def test_a_start_is_ahead_of_as_many_iterations_over_all_rows():
    rows = standardized(torch.as_tensor(random_gmm(3, 0.2).sample(8000, 1)))
    begin = start_mixture(Monomials(rows), 16, generator(), prior=PRIOR)
    clusters = KMeans(16, n_init=1, max_iter=10, random_state=0).fit(rows.numpy())
    plain = GaussianMixture(16, means_init=clusters.cluster_centers_, max_iter=4, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        plain.fit(rows.numpy())
    assert begin.log_density(rows).mean() > plain.score(rows.numpy())


def test_of_two_starts_the_more_likely_goes_on():
    """Clusters cut two thin parallel lines across; a smaller mixture that knows them is split."""
    noise = torch.randn(4000, 2, generator=generator(), dtype=torch.float64)
    lines = noise * torch.tensor([1.0, 0.01]) + torch.tensor([0.0, 0.2]) * (noise[:, :1] > 0)
    lines = torch.stack([lines[:, 0].roll(1), lines[:, 1]], dim=1)
    means = torch.tensor([[0.0, 0.0], [0.0, 0.2]], dtype=torch.float64)
    covariances = torch.diag(torch.tensor([1.0, 1e-4], dtype=torch.float64)).expand(2, 2, 2)
    smaller = GaussianMeasure(torch.full((2,), 0.5).double(), means, covariances)
    rows = Monomials(lines)
    clusters, split = (
        start_mixture(rows, 4, generator(), prior=PRIOR, smaller=given)
        for given in (None, smaller)
    )
    assert rows.log_density(split).mean() > rows.log_density(smaller).mean() - 0.01
    assert rows.log_density(split).mean() > rows.log_density(clusters).mean() + 0.1


@pytest.mark.parametrize("shrinkage", [0.0, 3.0, 1e9])
def test_shrunk_covariances_are_those_of_the_formula(data, shrinkage):
    rows = Monomials(data)
    begin = start_mixture(rows, 3, generator(), prior=PRIOR)
    found = fit_mixture(
        rows, 3, generator(), prior=Prior(RIDGE, shrinkage), start=begin, max_iter=2
    )
    states = [begin]
    for _ in range(2):  # plain iterations, row by row
        last = states[-1]
        laws = zip(last.means, last.covariances, strict=True)
        log_p = [torch.distributions.MultivariateNormal(*law).log_prob(data) for law in laws]
        share = (torch.stack(log_p) + last.weights.log()[:, None]).softmax(0)
        means = (share @ data) / share.sum(1)[:, None]
        centered = data - means[:, None]
        scatters = torch.einsum("kn,kni,knj->kij", share, centered, centered)
        size = share.sum(1)[:, None, None]
        mean = scatters.sum(0) / len(data)
        covariances = (scatters + shrinkage * mean) / (size + shrinkage)
        covariances += RIDGE * torch.eye(data.shape[1])
        states.append(GaussianMeasure(share.sum(1) / len(data), means, covariances))
    torch.testing.assert_close(found.covariances, states[-1].covariances, rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(found.means, states[-1].means, rtol=1e-6, atol=1e-8)


def test_products_of_wide_tables_are_made_block_by_block(mixture, rows, monkeypatch):
    kept = Monomials(rows)
    labels = torch.arange(len(rows)) % 2
    monkeypatch.setattr(base_measure, "MAX_KEPT", 7 * kept.n_values)
    anew = Monomials(rows)
    assert (kept.kept is None, anew.kept is None) == (False, True)
    assert torch.allclose(anew.log_density(mixture), kept.log_density(mixture))
    for found, expected in zip(anew.expectation(mixture), kept.expectation(mixture), strict=True):
        assert torch.allclose(torch.as_tensor(found), torch.as_tensor(expected))
    assert torch.allclose(anew.sums_of_labels(labels, 2), kept.sums_of_labels(labels, 2))


@pytest.mark.parametrize(
    ("d", "given"), [(1300, {}), (9000, {"bandwidth": 1.0, "base_measure": "gaussian"})]
)
def test_columns_too_many_for_memory_are_refused_early(d, given):
    """15,000 columns took 13 GB before the fit was stopped."""
    start = time.process_time()
    with pytest.raises(ValueError, match=rf"{d:,} columns would take about \d GB of memory"):
        QAFFDE(random_state=0, **given).fit(np.random.default_rng(0).normal(size=(5, d)))
    assert time.process_time() - start < 10

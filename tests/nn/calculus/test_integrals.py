"""Every operation against numerical integration of the module it came from."""

import math

import pytest
import torch

from qaffde.nn import BornDensity, Density, FourierFeatures, KernelMeasure, expand
from qaffde.nn.calculus.mixture import log_densities
from tests.calculus_models import (
    KINDS,
    axis,
    integral,
    marginal_by_quadrature,
    random_density,
)

MODELS = [(kind, d) for kind in KINDS for d in (1, 2, 3)]
TOLERANCE = 1e-10


def points(density, n=6, seed=3):
    g = torch.Generator().manual_seed(seed)
    z = torch.randn(n, len(density.location), generator=g, dtype=torch.float64)
    return density.location + density.scale * z


def double(*values):
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize(("kind", "d"), MODELS)
def test_sum_of_terms_is_the_module(kind, d):
    density = random_density(kind, d)
    x = points(density, 200)
    torch.testing.assert_close(
        expand(density).log_prob(x), density.log_prob(x), rtol=0, atol=1e-11
    )


@pytest.mark.parametrize("kind", KINDS)
def test_negligible_terms_change_nothing(kind):
    """Far components are left out where their bound proves that they do not matter."""
    density = random_density(kind, 2)
    x = torch.cat([points(density, 100), 30 * points(density, 100)])
    terms = expand(density).terms
    every = torch.stack([t.log_prefactor(t.whiten(x)) + t.form(t.whiten(x)).log() for t in terms])
    found = log_densities(terms, x)
    torch.testing.assert_close(found.logsumexp(1), every.logsumexp(0), rtol=0, atol=1e-13)
    evaluated = found > -math.inf
    torch.testing.assert_close(found[evaluated], every.T[evaluated])
    assert not evaluated.all()


@pytest.mark.parametrize("kind", KINDS)
def test_many_points_of_one_column(kind):
    """More points than nodes are read from a series, and those out of reach are not."""
    marginal = expand(random_density(kind, 2)).marginal([0])
    x = torch.linspace(-40, 40, 1500, dtype=torch.float64)[:, None]
    a_few = torch.cat([marginal.log_prob(rows) for rows in x.split(10)])
    torch.testing.assert_close(marginal.log_prob(x), a_few, rtol=0, atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("columns", [[0], [1], [2], [2, 0], [1, 2], [1, 0, 2]])
def test_marginal_in_three_dimensions(kind, columns):
    density = random_density(kind, 3)
    x = points(density)[:, columns]
    found = expand(density).marginal(columns).log_prob(x).exp()
    expected = marginal_by_quadrature(density, columns, x)
    torch.testing.assert_close(found, expected, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("column", [0, 1])
def test_marginal_in_two_dimensions(kind, column):
    density = random_density(kind, 2, seed=1)
    x = points(density)[:, [column]]
    found = expand(density).marginal([column]).log_prob(x).exp()
    expected = marginal_by_quadrature(density, [column], x)
    torch.testing.assert_close(found, expected, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("d", "given"), [(2, [0]), (2, [1]), (3, [1]), (3, [2, 0])])
def test_conditional_is_joint_over_marginal(kind, d, given):
    density = random_density(kind, d, seed=2)
    rest = [c for c in range(d) if c not in given]
    x = points(density, 3)
    below = marginal_by_quadrature(density, given, x[:, given])
    for row, mass in zip(x, below, strict=True):
        conditional = expand(density).condition(given, row[given])
        found = conditional.log_prob(row[None, rest]).exp()
        expected = density.log_prob(row[None]).exp() / mass
        torch.testing.assert_close(found, expected, rtol=1e-7, atol=TOLERANCE)


@pytest.mark.parametrize(("kind", "d"), MODELS)
def test_probability_of_boxes(kind, d):
    density = random_density(kind, d, seed=4, D=12)
    lower, upper = density.location - 0.9, density.location + 1.6
    axes = [axis(density, c, lower[c], upper[c], n=32) for c in range(d)]
    found = expand(density).probability(lower, upper)
    torch.testing.assert_close(found, integral(density, axes), rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("d", [1, 2])
def test_open_ends(kind, d):
    density = random_density(kind, d, seed=5)
    lower = torch.full((d,), -math.inf, dtype=torch.float64)
    upper = density.location + 0.4
    axes = [axis(density, c, upper=upper[c]) for c in range(d)]
    mixture = expand(density)
    expected = integral(density, axes)
    torch.testing.assert_close(mixture.probability(lower, upper), expected, rtol=0, atol=TOLERANCE)
    torch.testing.assert_close(mixture.cdf(upper[None])[0], expected, rtol=0, atol=TOLERANCE)
    torch.testing.assert_close(mixture.probability(lower, -lower), double(1.0)[0])


def test_diagonal_gaussian_has_a_closed_form_in_any_dimension():
    density = random_density("gaussian", 3, seed=6)
    measure = density.density.density.measure
    measure.covariances.copy_(measure.covariances * torch.eye(3))
    measure.cholesky.copy_(torch.linalg.cholesky(measure.covariances))
    lower, upper = density.location - 0.9, density.location + 1.6
    axes = [axis(density, c, lower[c], upper[c]) for c in range(3)]
    found = expand(density).probability(lower, upper)
    torch.testing.assert_close(found, integral(density, axes), rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize(("kind", "d"), [(kind, d) for kind in KINDS for d in (1, 2)])
def test_moments(kind, d):
    density = random_density(kind, d, seed=7)
    axes = [axis(density, c) for c in range(d)]
    mean = integral(density, axes, lambda x: x)
    second = integral(density, axes, lambda x: (x[:, :, None] * x[:, None]).flatten(1))
    covariance = second.reshape(d, d) - torch.outer(mean, mean)
    mixture = expand(density)
    torch.testing.assert_close(mixture.mean(), mean, rtol=0, atol=TOLERANCE)
    torch.testing.assert_close(mixture.covariance(), covariance, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("kind", KINDS)
def test_moments_in_three_dimensions_are_those_of_the_marginals(kind):
    mixture = expand(random_density(kind, 3, seed=8))
    covariance, mean = mixture.covariance(), mixture.mean()
    for pair in ([0, 1], [2, 0], [1, 2]):
        part = mixture.marginal(pair)
        torch.testing.assert_close(part.mean(), mean[pair], rtol=0, atol=1e-10)
        torch.testing.assert_close(
            part.covariance(), covariance[pair][:, pair], rtol=0, atol=1e-10
        )


@pytest.mark.parametrize("kind", KINDS)
def test_conditional_means_row_by_row(kind):
    mixture = expand(random_density(kind, 3, seed=9))
    x = points(random_density(kind, 3), 4)[:, :2]
    expected = torch.stack([mixture.condition([0, 1], row).mean() for row in x])
    torch.testing.assert_close(mixture.mean_given(x), expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("kind", ["gaussian", "mixture"])
@pytest.mark.parametrize("d", [4, 6])
def test_boxes_of_correlated_gaussians_beyond_three_columns(kind, d):
    mixture = expand(random_density(kind, d))
    x = mixture.sample(400_000, torch.Generator().manual_seed(0))
    ends = x[:50_000].quantile(double(0.1, 0.8), dim=0)
    for lower, upper in (ends, (torch.full((d,), -math.inf).double(), ends[1])):
        inside = ((x >= lower) & (x <= upper)).all(1).double()
        error = math.sqrt(float(inside.var()) / len(x))
        found = float(mixture.probability(lower, upper))
        assert found == pytest.approx(float(inside.mean()), abs=4 * error + 1e-4)


def test_columns_without_ends_leave_a_box_of_few_columns_to_quadrature():
    mixture = expand(random_density("gaussian", 4))
    far = torch.full((4,), math.inf).double()
    half_open = double(-1.0, -math.inf, -1.0, -math.inf)
    pair = mixture.marginal([0, 2]).probability(double(-1.0, -1.0), far[:2])
    assert float(mixture.probability(half_open, far)) == pytest.approx(float(pair), abs=1e-12)


def test_kernel_measure_is_refused():
    features = FourierFeatures.draw("random", 4, torch.ones(1))
    born = BornDensity(features, torch.ones(1, 4), KernelMeasure(torch.ones(1)))
    with pytest.raises(ValueError, match="base_measure='box'"):
        expand(born)


def test_other_densities_are_refused():
    class Other(Density):
        def log_prob(self, x):
            return x[:, 0]

    with pytest.raises(TypeError, match="Other"):
        expand(Other())

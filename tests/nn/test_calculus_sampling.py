"""Draws against exact distribution functions and moments."""

import pytest
import torch
from scipy.stats import kstest

from qaffde.nn import expand
from qaffde.nn.sampling import sample_term
from tests.calculus_models import KINDS, random_density

N = 4000
MIN_P = 1e-3


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def cdf_of(density):
    return lambda x: density.cdf(torch.as_tensor(x)[:, None]).numpy()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("d", [1, 2, 3])
def test_every_column_has_its_distribution(kind, d):
    density = expand(random_density(kind, d))
    x = density.sample(N, generator())
    for column in range(d):
        assert kstest(x[:, column], cdf_of(density.marginal([column]))).pvalue > MIN_P


@pytest.mark.parametrize("kind", KINDS)
def test_joint_law_by_rosenblatt(kind):
    """Given x₁, the conditional's cdf of x₂ is uniform, whatever x₁."""
    density = expand(random_density(kind, 2, seed=1))
    x = density.sample(300, generator(1))
    u = [density.condition([0], row[:1]).cdf(row[None, 1:]).item() for row in x]
    assert kstest(u, "uniform").pvalue > MIN_P


@pytest.mark.parametrize("kind", KINDS)
def test_given_rows(kind):
    density = expand(random_density(kind, 3, seed=2))
    given = torch.tensor([[0.3, 0.5]], dtype=torch.float64)
    x = density.sample_given(given.expand(N, -1), generator(2))[:, 0]
    assert kstest(x, cdf_of(density.condition([0, 1], given[0]))).pvalue > MIN_P


@pytest.mark.parametrize("kind", ["box", "mixture"])
def test_covariance(kind):
    density = expand(random_density(kind, 3, seed=3, epsilon=1e-3))
    x = density.sample(20_000, generator(3))
    scale = density.covariance().diagonal().sqrt()
    torch.testing.assert_close(
        torch.cov(x.T) / torch.outer(scale, scale),
        density.covariance() / torch.outer(scale, scale),
        rtol=0,
        atol=0.05,
    )


def test_table_and_direct_reading_agree():
    term = expand(random_density("mixture", 2, seed=4)).terms[0]
    many = torch.linspace(-1, 1, 500, dtype=torch.float64)[:, None]
    by_table = sample_term(term, many, generator(5))
    first = sample_term(term, many[:30], generator(5))
    assert by_table.shape == (500, 1)
    torch.testing.assert_close(by_table[:30], first, rtol=0, atol=1e-8)


def test_seeds():
    density = expand(random_density("box", 2))
    a, b, c = (density.sample(5, generator(seed)) for seed in (1, 1, 2))
    assert a.equal(b)
    assert not a.equal(c)

"""Pairs: where they come from, how far apart they are, and their kernel."""

import pytest
import torch

from qaffde.functional import gaussian_kernel
from qaffde.training.adaptive import near_pairs, pair_kernel, random_pairs, sample_pairs

BANDWIDTHS = {1: [0.3], 2: [0.5, 2.0], 8: [1.0] * 8}


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def data(n, d):
    return torch.randn(n, d, generator=generator(9), dtype=torch.float64)


def rows_in(points, X):
    return (points[:, None] == X).all(2).any(1)


def test_random_pairs_are_rows_of_the_data():
    X = data(20, 3)
    left, right = random_pairs(X, 200, generator()).unbind(1)
    assert rows_in(left, X).all()
    assert rows_in(right, X).all()
    assert not torch.equal(left, right)


@pytest.mark.parametrize("d", BANDWIDTHS)
def test_the_kernel_of_near_pairs_is_uniform(d):
    X, h = data(50, d), torch.tensor(BANDWIDTHS[d], dtype=torch.float64)
    pairs = h * near_pairs(X, 20_000, generator())
    deciles = torch.linspace(0.1, 0.9, 9, dtype=torch.float64)
    assert rows_in(pairs[:100, 0], h * X).all()
    assert torch.allclose(pair_kernel(pairs, h).quantile(deciles), deciles, atol=0.02)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_share_of_near_pairs(share):
    X = data(20, 2)
    pairs = sample_pairs(X, 500, share, generator())
    assert pairs.shape == (500, 2, 2)
    assert rows_in(pairs[:, 0], X).all()
    assert (~rows_in(pairs[:, 1], X)).sum() == 500 * share


def test_near_and_random_pairs_are_shuffled():
    X = data(20, 2)
    pairs = sample_pairs(X, 500, 0.5, generator())
    near = ~rows_in(pairs[:, 1], X)
    assert 80 < near[:250].sum() < 170


def test_pair_kernel_is_the_diagonal_of_the_kernel_matrix():
    pairs, h = random_pairs(data(30, 3), 40, generator()), torch.tensor([0.5, 1.0, 2.0])
    left, right = pairs.unbind(1)
    expected = gaussian_kernel(left, right, h.double()).diagonal()
    assert torch.allclose(pair_kernel(pairs, h.double()), expected)


def test_seeds_reproduce():
    X = data(20, 2)
    first, second, third = (sample_pairs(X, 50, 0.25, generator(seed)) for seed in (1, 1, 2))
    assert torch.equal(first, second)
    assert not torch.equal(first, third)

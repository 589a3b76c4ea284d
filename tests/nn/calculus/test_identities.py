"""The algebra's own laws, on densities that hypothesis draws."""

import math

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from qaffde.nn import expand
from tests.calculus_models import KINDS, random_density

kinds = st.sampled_from(KINDS)
seeds = st.integers(0, 10_000)
coordinates = st.lists(st.floats(-3, 3), min_size=3, max_size=3)
quick = settings(max_examples=25, deadline=None)


def mixture(kind, seed, d=3):
    return expand(random_density(kind, d, seed=seed, D=10, rank=2))


def same(a, b, x):
    torch.testing.assert_close(a.log_prob(x), b.log_prob(x), rtol=0, atol=1e-7)


@quick
@given(kinds, seeds, coordinates)
def test_marginals_compose(kind, seed, x):
    density, x = mixture(kind, seed), torch.tensor([x], dtype=torch.float64)
    same(density.marginal([2, 0]).marginal([1]), density.marginal([0]), x[:, :1])


@quick
@given(kinds, seeds, coordinates)
def test_marginals_commute(kind, seed, x):
    density, x = mixture(kind, seed), torch.tensor([x], dtype=torch.float64)
    one = density.marginal([0, 1]).marginal([0])
    other = density.marginal([0, 2]).marginal([0])
    same(one, other, x[:, :1])


@quick
@given(kinds, seeds, coordinates)
def test_chain_rule(kind, seed, x):
    density, x = mixture(kind, seed), torch.tensor(x, dtype=torch.float64)
    last = density.condition([2, 0], x[[2, 0]]).log_prob(x[None, [1]])
    middle = density.marginal([2, 0]).condition([1], x[:1]).log_prob(x[None, [2]])
    first = density.marginal([0]).log_prob(x[None, :1])
    torch.testing.assert_close(first + middle + last, density.log_prob(x[None]), rtol=0, atol=1e-7)


@quick
@given(kinds, seeds, coordinates)
def test_conditions_compose_and_commute_with_marginals(kind, seed, x):
    density, x = mixture(kind, seed), torch.tensor(x, dtype=torch.float64)
    both = density.condition([0, 1], x[:2])
    same(density.condition([0], x[:1]).condition([0], x[1:2]), both, x[None, 2:])
    one = density.condition([0], x[:1]).marginal([1])
    same(density.marginal([0, 2]).condition([0], x[:1]), one, x[None, 2:])


@quick
@given(kinds, seeds, st.floats(-4, 4), st.floats(-4, 4))
def test_cdf_difference_is_the_probability(kind, seed, a, b):
    density = mixture(kind, seed).marginal([1])
    ends = torch.tensor(sorted([a, b]), dtype=torch.float64)
    below, above = density.cdf(ends[:, None])[0]
    found = density.probability(ends[None, :1], ends[None, 1:])[0][0]
    torch.testing.assert_close(found, above - below, rtol=0, atol=1e-9)


@settings(max_examples=8, deadline=None)
@given(kinds, seeds, st.floats(-2, 2), st.floats(-2, 2), st.floats(0, 3))
def test_cdf_differences_are_the_probability_in_two_dimensions(kind, seed, a, b, width):
    density = mixture(kind, seed, d=2)
    corners = [[a + width, b + width], [a, b + width], [a + width, b], [a, b]]
    both, left, below, neither = density.cdf(torch.tensor(corners, dtype=torch.float64))[0]
    low, high = torch.tensor([[a, b]]).double(), torch.tensor([[a + width, b + width]]).double()
    found = density.probability(low, high)[0][0]
    torch.testing.assert_close(found, both - left - below + neither, rtol=0, atol=1e-7)


@settings(max_examples=8, deadline=None)
@given(kinds, seeds, st.floats(-2, 2))
def test_probabilities_add_up(kind, seed, cut):
    density = mixture(kind, seed, d=2)
    lower = torch.tensor([[-math.inf, -1], [cut, -1], [-math.inf, -1]], dtype=torch.float64)
    upper = torch.tensor([[cut, 2], [math.inf, 2], [math.inf, 2]], dtype=torch.float64)
    left, right, both = density.probability(lower, upper)[0]
    torch.testing.assert_close(left + right, both, rtol=0, atol=1e-8)


@quick
@given(kinds, seeds)
def test_mass_one(kind, seed):
    density = mixture(kind, seed)
    one = torch.ones((), dtype=torch.float64)
    torch.testing.assert_close(density.weights.sum(), one)
    torch.testing.assert_close(
        torch.stack([t.log_mass for t in density.terms]).logsumexp(0).exp(), one
    )
    infinity = torch.full((1, 1), math.inf, dtype=torch.float64)
    given = torch.full((2,), 0.2, dtype=torch.float64)
    for derived in (density.marginal([2]), density.condition([2, 0], given)):
        torch.testing.assert_close(derived.cdf(infinity)[0][0], one, atol=1e-9, rtol=0)


@quick
@given(kinds, seeds, st.floats(1e-6, 1 - 1e-6))
def test_ppf_inverts_the_cdf(kind, seed, q):
    density = mixture(kind, seed).marginal([0])
    level = torch.tensor([q], dtype=torch.float64)
    torch.testing.assert_close(
        density.cdf(density.ppf(level)[:, None])[0], level, rtol=0, atol=1e-10
    )

"""The calculus behind maps of columns, against quadrature in the units of the data."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from qaffde.nn import BornDensity, FourierFeatures, GaussianMeasure, TableDensity, expand
from tests.mapped_models import ENDS, INF, axis, integral, random_map, random_mapped

BASES = ("box", "gaussian", "mixture")
COLUMNS = [("from",), ("between", None), ("line", "up to")]
TOLERANCE = 1e-6
CASES = [pytest.param(b, c, id=f"{b}-{c[-1]}") for b in BASES for c in COLUMNS]
THREE = ("line", "up to", "between")


def double(*values):
    return torch.tensor(values, dtype=torch.float64)


def draws(density, n=8, seed=0):
    return expand(density).sample(n, torch.Generator().manual_seed(seed))


def few(d):
    """Nodes of a panel of an axis: fewer in more columns."""
    return {1: 32, 2: 20}[d]


@pytest.mark.parametrize(("base", "columns"), CASES)
def test_the_expansion_is_the_density(base, columns):
    density = random_mapped(base, columns)
    x = draws(density, 50)
    torch.testing.assert_close(expand(density).log_prob(x), density.log_prob(x))


@pytest.mark.parametrize(("base", "columns"), CASES)
def test_the_mass_is_one(base, columns):
    density = random_mapped(base, columns)
    d = len(columns)
    axes = [axis(density, c, n=few(d)) for c in range(d)]
    assert integral(density, axes) == pytest.approx(1, abs=TOLERANCE)
    everything = torch.full((1, d), INF, dtype=torch.float64)
    assert float(expand(density).probability(-everything, everything)[0]) == pytest.approx(1)


@pytest.mark.parametrize(("base", "columns"), [case for case in CASES if len(case.values[1]) > 1])
def test_marginals(base, columns):
    density = random_mapped(base, columns)
    rest = [axis(density, c, n=few(len(columns))) for c in range(1, len(columns))]
    x = draws(density, 4)[:, :1]
    found = expand(density).marginal([0]).log_prob(x).exp()
    expected = []
    for value in x[:, 0]:
        fixed = (value[None], torch.ones(1, dtype=torch.float64))
        expected.append(integral(density, [fixed, *rest]))
    torch.testing.assert_close(found, torch.stack(expected), rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize("base", BASES)
def test_marginals_of_three_columns(base):
    density = random_mapped(base, THREE)
    x, (nodes, weights) = draws(density, 4), axis(density, 2, n=32)
    found = expand(density).marginal([0, 1]).log_prob(x[:, :2]).exp()
    points = torch.cat(
        [x[:, None, :2].expand(-1, len(nodes), -1), nodes.expand(4, -1)[..., None]], 2
    )
    expected = density.log_prob(points.flatten(0, 1)).exp().reshape(4, -1) @ weights
    torch.testing.assert_close(found, expected, rtol=TOLERANCE, atol=TOLERANCE)


def test_moments_of_three_columns_are_those_of_pairs():
    density = expand(random_mapped("mixture", THREE))
    pair = density.marginal([2, 0])
    torch.testing.assert_close(density.mean()[[2, 0]], pair.mean())
    torch.testing.assert_close(density.covariance()[[2, 0]][:, [2, 0]], pair.covariance())


@pytest.mark.parametrize(("base", "columns"), CASES)
def test_boxes(base, columns):
    density = random_mapped(base, columns)
    d = len(columns)
    x = draws(density, 2)
    lower, upper = x.amin(0) - 0.1, x.amax(0) + 0.5
    axes = [axis(density, c, lower[c], upper[c], n=few(d)) for c in range(d)]
    value, error = expand(density).probability(lower[None], upper[None])
    slack = TOLERANCE + float(error)
    assert float(value) == pytest.approx(float(integral(density, axes)), abs=slack)


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("kind", ENDS)
def test_quantiles_and_the_distribution_function(base, kind):
    density = expand(random_mapped(base, (kind,)))
    q = torch.linspace(0.01, 0.99, 9, dtype=torch.float64)
    torch.testing.assert_close(density.cdf(density.ppf(q)[:, None])[0], q)
    assert density.ppf(double(0.0, 1.0))[0] >= ENDS[kind][0]
    assert density.ppf(double(0.0, 1.0))[1] <= ENDS[kind][1]


@pytest.mark.parametrize(("base", "columns"), CASES)
def test_means_and_covariances(base, columns):
    density = random_mapped(base, columns)
    d = len(columns)
    axes = [axis(density, c, n=few(d)) for c in range(d)]
    found = expand(density)
    mean = integral(density, axes, lambda x: x)
    scale = found.covariance().diagonal().sqrt()
    torch.testing.assert_close(found.mean() / scale, mean / scale, rtol=0, atol=TOLERANCE)

    def products(x):
        centered = x - mean
        return (centered[:, :, None] * centered[:, None, :]).flatten(1)

    covariance = integral(density, axes, products).reshape(d, d) / scale / scale[:, None]
    relative = found.covariance() / scale / scale[:, None]
    torch.testing.assert_close(relative, covariance, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("base", BASES)
def test_conditional_means_and_densities(base):
    density = random_mapped(base, THREE)
    found, x = expand(density), draws(density, 6)
    given = x[:, :1]
    rows = [found.condition([0], value) for value in given]
    expected = torch.stack([row.mean() for row in rows])
    gaps = torch.cat([given, torch.full((6, 2), torch.nan).double()], 1)
    torch.testing.assert_close(found.fill(gaps)[:, 1:], expected, rtol=1e-5, atol=1e-5)
    log_p = torch.cat([row.log_prob(y[None, 1:]) for row, y in zip(rows, x, strict=True)])
    torch.testing.assert_close(found.log_prob_given(x, 1), log_p)
    inner = axis(density, 1, n=12), axis(density, 2, n=12)
    assert float(integral(rows[0], inner)) == pytest.approx(1, abs=TOLERANCE)


@pytest.mark.parametrize("base", BASES)
def test_draws_follow_the_distribution_function(base):
    density = expand(random_mapped(base, ("from", "line")))
    x = density.sample(1500, torch.Generator().manual_seed(0))
    for column in range(2):
        levels = density.marginal([column]).cdf(x[:, [column]])[0].sort()[0]
        even = torch.linspace(0, 1, len(levels), dtype=torch.float64)
        assert (levels - even).abs().max() < 0.05  # Kolmogorov–Smirnov, at about 1e-3
    given = x[:60].clone()
    given[:, 1] = torch.nan
    drawn = density.fill(given, torch.manual_seed(1))
    levels = [float(density.condition([0], row[:1]).cdf(row[None, 1:])[0]) for row in drawn]
    assert abs(sum(levels) / 60 - 0.5) < 0.15


def test_no_mass_lies_beyond_the_ends():
    density = expand(random_mapped("mixture", ("between", "from")))
    low, high = double([-INF, -INF]), double([-1.0, INF])
    assert float(density.probability(low, high)[0]) == 0
    assert float(density.probability(double([9.0, -INF]), double([INF, INF]))[0]) == 0
    assert density.log_prob(double([-1.001, 2.0], [2.0, -0.501])).tolist() == [-INF, -INF]
    x = density.sample(5000, torch.Generator().manual_seed(0))
    assert (x.amin(0) >= double(-1.0, -0.5)).all()
    assert x[:, 0].max() <= 9
    with pytest.raises(ValueError, match=r"no conditional density given \[-2.0\]"):
        density.condition([0], double(-2.0))


kinds = st.lists(st.sampled_from([*ENDS, None]), min_size=2, max_size=3)


@settings(deadline=None, max_examples=20)
@given(base=st.sampled_from(BASES), columns=kinds, seed=st.integers(0, 9))
def test_identities(base, columns, seed):
    density = expand(random_mapped(base, columns, seed))
    x = density.sample(3, torch.Generator().manual_seed(seed))
    first, last = x[:, :1], x[:, -1:]
    both = density.marginal([len(columns) - 1, 0])
    twice = density.reordered(list(range(len(columns)))[::-1]).marginal([0, len(columns) - 1])
    pair = torch.cat([last, first], 1)
    torch.testing.assert_close(both.log_prob(pair), twice.log_prob(pair))
    torch.testing.assert_close(
        both.marginal([1]).log_prob(first), density.marginal([0]).log_prob(first)
    )
    joint = density.marginal([0]).log_prob(first) + density.log_prob_given(x, 1)
    torch.testing.assert_close(density.log_prob(x), joint)
    column = density.marginal([0])
    low, high = first.min()[None, None], first.max()[None, None]
    difference = column.cdf(high)[0] - column.cdf(low)[0]
    torch.testing.assert_close(column.probability(low, high)[0], difference)


def test_the_mean_of_modes_far_apart():
    """No panel may be as wide as the gap between two modes of a twentieth of their distance."""
    features = FourierFeatures.draw("random", 10, double(0.8))
    measure = GaussianMeasure(
        double(0.5, 0.5), double(-1, 1)[:, None], double(1e-2, 1e-2)[:, None, None]
    )
    born = BornDensity(features, torch.ones(1, 10).double(), measure).requires_grad_(False)
    column = random_map("line", 0)
    z = torch.linspace(-3, 3, 200_001, dtype=torch.float64)
    weight = born.log_prob(z[:, None]).exp()
    expected = weight @ column.decode(z[:, None]) / weight.sum()
    mean = expand(TableDensity(born, [column])).mean()[0]
    torch.testing.assert_close(mean, expected, rtol=0, atol=1e-7)

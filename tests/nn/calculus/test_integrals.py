"""Every operation against numerical integration of the module it came from."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import kstest
from torch.distributions import MultivariateNormal
from torch.quasirandom import SobolEngine

from qaffde import QAFFDESGD
from qaffde.nn import BornDensity, BornMixture, Density, FourierFeatures, KernelMeasure, expand
from qaffde.nn.calculus import integrals
from qaffde.nn.calculus.mixture import log_densities
from qaffde.nn.calculus.polynomial import TrigonometricForm
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


def exact(mixture, lower, upper):
    """Probability of one box, which must be a closed form."""
    value, error = mixture.probability(lower[None], upper[None])
    assert error == 0
    return value[0]


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


@pytest.mark.parametrize("unit", [1e-8, 1e8])
def test_conditionals_of_many_columns_in_any_unit(unit):
    """The log-density of the condition is beyond what a number holds."""
    mixture = expand(random_density("mixture", 60))
    given = mixture.sample(1, torch.Generator().manual_seed(0))[0, 1:]
    scale = torch.full((60,), unit, dtype=torch.float64)
    scaled = BornMixture(t.affine(0 * scale, scale) for t in mixture.terms)
    plain, other = (
        m.condition(range(1, 60), given * k) for m, k in ((mixture, 1), (scaled, unit))
    )
    assert scaled.marginal(range(1, 60)).log_prob(unit * given[None]).abs() > 709
    levels = double(0.01, 0.5, 0.99)
    x = plain.ppf(levels)
    assert x.diff().min() > 0.1
    torch.testing.assert_close(other.ppf(levels) / unit, x, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(other.cdf(unit * x[:, None])[0], levels, rtol=0, atol=1e-9)
    half = other.probability(unit * x[None, :1], unit * x[None, 1:2])[0]
    torch.testing.assert_close(half, levels[1:2] - levels[:1], rtol=0, atol=1e-9)
    draws = other.sample(400, torch.Generator().manual_seed(0))[:, 0] / unit
    assert kstest(draws, lambda x: plain.cdf(torch.as_tensor(x)[:, None])[0].numpy()).pvalue > 1e-3


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("far", [50.0, 1e4, 1e7])
def test_conditionals_far_away_keep_their_mass(kind, far):
    """Every operation on the conditional against the density of the conditional itself."""
    mixture = expand(random_density(kind, 3))
    given = double(far, far)
    conditional = mixture.condition([0, 1], given)
    lower, middle, upper = conditional.ppf(double(1e-9, 0.5, 1 - 1e-9))
    nodes, weights = integrals.legendre(400, lower, upper)
    p = weights * conditional.log_prob(nodes[:, None]).exp()
    assert float(p.sum()) == pytest.approx(1, abs=1e-7)
    assert float(p @ nodes) == pytest.approx(float(conditional.mean()), rel=1e-6)
    row = torch.cat([given, middle[None]])[None]
    expected = conditional.log_prob(middle[None, None])
    torch.testing.assert_close(mixture.log_prob_given(row, 2), expected, rtol=0, atol=1e-6)
    mean = mixture.mean_given(given[None])[0]
    torch.testing.assert_close(mean, conditional.mean(), rtol=1e-7, atol=1e-7)
    draws = mixture.sample_given(given.expand(400, 2), torch.Generator().manual_seed(0))
    levels = conditional.cdf(draws)[0]
    assert kstest(levels, "uniform").pvalue > 1e-3


@pytest.mark.parametrize("far", [1e10, 1e100, 1e200])
def test_conditions_beyond_rounding_are_refused(far):
    mixture, x = expand(random_density("gaussian", 3)), double(far, far)
    calls = (
        lambda: mixture.condition([0, 1], x),
        lambda: mixture.mean_given(x[None]),
        lambda: mixture.sample_given(x[None], torch.Generator()),
        lambda: mixture.log_prob_given(double(far, far, 0.0)[None], 2),
    )
    for call in calls:
        with pytest.raises(ValueError, match=r"1e\+08 standard deviations"):
            call()


@pytest.mark.parametrize(("kind", "d"), MODELS)
def test_probability_of_boxes(kind, d):
    density = random_density(kind, d, seed=4, D=12)
    lower, upper = density.location - 0.9, density.location + 1.6
    axes = [axis(density, c, lower[c], upper[c], n=32) for c in range(d)]
    found = exact(expand(density), lower, upper)
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
    torch.testing.assert_close(exact(mixture, lower, upper), expected, rtol=0, atol=TOLERANCE)
    torch.testing.assert_close(mixture.cdf(upper[None])[0][0], expected, rtol=0, atol=TOLERANCE)
    torch.testing.assert_close(exact(mixture, lower, -lower), double(1.0)[0])


def test_diagonal_gaussian_has_a_closed_form_in_any_dimension():
    density = random_density("gaussian", 3, seed=6)
    measure = density.density.density.measure
    measure.covariances.copy_(measure.covariances * torch.eye(3))
    measure.cholesky.copy_(torch.linalg.cholesky(measure.covariances))
    lower, upper = density.location - 0.9, density.location + 1.6
    axes = [axis(density, c, lower[c], upper[c]) for c in range(3)]
    found = exact(expand(density), lower, upper)
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
    """Against weighted quasi-random rows of a normal density: only log_prob is asked."""
    density = random_density(kind, d)
    mixture = expand(density)
    normal = MultivariateNormal(mixture.mean(), 1.2 * mixture.covariance())
    sobol = [SobolEngine(d, scramble=True, seed=k).draw(1 << 16).double() for k in range(16)]
    z = torch.special.ndtri(torch.stack(sobol).clamp(1e-9, 1 - 1e-7))
    x = normal.loc + z @ normal.scale_tril.T  # 16 independent sets of rows
    weight = torch.stack([(density.log_prob(rows) - normal.log_prob(rows)).exp() for rows in x])
    ends = mixture.sample(4000, torch.Generator().manual_seed(0)).quantile(double(0.1, 0.8), dim=0)
    for lower, upper in (ends, (torch.full((d,), -math.inf).double(), ends[1])):
        inside = (weight * ((x >= lower) & (x <= upper)).all(2)).mean(1)
        error = math.sqrt(float(inside.var()) / len(x))
        found, bound = (float(part) for part in mixture.probability(lower[None], upper[None]))
        assert error < 6e-4
        assert 0 < bound < 2e-3
        assert found == pytest.approx(float(inside.mean()), abs=4 * error + bound)


@pytest.mark.parametrize("kind", ["gaussian", "mixture"])
def test_errors_of_points_hold(kind, monkeypatch):
    """Boxes wide, narrow and open, by points and by quadrature: 99 % within the error."""
    mixture = expand(random_density(kind, 2, seed=3))
    a, b = mixture.sample(80, torch.Generator().manual_seed(0)).split(40)
    center, half = (a + b) / 2, (a - b).abs() / 2
    width = torch.logspace(-3, 0, 40).double()[:, None] * half
    lower = torch.cat([center - width, torch.full_like(a, -math.inf)])
    upper = torch.cat([center + width, a])
    expected, zero = mixture.probability(lower, upper)
    assert not zero.any()
    monkeypatch.setattr(integrals, "AFFORDABLE", 0)
    found, error = mixture.probability(lower, upper)
    assert (error > 0).all()
    assert ((found - expected).abs() > error).sum() <= 2
    assert (error < 0.02 * expected)[:30].all()  # the narrow ones, down to 1e-8


def test_any_box_is_answered_in_little_work(monkeypatch):
    """Points and nodes are counted, not seconds: high frequencies, many columns, many rows."""
    mixture = expand(random_density("mixture", 12, D=200, rank=40))
    counted = []
    form = TrigonometricForm.__call__
    monkeypatch.setattr(
        TrigonometricForm, "__call__", lambda f, u: (counted.append(len(u)), form(f, u))[1]
    )
    x = mixture.sample(3, torch.Generator().manual_seed(0))
    for d in (2, 3, 5, 12):
        counted.clear()
        value, error = mixture.marginal(list(range(d))).cdf(x[:, :d])
        assert (error <= 0.02).all()
        assert ((value > 0) & (value < 1)).all()
        assert sum(counted) <= 3 * 4 * integrals.REPETITIONS * integrals.MAX_POINTS


def test_ends_that_move_count_as_work(monkeypatch):
    """Their cosines took 16 seconds for one box of two rows that hold the same four times."""
    rows = np.repeat([[0.13], [-0.13]], 4, axis=1)
    given = {"base_measure": "gaussian", "ridge": 0.01, "random_state": 0}
    model = QAFFDESGD(6, 0.7, **given).fit(rows)
    counted = []
    between = integrals.series_between
    monkeypatch.setattr(
        integrals,
        "series_between",
        lambda s, *ends: (counted.append(s.numel()), between(s, *ends))[1],
    )
    assert 0 < model.cdf(rows[:1])[0] < 1
    assert sum(counted) < 1e8


def test_columns_without_ends_leave_a_box_of_few_columns_to_quadrature():
    mixture = expand(random_density("gaussian", 4))
    far = torch.full((4,), math.inf).double()
    half_open = double(-1.0, -math.inf, -1.0, -math.inf)
    pair = exact(mixture.marginal([0, 2]), double(-1.0, -1.0), far[:2])
    torch.testing.assert_close(exact(mixture, half_open, far), pair, rtol=0, atol=1e-12)


def test_too_fine_a_column_is_refused_before_it_is_computed():
    term = expand(random_density("gaussian", 1)).terms[0]
    fine = BornMixture([replace(term, form=replace(term.form, W=1e4 * term.form.W))])
    with pytest.raises(ValueError, match="fit with a larger bandwidth"):
        fine.ppf(double(0.5))
    x = torch.linspace(-1, 1, 9000, dtype=torch.float64)[:, None]
    assert fine.log_prob(x).isfinite().all()


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

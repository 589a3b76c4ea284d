"""Derivatives of log-densities against differences; modes of densities that are known."""

import numpy as np
import pytest
import torch

from benchmarks.modes import true_modes
from experiments.targets import get_target
from qaffde import QAFFDE, QAFFDESGD, Category, nn
from qaffde.nn import expand, shape
from tests.calculus_models import KINDS, random_density
from tests.mapped_models import random_mapped


def differences(f, x, step=1e-4):
    """Central differences (n, ..., d) of a function of rows (n, d)."""
    steps = step * torch.eye(x.shape[1], dtype=x.dtype)
    return torch.stack([(f(x + s) - f(x - s)) / (2 * step) for s in steps], -1)


@pytest.mark.parametrize("form", ["formula", "terms"])
@pytest.mark.parametrize("kind", KINDS)
def test_derivatives(kind, form):
    density = random_density(kind, 3, 1)
    density = density if form == "formula" else expand(density)
    x = torch.tensor(np.random.default_rng(0).uniform(-0.8, 0.8, size=(6, 3)))
    log_p, slope, curvature = shape.derivatives(density, x)
    assert torch.equal(log_p, density.log_prob(x))
    assert torch.allclose(slope, differences(density.log_prob, x), rtol=1e-5, atol=1e-6)

    def gradient(z):
        return shape.derivatives(density, z)[1]

    assert torch.allclose(curvature, differences(gradient, x), rtol=1e-4, atol=1e-5)
    assert torch.allclose(curvature, curvature.mT)


def test_derivatives_behind_maps():
    density = random_mapped("gaussian", ["line", None])
    x = torch.tensor([[2.0, 0.3], [3.1, -0.4]]).double()
    slope = shape.derivatives(density, x)[1]
    assert torch.allclose(slope, differences(density.log_prob, x), rtol=1e-4, atol=1e-5)


@pytest.fixture(scope="module")
def two():
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(-2, 1, size=(3000, 2)), rng.normal(2, 1, size=(1000, 2))])
    return QAFFDE(random_state=0).fit(X)


def test_modes_of_two_groups(two):
    found = two.modes(random_state=0)
    assert len(found) == 2
    assert np.allclose(found.points, [[-2, -2], [2, 2]], atol=0.3)
    assert np.allclose(found.mass, [0.75, 0.25], atol=0.04)
    assert np.abs(two.score_function(found.points)).max() < 1e-4
    assert (np.linalg.eigvalsh(two.hessian(found.points)) < 0).all()
    assert np.allclose(found.log_density, two.score_samples(found.points))
    assert found.prominence[0] == np.inf
    assert str(found).count("\n") == 2


def test_a_mode_may_be_too_light_or_too_low(two):
    assert len(two.modes(mass=0.4, random_state=0)) == 1
    assert len(two.modes(prominence=20.0, random_state=0)) == 1
    assert two.modes(mass=0.4, random_state=0).mass == pytest.approx(1)


def test_marginals_have_modes(two):
    found = two.marginal([0]).modes(random_state=0)
    assert np.allclose(found.points[:, 0], [-2, 2], atol=0.3)


@pytest.mark.parametrize("name", ["binomial", "potential_1", "star_eight"])
def test_planar_sets_have_their_modes(name):
    target = get_target(name)
    found = QAFFDE(random_state=0).fit(target.sample(20_000, 0)).modes(random_state=0)
    true = np.array(true_modes(target, n=201))
    assert len(found) == len(true)
    apart = np.linalg.norm(found.points[:, None] - true[:, :2], axis=2)
    assert sorted(apart.argmin(1)) == list(range(len(true)))  # one each
    assert (target.log_prob(found.points) > true[apart.argmin(1), 2] - 0.15).all()


def test_prominence_is_the_height_over_the_saddle(two):
    lower = two.modes(random_state=0)
    way = np.linspace(lower.points[0], lower.points[1], 400)
    valley = two.score_samples(way).min()
    assert lower.prominence[1] == pytest.approx(lower.log_density[1] - valley, abs=0.05)


def test_categories_have_no_derivative():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=200), rng.integers(0, 3, size=200)])
    model = QAFFDE(columns={1: Category()}, random_state=0).fit(X)
    with pytest.raises(ValueError, match="column 1 is not real"):
        model.modes()
    assert model.marginal([0]).score_function([[0.0]]).shape == (1, 1)


def test_learned_densities_have_derivatives():
    X = np.random.default_rng(0).normal(size=(500, 2))
    model = QAFFDESGD(n_features=32, bandwidth=0.5, random_state=0).fit(X)
    x = X[:5]
    step = 1e-5 * np.eye(2)
    expected = [(model.score_samples(x + s) - model.score_samples(x - s)) / 2e-5 for s in step]
    assert np.allclose(model.score_function(x), np.column_stack(expected), rtol=1e-3, atol=1e-4)


def test_the_ridge_of_a_ring_is_its_circle():
    rng = np.random.default_rng(0)
    angle, radius = rng.uniform(0, 2 * np.pi, 4000), rng.normal(3, 0.3, 4000)
    model = QAFFDE(random_state=0).fit(np.c_[radius * np.cos(angle), radius * np.sin(angle)])
    points = model.ridges(n_samples=300, random_state=0)
    assert len(points) > 250
    off = np.abs(np.hypot(*points.T) - 3)
    assert np.median(off) < 0.05
    assert np.quantile(off, 0.95) < 0.2
    slope, curvature = model.score_function(points), model.hessian(points)
    unit = model.sample(300, random_state=0).std(0)
    lam, V = np.linalg.eigh(curvature * unit[:, None] * unit)
    assert (lam[:, 0] < 0).all()
    across = np.abs((V[:, :, 0] * slope * unit).sum(1) / lam[:, 0])
    assert across.max() < 2e-3


def test_one_column_and_categories_have_no_ridges(two):
    with pytest.raises(ValueError, match="one column has no ridges"):
        two.marginal([0]).ridges()


def test_a_density_that_is_even_has_derivatives_of_zero():
    class Even(nn.Density):
        def log_prob(self, x):
            return torch.zeros(len(x), dtype=x.dtype)

    x = torch.rand(5, 2, dtype=torch.float64)
    log_p, slope, curvature = shape.derivatives(Even(), x)
    assert not log_p.any()
    assert not slope.any()
    assert curvature.shape == (5, 2, 2)
    assert not curvature.any()


def test_draws_that_do_not_differ_have_no_modes():
    density = random_density("box", 2, 1)
    with pytest.raises(ValueError, match="draws of column 1 have the standard deviation 0"):
        shape.find_modes(density, torch.tensor([[0.1, 0.2], [0.2, 0.2]]).double(), 0.25, 0.05)

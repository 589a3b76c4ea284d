"""Inner products of sums of terms against quadrature, and against draws where that is too much."""

import math

import pytest
import torch

from qaffde.nn import comparison, expand
from qaffde.nn.calculus import inner_products
from tests.calculus_models import KINDS, axis, integral, random_density
from tests.table_models import axis as table_axis
from tests.table_models import random_table

SIZES = {1: 48, 2: 48, 3: 20}


def approx(value):
    return pytest.approx(float(value), rel=1e-6)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("other", KINDS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("d", SIZES)
def test_inner_product_is_the_integral(d, kind, other):
    frequencies = "lattice" if d < 3 else "random"
    a, b = random_density(kind, d, 1), random_density(other, d, 2, frequencies=frequencies)
    value, error = comparison.inner_product(expand(a), expand(b))
    axes = [axis(a, c, n=SIZES[d]) for c in range(d)]
    assert error == 0
    assert float(value) == approx(integral(a, axes, lambda x: b.log_prob(x).exp()))


def test_inner_product_in_ten_columns_is_the_mean_over_draws():
    a, b = (random_density("mixture", 10, seed, D=32) for seed in (1, 2))
    x = expand(a).sample(400_000, generator())
    p = b.log_prob(x).exp()
    value, error = comparison.inner_product(expand(a), expand(b))
    assert abs(value - p.mean()) < 5 * p.std() / math.sqrt(len(p)) + error
    assert error < 1e-3 * value


def test_quasi_random_points_agree_within_their_error(monkeypatch):
    for kind in KINDS:
        a, b = random_density(kind, 2, 1), random_density(kind, 2, 2)
        exact, _ = comparison.inner_product(expand(a), expand(b))
        with monkeypatch.context() as patch:
            patch.setattr(inner_products, "AFFORDABLE", 1e6)
            value, error = comparison.inner_product(expand(a), expand(b))
        assert 0 < error < 0.2 * exact
        assert abs(value - exact) < 2 * error


def test_marginals_and_conditionals():
    a, b = random_density("mixture", 3, 1), random_density("gaussian", 3, 2)
    p, q = expand(a).marginal([2, 0]), expand(b).marginal([2, 0])
    axes = [axis(a, c) for c in (2, 0)]
    found = comparison.inner_product(p, q)[0]
    assert float(found) == approx(integral(p, axes, lambda x: q.log_prob(x).exp()))
    given = p.condition([1], torch.zeros(1).double())
    found = comparison.inner_product(given, given)[0]
    square = integral(given, axes[:1], lambda x: given.log_prob(x).exp())
    assert float(found) == approx(square)


@pytest.mark.parametrize("kind", ["gaussian", "mixture"])
def test_product_of_groups(kind):
    joint = expand(random_density(kind, 3, 3, D=6, epsilon=1e-9))
    left, right = joint.marginal([0, 1]), joint.marginal([2])
    axes = [axis(random_density(kind, 3, 3, D=6), c, n=20) for c in range(3)]

    def both(x):
        return (left.log_prob(x[:, :2]) + right.log_prob(x[:, 2:])).exp()

    value, error = comparison.inner_product(joint, left, right)
    assert error == 0
    assert float(value) == approx(integral(joint, axes, both))


def test_boxes_apart_have_no_inner_product():
    a = random_density("box", 2, epsilon=0.0)
    far = expand(a)
    terms = [term.affine(torch.full((2,), 50.0), torch.ones(2)) for term in far.terms[:1]]
    assert comparison.inner_product(type(far)(far.terms[:1]), type(far)(terms))[0] == 0


@pytest.mark.parametrize(
    "kinds",
    [("real", "category"), ("circle", "integer"), ("circle", "real"), ("integer", "category")],
)
def test_tables(kinds):
    a, b = random_table(kinds, 1), random_table(kinds, 2)
    value, error = comparison.inner_product(a, b)
    axes = [table_axis(column, -math.inf, math.inf, 24) for column in a.each()]
    expected = integral(a, axes, lambda x: b.log_prob(x).exp())
    assert error == 0
    assert float(value) == approx(expected)


def test_tables_with_atoms():
    a, b = random_table(("atom", "integer"), 1), random_table(("atom", "integer"), 2)
    for table in (a, b):
        table.columns[0].rest = random_table(("real",)).columns[0]  # as it is
    value = comparison.inner_product(a, b)[0]
    axes = [table_axis(column, -math.inf, math.inf, 24) for column in a.each()]
    assert float(value) == approx(integral(a, axes, lambda x: b.log_prob(x).exp()))


def test_maps_are_not_closed():
    a = random_table(("bounded",))
    assert comparison.inner_product(a, a) is None


@pytest.mark.parametrize("kind", KINDS)
def test_quadrature_has_the_moments(kind):
    density = expand(random_density(kind, 2, 1))
    x, mass = comparison.quadrature(density)
    assert torch.allclose(mass @ x, density.mean(), atol=1e-9)
    centered = x - density.mean()
    assert torch.allclose((centered.T * mass) @ centered, density.covariance(), atol=1e-8)


@pytest.mark.parametrize("kind", KINDS)
def test_characteristic_function(kind):
    density, t = expand(random_density(kind, 2, 1)), torch.randn(5, 2, generator=generator())
    x, mass = comparison.quadrature(density)
    expected = mass.to(torch.complex128) @ torch.exp(1j * (x @ t.double().T))
    found = comparison.characteristic(density, t.double())
    assert torch.allclose(found, expected, atol=1e-9)
    assert (
        comparison.characteristic(density, torch.zeros(1, 2).double())[0].real.sub(1).abs() < 1e-12
    )

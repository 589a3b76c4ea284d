"""Features, and base measures whose density, characteristic function and Gram matrix agree."""

import pytest
import torch

from qaffde import functional as QF
from qaffde.nn import BoxMeasure, FourierFeatures, GaussianMeasure, KernelMeasure
from tests.gram_reference import gram_matrix

DOUBLE = torch.float64


def box(d):
    return BoxMeasure(
        torch.linspace(-1, -2, d, dtype=DOUBLE), torch.linspace(1.5, 0.5, d, dtype=DOUBLE)
    )


def mixture(d, size):
    generator = torch.Generator().manual_seed(size)
    weights = torch.rand(size, generator=generator, dtype=DOUBLE)
    roots = 0.3 * torch.randn(size, d, d, generator=generator, dtype=DOUBLE)
    return GaussianMeasure(
        weights / weights.sum(),
        torch.randn(size, d, generator=generator, dtype=DOUBLE),
        roots @ roots.mT + 0.1 * torch.eye(d, dtype=DOUBLE),
    )


MEASURES = {
    "box": box,
    "gaussian": lambda d: mixture(d, 1),
    "mixture": lambda d: mixture(d, 3),
}


def quadrature(measure, d, legendre):
    """Points, and weights that hold the measure's density."""
    if isinstance(measure, BoxMeasure):
        ends = measure.lower, measure.upper
    else:
        ends = [-9.0] * d, [9.0] * d
    points, weights = legendre(torch.as_tensor(ends[0]), torch.as_tensor(ends[1]), 240)
    return points, measure.log_density(points).exp() * weights


def features(d, kind="paired"):
    return FourierFeatures.draw(kind, 14, torch.full((d,), 0.7, dtype=DOUBLE))


@pytest.mark.parametrize("d", [1, 2])
@pytest.mark.parametrize("name", MEASURES)
def test_mass_and_characteristic_function(name, d, legendre):
    measure = MEASURES[name](d)
    points, weights = quadrature(measure, d, legendre)
    assert weights.sum().item() == pytest.approx(1, abs=1e-9)
    omega = 3 * torch.randn(10, d, generator=torch.Generator().manual_seed(0), dtype=DOUBLE)
    waves = torch.exp(1j * (omega @ points.T))
    assert torch.allclose(measure.characteristic(omega), waves @ weights.to(waves), atol=1e-9)


@pytest.mark.parametrize("kind", QF.FREQUENCIES)
@pytest.mark.parametrize("d", [1, 2])
@pytest.mark.parametrize("name", MEASURES)
def test_gram_is_the_reference_and_the_integral(name, d, kind, legendre):
    measure, phi = MEASURES[name](d), features(d, kind)
    G = measure.gram(phi)
    reference = gram_matrix(phi.W, phi.b, phi.a, measure.characteristic)
    assert torch.allclose(G, reference, rtol=0, atol=1e-13)
    points, weights = quadrature(measure, d, legendre)
    values = phi(points)
    assert torch.allclose(G, values.T @ (values * weights[:, None]), rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", MEASURES)
def test_normalizer_is_the_integral_of_the_born_rule(name, legendre):
    measure, phi = MEASURES[name](2), features(2)
    factor = torch.randn(3, 14, generator=torch.Generator().manual_seed(0), dtype=DOUBLE)
    points, weights = quadrature(measure, 2, legendre)
    expected = (phi(points) @ factor.T).square().sum(1) @ weights
    assert measure.log_normalizer(factor, phi).exp().item() == pytest.approx(expected.item())


def test_mixture_of_equal_components_is_one_gaussian():
    one = mixture(2, 1)
    parts = one.means.expand(2, 2), one.covariances.expand(2, 2, 2)
    two = GaussianMeasure(torch.tensor([0.3, 0.7], dtype=DOUBLE), *parts)
    x = torch.randn(10, 2, generator=torch.Generator().manual_seed(0), dtype=DOUBLE)
    assert torch.allclose(one.log_density(x), two.log_density(x))
    assert torch.allclose(one.gram(features(2)), two.gram(features(2)))


def test_kernel_measure_is_a_constant_and_has_no_gram_matrix():
    h = torch.tensor([0.5, 2.0], dtype=DOUBLE)
    measure, phi = KernelMeasure(h), features(2)
    assert torch.equal(measure.log_density(torch.ones(3, 2)), torch.zeros(3))
    factor = torch.ones(1, 14, dtype=DOUBLE)
    assert torch.isclose(measure.log_normalizer(factor, phi), QF.log_kernel_mass(h, 2))
    with pytest.raises(ValueError, match=r"'kernel' base measure is infinite.*use 'box', 'gauss"):
        measure.gram(phi)


# Features that are left out


@pytest.mark.parametrize("share", [1e-6, 1e-2, 0.5])
def test_trimmed_features_are_the_largest_in_their_order(share):
    phi = FourierFeatures.draw("lattice", 200, torch.full((2,), 0.7, dtype=DOUBLE))
    power = phi.a.square()
    keep = power >= share * power.max()
    assert 0 < keep.sum() < 200
    trimmed = phi.trimmed(share)
    x = torch.randn(10, 2, generator=torch.Generator().manual_seed(0), dtype=DOUBLE)
    assert trimmed.n_features == keep.sum()
    assert torch.allclose(trimmed(x), phi(x)[:, keep], rtol=0, atol=1e-14)


def test_what_is_trimmed_changes_the_kernel_by_its_power():
    phi = FourierFeatures.draw("lattice", 200, torch.full((2,), 0.7, dtype=DOUBLE))
    x = torch.randn(20, 2, generator=torch.Generator().manual_seed(0), dtype=DOUBLE)
    whole, left = phi(x), phi.trimmed(1e-6)(x)
    lost = 200 * 1e-6 * phi.a.square().max()
    assert (whole @ whole.T - left @ left.T).abs().max() <= lost


@pytest.mark.parametrize("kind", ["random", "sobol", "orthogonal", "paired"])
def test_features_of_equal_amplitude_are_all_kept(kind):
    phi = features(2, kind)
    assert phi.trimmed(0.5) is phi


def test_trimmed_features_are_still_a_lattice():
    phi = FourierFeatures.draw("lattice", 200, torch.full((2,), 0.7, dtype=DOUBLE))
    trimmed = phi.trimmed(1e-4)
    assert QF.Lattice.of(trimmed.W) is not None
    reference = gram_matrix(trimmed.W, trimmed.b, trimmed.a, box(2).characteristic)
    assert torch.allclose(box(2).gram(trimmed), reference, rtol=0, atol=1e-13)


@pytest.mark.parametrize("narrow", [[], [0, 4], range(6)], ids=["none", "some", "all"])
@pytest.mark.parametrize("as_numpy", [False, True])
def test_a_mixture_in_one_product_keeps_its_digits(narrow, as_numpy):
    """Components that one product would round, and rows far away, are whitened."""
    broad, deviation = mixture(3, 6), torch.ones(6, dtype=DOUBLE)
    deviation[list(narrow)] = 1e-4
    covariances = broad.covariances * deviation[:, None, None].square()
    measure = GaussianMeasure(broad.weights, broad.means, covariances)
    assert QF.born.is_broad(
        QF.gaussian_coefficients(measure.weights.log(), measure.means, measure.cholesky), 3
    ).tolist() == [k not in narrow for k in range(6)]
    noise = torch.randn(200, 3, generator=torch.Generator().manual_seed(0), dtype=DOUBLE)
    near = (measure.means[:, None] + 1e-4 * noise).flatten(0, 1)
    x = torch.cat([near, noise, 30 * noise, 1e6 * noise])
    exact, quick = (measure.formula(shortcuts=on) for on in (False, True))
    if as_numpy:
        found = torch.as_tensor(quick.converted(lambda tensor: tensor.numpy())(x.numpy().copy()))
    else:
        found = quick(x)
    assert torch.allclose(found, exact(x), rtol=1e-12, atol=QF.born.MAX_ROUNDING)

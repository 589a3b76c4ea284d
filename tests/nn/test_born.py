"""Born densities: mass one for any factor, a normaliser that is never stale, exact gradients."""

import math

import pytest
import torch
from torch.autograd import gradcheck
from torch.func import functional_call

from qaffde import functional as QF
from qaffde.nn import (
    BornDensity,
    BoxMeasure,
    DefensiveDensity,
    FourierFeatures,
    GaussianMeasure,
    KernelMeasure,
    StandardizedDensity,
)

DOUBLE = torch.float64


def box(d):
    return BoxMeasure(torch.full((d,), -1.0, dtype=DOUBLE), torch.full((d,), 2.0, dtype=DOUBLE))


def gaussian(d):
    return mixture(d, size=1)


def mixture(d, size=2):
    weights = torch.full((size,), 1 / size, dtype=DOUBLE)
    means = torch.linspace(-1, 1, size * d, dtype=DOUBLE).reshape(size, d)
    return GaussianMeasure(weights, means, torch.eye(d, dtype=DOUBLE).repeat(size, 1, 1) / 2)


MEASURES = {"box": box, "gaussian": gaussian, "mixture": mixture}


def born(measure, kind="paired", d=1, rank=3, n_features=21, seed=0, learnable=False):
    generator = torch.Generator().manual_seed(seed)
    h = torch.linspace(0.4, 0.8, d, dtype=DOUBLE)
    features = FourierFeatures.draw(kind, n_features, h, None, generator, learnable=learnable)
    factor = torch.randn(rank, features.n_features, generator=generator, dtype=DOUBLE)
    return BornDensity(features, factor, measure(d))


@pytest.fixture
def mass(legendre):
    """Integral of a density over the box, or over all that a Gaussian reaches."""

    def integrate(density, measure=None, dtype=DOUBLE):
        measure = density.measure if measure is None else measure
        d = density.features.n_dims
        is_box = isinstance(measure, BoxMeasure)
        ends = (measure.lower, measure.upper) if is_box else ([-9.0] * d, [9.0] * d)
        ends = (torch.as_tensor(end, dtype=DOUBLE) for end in ends)
        points, weights = legendre(*ends, 150 if is_box else 300)
        return density.log_prob(points.to(dtype)).exp().to(DOUBLE) @ weights

    return integrate


@pytest.mark.parametrize("rank", [1, 5])
@pytest.mark.parametrize("d", [1, 2])
@pytest.mark.parametrize("kind", QF.FREQUENCIES)
@pytest.mark.parametrize("measure", MEASURES)
def test_integrates_to_one_for_any_factor(measure, kind, d, rank, mass):
    density = born(MEASURES[measure], kind, d, rank)
    with torch.no_grad():
        assert mass(density).item() == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("measure", MEASURES)
def test_log_prob_is_the_born_rule(measure):
    density = born(MEASURES[measure], d=2)
    x = torch.rand(20, 2, generator=torch.Generator().manual_seed(0), dtype=DOUBLE)
    with torch.no_grad():
        phi, rho = density.features(x), density.factor.T @ density.factor
        G = density.measure.gram(density.features)
        expected = torch.einsum("ni,ij,nj->n", phi, rho, phi) / torch.trace(rho @ G)
        expected = expected * density.measure.log_density(x).exp()
        assert torch.allclose(density.log_prob(x).exp(), expected)


def test_scale_of_the_factor_does_not_matter():
    density = born(box, d=2)
    scaled = BornDensity(density.features, 1e3 * density.factor.detach(), density.measure)
    x = torch.rand(20, 2, generator=torch.Generator().manual_seed(0), dtype=DOUBLE)
    assert torch.allclose(density(x), scaled(x))


def test_normalize_scales_the_factor_and_nothing_else():
    density = born(gaussian)
    x = torch.linspace(-1, 1, 9, dtype=DOUBLE)[:, None]
    with torch.no_grad():
        before = density(x)
        assert density.normalize_() is density
        assert density.log_normalizer().item() == pytest.approx(0, abs=1e-12)
        assert torch.allclose(density(x), before)


def test_kernel_normalisation_is_the_mean_kernel():
    h = torch.tensor([0.5, 0.8], dtype=DOUBLE)
    data = torch.randn(50, 2, generator=torch.Generator().manual_seed(0), dtype=DOUBLE)
    features = FourierFeatures.draw("sobol", 4000, h)
    density = BornDensity(features, features(data) / math.sqrt(50), KernelMeasure(h))
    kde = QF.gaussian_kernel(data, data, h).mean(1) / QF.log_kernel_mass(h, 2).exp()
    with torch.no_grad():
        assert torch.allclose(density(data).exp(), kde, rtol=0.02)


def scale_in_place(density):
    density.factor[0].mul_(3)


def shift_frequencies(density):
    density.features.W.add_(0.1)


def widen_measure(density):
    if isinstance(density.measure, BoxMeasure):
        density.measure.upper.add_(0.5)
    else:
        density.measure.means.add_(0.5)


def load_other(density):
    density.load_state_dict(born(MEASURES["box"], seed=5).state_dict(), strict=False)


def load_assigned(density):
    state = {name: value.clone() for name, value in density.state_dict().items()}
    density.load_state_dict(state | {"state.factor": state["state.factor"].flip(1)}, assign=True)


def replace_data(density):
    density.factor.data = density.factor.data.flip(1)


CHANGES = (
    scale_in_place,
    shift_frequencies,
    widen_measure,
    load_other,
    load_assigned,
    replace_data,
)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("measure", MEASURES)
def test_cached_normalizer_is_never_stale(measure, change, mass):
    density = born(MEASURES[measure])
    with torch.no_grad():
        before = density.log_normalizer()
        change(density)
        assert mass(density).item() == pytest.approx(1, abs=1e-6)
        assert not torch.equal(density.log_normalizer(), before)


def test_cached_normalizer_follows_the_dtype(mass):
    density = born(box)
    with torch.no_grad():
        assert density.log_normalizer().dtype == torch.float64
        density.float()
        assert density.log_normalizer().dtype == torch.float32
        assert mass(density, dtype=torch.float32).item() == pytest.approx(1, abs=1e-5)
        density.double()
        assert mass(density).item() == pytest.approx(1, abs=1e-9)


def test_normalizer_is_kept_only_without_gradients(monkeypatch):
    density = born(box)
    calls = []
    gram = density.measure.gram
    monkeypatch.setattr(density.measure, "gram", lambda phi: calls.append(1) or gram(phi))
    with torch.no_grad():
        for _ in range(3):
            density.log_normalizer()
    assert len(calls) == 1
    for _ in range(3):
        assert density.log_normalizer().requires_grad
    assert len(calls) == 4


def test_values_with_and_without_gradients_agree():
    density = born(mixture)
    x = torch.linspace(-1, 1, 9, dtype=DOUBLE)[:, None]
    with torch.no_grad():
        cached = density(x)
    assert torch.equal(density(x).detach(), cached)


@pytest.mark.parametrize("measure", MEASURES)
def test_gradcheck_in_points_factor_frequencies_and_phases(measure):
    density = born(MEASURES[measure], "random", d=2, rank=2, n_features=5, learnable=True)
    names = ("state.factor", "features.W", "features.b")
    parameters = dict(density.named_parameters())
    x = torch.rand(3, 2, generator=torch.Generator().manual_seed(0), dtype=DOUBLE)

    def log_prob(x, *values):
        return functional_call(density, dict(zip(names, values, strict=True)), (x,))

    assert gradcheck(log_prob, (x.requires_grad_(), *(parameters[name] for name in names)))


@pytest.mark.parametrize("measure", MEASURES)
def test_gradient_of_the_mass_is_zero(measure, mass):
    density = born(MEASURES[measure], "random", d=2, learnable=True)
    mass(density).backward()
    for parameter in density.parameters():
        assert parameter.grad.abs().max() < 1e-8


@pytest.mark.parametrize("measure", MEASURES)
def test_mass_is_one_after_steps_of_an_optimiser(measure, mass):
    density = born(MEASURES[measure], "random", learnable=True)
    x = torch.linspace(-0.5, 0.5, 50, dtype=DOUBLE)[:, None]
    adam = torch.optim.Adam(density.parameters(), lr=0.05)
    losses = []
    for _ in range(5):
        adam.zero_grad()
        loss = -density(x).mean()
        loss.backward()
        adam.step()
        losses.append(loss.item())
        with torch.no_grad():
            assert mass(density).item() == pytest.approx(1, abs=1e-6)
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("epsilon", [1e-6, 0.3])
def test_background_keeps_the_mass_and_makes_every_point_possible(epsilon, legendre):
    inner = born(box)
    one = torch.ones(1, dtype=DOUBLE)
    density = DefensiveDensity(inner, epsilon, 0 * one, 4 * one[None])
    total = 0.0
    with torch.no_grad():
        for lower, upper in ((-16, -1), (-1, 2), (2, 16)):
            points, weights = legendre(lower * one, upper * one, 150)
            total += density(points).exp() @ weights
        far = density(torch.tensor([[-3.0], [1e6], [1e300]], dtype=DOUBLE))
    assert total.item() == pytest.approx(1, abs=1e-6)
    assert far.isfinite().all()
    assert far[0].item() == pytest.approx(math.log(epsilon) - 0.5 * math.log(8 * math.pi) - 9 / 8)


def test_standardisation_has_its_jacobian(legendre):
    inner = born(box, d=2)
    location, scale = torch.tensor([[5.0, -3.0], [100.0, 0.01]], dtype=DOUBLE)
    density = StandardizedDensity(inner, location, scale)
    z = torch.rand(10, 2, generator=torch.Generator().manual_seed(0), dtype=DOUBLE)
    with torch.no_grad():
        assert torch.allclose(density(location + scale * z), inner(z))  # |scale| is one
        density.scale[1] = 1.0
        expected = inner(z) - math.log(100)
        assert torch.allclose(density(location + density.scale * z), expected)
        ends = (
            location + density.scale * end for end in (inner.measure.lower, inner.measure.upper)
        )
        points, weights = legendre(*ends, 100)
        assert (density(points).exp() @ weights).item() == pytest.approx(1, abs=1e-6)

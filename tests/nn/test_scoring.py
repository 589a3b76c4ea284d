"""Frozen densities against the modules they were made of."""

import gc
import weakref

import numpy as np
import pytest
import torch

from qaffde.nn import (
    BornDensity,
    BoxMeasure,
    DefensiveDensity,
    FourierFeatures,
    GaussianMeasure,
    KernelMeasure,
    StandardizedDensity,
    expand,
)
from qaffde.nn.scoring import Score, compiled_score

EYE = torch.eye(2, dtype=torch.float64)
MEASURES = {
    "box": BoxMeasure(-2 * EYE.sum(0), 3 * EYE.sum(0)),
    "gaussian": GaussianMeasure(torch.ones(1).double(), 0.3 * EYE[:1], 2 * EYE[None]),
    "mixture": GaussianMeasure(
        torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64),
        torch.tensor([[0.0, 1.0], [-1.0, 0.5], [2.0, -2.0]], dtype=torch.float64),
        torch.stack([EYE, EYE + 0.5, 0.1 * EYE]),
    ),
    "kernel": KernelMeasure(0.5 * EYE.sum(0)),
}


def density_of(measure="mixture", kind="sobol", epsilon=1e-3):
    generator = torch.Generator().manual_seed(0)
    h = 0.6 * EYE.sum(0)
    features = FourierFeatures.draw(kind, 60, h, 12 * h, generator)
    factor = torch.randn(5, features.n_features, generator=generator, dtype=torch.float64)
    density = BornDensity(features, factor, MEASURES[measure])
    if epsilon:
        density = DefensiveDensity(density, epsilon, 0.1 * EYE[0], 9 * EYE)
    location, scale = torch.tensor([[1.0, -2.0], [3.0, 0.5]], dtype=torch.float64)
    return StandardizedDensity(density, location, scale).requires_grad_(False)


def points(n, spread=3.0):
    generator = torch.Generator().manual_seed(1)
    return spread * torch.randn(n, 2, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("epsilon", [0.0, 1e-3])
@pytest.mark.parametrize("kind", ["sobol", "lattice"])
@pytest.mark.parametrize("measure", MEASURES)
def test_values_are_those_of_the_modules(measure, kind, epsilon):
    density, x = density_of(measure, kind, epsilon), points(500)
    expected = density.log_prob(x)
    frozen = compiled_score(density)
    assert torch.allclose(frozen(x), expected, rtol=0, atol=1e-8)
    few = frozen.of_few(x[:3].numpy())
    np.testing.assert_allclose(few, expected[:3], rtol=0, atol=1e-8)


@pytest.mark.parametrize("measure", MEASURES)
def test_far_away_nothing_overflows(measure):
    density = density_of(measure)
    x = torch.tensor([[1e300, -1e300], [1e20, 0.0]], dtype=torch.float64)
    expected = density.log_prob(x)
    assert torch.allclose(compiled_score(density)(x), expected, rtol=1e-12)
    assert expected.isfinite().all()


def test_single_precision_keeps_six_digits():
    density, x = density_of(), points(500)
    single = compiled_score(density, torch.float32)(x)
    assert single.dtype == torch.float32
    assert torch.allclose(single.double(), density.log_prob(x), rtol=0, atol=1e-3)


def test_a_form_is_made_once_and_anew_after_a_change():
    density, x = density_of(), points(5)
    first = compiled_score(density)
    assert compiled_score(density) is first
    with torch.no_grad():
        density.density.density.factor[0] += 1.0
    second = compiled_score(density)
    assert second is not first
    assert torch.allclose(second(x), density.log_prob(x), rtol=0, atol=1e-9)
    density.density.density.measure = MEASURES["gaussian"]
    assert torch.allclose(compiled_score(density)(x), density.log_prob(x), rtol=0, atol=1e-9)
    density.density.epsilon = 0.5
    assert torch.allclose(compiled_score(density)(x), density.log_prob(x), rtol=0, atol=1e-9)
    density.scale = 2 * density.scale
    assert torch.allclose(compiled_score(density)(x), density.log_prob(x), rtol=0, atol=1e-9)


def test_each_precision_has_its_form():
    density, x = density_of(), points(5)
    for dtype in (torch.float64, torch.float32, torch.float64):
        assert compiled_score(density, dtype)(x).dtype == dtype
    assert compiled_score(density) is not compiled_score(density, torch.float32)


def test_other_builds_have_no_compiled_score():
    assert compiled_score(expand(density_of())) is None
    behind = StandardizedDensity(expand(density_of()), 0 * EYE[0], EYE.sum(0))
    assert compiled_score(behind) is None
    assert torch.allclose(behind.log_prob(points(5)), density_of().log_prob(points(5)))


def test_a_form_does_not_keep_its_density_alive():
    density = density_of()
    compiled_score(density)
    reference = weakref.ref(density)
    del density
    gc.collect()
    assert reference() is None


def test_modules_stay_as_they_are():
    density = density_of("box")
    Score(density, torch.float32)
    assert {t.dtype for t in density.state_dict().values()} == {torch.float64}


def test_the_width_is_that_of_the_largest_array():
    assert compiled_score(density_of()).width == 60
    weights = torch.full((80,), 1 / 80, dtype=torch.float64)
    density = density_of()
    density.density.density.measure = GaussianMeasure(
        weights, points(80), EYE.expand(80, 2, 2).clone()
    )
    assert compiled_score(density).width == 80

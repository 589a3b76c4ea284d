"""Densities of classes against Born densities of each class alone."""

import torch

from qaffde.nn import (
    BornDensity,
    DefensiveDensity,
    FourierFeatures,
    GaussianMeasure,
    StandardizedDensity,
)
from qaffde.nn.scoring import Score

EYE = torch.eye(2, dtype=torch.float64)
MEASURE = GaussianMeasure(torch.ones(1).double(), 0.3 * EYE[:1], 2 * EYE[None])
FEATURES = FourierFeatures.draw("orthogonal", 20, 0.8 * EYE.sum(0))
FACTOR = torch.randn(3, 4, 20, generator=torch.Generator().manual_seed(0)).double()
POINTS = torch.randn(50, 2, generator=torch.Generator().manual_seed(1)).double()
EPSILON = 0.01


def classes():
    born = BornDensity(FEATURES, FACTOR, MEASURE).normalize_()
    background = MEASURE.means[0], MEASURE.covariances[0]
    return DefensiveDensity(born, EPSILON, *background).requires_grad_(False)


def test_each_class_is_a_born_density_with_a_background():
    log_p = classes()(POINTS)
    background = EPSILON * MEASURE.log_density(POINTS).exp()
    for c, factor in enumerate(FACTOR):
        alone = BornDensity(FEATURES, factor, MEASURE).log_prob(POINTS).exp()
        torch.testing.assert_close(log_p[:, c].exp(), (1 - EPSILON) * alone + background)


def test_compiled_densities_are_those_that_gradients_flow_through():
    born = classes()
    points = torch.cat([POINTS, 1e3 * POINTS]).requires_grad_()
    expected = born(points)
    expected.sum().backward()
    assert points.grad[:50].isfinite().all()
    with torch.no_grad():
        torch.testing.assert_close(born(points), expected)
        born.density.factor[0].copy_(born.density.factor[1])  # compiled was another factor
        log_p = born(points[:50])
    torch.testing.assert_close(log_p[:, 0], expected[:50, 1])


def test_units_keep_the_mass(legendre):
    born = classes()
    scale = torch.tensor([0.5, 2.0], dtype=torch.float64)
    density = StandardizedDensity(born, EYE[0], scale)
    ends = (EYE[0] - 9 * scale, EYE[0] + 9 * scale)
    points, weights = legendre(*ends, 100)
    mass = (density(points).exp() * weights[:, None]).sum(0)
    torch.testing.assert_close(mass, torch.ones(3).double(), rtol=0, atol=1e-8)


def test_few_rows_are_scored_as_blocks_are():
    axes = torch.linalg.qr(torch.randn(4, 2, generator=torch.Generator().manual_seed(2))).Q
    units = torch.ones(4).double(), 2 * torch.ones(2).double(), axes.double()
    noise = torch.tensor(0.3).double()
    rows = torch.randn(9, 4, generator=torch.Generator().manual_seed(3)).double()
    for density in (
        StandardizedDensity(classes(), *units),
        StandardizedDensity(classes(), *units, noise),
    ):
        score, expected = Score(density), density(rows)
        assert expected.shape == (9, 3)
        torch.testing.assert_close(score(rows), expected)
        torch.testing.assert_close(torch.from_numpy(score.of_few(rows.numpy())), expected)

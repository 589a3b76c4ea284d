"""Densities of classes against Born densities of each class alone."""

import torch

from qaffde.nn import BornDensity, FourierFeatures, GaussianMeasure
from qaffde.nn.class_density import ClassBorn, ClassDensity, Projection

EYE = torch.eye(2, dtype=torch.float64)
MEASURE = GaussianMeasure(torch.ones(1).double(), 0.3 * EYE[:1], 2 * EYE[None])
FEATURES = FourierFeatures.draw("orthogonal", 20, 0.8 * EYE.sum(0))
FACTOR = torch.randn(3, 4, 20, generator=torch.Generator().manual_seed(0)).double()
POINTS = torch.randn(50, 2, generator=torch.Generator().manual_seed(1)).double()
EPSILON = 0.01


def test_each_class_is_a_born_density_with_a_background():
    log_p = ClassBorn(FEATURES, FACTOR, MEASURE, EPSILON)(POINTS)
    background = EPSILON * MEASURE.log_density(POINTS).exp()
    for c, factor in enumerate(FACTOR):
        alone = BornDensity(FEATURES, factor, MEASURE).log_prob(POINTS).exp()
        torch.testing.assert_close(log_p[:, c].exp(), (1 - EPSILON) * alone + background)


def test_compiled_densities_are_those_that_gradients_flow_through():
    born = ClassBorn(FEATURES, FACTOR, MEASURE, EPSILON)
    points = torch.cat([POINTS, 1e3 * POINTS]).requires_grad_()
    expected = born(points)
    expected.sum().backward()
    assert points.grad[:50].isfinite().all()
    with torch.no_grad():
        torch.testing.assert_close(born(points), expected)
        born.factor.mul_(0.5)  # what was compiled is not of this factor
        log_p = born(points[:50])
    assert (log_p < expected[:50]).all()


def test_units_keep_the_mass(legendre):
    born = ClassBorn(FEATURES, FACTOR, MEASURE, EPSILON)
    scale = torch.tensor([0.5, 2.0], dtype=torch.float64)
    density = ClassDensity(Projection(EYE[0], scale), born)
    ends = (EYE[0] - 9 * scale, EYE[0] + 9 * scale)
    points, weights = legendre(*ends, 100)
    mass = (density(points).exp() * weights[:, None]).sum(0)
    torch.testing.assert_close(mass, torch.ones(3).double(), rtol=0, atol=1e-8)

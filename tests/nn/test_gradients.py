"""Gradients of the layers in their input and in every parameter, against finite differences.

Those of :class:`BornDensity` stand with its other properties in ``test_born.py``.
"""

import pytest
import torch
from torch.autograd import gradcheck
from torch.distributions import AffineTransform, SigmoidTransform
from torch.func import functional_call

from qaffde import nn

DOUBLE = torch.float64


def numbers(*shape, seed=0):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=DOUBLE)


def features():
    return nn.FourierFeatures(numbers(5, 2), numbers(5, seed=1), numbers(5), learnable=True)


def born():
    box = nn.BoxMeasure(*torch.tensor([[-4.0, -5.0], [4.0, 6.0]], dtype=DOUBLE))
    return nn.BornDensity(features(), numbers(2, 5), box)


def defensive():
    return nn.DefensiveDensity(born(), 0.3, numbers(2), torch.eye(2, dtype=DOUBLE))


def standardized():
    return nn.StandardizedDensity(born(), numbers(2), 0.5 + numbers(2))


LAYERS = {
    "features": (features, 2),
    "state": (lambda: nn.DensityMatrix(numbers(2, 5)), 5),
    "defensive": (defensive, 2),
    "standardized": (standardized, 2),
    "behind a transform": (lambda: nn.TransformedDensity(born(), SigmoidTransform()), 2),
}


@pytest.mark.parametrize("name", LAYERS)
def test_gradients_are_those_of_finite_differences(name):
    build, width = LAYERS[name]
    layer, x = build(), numbers(3, width, seed=2).requires_grad_()
    parameters = dict(layer.named_parameters())
    assert parameters

    def call(x, *values):
        return functional_call(layer, dict(zip(parameters, values, strict=True)), (x,))

    assert gradcheck(call, (x, *parameters.values()))


def test_the_jacobian_of_a_transform_is_part_of_the_density():
    inner = born()
    density = nn.TransformedDensity(inner, AffineTransform(0.5, torch.tensor([2.0, -0.1])))
    x = numbers(4, 2)
    expected = inner(0.5 + torch.tensor([2.0, -0.1]) * x) + torch.tensor(0.2).log()
    assert torch.allclose(density(x), expected)


def test_a_transform_of_whole_rows_counts_its_jacobian_once():
    inner, scale = born(), torch.tensor([2.0, 0.5], dtype=DOUBLE)
    by_column, by_row = (
        nn.TransformedDensity(inner, AffineTransform(0.0, scale, event_dim=event_dim))
        for event_dim in (0, 1)
    )
    for x in (numbers(4, 2), numbers(2, 3, 2), numbers(2)):
        assert torch.allclose(by_column(x), by_row(x))
        assert by_row(x).shape == x.shape[:-1]

"""Draws of torch modules from a generator of a fit, and never from torch's global one."""

import pytest
import torch
from torch import nn

from qaffde.training.noise import Noise

IMAGES = torch.ones(40, 6, 3, 3)
DRAWS = {
    "weights": lambda: nn.Linear(3, 4).weight,
    "orthogonal weights": lambda: nn.init.orthogonal_(torch.empty(3, 3)),
    "normals": lambda: torch.randn(3, 2),
    "like another": lambda: torch.randn_like(IMAGES),
    "in place": lambda: torch.empty(9).exponential_(),
    "an order": lambda: torch.randperm(20),
    "a distribution": lambda: torch.distributions.Chi2(torch.ones(5)).sample(),
    "dropout": lambda: nn.Dropout(0.3)(IMAGES),
    "dropout of channels": lambda: nn.Dropout2d(0.3)(IMAGES),
}


@pytest.mark.parametrize("name", DRAWS)
def test_draws_are_those_of_the_generator(name):
    state = torch.get_rng_state()
    drawn = []
    for seed in (0, 0, 1):
        with Noise(torch.Generator().manual_seed(seed)) as noise:
            drawn.append(DRAWS[name]().detach())
        assert noise.used
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])
    assert torch.equal(torch.get_rng_state(), state)


def test_dropout_leaves_the_mean_and_drops_channels_whole():
    with Noise(torch.Generator().manual_seed(0)):
        numbers, channels = nn.Dropout(0.3)(IMAGES), nn.Dropout2d(0.3)(IMAGES)
    for seen in (numbers, channels):
        assert seen.unique().tolist() == pytest.approx([0.0, 1 / 0.7])
        assert float(seen.mean()) == pytest.approx(1, abs=0.1)
    assert torch.equal(channels.amin((2, 3)), channels.amax((2, 3)))
    assert not torch.equal(numbers.amin((2, 3)), numbers.amax((2, 3)))


def test_nothing_is_drawn_in_evaluation_and_a_generator_that_is_given_counts():
    with Noise(torch.Generator().manual_seed(0)) as noise:
        assert nn.Dropout(0.3).eval()(IMAGES) is IMAGES
        own = torch.rand(3, generator=torch.Generator().manual_seed(5))
    assert not noise.used
    assert torch.equal(own, torch.rand(3, generator=torch.Generator().manual_seed(5)))

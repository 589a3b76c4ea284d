"""The masked autoencoder against independent computations."""

import numpy as np
import pytest
import torch

pytest.importorskip("zuko", reason="the flows need the extra 'flows'")

from experiments.models.made import MADE, MaskedMixture
from qaffde.training import TrainingConfig

x = torch.randn(40, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def context_of(n):
    return torch.eye(n, dtype=torch.float64)[torch.arange(40) % n] if n else None


@pytest.mark.parametrize("k", [0, 2])
def test_a_masked_column_depends_on_those_before_it(k):
    density = MaskedMixture(4, k, 3, [16]).double()
    given = context_of(k)
    before = density._conditionals(x[:, :4], given)
    for column in range(4):
        moved = x[:, :4].clone()
        moved[:, column] += 1
        for old, new in zip(before, density._conditionals(moved, given), strict=True):
            assert torch.equal(old[:, : column + 1], new[:, : column + 1])
            if column < 3:
                assert not torch.allclose(old[:, column + 1], new[:, column + 1])


def test_a_masked_mixture_is_the_product_of_its_conditionals():
    density = MaskedMixture(2, 0, 3, [8]).double()
    logits, mean, log_scale = density._conditionals(x[:, :2], None)
    mixture = torch.distributions.MixtureSameFamily(
        torch.distributions.Categorical(logits=logits),
        torch.distributions.Normal(mean, log_scale.exp()),
    )
    assert torch.allclose(density.log_prob(x[:, :2]), mixture.log_prob(x[:, :2]).sum(1))


def test_one_component_finds_a_curved_gaussian():
    rng = np.random.default_rng(0)
    first = rng.normal(size=2000)
    X = np.c_[first, first**2 + 0.5 * rng.normal(size=2000)]
    training = TrainingConfig(max_steps=400, batch_size=128, learning_rate=1e-2)
    model = MADE(1, 32, 1, training=training, random_state=0).fit(X)
    entropy = -np.log(2 * np.pi * np.e) - np.log(0.5)
    assert model.score(X) == pytest.approx(entropy, abs=0.1)

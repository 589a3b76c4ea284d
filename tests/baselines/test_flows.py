"""The flows of zuko, as they are configured here."""

import sys

import numpy as np
import pytest
import torch

from qaffde.baselines import IAF, MADE, MAF, NSF, RealNVP
from qaffde.baselines.flows import MaskedMixture

FLOWS = [
    MAF(3, 8, 1),
    IAF(3, 8, 1),
    RealNVP(3, 8, 1),
    NSF(2, 8, 1, 4),
]
SIZES = [(1, 0), (2, 0), (5, 0), (3, 2)]
x = torch.randn(40, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def context_of(n):
    return torch.eye(n, dtype=torch.float64)[torch.arange(40) % n] if n else None


@pytest.mark.parametrize("flow", FLOWS, ids=str)
@pytest.mark.parametrize(("d", "k"), SIZES)
def test_inverse_after_forward_is_the_identity(flow, d, k):
    transform = flow._build(d, k).double().flow(context_of(k)).transform
    z = transform(x[:, :d])
    assert not torch.allclose(z, x[:, :d], atol=1e-3)
    assert torch.allclose(transform.inv(z), x[:, :d], atol=1e-9)


@pytest.mark.parametrize("flow", FLOWS, ids=str)
def test_log_density_is_the_change_of_variables(flow):
    density = flow._build(3).double()
    transform = density.flow().transform
    point = x[:1, :3]
    jacobian = torch.autograd.functional.jacobian(lambda p: transform(p)[0], point)[:, 0]
    base = torch.distributions.Normal(0, 1).log_prob(transform(point)).sum()
    assert torch.allclose(density.log_prob(point), base + jacobian.det().abs().log())


def test_an_inverse_flow_is_a_flow_run_backwards():
    torch.manual_seed(0)
    forward = MAF(2, 8, 1)._build(2).double().flow().transform
    torch.manual_seed(0)
    backward = IAF(2, 8, 1)._build(2).double().flow().transform
    assert torch.allclose(backward(x[:, :2]), forward.inv(x[:, :2]))


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
    settings = {"max_steps": 400, "batch_size": 128, "learning_rate": 1e-2, "random_state": 0}
    model = MADE(1, 32, 1, **settings).fit(X)
    entropy = -np.log(2 * np.pi * np.e) - np.log(0.5)
    assert model.score(X) == pytest.approx(entropy, abs=0.1)


def test_training_keeps_the_network_that_was_best_on_held_out_rows():
    X = np.random.default_rng(0).normal(size=(60, 2))
    settings = {"max_steps": 400, "batch_size": 16, "learning_rate": 1e-2, "random_state": 0}
    model = MADE(8, 64, 2, **settings).fit(X)
    assert model.history_.stopped_by == "patience"
    assert model.history_.steps[-1] < 400
    assert model.score(np.random.default_rng(1).normal(size=(500, 2))) > -4


def test_without_zuko_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "zuko", None)
    with pytest.raises(ImportError, match=r"pip install 'qaffde\[flows\]'"):
        MAF().fit(np.random.default_rng(0).normal(size=(50, 2)))

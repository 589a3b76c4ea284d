"""The flows of zuko, as they are configured here."""

import sys

import numpy as np
import pytest
import torch

from experiments.models.predecessors import IAF
from qaffde.baselines import MAF, NSF, RealNVP
from qaffde.training import TrainingConfig

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


def test_training_keeps_the_network_that_was_best_on_held_out_rows():
    X = np.random.default_rng(0).normal(size=(60, 2))
    training = TrainingConfig(max_steps=400, batch_size=16, learning_rate=1e-2)
    model = MAF(4, 64, 2, training=training, random_state=0).fit(X)
    assert model.history_.stopped_by == "patience"
    assert model.history_.steps[-1] < 400
    assert model.score(np.random.default_rng(1).normal(size=(500, 2))) > -4


def test_without_zuko_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "zuko", None)
    with pytest.raises(ImportError, match=r"pip install 'qaffde\[flows\]'"):
        MAF().fit(np.random.default_rng(0).normal(size=(50, 2)))

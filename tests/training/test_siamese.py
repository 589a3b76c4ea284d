"""The siamese network: inner products of the map it starts from, and back again; its loss."""

import pytest
import torch

from qaffde.nn import FourierFeatures
from qaffde.training.adaptive import Siamese, is_paired, kernel_loss, pair_kernel

H = torch.tensor([0.5, 2.0], dtype=torch.float64)
LOCATION = torch.tensor([3.0, -1.0], dtype=torch.float64)
GENERATOR = torch.Generator().manual_seed(0)
PAIRS = LOCATION + torch.randn(30, 2, 2, generator=GENERATOR, dtype=torch.float64)
KINDS = ["random", "paired", "orthogonal", "sobol", "lattice"]


@pytest.mark.parametrize("kind", KINDS)
def test_inner_products_of_the_start(kind):
    start = FourierFeatures.draw(kind, 21, H)
    network = Siamese(start, LOCATION, H)
    phi = start(PAIRS)
    assert network.paired == (kind != "random")
    assert torch.allclose(network((PAIRS - LOCATION) / H), (phi[:, 0] * phi[:, 1]).sum(1))


@pytest.mark.parametrize("kind", KINDS)
def test_untrained_features_are_those_of_the_start(kind):
    start = FourierFeatures.draw(kind, 21, H)
    back = Siamese(start, LOCATION, H).features()
    assert torch.allclose(back(PAIRS), start(PAIRS))
    assert not list(back.parameters())


@pytest.mark.parametrize("name", ["W", "b", "a"])
@pytest.mark.parametrize("kind", ["sobol", "lattice"])
def test_a_broken_pair_is_noticed(kind, name):
    features = FourierFeatures.draw(kind, 20, H)
    assert is_paired(features)
    getattr(features, name)[-1] += 0.1
    assert not is_paired(features)


@pytest.mark.parametrize("name", ["W", "b"])
def test_an_odd_feature_that_is_not_constant_is_noticed(name):
    features = FourierFeatures.draw("lattice", 20, H)
    getattr(features, name)[0] += 0.1
    assert not is_paired(features)


INNER = torch.tensor([1.0, 0.5, -0.2, 0.0], dtype=torch.float64)
KERNEL = torch.tensor([0.9, 0.3, 0.1, 0.0], dtype=torch.float64)


def test_naive_loops():
    pairs = list(zip(INNER.tolist(), KERNEL.tolist(), strict=True))
    squared, plain = (kernel_loss(INNER, KERNEL, squared=squared) for squared in (True, False))
    assert squared == pytest.approx(sum((k - p**2) ** 2 for p, k in pairs) / 4)
    assert plain == pytest.approx(sum((k - p) ** 2 for p, k in pairs) / 4)


def test_each_loss_is_zero_at_its_own_target():
    assert kernel_loss(KERNEL.sqrt(), KERNEL) == pytest.approx(0)
    assert kernel_loss(KERNEL, KERNEL, squared=False) == 0
    assert kernel_loss(KERNEL.sqrt(), KERNEL, squared=False) > 0.01


@pytest.mark.parametrize("squared", [True, False])
@pytest.mark.parametrize("kind", ["random", "sobol", "lattice"])
def test_gradient_in_frequencies_and_phases(kind, squared):
    network = Siamese(FourierFeatures.draw(kind, 6, H), torch.zeros_like(H), H)
    pairs = torch.randn(6, 2, 2, generator=GENERATOR, dtype=torch.float64)
    kernel, names = pair_kernel(pairs, H), [name for name, _ in network.named_parameters()]
    assert [p.requires_grad for p in network.parameters()] == [True, kind == "random"]

    def value(*parameters):
        named = dict(zip(names, parameters, strict=True))
        inner = torch.func.functional_call(network, named, pairs)
        return kernel_loss(inner, kernel, squared=squared)

    assert torch.autograd.gradcheck(value, tuple(network.parameters()))

"""Losses against naive computations, and their gradients."""

import pytest
import torch

from qaffde.nn import DensityMatrix, FourierFeatures
from qaffde.training import negative_log_likelihood, pair_kernel, plain_loss, squared_loss
from qaffde.training.losses import BLOCK, state_likelihood
from qaffde.training.siamese import FreeSiamese, PairedSiamese

INNER = torch.tensor([1.0, 0.5, -0.2, 0.0], dtype=torch.float64)
KERNEL = torch.tensor([0.9, 0.3, 0.1, 0.0], dtype=torch.float64)
H = torch.tensor([0.5, 0.8], dtype=torch.float64)
PAIRS = torch.randn(6, 2, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_naive_loops():
    pairs = list(zip(INNER.tolist(), KERNEL.tolist(), strict=True))
    assert squared_loss(INNER, KERNEL) == pytest.approx(sum((k - p**2) ** 2 for p, k in pairs) / 4)
    assert plain_loss(INNER, KERNEL) == pytest.approx(sum((k - p) ** 2 for p, k in pairs) / 4)


def test_each_loss_is_zero_at_its_own_target():
    assert squared_loss(KERNEL.sqrt(), KERNEL) == pytest.approx(0)
    assert plain_loss(KERNEL, KERNEL) == 0
    assert plain_loss(KERNEL.sqrt(), KERNEL) > 0.01


@pytest.mark.parametrize("loss", [squared_loss, plain_loss])
def test_gradient_of_the_loss(loss):
    assert torch.autograd.gradcheck(lambda p: loss(p, KERNEL), INNER.clone().requires_grad_())


@pytest.mark.parametrize("loss", [squared_loss, plain_loss])
@pytest.mark.parametrize("kind", ["random", "sobol", "lattice"])
def test_gradient_in_frequencies_and_phases(kind, loss):
    start, location = FourierFeatures.draw(kind, 6, H), torch.zeros_like(H)
    paired = kind != "random"
    network = PairedSiamese(start, H) if paired else FreeSiamese(start, location, H)
    kernel = pair_kernel(PAIRS, H)
    names = [name for name, _ in network.named_parameters()]

    def value(*parameters):
        named = dict(zip(names, parameters, strict=True))
        return loss(torch.func.functional_call(network, named, PAIRS), kernel)

    assert torch.autograd.gradcheck(value, tuple(network.parameters()))


@pytest.mark.parametrize("n", [7, BLOCK, 2 * BLOCK + 5])
def test_one_pass_over_the_rows_gives_the_likelihood_of_a_state_and_its_gradient(n):
    generator = torch.Generator().manual_seed(n)
    E = torch.randn(n, 5, generator=generator, dtype=torch.float64)
    weight = torch.rand(n, generator=generator, dtype=torch.float64)
    values, gradients = [], []
    for loss in (negative_log_likelihood, state_likelihood):
        state = DensityMatrix(torch.linspace(-1, 2, 10, dtype=torch.float64).reshape(2, 5))
        value = 3 * loss(state, E, weight)
        value.backward()
        values.append(value.item())
        gradients.append(state.factor.grad)
    assert values[0] == pytest.approx(values[1], rel=1e-12)
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-10, atol=1e-12)

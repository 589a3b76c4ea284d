"""The likelihood of a state in one pass, and its gradient."""

import pytest
import torch

from qaffde.nn import DensityMatrix
from qaffde.training import negative_log_likelihood
from qaffde.training.likelihood import BLOCK, state_likelihood


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

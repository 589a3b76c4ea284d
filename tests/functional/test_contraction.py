"""The likelihood of a train and its gradient, against autograd and a plain contraction."""

from itertools import pairwise

import pytest
import torch

from qaffde.functional import contraction
from qaffde.functional.contraction import log_likelihood, log_norm


@pytest.mark.parametrize("every", [2, 8])
def test_log_likelihood(monkeypatch, every):
    """In blocks, and divided by sizes on the way."""
    monkeypatch.setattr(contraction, "BLOCK", 3)
    monkeypatch.setattr(contraction, "SCALE_EVERY", every)
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    bonds, sizes = (1, 4, 5, 3, 3), (2, 3, 2, 2)
    W = [normal(a, b) for a, b in pairwise(bonds)]
    V = [normal(b, K) for b, K in zip(bonds[1:], sizes, strict=True)]
    e, weight = [normal(7, K) for K in sizes], normal(7).abs()
    tensors = [t.requires_grad_() for t in (*W, *V, normal(3, 2))]

    def likelihood(*given: torch.Tensor) -> torch.Tensor:
        return log_likelihood(weight, e, given[:4], given[4:8], given[8])

    v = [f @ loading.T for f, loading in zip(e, V, strict=True)]
    plain = log_norm(torch.ones(1, 1).double(), W, v, tensors[8])
    torch.testing.assert_close(likelihood(*tensors), (weight * plain).mean())
    with torch.no_grad():
        torch.testing.assert_close(likelihood(*tensors), (weight * plain).mean())
    assert torch.autograd.gradcheck(likelihood, tensors)

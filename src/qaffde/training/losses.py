"""Negative log-likelihoods of densities and of density matrices."""

from typing import Any

import torch
from torch import Tensor, nn

BLOCK = 1024
"""Rows whose coordinates stay in the cache between the loss and its gradient."""


def negative_log_likelihood(module: nn.Module, x: Tensor, weight: Tensor) -> Tensor:
    r"""Mean :math:`-w \log p(x)` over a batch, not divided by the weight of the batch.

    Parameters
    ----------
    module : nn.Module
        A :class:`~qaffde.nn.Density`, or any module from rows to log-probabilities.
    x, weight : Tensors of shapes (n, d), (n,)
        Weights of mean one over all rows.

    Examples
    --------
    >>> negative_log_likelihood(nn.Identity(), torch.tensor([-0.5, -1.5]), torch.ones(2))
    tensor(1.)
    """
    return -(weight * module(x)).mean()


def state_likelihood(state: Any, phi: Tensor, weight: Tensor) -> Tensor:
    r"""Mean :math:`-w \log(\phi^\top \sigma \phi)` of a state at features of shape (N, D).

    The :func:`negative_log_likelihood` of a state with a `factor` and a `log_trace`, without
    gradients in the features. Rows are read once for the loss and its gradient.

    Examples
    --------
    >>> from qaffde.nn import DensityMatrix
    >>> state = DensityMatrix(torch.tensor([[2.0, 0.0]]))
    >>> state_likelihood(state, torch.ones(3, 2), torch.ones(3)).item()
    0.0
    """
    return weight.mean() * state.log_trace() - _Expectation.apply(state.factor, phi, weight)


def expectation(A: Tensor, E: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Mean w log ‖Ae‖² and its gradient in A, in one pass over the rows of E."""
    total, gradient = A.new_zeros((), dtype=torch.double), torch.zeros_like(A)
    for e, w in zip(E.split(BLOCK), weight.split(BLOCK), strict=True):
        Y = A @ e.T  # (r, n)
        born = Y.square().sum(0)
        total += w @ born.log()
        gradient.addmm_(Y.mul_(w / born), e)
    return total / len(E), gradient * (2 / len(E))


class _Expectation(torch.autograd.Function):
    """The expectation with its gradient, which is computed at once."""

    @staticmethod
    def forward(ctx: Any, A: Tensor, E: Tensor, weight: Tensor) -> Tensor:
        value, gradient = expectation(A, E, weight)
        ctx.save_for_backward(gradient)
        return value.to(A)

    @staticmethod
    def backward(ctx: Any, outer: Tensor) -> tuple[Tensor, None, None]:
        (gradient,) = ctx.saved_tensors
        return outer * gradient, None, None

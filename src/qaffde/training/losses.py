r"""Loss of Algorithm 1: the squared error of the kernel over pairs of points.

.. math:: \frac1m \sum_i \bigl( k_\gamma(x_i', x_i'') - \hat k(x_i', x_i'') \bigr)^2

The paper means two approximations :math:`\hat k` of the same kernel. They need frequencies of
different scale: the spectrum of :math:`k_{\gamma/2}` for the squared, of :math:`k_\gamma` (wider
by √2) for the plain one.

Densities are trained by their likelihood, :func:`negative_log_likelihood`.
"""

from typing import Any

import torch
from torch import Tensor, nn

from qaffde.nn import DensityMatrix

BLOCK = 1024
"""Rows whose coordinates stay in the cache between the loss and its gradient."""


def squared_loss(inner: Tensor, kernel: Tensor) -> Tensor:
    """Mean (k_γ − ⟨φ, φ⟩²)²: the features of a density matrix (paper, Section 3.1).

    Parameters
    ----------
    inner : Tensor of shape (n,)
        Inner products ⟨φ(x'), φ(x'')⟩, which come to approximate k_{γ/2} = √k_γ.
    kernel : Tensor of shape (n,)
        The kernel k_γ of the same pairs.

    Examples
    --------
    >>> from torch import tensor
    >>> squared_loss(tensor([1.0, 0.5]), tensor([1.0, 0.25]))
    tensor(0.)
    """
    return (inner.square() - kernel).square().mean()


def plain_loss(inner: Tensor, kernel: Tensor) -> Tensor:
    """Mean (k_γ − ⟨φ, φ⟩)²: the paper's listing, where the inner product is the kernel itself.

    Such features suit linear models. For a density, the Born rule squares the inner product, and
    would give the density of k_γ² = k_{2γ}, that of a bandwidth smaller by √2.

    Parameters
    ----------
    inner : Tensor of shape (n,)
        Inner products ⟨φ(x'), φ(x'')⟩, which come to approximate k_γ.
    kernel : Tensor of shape (n,)
        The kernel k_γ of the same pairs.

    Examples
    --------
    >>> from torch import tensor
    >>> plain_loss(tensor([1.0, 0.5]), tensor([1.0, 0.25]))
    tensor(0.0312)
    """
    return (inner - kernel).square().mean()


def negative_log_likelihood(
    module: nn.Module, x: Tensor, weight: Tensor, *context: Tensor
) -> Tensor:
    r"""Mean :math:`-w \log p(x)` over a batch: weights of mean one over all the rows.

    Batches are not divided by their own weight, so that their mean over an epoch is the loss of
    all rows.

    Parameters
    ----------
    module : nn.Module
        A :class:`~qaffde.nn.Density`, or any module from rows to log-probabilities.
    x : Tensor of shape (n, d)
    weight : Tensor of shape (n,)
    *context : Tensor of shape (n, k)
        What the density is conditional on, if anything; passed on to it.

    Examples
    --------
    >>> import math, torch
    >>> from qaffde.nn import Density
    >>> class Uniform(Density):
    ...     def log_prob(self, x):
    ...         return torch.zeros(len(x)) - math.log(2)
    >>> negative_log_likelihood(Uniform(), torch.rand(3, 1), torch.ones(3))
    tensor(0.6931)
    """
    return -(weight * module(x, *context)).mean()


def state_likelihood(state: DensityMatrix, E: Tensor, weight: Tensor) -> Tensor:
    r"""Mean :math:`-w \log(e^\top \sigma e)`, the :func:`negative_log_likelihood` of a state.

    Rows are read once for the loss and its gradient: where they are many, reading them takes
    longer than the arithmetic.

    Parameters
    ----------
    state : DensityMatrix
    E : Tensor of shape (N, n)
        Coordinates, which no gradient is asked of.
    weight : Tensor of shape (N,)

    Examples
    --------
    >>> state = DensityMatrix(torch.tensor([[2.0, 0.0]]))
    >>> state_likelihood(state, torch.ones(3, 2), torch.ones(3)).item()
    0.0
    """
    log_trace: Tensor = weight.mean() * state.log_trace()
    return log_trace - _Expectation.apply(state.factor, E, weight)


class _Expectation(torch.autograd.Function):
    """Mean w log ‖Ae‖² with its gradient in A, in one pass over the rows."""

    @staticmethod
    def forward(ctx: Any, A: Tensor, E: Tensor, weight: Tensor) -> Tensor:
        total, gradient = A.new_zeros((), dtype=torch.double), torch.zeros_like(A)
        for e, w in zip(E.split(BLOCK), weight.split(BLOCK), strict=True):
            Y = e @ A.T
            born = Y.square().sum(-1)
            total += w @ born.log()
            gradient.addmm_((Y * (w / born)[:, None]).T, e)
        ctx.save_for_backward(gradient * (2 / len(E)))
        return (total / len(E)).to(A)

    @staticmethod
    def backward(ctx: Any, outer: Tensor) -> tuple[Tensor, None, None]:
        (gradient,) = ctx.saved_tensors
        return outer * gradient, None, None

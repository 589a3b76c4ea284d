"""Contractions of tensor trains: matrices ρ and amplitudes, carried from part to part."""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

BLOCK = 512
"""Rows whose amplitudes stay in the cache between the likelihood and its gradient."""
SCALE_EVERY = 8
"""Parts after which amplitudes are divided by their size."""


def carry(rho: Tensor, W: Tensor, Q: Tensor) -> Tensor:
    """Matrices (n, b, b) that a part makes of those before it, ρ (n, a, a)."""
    moved = W.T @ rho @ W
    return moved * Q if Q.ndim == 3 else moved * Q[:, :, None] * Q[:, None, :]


def carry_back(behind: Tensor, W: Tensor, Q: Tensor) -> Tensor:
    """Matrices (n, a, a) that a part makes of those behind it (n, b, b)."""
    return W @ (behind * (Q if Q.ndim == 3 else Q[:, :, None] * Q[:, None, :])) @ W.T


def log_norm(start: Tensor, mixers: Sequence[Tensor], v: Iterable[Tensor], end: Tensor) -> Tensor:
    r"""Logarithm (n,) of :math:`\lVert S\, W_1 \operatorname{diag}(v_1) \cdots E \rVert^2`.

    S is of shape (s, a), each W (a, b), v (n, b) and E (b, r). Amplitudes are divided by their
    sizes on the way: products of many parts stay numbers. Rows come last in memory, where products
    with small matrices take a third of the time.
    """
    each = iter(v)
    H = (start @ mixers[0])[..., None] * next(each).T  # (s, b, n)
    log_p = start.new_zeros(())
    for k, (W, own) in enumerate(zip(mixers[1:], each, strict=True), 1):
        if k % SCALE_EVERY == 0:
            size = H.detach().abs().amax((0, 1)).clamp(min=torch.finfo(H.dtype).tiny)
            log_p, H = log_p + 2 * size.log(), H / size
        H = (W.T @ H) * own.T
    return log_p + (end.T @ H).square().sum((0, 1)).log()


def unit_trace(rho: Tensor) -> tuple[Tensor, Tensor]:
    """Matrices (n, a, a) of trace one, and the traces (n,) they had."""
    mass = rho.diagonal(dim1=1, dim2=2).sum(1)
    return rho / mass[:, None, None], mass


def root_factor(matrix: Tensor) -> Tensor:
    """A matrix F (n, r) with FFᵀ = M, where M (n, n) is positive semidefinite."""
    lam, U = torch.linalg.eigh(matrix)
    large = lam > 1e-15 * lam[-1]
    return U[:, large] * lam[large].sqrt()


def log_likelihood(
    weight: Tensor,
    e: Sequence[Tensor],
    mixers: Sequence[Tensor],
    loadings: Sequence[Tensor],
    end: Tensor,
) -> Tensor:
    r"""Mean :math:`w \log \lVert \Psi \rVert^2` of rows, whose gradient comes in the same pass.

    Each part has its functions e (n, K), without gradients, a mixer (a, b), the first one row, and
    loadings (b, K).
    """
    if not torch.is_grad_enabled():
        v = [(V @ f.T).T for f, V in zip(e, loadings, strict=True)]
        return (weight * log_norm(end.new_ones(1, 1), mixers, v, end)).mean()
    return _LogLikelihood.apply(weight, e, *mixers, *loadings, end)


class _LogLikelihood(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, e: Sequence[Tensor], *tensors: Tensor) -> Tensor:
        gradients = [torch.zeros_like(tensor) for tensor in tensors]
        total = weight.new_zeros((), dtype=torch.float64)
        for k in range(0, len(weight), BLOCK):
            rows = slice(k, k + BLOCK)
            total += _add_gradients(weight[rows], [f[rows] for f in e], tensors, gradients)
        ctx.save_for_backward(*gradients)
        ctx.n_rows = len(weight)
        return (total / len(weight)).to(weight)

    @staticmethod
    def backward(ctx: Any, outer: Tensor) -> tuple[Tensor | None, ...]:
        share = outer / ctx.n_rows
        return None, None, *(share * gradient for gradient in ctx.saved_tensors)


def _add_gradients(
    weight: Tensor, e: Sequence[Tensor], tensors: Sequence[Tensor], gradients: Sequence[Tensor]
) -> Tensor:
    """Sum of w log ‖Ψ‖² of a block, which adds its gradients to those of the tensors."""
    d = len(e)
    (mixers, loadings, end), (dW, dV, dE) = (
        (each[:d], each[d:-1], each[-1]) for each in (tensors, gradients)
    )
    v = [f @ V.T for f, V in zip(e, loadings, strict=True)]
    before, H = [mixers[0].expand(len(weight), -1)], [mixers[0] * v[0]]
    scales = {}
    log_p = torch.zeros_like(weight)
    for k, W in enumerate(mixers[1:], 1):
        if k % SCALE_EVERY == 0:
            scales[k] = H[-1].abs().amax(1, keepdim=True).clamp(min=torch.finfo(W.dtype).tiny)
            log_p += 2 * scales[k][:, 0].log()
            H[-1] = H[-1] / scales[k]
        before.append(H[-1] @ W)
        H.append(before[-1] * v[k])
    Y = H[-1] @ end
    born = Y.square().sum(1)
    slope = Y * (2 * weight / born)[:, None]
    dE.addmm_(H[-1].T, slope)
    slope = slope @ end.T
    for k in range(len(e) - 1, -1, -1):
        dV[k].addmm_((slope * before[k]).T, e[k])
        slope *= v[k]
        if k:
            dW[k].addmm_(H[k - 1].T, slope)
            slope = slope @ mixers[k].T
            if k in scales:
                slope /= scales[k]
    dW[0].add_(slope.sum(0, keepdim=True))
    return weight.double() @ (log_p + born.log()).double()

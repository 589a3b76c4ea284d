"""Contractions of tensor trains: matrices ρ and amplitudes, carried from part to part."""

from collections.abc import Sequence

import torch
from torch import Tensor

NEGLIGIBLE = 1e-15
"""Share of the largest eigenvalue of a matrix that its factor leaves out."""


def carry(rho: Tensor, W: Tensor, Q: Tensor) -> Tensor:
    """Matrices (n, b, b) that a part makes of those before it, ρ (n, a, a)."""
    moved = W.T @ rho @ W
    return moved * Q if Q.ndim == 3 else moved * Q[:, :, None] * Q[:, None, :]


def carry_back(behind: Tensor, W: Tensor, Q: Tensor) -> Tensor:
    """Matrices (n, a, a) that a part makes of those behind it (n, b, b)."""
    return W @ (behind * (Q if Q.ndim == 3 else Q[:, :, None] * Q[:, None, :])) @ W.T


def log_norm(start: Tensor, mixers: Sequence[Tensor], v: Sequence[Tensor], end: Tensor) -> Tensor:
    r"""Logarithm (n,) of :math:`\lVert S\, W_1 \operatorname{diag}(v_1) \cdots E \rVert^2`.

    Amplitudes are divided by their norms on the way: products of many parts stay numbers.

    Parameters
    ----------
    start : Tensor of shape (s, a)
    mixers : sequence of Tensors of shape (a, b)
    v : sequence of Tensors of shape (n, b)
    end : Tensor of shape (b, r)
    """
    H, log_p = (start @ mixers[0]) * v[0][:, None], start.new_zeros(())
    for k, W in enumerate(mixers[1:], 1):
        size = H.detach().abs().amax((1, 2)).clamp(min=torch.finfo(H.dtype).tiny)
        log_p = log_p + 2 * size.log()
        H = ((H / size[:, None, None]) @ W) * v[k][:, None]
    return log_p + (H @ end).square().sum((1, 2)).log()


def unit_trace(rho: Tensor) -> tuple[Tensor, Tensor]:
    """Matrices (n, a, a) of trace one, and the traces (n,) they had."""
    mass = rho.diagonal(dim1=1, dim2=2).sum(1)
    return rho / mass[:, None, None], mass


def root_factor(matrix: Tensor) -> Tensor:
    """A matrix F (n, r) with FFᵀ = M, where M (n, n) is positive semidefinite."""
    lam, U = torch.linalg.eigh(matrix)
    large = lam > NEGLIGIBLE * lam[-1]
    return U[:, large] * lam[large].sqrt()

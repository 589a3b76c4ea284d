r"""Base measures: their densities and characteristic functions (DESIGN §4).

The characteristic function :math:`\chi(\omega) = \int e^{i \omega \cdot x} d\mu(x)` is all that
the calculus of Fourier features needs. Gram matrices take it at all sums and differences of D
frequencies, and those pairs are evaluated in D × D products, never as D × D × d differences.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor


def gram_matrix(
    W: Tensor, b: Tensor, a: Tensor, characteristic: Callable[[Tensor], Tensor]
) -> Tensor:
    """Gram matrix for any measure, from its characteristic function alone.

    Row by row, in O(D²d) time and O(Dd) memory. Measures whose pairs factorize do better; this is
    the fallback for the others, and the reference for all.

    Parameters
    ----------
    W, b, a : Tensors of shapes (D, d), (D,), (D,)
    characteristic : callable
        Maps frequencies of shape (D, d) to complex values of shape (D,).

    Returns
    -------
    Tensor of shape (D, D)
    """

    def row(w: Tensor, phase: Tensor) -> Tensor:
        difference = torch.exp(1j * (phase - b)) * characteristic(w - W)
        total = torch.exp(1j * (phase + b)) * characteristic(w + W)
        return (difference + total).real

    rows = torch.stack([row(w, phase) for w, phase in zip(W, b, strict=True)])
    return 0.5 * torch.outer(a, a) * rows


def range_eigenpairs(G: Tensor, tolerance: float) -> tuple[Tensor, Tensor]:
    r"""Eigenpairs of a positive semidefinite matrix on its range: all that whitening needs.

    Powers of G on its range are :math:`U \operatorname{diag}(\lambda^p) U^\top`. Eigenvalues below
    `tolerance` times the largest belong to combinations of features that vanish μ-almost
    everywhere: dividing by them would only magnify rounding.

    Returns
    -------
    U : Tensor of shape (D, n)
    lam : Tensor of shape (n,), rising

    Examples
    --------
    >>> U, lam = range_eigenpairs(torch.diag(torch.tensor([4.0, 0.0])), 1e-6)
    >>> (U * lam.rsqrt()) @ U.T
    tensor([[0.5000, 0.0000],
            [0.0000, 0.0000]])
    """
    lam, U = torch.linalg.eigh(G)
    keep = lam > tolerance * lam[-1]
    return U[:, keep], lam[keep]


def log_box_density(X: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """Log-density of the uniform law on a box; −∞ outside."""
    inside = ((X >= lower) & (X <= upper)).all(-1)
    return torch.where(inside, -(upper - lower).log().sum(), -torch.inf)


def box_characteristic(omega: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """χ(ω) = Π_t exp(iω_t c_t) sinc(ω_t L_t / 2), center c and widths L; ω of shape (..., d)."""
    center, width = (lower + upper) / 2, upper - lower
    modulus = torch.sinc(omega * width / (2 * math.pi)).prod(-1)
    return torch.polar(modulus.abs(), omega @ center) * modulus.sign()


def box_pair_characteristics(W: Tensor, b: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """Re[e^{i(b_i − b_j)} χ(w_i − w_j) + e^{i(b_i + b_j)} χ(w_i + w_j)] for the box."""
    u = b + W @ ((lower + upper) / 2)
    scaled = W * (upper - lower) / (2 * math.pi)
    total = torch.zeros(())
    for sign in (1.0, -1.0):
        term = torch.cos(u[:, None] - sign * u)
        for column in scaled.T:
            term = term * torch.sinc(column[:, None] - sign * column)
        total = total + term
    return total


def log_gaussian_density(X: Tensor, mean: Tensor, cholesky: Tensor) -> Tensor:
    """Log-density of N(mean, LLᵀ), finite for every finite X.

    Parameters
    ----------
    X : Tensor of shape (n, d)
    mean : Tensor of shape (..., d)
    cholesky : Tensor of shape (..., d, d), lower triangular L

    Returns
    -------
    Tensor of shape (..., n)
    """
    eye = torch.eye(X.shape[-1], dtype=X.dtype, device=X.device)
    inverse = torch.linalg.solve_triangular(cholesky, eye, upper=False)
    centered = X - mean[..., None, :]  # (..., n, d)
    whitened = centered @ inverse.mT
    square = whitened.square().sum(-1).clamp(max=torch.finfo(X.dtype).max / 2)
    log_det = cholesky.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    return -0.5 * square - log_det[..., None] - 0.5 * X.shape[-1] * math.log(2 * math.pi)


def gaussian_characteristic(omega: Tensor, mean: Tensor, covariance: Tensor) -> Tensor:
    """χ(ω) = exp(iω·m − ½ωᵀΣω); ω of shape (..., d)."""
    square = ((omega @ covariance) * omega).sum(-1)
    return torch.polar(torch.exp(-0.5 * square), omega @ mean)


def gaussian_pair_characteristics(
    W: Tensor, b: Tensor, mean: Tensor, covariance: Tensor
) -> Tensor:
    """Re[e^{i(b_i − b_j)} χ(w_i − w_j) + e^{i(b_i + b_j)} χ(w_i + w_j)] for a Gaussian."""
    u = b + W @ mean
    cosines, sines = torch.outer(u.cos(), u.cos()), torch.outer(u.sin(), u.sin())
    cross = W @ covariance @ W.T
    square = cross.diagonal()
    half = -0.5 * (square[:, None] + square)
    return (cosines + sines) * (half + cross).exp() + (cosines - sines) * (half - cross).exp()

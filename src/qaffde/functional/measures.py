r"""Base measures: their densities and characteristic functions (DESIGN §4).

The characteristic function :math:`\chi(\omega) = \int e^{i \omega \cdot x} d\mu(x)` is all that
the calculus of Fourier features needs. Gram matrices take it at all sums and differences of D
frequencies, and those pairs are evaluated in D × D products, never as D × D × d differences.
"""

import math

import torch
from torch import Tensor


def log_box_density(X: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """Log-density of the uniform law on a box; −∞ outside."""
    inside = ((X >= lower) & (X <= upper)).all(-1)
    return torch.where(inside, -(upper - lower).log().sum(), -torch.inf)


def box_characteristic(omega: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """χ(ω) = Π_t exp(iω_t c_t) sinc(ω_t L_t / 2), centre c and widths L; ω of shape (..., d)."""
    centre, width = (lower + upper) / 2, upper - lower
    modulus = torch.sinc(omega * width / (2 * math.pi)).prod(-1)
    return torch.polar(modulus.abs(), omega @ centre) * modulus.sign()


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
    centred = X - mean[..., None, :]  # (..., n, d)
    whitened = centred @ inverse.mT
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

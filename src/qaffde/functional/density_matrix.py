r"""The density matrix of the data and its spectrum (paper, Algorithm 2).

.. math:: \rho = \sum_i w_i \, \phi(x_i) \phi(x_i)^\top = V^\top \Lambda V
"""

import math
from numbers import Integral

import torch
from scipy.linalg import blas
from scipy.sparse.linalg import ArpackError, eigsh
from torch import Tensor

from qaffde.functional.fourier import Array, namespace_of, reusable


def add_rank_update(rho: Tensor, phi: Tensor) -> None:
    """Add φᵀφ to the lower triangle of `rho` (D, D), float64 and contiguous, in place.

    Features (n, D) are already multiplied by the root of their weight. On the CPU this is one
    symmetric rank-n update (BLAS ``syrk``): half the work of a product, and in float64 no D × D
    temporary.
    """
    if rho.device.type == "cpu" and phi.dtype == torch.float64:
        # Fortran sees C-ordered arrays transposed: its upper triangle is our lower one.
        blas.dsyrk(1.0, phi.numpy().T, beta=1.0, c=rho.numpy().T, overwrite_c=1)
    elif rho.device.type == "cpu" and phi.dtype == torch.float32:
        rho += torch.from_numpy(blas.ssyrk(1.0, phi.numpy().T).T)
    else:
        rho += (phi.T @ phi).to(rho.dtype)


def symmetrize_lower(rho: Tensor) -> Tensor:
    """Return the symmetric matrix whose lower triangle is that of `rho`."""
    return rho.tril() + rho.tril(-1).T


def leading_eigenpairs(M: Tensor, rank: int, tolerance: float = 0.0) -> tuple[Tensor, Tensor]:
    """Largest `rank` eigenvalues, clipped at zero, and their eigenvectors.

    Parameters
    ----------
    M : Tensor of shape (..., D, D)
        Symmetric matrices.
    rank : int
    tolerance : float, default=0.0
        Relative error of the eigenvalues that is good enough: where few are wanted, Lanczos
        iterations find them, from the same start in every call.

    Returns
    -------
    lam : Tensor of shape (..., rank), in falling order
    V : Tensor of shape (..., rank, D), eigenvectors as rows, as in the paper

    Examples
    --------
    >>> lam, V = leading_eigenpairs(torch.diag(torch.tensor([1.0, 3.0])), rank=1)
    >>> lam.item(), V.abs().tolist()
    (3.0, [[0.0, 1.0]])
    """
    if tolerance > 0 and 5 * rank < M.shape[-1]:  # more are found faster with all the others
        found = [_lanczos(matrix, rank, tolerance) for matrix in M.reshape(-1, *M.shape[-2:])]
        lam, vectors = (torch.stack(part) for part in zip(*found, strict=True))
        return lam.reshape(*M.shape[:-2], rank), vectors.reshape(*M.shape[:-2], rank, -1)
    lam, vectors = torch.linalg.eigh(M)
    return (
        lam[..., -rank:].flip(-1).clamp(min=0),
        vectors[..., -rank:].flip(-1).mT.contiguous(),
    )


def _lanczos(M: Tensor, rank: int, tolerance: float) -> tuple[Tensor, Tensor]:
    """Leading eigenpairs of one matrix by ARPACK, or exactly where it does not converge."""
    dtype = torch.float32 if tolerance >= 1e-5 else torch.float64
    start = torch.randn(len(M), generator=torch.Generator().manual_seed(0), dtype=dtype)
    try:
        found = eigsh(M.to("cpu", dtype).numpy(), rank, v0=start.numpy(), tol=tolerance)
    except ArpackError:
        return leading_eigenpairs(M, rank)
    lam, vectors = (torch.from_numpy(part).to(M) for part in found)
    order = lam.argsort(descending=True)
    return lam[order].clamp(min=0), vectors[:, order].T.contiguous()


def resolve_rank(rank: int | float | str, lam: Tensor, min_trace: float) -> int:
    """Turn the user's `rank` into a number of eigenpairs.

    Parameters
    ----------
    rank : int, float or "auto"
        A number, a share of D in (0, 1], or as few as hold the share `min_trace` of the trace.
    lam : Tensor of shape (D,)
        All eigenvalues, in falling order.
    min_trace : float

    Examples
    --------
    >>> lam = torch.tensor([0.7, 0.2, 0.1, 0.0])
    >>> resolve_rank(2, lam, 1.0), resolve_rank(0.25, lam, 1.0), resolve_rank("auto", lam, 0.95)
    (2, 1, 3)
    """
    if isinstance(rank, str):
        share = lam.cumsum(0) / lam.sum()
        return min(int((share < min_trace).sum()) + 1, len(lam))
    if isinstance(rank, Integral):
        return min(int(rank), len(lam))
    return max(1, math.ceil(round(rank * len(lam), 6)))


def born_rule(phi: Array, L: Array) -> Array:
    r"""Born rule :math:`\phi^\top \rho\, \phi = \lVert L \phi \rVert^2`, not divided by a trace.

    It is of shape (...), or (..., C) for the factors (C, r, D) of C density matrices.

    Parameters
    ----------
    phi, L : Arrays of shapes (..., D), and (r, D) or (C, r, D)

    Examples
    --------
    >>> born_rule(torch.tensor([[1.0, 2.0]]), torch.eye(2))
    tensor([5.])
    """
    amplitudes = phi @ L.reshape(-1, L.shape[-1]).T
    squares = namespace_of(phi).square(amplitudes, out=reusable(amplitudes))
    return squares.reshape(*phi.shape[:-1], *L.shape[:-1]).sum(-1)


def born_mass(L: Tensor, G: Tensor) -> Tensor:
    r"""Integral :math:`\operatorname{tr}(L G L^\top)` of the Born rule, of shape () or (C,).

    Parameters
    ----------
    L : Tensor of shape (r, D) or (C, r, D)
    G : Tensor of shape (D, D), or (D,) for a diagonal matrix

    Examples
    --------
    >>> born_mass(torch.tensor([[1.0, 2.0]]), torch.tensor([1.0, 0.5]))
    tensor(3.)
    """
    image = L * G if G.ndim == 1 else L @ G
    return (image * L).sum((-2, -1))

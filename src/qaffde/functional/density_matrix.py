r"""The density matrix of the data and its spectrum (paper, Algorithm 2).

.. math:: \rho = \sum_i w_i \, \phi(x_i) \phi(x_i)^\top = V^\top \Lambda V
"""

import math
from numbers import Integral

import torch
from scipy.linalg import blas
from torch import Tensor


def add_rank_update(rho: Tensor, phi: Tensor) -> None:
    """Add φᵀφ to the lower triangle of `rho`, in place.

    A batch is one symmetric rank-n update (BLAS ``syrk``): half the work of a matrix product, and
    in float64 no D × D temporary. Off the CPU, where torch offers no such routine, it is a plain
    product.

    Parameters
    ----------
    rho : Tensor of shape (D, D), float64, contiguous
    phi : Tensor of shape (n, D)
        Features, each row already multiplied by the square root of its weight.
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
    lower = rho.tril()
    return lower + lower.tril(-1).T


def leading_eigenpairs(rho: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    """Largest `rank` eigenvalues, clipped at zero, and their eigenvectors.

    Returns
    -------
    lam : Tensor of shape (rank,), in falling order
    V : Tensor of shape (rank, D), eigenvectors as rows, as in the paper

    Examples
    --------
    >>> lam, V = leading_eigenpairs(torch.diag(torch.tensor([1.0, 3.0])), rank=1)
    >>> lam.item(), V.abs().tolist()
    (3.0, [[0.0, 1.0]])
    """
    lam, vectors = torch.linalg.eigh(rho)
    return lam[-rank:].flip(0).clamp(min=0), vectors[:, -rank:].flip(1).T.contiguous()


def resolve_rank(rank: int | float | str, lam: Tensor, min_trace: float) -> int:
    """Turn the user's `rank` into a number of eigenpairs.

    Parameters
    ----------
    rank : int, float or "auto"
        A number, a share of D in (0, 1], or as few as hold `min_trace` of the trace.
    lam : Tensor of shape (D,)
        All eigenvalues, in falling order.
    min_trace : float
        Share of the trace to keep, used with "auto".

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

r"""The Gram matrix of Fourier features in L²(μ), and its eigenpairs for whitening (DESIGN §4).

.. math::

    G_{ij} = \int \phi_i \phi_j \, d\mu = \tfrac12 a_i a_j \operatorname{Re}\bigl[
    e^{i(b_i - b_j)} \chi(w_i - w_j) + e^{i(b_i + b_j)} \chi(w_i + w_j) \bigr]
"""

from collections.abc import Callable

import torch
from torch import Tensor


def gram_matrix(
    W: Tensor, b: Tensor, a: Tensor, characteristic: Callable[[Tensor], Tensor]
) -> Tensor:
    """Gram matrix for any measure, from its characteristic function alone.

    Row by row, in O(D²d) time and O(Dd) memory. Measures whose pairs factorise do better; this is
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

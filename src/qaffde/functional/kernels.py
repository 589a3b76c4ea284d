r"""The Gaussian kernel whose mean is the density estimate (paper, Eq. 1).

.. math:: k_\gamma(x, y) = \exp(-\gamma \lVert x - y \rVert^2), \quad \gamma = 1 / (2 h^2).
"""

import math

from torch import Tensor


def gamma_from_bandwidth(h: Tensor) -> Tensor:
    """Turn bandwidths into the paper's γ = 1/(2h²): the only place where this is done.

    Parameters
    ----------
    h : Tensor, any shape
        Standard deviation of the kernel, one per column or one for all.
    """
    return 0.5 / h.square()


def gaussian_kernel(X: Tensor, Y: Tensor, h: Tensor) -> Tensor:
    """Gaussian kernel k_γ between all rows of `X` and all rows of `Y`.

    Parameters
    ----------
    X : Tensor of shape (n, d)
    Y : Tensor of shape (m, d)
    h : Tensor of shape () or (d,)
        Bandwidth.

    Returns
    -------
    Tensor of shape (n, m)

    Examples
    --------
    >>> from torch import tensor
    >>> gaussian_kernel(tensor([[0.0]]), tensor([[0.0], [1.0]]), tensor(1.0))
    tensor([[1.0000, 0.6065]])
    """
    root_gamma = gamma_from_bandwidth(h).sqrt()
    difference = (X * root_gamma)[:, None] - (Y * root_gamma)
    return difference.square().sum(-1).neg().exp()


def log_kernel_mass(h: Tensor, n_dims: int) -> Tensor:
    r"""Logarithm of :math:`M_\gamma = \int k_\gamma(x, y)\,dy = (2 \pi h^2)^{d/2}`.

    Parameters
    ----------
    h : Tensor of shape () or (d,)
        Bandwidth.
    n_dims : int
        The dimension d.
    """
    return 0.5 * (math.pi / gamma_from_bandwidth(h)).log().expand(n_dims).sum()

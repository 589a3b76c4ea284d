"""Pairs of points on which the kernel is fitted (paper, Algorithm 1, first line).

A set of pairs is one tensor of shape (n, 2, d): a row holds x' and x''.
"""

import torch
from torch import Generator, Tensor

from qaffde.functional import gamma_from_bandwidth


def random_pairs(X: Tensor, n_pairs: int, generator: Generator) -> Tensor:
    """Both points drawn from the rows of `X`, with replacement: the paper's pairs.

    Examples
    --------
    >>> random_pairs(torch.zeros(50, 3), 10, torch.Generator().manual_seed(0)).shape
    torch.Size([10, 2, 3])
    """
    return X[torch.randint(len(X), (n_pairs, 2), generator=generator)]


def near_pairs(X: Tensor, n_pairs: int, bandwidth: Tensor, generator: Generator) -> Tensor:
    """One row of `X` and a point beside it, such that k_γ(x', x'') is uniform on (0, 1).

    Random pairs are almost all many bandwidths apart, the more so in many dimensions, and show
    the kernel only where it is zero. Here x'' = x' + h·r·u with a random direction u and a
    Rayleigh length r, in any dimension (in the plane that is Gaussian noise of deviation h).

    Parameters
    ----------
    X : Tensor of shape (n, d)
    n_pairs : int
    bandwidth : Tensor of shape () or (d,)
    generator : torch.Generator

    Examples
    --------
    >>> generator, h = torch.Generator().manual_seed(0), torch.ones(8)
    >>> pairs = near_pairs(torch.zeros(1, 8), 100_000, h, generator)
    >>> pair_kernel(pairs, h).quantile(torch.tensor([0.25, 0.5, 0.75])).round(decimals=2)
    tensor([0.2500, 0.5000, 0.7500])
    """
    left = X[torch.randint(len(X), (n_pairs,), generator=generator)]
    noise = torch.randn(left.shape, generator=generator, dtype=X.dtype)
    direction = noise / noise.norm(dim=1, keepdim=True)
    uniform = torch.rand(n_pairs, 1, generator=generator, dtype=X.dtype)
    length = (-2 * torch.log1p(-uniform)).sqrt()
    return torch.stack([left, left + bandwidth * length * direction], dim=1)


def sample_pairs(
    X: Tensor, n_pairs: int, bandwidth: Tensor, generator: Generator, *, near_share: float = 0.25
) -> Tensor:
    """Mix of near and random pairs, in random order.

    Parameters
    ----------
    X : Tensor of shape (n, d)
    n_pairs : int
    bandwidth : Tensor of shape () or (d,)
    generator : torch.Generator
    near_share : float, default=0.25
        Share of near pairs, in [0, 1].

    Returns
    -------
    Tensor of shape (n_pairs, 2, d)
    """
    n_near = round(near_share * n_pairs)
    near = near_pairs(X, n_near, bandwidth, generator)
    pairs = torch.cat([near, random_pairs(X, n_pairs - n_near, generator)])
    return pairs[torch.randperm(n_pairs, generator=generator)]


def pair_kernel(pairs: Tensor, bandwidth: Tensor) -> Tensor:
    """Gaussian kernel k_γ(x', x'') of every pair, of shape (n,).

    Examples
    --------
    >>> pair_kernel(torch.tensor([[[0.0], [1.0]]]), torch.tensor(1.0))
    tensor([0.6065])
    """
    difference = pairs[:, 0] - pairs[:, 1]
    return (-gamma_from_bandwidth(bandwidth) * difference.square()).sum(1).exp()

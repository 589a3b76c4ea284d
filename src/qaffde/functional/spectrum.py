"""What the spectrum of a density matrix says about the state."""

import torch
from torch import Tensor


def purity(lam: Tensor) -> Tensor:
    """Purity tr σ² = Σλ²: one for a pure state, 1/r for r equal eigenvalues.

    Examples
    --------
    >>> purity(torch.tensor([0.5, 0.5]))
    tensor(0.5000)
    """
    return lam.square().sum()


def von_neumann_entropy(lam: Tensor) -> Tensor:
    """Von Neumann entropy −tr σ log σ = −Σ λ log λ, in nats: log r for r equal eigenvalues.

    Examples
    --------
    >>> von_neumann_entropy(torch.tensor([0.5, 0.5, 0.0]))
    tensor(0.6931)
    """
    return -torch.special.xlogy(lam, lam).sum()

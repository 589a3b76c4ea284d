r"""The siamese network of Algorithm 1: two points through one map, then the inner product.

It learns in units where the bandwidth is one and the data are centered, :math:`z = (x - c) / h`,
so that one learning rate serves all data: w·x + b = (w h)·z + (b + w·c).
"""

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from qaffde.nn import FourierFeatures


class Siamese(nn.Module, ABC):
    """Inner products ⟨φ(z'), φ(z'')⟩ of pairs, with φ to be learned."""

    @abstractmethod
    def forward(self, pairs: Tensor) -> Tensor:
        """Inner products of shape (n,) of pairs of shape (n, 2, d)."""

    @abstractmethod
    def features(self) -> FourierFeatures:
        """The learned features, as a frozen map in the units of the data."""


class FreeSiamese(Siamese):
    r"""All frequencies and phases are learned, each on its own: the paper's network.

    .. math:: \langle \phi(x'), \phi(x'') \rangle = \sum_i \tfrac12 a_i^2 \bigl[
              \cos(w_i \cdot (x' - x'')) + \cos(w_i \cdot (x' + x'') + 2 b_i) \bigr]

    The sum form has as many cosines as the product, and half its temporaries.

    Parameters
    ----------
    features : FourierFeatures
        The start.
    location, scale : Tensors of shape (d,)
        The units c and h.
    """

    location: Tensor
    scale: Tensor

    def __init__(self, features: FourierFeatures, location: Tensor, scale: Tensor) -> None:
        super().__init__()
        b = torch.remainder(features.b + features.W @ location, 2 * math.pi)
        self.map = FourierFeatures(features.W * scale, b, features.a, learnable=True)
        self.register_buffer("location", location)
        self.register_buffer("scale", scale)

    def forward(self, pairs: Tensor) -> Tensor:
        """Inner products of shape (n,)."""
        W, b, a = self.map.W, self.map.b, self.map.a
        difference = _difference(pairs) @ W.T  # (n, D)
        total = torch.addmm(2 * b, pairs.sum(1), W.T)  # (n, D)
        return 0.5 * (difference.cos() @ a.square() + total.cos() @ a.square())

    def features(self) -> FourierFeatures:
        """The learned map."""
        W = self.map.W.detach() / self.scale
        return FourierFeatures(W, self.map.b.detach() - W @ self.location, self.map.a)


class PairedSiamese(Siamese):
    r"""Cosine and sine of a frequency stay together, so only their n frequencies are learned.

    .. math:: \langle \phi(x'), \phi(x'') \rangle = a_0^2 + \sum_j a_j^2 \cos(w_j \cdot (x' - x''))

    depends on the difference alone, as the Gaussian kernel does, and is exactly one at zero. That
    is a quarter of the cosines of the free network, and far fewer ways to learn the pairs by
    heart: set free, cosine and sine drift apart, and the kernel at zero becomes noise.

    Parameters
    ----------
    features : FourierFeatures
        The start, which :func:`is_paired`.
    scale : Tensor of shape (d,)
        The unit h.
    """

    a: Tensor
    b: Tensor
    scale: Tensor

    def __init__(self, features: FourierFeatures, scale: Tensor) -> None:
        super().__init__()
        _, cosine, _ = _thirds(features.W)
        self.W = nn.Parameter(cosine * scale)
        self.register_buffer("a", features.a)
        self.register_buffer("b", features.b)
        self.register_buffer("scale", scale)

    def forward(self, pairs: Tensor) -> Tensor:
        """Inner products of shape (n,)."""
        constant, cosine, _ = _thirds(self.a.square())
        difference = _difference(pairs) @ self.W.T  # (n, D/2)
        return difference.cos() @ cosine + constant.sum()

    def features(self) -> FourierFeatures:
        """The learned map, in the layout of the start."""
        W = self.W.detach() / self.scale
        zero = W.new_zeros(len(self.a) % 2, W.shape[1])
        return FourierFeatures(torch.cat([zero, W, W]), self.b, self.a)


def siamese(features: FourierFeatures, location: Tensor, scale: Tensor) -> Siamese:
    """Network that starts at `features` and keeps their pairs, if they come in pairs."""
    if is_paired(features):
        return PairedSiamese(features, scale)
    return FreeSiamese(features, location, scale)


def is_paired(features: FourierFeatures) -> bool:
    """Whether the features are cosines, then their sines, after a constant if D is odd.

    Examples
    --------
    >>> kinds = ["random", "paired", "orthogonal", "sobol", "lattice"]
    >>> [is_paired(FourierFeatures.draw(kind, 8, torch.ones(2))) for kind in kinds]
    [False, True, True, True, True]
    """
    W_0, W, sine_W = _thirds(features.W)
    b_0, b, sine_b = _thirds(features.b)
    _, a, sine_a = _thirds(features.a)
    return (
        not W_0.any()
        and not b_0.any()
        and torch.equal(W, sine_W)
        and torch.equal(a, sine_a)
        and torch.allclose(b - math.pi / 2, sine_b)
    )


def _thirds(tensor: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Split D rows into a constant (one if D is odd), cosines and sines."""
    n = len(tensor) // 2
    constant, cosine, sine = tensor.split([len(tensor) % 2, n, n])
    return constant, cosine, sine


def _difference(pairs: Tensor) -> Tensor:
    return pairs[:, 0] - pairs[:, 1]

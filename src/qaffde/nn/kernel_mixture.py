"""Mixture of Gaussian kernels that share their axes."""

import math

import torch
from torch import Generator, Tensor

from qaffde.nn.base import Density

KERNELS = 2**21
"""Of all points of a block together."""


class KernelMixture(Density):
    r"""Mixture of K Gaussians, each of one width along the same axes.

    .. math:: p(x) = \lvert\det A\rvert \sum_k w_k\, N(A^\top (x - m);\, c_k,\, h_k^2 I)

    Parameters
    ----------
    location : Tensor of shape (d,)
        m.
    axes : Tensor of shape (d, d)
        A.
    log_weights : Tensor of shape (K,)
    centers : Tensor of shape (K, d)
        Means of the kernels along the axes.
    widths : Tensor of shape (K,)

    Examples
    --------
    >>> one = torch.ones(1).double()
    >>> density = KernelMixture(0 * one, one[:, None], 0 * one, 0 * one[:, None], one)
    >>> density.log_prob(torch.zeros(1, 1).double())
    tensor([-0.9189], dtype=torch.float64)
    """

    location: Tensor
    axes: Tensor
    log_weights: Tensor
    centers: Tensor
    widths: Tensor

    def __init__(
        self, location: Tensor, axes: Tensor, log_weights: Tensor, centers: Tensor, widths: Tensor
    ) -> None:
        super().__init__()
        for name, value in {
            "location": location,
            "axes": axes,
            "log_weights": log_weights,
            "centers": centers,
            "widths": widths,
        }.items():
            self.register_buffer(name, value)

    @classmethod
    def of_rows(cls, Z: Tensor, weight: Tensor) -> "KernelMixture":
        """Kernels of width one on rows (n, d) of weights (n,): the usual estimate."""
        zero, one = Z.new_zeros(Z.shape[1]), torch.ones_like(weight)
        return cls(
            zero, torch.eye(len(zero), dtype=Z.dtype), (weight / weight.sum()).log(), Z, one
        )

    def log_prob(self, x: Tensor) -> Tensor:
        """Log-density of shape (n,) at points of shape (n, d)."""
        c, d, precision = self.centers, self.axes.shape[0], self.widths.square().reciprocal()
        height = self.log_weights - d * self.widths.log() - c.square().sum(1) * precision / 2
        slopes = torch.cat([c, c.new_full((len(c), 1), -0.5)], 1) * precision[:, None]
        z = (x - self.location) @ self.axes
        z = torch.cat([z, z.square().sum(1, keepdim=True)], 1)
        blocks = z.split(max(1, KERNELS // len(c)))
        log_p = torch.cat([torch.addmm(height, part, slopes.T).logsumexp(1) for part in blocks])
        volume: Tensor = torch.linalg.slogdet(self.axes).logabsdet
        return log_p + volume - d / 2 * math.log(2 * math.pi)

    def sample(self, n: int, generator: Generator | None = None) -> Tensor:
        """Draws of shape (n, d)."""
        k = torch.multinomial(self.log_weights.exp(), n, replacement=True, generator=generator)
        noise = torch.randn(n, len(self.location), generator=generator, dtype=self.axes.dtype)
        z = self.centers[k] + self.widths[k, None] * noise
        return self.location + torch.linalg.solve(self.axes.T, z.T).T

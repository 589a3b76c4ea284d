r"""Densities of images of bytes, by a flow on the logits of noisy pixels.

A byte b with noise u, uniform on [0, 1], is a number :math:`x = (b + u) / 256`, and the flow sees

.. math:: s = \operatorname{logit}(\alpha + (1 - 2 \alpha) x), \qquad
          z = (s - \mu_c) / \sigma_c .
"""

import math

import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import logsigmoid, one_hot

from qaffde.baselines.base import FlowDensity

LEVELS = 256
BLOCK = 4096


class PixelDensity(nn.Module):
    """Log-density of bytes given classes.

    Parameters
    ----------
    flow : FlowDensity
        Of d columns, with the one-hot class as its context.
    location, scale : Tensors of shape (C, d)
        Of logits within each class.
    alpha : float
        Of the logit.
    n_draws : int
        Of the noise, when not training.
    generator : torch.Generator
        Source of all noise.
    """

    location: Tensor
    scale: Tensor
    noise: Tensor

    def __init__(
        self,
        flow: FlowDensity,
        location: Tensor,
        scale: Tensor,
        alpha: float,
        n_draws: int,
        generator: Generator,
    ) -> None:
        super().__init__()
        self.flow, self.alpha, self.generator = flow, alpha, generator
        self.register_buffer("location", location)
        self.register_buffer("scale", scale)
        noise = torch.rand(n_draws, location.shape[1], generator=generator)
        self.register_buffer("noise", noise)

    def forward(self, levels: Tensor, y: Tensor) -> Tensor:
        """Log-densities of shape (n,) of bytes (n, d) of classes (n,), in the mean over noise."""
        if self.training:
            return self._log_prob(levels, torch.rand(levels.shape, generator=self.generator), y)
        scores = [self._log_prob(levels, u.expand(levels.shape), y) for u in self.noise]
        return torch.stack(scores).mean(0)

    def _log_prob(self, levels: Tensor, noise: Tensor, y: Tensor) -> Tensor:
        s, log_slope = logits(levels, noise, self.alpha)
        z = (s - self.location[y]) / self.scale[y]
        context = one_hot(y, len(self.location)).to(z)
        log_scale = self.scale.log().sum(1)[y]
        return self.flow.log_prob(z, context) + log_slope.sum(1) - log_scale


def logits(levels: Tensor, noise: Tensor, alpha: float) -> tuple[Tensor, Tensor]:
    """Logits of noisy bytes, and the logarithm of their slope in x."""
    x = (levels + noise) / LEVELS
    p = alpha + (1 - 2 * alpha) * x
    s = torch.log(p) - torch.log1p(-p)
    return s, math.log(1 - 2 * alpha) - logsigmoid(s) - logsigmoid(-s)


def pixel_scales(
    levels: Tensor, y: Tensor, n_classes: int, alpha: float, generator: Generator
) -> tuple[Tensor, Tensor]:
    """Means and standard deviations of logits within each class, each of shape (C, d)."""
    sums = torch.zeros(2, n_classes, levels.shape[1], dtype=torch.float64)
    for x, c in zip(levels.split(BLOCK), y.split(BLOCK), strict=True):
        s, _ = logits(x, torch.rand(x.shape, generator=generator), alpha)
        sums[0].index_add_(0, c, s.double())
        sums[1].index_add_(0, c, s.double().square())
    mean, square = sums / torch.bincount(y, minlength=n_classes).clamp(min=1)[:, None]
    spread = (square - mean.square()).clamp(min=1e-4)  # a class of one image has none
    return mean.float(), spread.sqrt().float()


def pixel_loss(density: nn.Module, levels: Tensor, y: Tensor) -> Tensor:
    """Mean negative log-density, in nats for each column."""
    log_p: Tensor = density(levels, y)
    return -log_p.mean() / levels.shape[1]

"""A density behind an invertible map."""

from typing import NoReturn

import torch
from torch import Tensor
from torch.distributions import Transform

from qaffde.nn.base import Density


class TransformedDensity(Density):
    r"""Density of x when z = f(x) has the given density.

    .. math:: \log p(x) = \log p_z(f(x)) + \log \lvert \det f'(x) \rvert

    Parameters
    ----------
    density : Density
        Of z.
    transform : torch.distributions.Transform
        f.

    Examples
    --------
    >>> from torch.distributions import AffineTransform
    >>> class Uniform(Density):
    ...     def log_prob(self, z):
    ...         return torch.zeros(len(z))
    >>> half = TransformedDensity(Uniform(), AffineTransform(0.0, 0.5))
    >>> half.log_prob(torch.rand(1, 1)).exp()
    tensor([0.5000])
    """

    def __init__(self, density: Density, transform: Transform) -> None:
        super().__init__()
        self.density, self.transform = density, transform

    def log_prob(self, x: Tensor) -> Tensor:
        """Log-density of shape (...) at x of shape (..., d), −∞ where f has no finite value."""
        z, log_det = encode(self.transform, x)
        log_p = self.density.log_prob(z) + log_det
        return log_p.masked_fill(~z.isfinite().all(-1), -torch.inf)

    def expansion(self) -> NoReturn:
        """Refused: there is no closed form."""
        raise ValueError(
            "behind a transform of whole rows nothing can be integrated or conditioned in closed "
            "form; fit without it, or count draws of sample"
        )


def encode(transform: Transform, x: Tensor) -> tuple[Tensor, Tensor]:
    """Code z of shape (..., d) and log-determinant of shape (...)."""
    z = transform(x)
    log_det = transform.log_abs_det_jacobian(x, z)
    if log_det.ndim == x.ndim:
        return z, log_det.sum(-1)  # column by column
    return z, log_det.expand(x.shape[:-1])

"""Densities of the codes of rows: behind an invertible map, or a network that is learned."""

import math
from collections.abc import Sequence
from copy import deepcopy
from typing import NoReturn

import torch
from torch import Tensor, nn
from torch.distributions import Transform

from qaffde.nn.base import Density


class ImageCoder(nn.Module):
    """Codes of rows by a network, kept within (−1, 1).

    Codes that could run away would leave the base measure. Inputs are centered and scaled by
    tensors of shape (1,) or (d,), and reshaped to (n, *shape) if there is a shape.
    """

    location: Tensor
    scale: Tensor

    def __init__(
        self,
        encoder: nn.Module,
        location: Tensor,
        scale: Tensor,
        shape: Sequence[int] | None = None,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.shape = None if shape is None else tuple(shape)
        self.register_buffer("location", location)
        self.register_buffer("scale", scale)

    @classmethod
    def of(cls, encoder: nn.Module, X: Tensor) -> "ImageCoder":
        """Coder by a copy of an encoder, of pixels of one scale if it has an `image_shape`."""
        shape, d = getattr(encoder, "image_shape", None), X.shape[1]
        if shape is not None and not (isinstance(shape, Sequence) and math.prod(shape) == d):
            raise ValueError(
                f"the encoder's image_shape={shape!r} must be (channels, height, width) of "
                f"product {d}, the number of columns"
            )
        values = X.float() if shape is None else X.float().reshape(-1, 1)
        location, scale = values.mean(0), values.std(0, correction=0)
        scale = torch.where(scale > 0, scale, torch.ones_like(scale))
        return cls(deepcopy(encoder).float(), location, scale, shape)

    def forward(self, x: Tensor) -> Tensor:
        """Codes of shape (n, k) of rows of shape (n, d)."""
        return self.encode(self.inputs(x))

    @torch.no_grad()
    def first_codes(self, X: Tensor) -> Tensor:
        """Codes of shape (n, k) of some rows before training, if the encoder gives any."""
        try:
            codes = self.eval()(X.float())
        except (RuntimeError, ValueError, TypeError) as error:
            raise ValueError(
                f"encoder cannot take rows of {X.shape[1]} columns: {str(error).splitlines()[0]}; "
                "give it an attribute image_shape=(channels, height, width) if it wants images"
            ) from None
        if not isinstance(codes, Tensor) or codes.ndim != 2 or len(codes) != len(X):
            raise ValueError(
                "encoder must return codes of shape (n, k), got "
                f"{tuple(getattr(codes, 'shape', ()))} for n = {len(X)} rows"
            )
        return codes.double()

    def inputs(self, x: Tensor) -> Tensor:
        """Inputs of the encoder: rows, standardized and in the shape of an image."""
        z = (x - self.location) / self.scale
        return z if self.shape is None else z.reshape(len(z), *self.shape)

    def encode(self, inputs: Tensor) -> Tensor:
        """Bounded codes of inputs."""
        return torch.tanh(self.encoder(inputs))


class EncodedDensity(Density):
    """Density of the codes of rows, not of the rows: a network has no inverse."""

    def __init__(self, density: Density, coder: ImageCoder) -> None:
        super().__init__()
        self.density, self.coder = density, coder
        self.requires_grad_(False).eval()

    def log_prob(self, x: Tensor) -> Tensor:
        """Log-densities at the codes of rows of shape (n, d)."""
        return self.density.log_prob(self.coder(x.to(self.coder.location)).double())


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

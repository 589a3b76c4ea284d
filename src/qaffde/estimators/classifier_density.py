"""Densities of all classes at once: shared features, one base measure, one batched factor."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from qaffde.nn import BaseMeasure, FourierFeatures


class Projection(nn.Module):
    """Rows in the units that the features see: z = (x − location) · axes / scale.

    Parameters
    ----------
    location : Tensor of shape (d,)
    scale : Tensor of shape (q,)
    axes : Tensor of shape (d, q), optional
        Orthonormal columns; None leaves the columns as they are.
    """

    location: Tensor
    scale: Tensor
    axes: Tensor | None

    def __init__(self, location: Tensor, scale: Tensor, axes: Tensor | None = None) -> None:
        super().__init__()
        self.register_buffer("location", location)
        self.register_buffer("scale", scale)
        self.register_buffer("axes", axes)

    @property
    def n_components(self) -> int:
        """Number q of coordinates."""
        return len(self.scale)

    def forward(self, x: Tensor) -> Tensor:
        """Coordinates of shape (n, q) of rows of shape (n, d), finite for finite rows."""
        far = torch.finfo(x.dtype).max ** 0.25  # all beyond is as impossible; cos ∞ is NaN
        centred = (x - self.location).clamp(-far, far)
        rotated = centred if self.axes is None else centred @ self.axes
        return (rotated / self.scale).clamp(-far, far)

    def log_volume(self) -> Tensor:
        """Logarithm of the volume that one unit of z has in the units of the data."""
        return self.scale.log().sum()


class ImageCoder(nn.Module):
    """Codes of rows by a network, kept within (−1, 1).

    Fourier features repeat themselves, and a base measure has its mass in one place: codes that
    could run away would be seen by neither.

    Parameters
    ----------
    encoder : nn.Module
        From inputs of shape (n, *shape), or (n, d) without one, to codes of shape (n, k).
    location, scale : Tensors of shape (1,) or (d,)
        Of the inputs.
    shape : sequence of int, optional
        Of one input.
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

    def forward(self, x: Tensor) -> Tensor:
        """Codes of shape (n, k) of rows of shape (n, d)."""
        return self.encode(self.inputs(x))

    def inputs(self, x: Tensor) -> Tensor:
        """What the encoder sees of rows."""
        z = (x - self.location) / self.scale
        return z if self.shape is None else z.reshape(len(z), *self.shape)

    def encode(self, inputs: Tensor) -> Tensor:
        """Bounded codes of inputs."""
        return torch.tanh(self.encoder(inputs))

    def log_volume(self) -> Tensor:
        """Zero: densities are those of the codes."""
        return torch.zeros((), dtype=torch.float64)


class ClassBorn(nn.Module):
    r"""Born densities of C classes on shared features and one base measure.

    .. math:: p(z \mid c) = m(z) \bigl( (1 - \varepsilon) \lVert L_c \phi(z) \rVert^2
              + \varepsilon \bigr)

    with :math:`\operatorname{tr}(L_c G L_c^\top) = 1`, so that each integrates to one. The base
    measure itself is the background that keeps every logarithm finite; it cancels in the
    posterior.

    Parameters
    ----------
    features : FourierFeatures
    factor : Tensor of shape (C, r, D)
        Of any scale.
    measure : BaseMeasure
    epsilon : float
        Weight of the background.
    """

    def __init__(
        self, features: FourierFeatures, factor: Tensor, measure: BaseMeasure, epsilon: float
    ) -> None:
        super().__init__()
        self.features = features
        self.measure = measure
        self.epsilon = epsilon
        self.factor = nn.Parameter(normalized(factor, measure.gram(features)))
        self.requires_grad_(False)

    @property
    def n_classes(self) -> int:
        """The number of classes C."""
        return len(self.factor)

    @property
    def rank(self) -> int:
        """The rank r of each density matrix."""
        return self.factor.shape[1]

    def forward(self, z: Tensor) -> Tensor:
        """Log-densities of shape (n, C) at points of shape (n, d)."""
        log_ratio = log_defended(born_rule(self.features(z), self.factor), self.epsilon)
        return log_ratio + self.measure.log_density(z)[:, None]

    def extra_repr(self) -> str:
        """Show the sizes."""
        return f"n_classes={self.n_classes}, rank={self.rank}"


class ClassDensity(nn.Module):
    """Log-densities of rows in each class, in the units of the data (or of the code).

    Parameters
    ----------
    coder : Projection or ImageCoder
    born : ClassBorn
        Of what the coder makes of rows.
    """

    def __init__(self, coder: Projection | ImageCoder, born: ClassBorn) -> None:
        super().__init__()
        self.coder = coder
        self.born = born
        self.requires_grad_(False).eval()

    def forward(self, x: Tensor) -> Tensor:
        """Log-densities of shape (n, C) at rows of shape (n, d)."""
        z = self.coder(x.to(self.coder.location)).to(self.born.factor)
        log_p: Tensor = self.born(z) - self.coder.log_volume()
        return log_p


def born_rule(phi: Tensor, factor: Tensor) -> Tensor:
    """‖L_c φ‖² of shape (n, C), of features (n, D) and factors (C, r, D), in one product."""
    amplitudes = phi @ factor.flatten(0, 1).T
    return amplitudes.square().unflatten(1, factor.shape[:2]).sum(-1)


def log_defended(born: Tensor, epsilon: float) -> Tensor:
    """Log of (1 − ε) b + ε."""
    return torch.log1p((1 - epsilon) / epsilon * born) + math.log(epsilon)


def masses(factor: Tensor, G: Tensor) -> Tensor:
    """tr(L_c G L_cᵀ) of shape (C,), for a Gram matrix (D, D), or a diagonal one (D,)."""
    image = factor * G if G.ndim == 1 else factor @ G
    return (image * factor).sum((1, 2))


def normalized(factor: Tensor, G: Tensor) -> Tensor:
    """Factors of mass one."""
    return factor / masses(factor, G).sqrt()[:, None, None]

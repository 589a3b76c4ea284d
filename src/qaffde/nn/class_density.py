"""Densities of all classes at once: shared features, one base measure, one batched factor."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from qaffde import functional as QF
from qaffde.nn.fourier import FourierFeatures
from qaffde.nn.measures import BaseMeasure


class Projection(nn.Module):
    r"""Rows in the units that the features see: z = (x − location) · axes / scale.

    What the axes leave out of a row is independent noise of one variance, as in probabilistic
    principal components, so that a density of z is one of the row:

    .. math:: \log p(x) = \log p(z) - \sum_j \log s_j - \frac{r^2}{2 \sigma^2}
              - \frac{d - q}{2} \log 2 \pi \sigma^2, \qquad
              r^2 = \lVert x - \mu \rVert^2 - \lVert A^\top (x - \mu) \rVert^2 .

    Parameters
    ----------
    location : Tensor of shape (d,)
    scale : Tensor of shape (q,)
    axes : Tensor of shape (d, q), optional
        Orthonormal columns; None leaves the columns as they are.
    noise : Tensor of shape (), optional
        Variance σ² along each direction that the axes leave out; None does not see them.
    """

    location: Tensor
    scale: Tensor
    axes: Tensor | None
    noise: Tensor | None

    def __init__(
        self,
        location: Tensor,
        scale: Tensor,
        axes: Tensor | None = None,
        noise: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.register_buffer("location", location)
        self.register_buffer("scale", scale)
        self.register_buffer("axes", axes)
        self.register_buffer("noise", noise)

    @property
    def n_components(self) -> int:
        """Number q of coordinates."""
        return len(self.scale)

    def forward(self, x: Tensor) -> Tensor:
        """Coordinates of shape (n, q) of rows of shape (n, d), finite for finite rows."""
        centered = self._centered(x)
        rotated = centered if self.axes is None else centered @ self.axes
        return _within_reach(rotated / self.scale)

    def log_slope(self, x: Tensor, z: Tensor) -> Tensor:
        """Log-density of rows (n, d) less that of their coordinates (n, q), of shape (n,)."""
        units = -self.scale.log().sum()
        if self.noise is None:
            return units.expand(len(x))
        n_left_out = len(self.location) - self.n_components
        left_out = self._centered(x).square().sum(1) - (z * self.scale).square().sum(1)
        log_noise = self.noise.log() + math.log(2 * math.pi)
        return units - 0.5 * (left_out.clamp(min=0) / self.noise + n_left_out * log_noise)

    def _centered(self, x: Tensor) -> Tensor:
        return _within_reach(x - self.location)


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
        """Inputs of the encoder: rows, standardized and in the shape of an image."""
        z = (x - self.location) / self.scale
        return z if self.shape is None else z.reshape(len(z), *self.shape)

    def encode(self, inputs: Tensor) -> Tensor:
        """Bounded codes of inputs."""
        return torch.tanh(self.encoder(inputs))

    def log_slope(self, x: Tensor, z: Tensor) -> Tensor:
        """Zeros of shape (n,): densities are those of the codes."""
        return torch.zeros(len(x), dtype=torch.float64)


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
        log_ratio = log_defended(QF.born_rule(self.features(z), self.factor), self.epsilon)
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
        rows = x.to(self.coder.location)
        z = self.coder(rows)
        log_p: Tensor = self.born(z.to(self.born.factor)) + self.coder.log_slope(rows, z)[:, None]
        return log_p


def _within_reach(x: Tensor) -> Tensor:
    """Numbers whose squares can be summed: all beyond is as impossible, and cos ∞ is NaN."""
    far = torch.finfo(x.dtype).max ** 0.25
    return x.clamp(-far, far)


def log_defended(born: Tensor, epsilon: float) -> Tensor:
    """Log of (1 − ε) b + ε."""
    return torch.log1p((1 - epsilon) / epsilon * born) + math.log(epsilon)


def of_class(table: Tensor, y: Tensor) -> Tensor:
    """Entry of each row of a table (n, C) in the column of its class, of shape (n,)."""
    return table.gather(1, y[:, None])[:, 0]


def normalized(factor: Tensor, G: Tensor) -> Tensor:
    """Factors of mass one."""
    return factor / QF.born_mass(factor, G).sqrt()[:, None, None]

"""Densities of all classes at once: shared features, one base measure, one batched factor."""

import math
from collections.abc import Sequence
from copy import deepcopy

import torch
from torch import Tensor, nn

from qaffde import functional as QF
from qaffde.functional.fourier import Array
from qaffde.nn.base import FormulaDensity
from qaffde.nn.features import BaseMeasure, Formula, FourierFeatures


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

    def forward(self, x: Tensor) -> Tensor:
        """Coordinates of shape (n, q) of rows of shape (n, d), finite for finite rows."""
        if self.axes is None:
            return self._centered(x, self.scale)
        return self._centered(x, self.scale[0]) @ self.axes * (self.scale[0] / self.scale)

    def log_slope(self, x: Tensor, z: Tensor) -> Tensor:
        """Log-density of rows (n, d) less that of their coordinates (n, q), of shape (n,)."""
        units = -self.scale.log().sum()
        if self.noise is None:
            return units.expand(len(x))
        unit, n_left_out = self.scale[0], len(self.location) - len(self.scale)
        seen = (z * (self.scale / unit)).square().sum(1)
        left_out = (self._centered(x, unit).square().sum(1) - seen).clamp(min=0)
        log_noise = self.noise.log() + math.log(2 * math.pi)
        return units - 0.5 * (left_out / (self.noise / unit / unit) + n_left_out * log_noise)

    def _centered(self, x: Tensor, unit: Tensor) -> Tensor:
        """Centered rows in a unit, so that squares do not overflow.

        All beyond some length is as impossible, and the cosine of infinity is not a number.
        """
        far = torch.finfo(x.dtype).max ** 0.25
        return ((x - self.location) / unit).clamp(-far, far)


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

    @classmethod
    def of(cls, encoder: nn.Module, X: Tensor) -> "ImageCoder":
        """Coder by a copy of an encoder, which sees images if it has an `image_shape`.

        Inputs have mean zero and variance one: all pixels together, or each column.
        """
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

    def log_slope(self, x: Tensor, z: Tensor) -> Tensor:
        """Zeros of shape (n,): densities are those of the codes."""
        return torch.zeros(len(x), dtype=torch.float64)


class ClassBorn(FormulaDensity):
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
    measure : GaussianMeasure
    epsilon : float
        Weight of the background.
    """

    def __init__(
        self, features: FourierFeatures, factor: Tensor, measure: BaseMeasure, epsilon: float
    ) -> None:
        super().__init__()
        self.features, self.measure, self.epsilon = features, measure, epsilon
        self.factor = nn.Parameter(normalized(factor, measure.gram(features)))
        self.requires_grad_(False)

    def formula(self, dtype: torch.dtype | None = None, *, lattice: bool = True) -> Formula:
        """Log m((1 − ε)‖L_cφ‖² + ε) of shape (n, C): one product for all classes."""
        W, b, L = self.features.W, self.features.b, self.factor * self.features.a
        return Formula(_log_classes, W, b, L, self.epsilon, self.measure.formula())

    def log_prob(self, z: Tensor) -> Tensor:
        """Log-densities of shape (n, C) at points of shape (n, q)."""
        formula = self.formula() if self.learns() else self.derived("formula", self.formula)
        log_p: Tensor = formula(z)
        return log_p


def _log_classes(
    z: Array, W: Array, b: Array, L: Array, epsilon: float, log_measure: Formula
) -> Array:
    born = QF.born_rule(QF.fourier_waves(z, W, b), L)
    return log_defended(born, epsilon) + log_measure(z)[:, None]


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
        self.coder, self.born = coder, born
        self.requires_grad_(False).eval()

    def forward(self, x: Tensor) -> Tensor:
        """Log-densities of shape (n, C) at rows of shape (n, d)."""
        rows = x.to(self.coder.location)
        z = self.coder(rows)
        log_p: Tensor = self.born(z.to(self.born.factor)) + self.coder.log_slope(rows, z)[:, None]
        return log_p


def log_defended(born: Tensor, epsilon: float) -> Tensor:
    """Log of (1 − ε) b + ε."""
    return torch.log1p((1 - epsilon) / epsilon * born) + math.log(epsilon)


def of_class(table: Tensor, y: Tensor) -> Tensor:
    """Entry of each row of a table (n, C) in the column of its class, of shape (n,)."""
    return table.gather(1, y[:, None])[:, 0]


def normalized(factor: Tensor, G: Tensor) -> Tensor:
    """Factors of mass one."""
    return factor / QF.born_mass(factor, G).sqrt()[:, None, None]

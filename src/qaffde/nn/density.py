"""Densities by the Born rule, and the wrappers that make one of them a density for data."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Generator, Tensor, nn

from qaffde import functional as QF
from qaffde.functional.born import log_mixture_density, whitening
from qaffde.functional.fourier import Array, clipped, has_gradient, namespace_of, reusable
from qaffde.nn.base import Density, FormulaDensity
from qaffde.nn.calculus.base_laws import NormalLaw
from qaffde.nn.calculus.factored import FactoredMixture
from qaffde.nn.calculus.mixture import BornMixture, born_terms, constant_form
from qaffde.nn.calculus.parts_measure import FactoredMeasure
from qaffde.nn.calculus.polynomial import TrigonometricForm
from qaffde.nn.calculus.terms import Term
from qaffde.nn.features import BaseMeasure, Formula, FourierFeatures


class DensityMatrix(nn.Module):
    r"""Density matrix ρ = LᵀL of rank r: positive semidefinite, whatever L is (paper, Eq. 4).

    The Born rule gives the probability of a feature vector,

    .. math:: p(\phi) = \frac{\phi^\top \rho\, \phi}{\operatorname{tr} \rho}
              = \frac{\lVert L \phi \rVert^2}{\lVert L \rVert_F^2}

    which is a density where the features are orthonormal.

    Parameters
    ----------
    factor : Tensor of shape (r, D), or (C, r, D) for C density matrices

    Examples
    --------
    >>> state = DensityMatrix(torch.tensor([[2.0, 0.0]]))
    >>> state(torch.tensor([[1.0, 1.0], [0.5, 0.0]])).exp().detach()
    tensor([1.0000, 0.2500])
    """

    def __init__(self, factor: Tensor) -> None:
        super().__init__()
        self.factor = nn.Parameter(factor.clone())

    @classmethod
    def draw(
        cls, n_features: int, rank: int, generator: Generator | None = None
    ) -> "DensityMatrix":
        """Draw a random state of trace one."""
        generator = torch.Generator().manual_seed(0) if generator is None else generator
        factor = torch.randn(rank, n_features, generator=generator)
        return cls(factor / torch.linalg.norm(factor))

    @property
    def rank(self) -> int:
        """The number of rows r of the factor."""
        return self.factor.shape[-2]

    def forward(self, phi: Tensor) -> Tensor:
        """Logarithm of the Born rule, of shape (...), at features of shape (..., D)."""
        return QF.born_rule(phi, self.factor).log() - self.log_trace()

    def log_trace(self) -> Tensor:
        """Logarithm of the trace of ρ."""
        return self.factor.square().sum().log()

    @torch.no_grad()
    def spectrum(self, G: Tensor | None = None) -> Tensor:
        """Eigenvalues of LGLᵀ of shape (r,), falling, of sum one; G is the identity by default."""
        L = self.factor.double()
        state = L @ L.T if G is None else L @ G.double() @ L.T
        lam = torch.linalg.eigvalsh((state + state.T) / 2).flip(0).clamp(min=0)
        return lam / lam.sum()

    def extra_repr(self) -> str:
        """Show the sizes."""
        return f"rank={self.rank}, n_features={self.factor.shape[-1]}"


class BornDensity(FormulaDensity):
    r"""Density by the Born rule, normalized in closed form.

    .. math:: p(x) = m(x) \, \frac{\lVert L \phi(x) \rVert^2}{\operatorname{tr}(L G L^\top)}

    with the density matrix :math:`\rho = L^\top L` (paper, Eq. 4: :math:`L = \Lambda^{1/2} V`),
    the base measure's density m and its Gram matrix G. It integrates to one for any L.

    It has the attributes of a distribution of torch. Factors of C classes give log-densities of
    shape (..., C), by one product; they are scored, but neither drawn from nor expanded.

    Parameters
    ----------
    features : FourierFeatures
        φ, frozen or learnable.
    factor : Tensor of shape (r, D), or (C, r, D) for C classes
    measure : BaseMeasure

    Examples
    --------
    >>> from qaffde.nn import BoxMeasure
    >>> features = FourierFeatures.draw("paired", 8, bandwidth=torch.ones(1))
    >>> unit = BoxMeasure(torch.zeros(1), torch.ones(1))
    >>> density = BornDensity(features, torch.ones(1, 8), unit)
    >>> x = torch.linspace(0, 1, 1001)[:, None]
    >>> torch.trapezoid(density.log_prob(x).exp(), x[:, 0]).detach().round(decimals=4)
    tensor(1.)
    """

    def __init__(self, features: FourierFeatures, factor: Tensor, measure: BaseMeasure) -> None:
        super().__init__()
        self.features = features
        self.state = DensityMatrix(factor)
        self.measure = measure

    @property
    def factor(self) -> nn.Parameter:
        """The factor L of the density matrix."""
        return self.state.factor

    @property
    def rank(self) -> int:
        """The rank r of the density matrix."""
        return self.state.rank

    @property
    def event_shape(self) -> torch.Size:
        """Shape (d,) of a point."""
        return torch.Size([self.features.n_dims])

    @property
    def batch_shape(self) -> torch.Size:
        """Empty for one density, (C,) for those of C classes."""
        return self.factor.shape[:-2]

    def formula(self, dtype: torch.dtype | None = None, *, shortcuts: bool = True) -> Formula:
        """Log m‖Lφ‖² less the logarithm of its integral."""
        precise = dtype in (None, torch.float64)
        return Formula(
            _log_born,
            self._square(dtype),
            self.series() if shortcuts and precise else None,
            self.measure.formula(shortcuts=shortcuts and dtype is not None),
            self.log_normalizer(),
        )

    def _square(self, dtype: torch.dtype | None = None) -> Formula:
        parts = self.features.W, self.features.b, self.factor * self.features.a
        return Formula(_square, *(part if dtype is None else part.to(dtype) for part in parts))

    def width(self, dtype: torch.dtype) -> int:
        """Numbers that are computed for a point at once."""
        series = self.series() if dtype == torch.float64 else None
        amplitudes = self.factor[..., 0].numel() if series is None else 0
        waves = self.features.b if series is None else series.b
        return max(len(waves), amplitudes, self.measure.width)

    def log_normalizer(self) -> Tensor:
        """Log of tr(LGLᵀ), kept between calls while nothing changes or learns."""

        def compute() -> Tensor:
            return self.measure.log_normalizer(self.factor, self.features)

        is_fixed = not (torch.compiler.is_compiling() or self.learns())
        return self.derived("log_normalizer", compute) if is_fixed else compute()

    def series(self) -> QF.LatticeSeries | None:
        """The series of ‖Lφ‖² on a lattice; None beside one, of classes, or while learning."""
        if self.batch_shape or torch.compiler.is_compiling() or self.learns():
            return None
        return self.derived("series", self._series)

    def _series(self) -> QF.LatticeSeries | None:
        lattice = QF.Lattice.of(self.features.W)
        return None if lattice is None else QF.LatticeSeries.of(lattice, self._square())

    @torch.no_grad()
    def sample(
        self, sample_shape: Sequence[int] = (), generator: Generator | None = None
    ) -> Tensor:
        """Exact draws of shape ``(*sample_shape, d)``, float64."""
        shape = torch.Size(sample_shape)
        generator = torch.default_generator if generator is None else generator
        return expand(self).sample(shape.numel(), generator).reshape(shape + self.event_shape)

    def expansion(self) -> BornMixture | FactoredMixture:
        """The terms of the square, one for each component of the base measure."""
        parts = self.features.W, self.features.b, self.factor * self.features.a
        form = TrigonometricForm.squared(*(part.detach().double() for part in parts))
        if isinstance(self.measure, FactoredMeasure):
            return self.measure.times(form)
        return BornMixture(born_terms(form, self.series(), self.measure))

    @torch.no_grad()
    def normalize_(self) -> "BornDensity":
        """Scale the factor in place so that tr(LGLᵀ) = 1; the density is unchanged."""
        self.factor.mul_(torch.exp(-0.5 * self.log_normalizer())[..., None, None])
        return self

    @torch.no_grad()
    def spectrum(self) -> Tensor:
        """Eigenvalues of the state LGLᵀ / tr(LGLᵀ), of shape (r,), falling, of sum one."""
        return self.state.spectrum(self.measure.gram(self.features))

    def extra_repr(self) -> str:
        """Show the rank."""
        return f"rank={self.rank}"


def _square(z: Array, W: Array, b: Array, L: Array) -> Array:
    """‖Lφ‖² of shape (n,), in the precision of W; the amplitudes of the features are in L."""
    if z.dtype != W.dtype:
        z = z.to(W.dtype)
    return QF.born_rule(QF.fourier_waves(z, W, b), L)


def _log_born(
    z: Array,
    square: Formula,
    series: QF.LatticeSeries | None,
    log_measure: Formula,
    log_normalizer: Array,
) -> Array:
    """Log m‖Lφ‖²/∫; the series is a quicker way to the same square, without gradients."""
    q = square(z) if series is None or has_gradient(z) else series(z, square)
    log_p = namespace_of(z).log(q, out=reusable(q))
    log_p -= log_normalizer
    log_p += _beside(log_p, log_measure(z))
    return log_p


def _beside(log_p: Array, values: Array) -> Array:
    """Values of shape (n,), as a column where log-densities are those of classes, (n, C)."""
    return values if log_p.ndim == 1 else values[:, None]


class DefensiveDensity(FormulaDensity):
    r"""Mixture with a broad Gaussian: :math:`(1 - \varepsilon) p(x) + \varepsilon\, n(x)`.

    A box ends and a trigonometric polynomial has zeros, but here no point is impossible.

    Parameters
    ----------
    density : Density
    epsilon : float
        Weight of the background, about 1/(n + 1).
    mean, covariance : Tensors of shapes (d,), (d, d)
    """

    mean: Tensor
    cholesky: Tensor

    def __init__(self, density: Density, epsilon: float, mean: Tensor, covariance: Tensor) -> None:
        super().__init__()
        self.density = density
        self.epsilon = epsilon
        self.register_buffer("mean", mean)
        self.register_buffer("cholesky", torch.linalg.cholesky(covariance))

    def formula(self, dtype: torch.dtype | None = None, *, shortcuts: bool = True) -> Formula:
        """Logarithm of the sum, finite for every finite point."""
        log_epsilon = self.mean.new_tensor(self.epsilon).log()
        background = whitening(log_epsilon, self.mean[None], self.cholesky[None])
        return Formula(
            _log_defensive,
            self.density.formula(dtype, shortcuts=shortcuts),
            math.log1p(-self.epsilon),
            Formula(log_mixture_density, *background),
        )

    def expansion(self) -> BornMixture:
        """The terms of the density, and the Gaussian."""
        inner: BornMixture = expand(self.density)
        log_epsilon = torch.tensor(self.epsilon, dtype=torch.float64).log()
        shift = torch.log1p(-log_epsilon.exp()) - inner.log_mass
        terms = [replace(t, log_coefficient=t.log_coefficient + shift) for t in inner.terms]
        mean, C = self.mean.double(), self.cholesky.double()
        background = Term(log_epsilon, NormalLaw(), mean, C, constant_form(len(mean)))
        return BornMixture([*terms, background], torch.zeros((), dtype=torch.float64))


def _log_defensive(z: Array, log_p: Formula, log_rest: float, log_background: Formula) -> Array:
    log_born = log_p(z) + log_rest
    return namespace_of(z).logaddexp(log_born, _beside(log_born, log_background(z)))


class StandardizedDensity(FormulaDensity):
    r"""Density of x when z = (x − location) / scale has the given density.

    With axes, z are the coordinates of (x − location) / scale along them, and what they leave out
    of a row is independent noise of one variance, as in probabilistic principal components:

    .. math:: \log p(x) = \log p(z) - \sum_j \log s_j - \frac{r^2}{2 \sigma^2}
              - \frac{d - q}{2} \log 2 \pi \sigma^2, \qquad
              r^2 = \lVert x - \mu \rVert^2 - \lVert A^\top (x - \mu) \rVert^2 .

    Parameters
    ----------
    density : Density
        Of z.
    location, scale : Tensors of shapes (d,), (q,)
        Behind axes, `scale` is one number for all.
    axes, noise : Tensors of shapes (d, q), (), optional
        Orthonormal columns, and the variance σ² along each direction that they leave out.
    """

    location: Tensor
    scale: Tensor
    axes: Tensor | None
    noise: Tensor | None

    def __init__(
        self,
        density: Density,
        location: Tensor,
        scale: Tensor,
        axes: Tensor | None = None,
        noise: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.density = density
        self.register_buffer("location", location)
        self.register_buffer("scale", scale)
        self.register_buffer("axes", axes)
        self.register_buffer("noise", noise)

    def formula(self, dtype: torch.dtype | None = None, *, shortcuts: bool = True) -> Formula:
        """Log-density of z, Jacobian included."""
        inner = self.density.formula(dtype, shortcuts=shortcuts)
        far = torch.finfo(dtype or self.scale.dtype).max ** 0.25
        log_units, scale, precision = self.scale.log().sum(), self.scale, None
        if self.axes is not None:
            scale = self.scale[0]
        if self.noise is not None:
            n_left_out = len(self.location) - len(self.scale)
            log_units = log_units + 0.5 * n_left_out * (2 * math.pi * self.noise).log()
            precision = 0.5 / (self.noise / scale / scale)
        parts = self.location, scale, self.axes, log_units, precision, far
        return Formula(_log_standardized, inner, *parts)

    def expansion(self) -> BornMixture | FactoredMixture:
        """The terms in the units of x."""
        inner: BornMixture | FactoredMixture = expand(self.density)
        return inner.affine(self.location.double(), self.scale.double())


def _log_standardized(
    x: Array,
    log_p: Formula,
    location: Array,
    scale: Array,
    axes: Array | None,
    log_units: Array,
    precision: Array | None,
    far: float,
) -> Array:
    """Log-density of the coordinates, and of the noise beside the axes.

    Beyond `far` all points are as impossible: the cosine of ∞ is not a number.
    """
    y = x - location
    y /= scale
    y = clipped(y, -far, far)
    z = y if axes is None else y @ axes
    if precision is None:
        return log_p(z) - log_units
    left_out = clipped((y * y).sum(1) - (z * z).sum(1), 0.0, math.inf)
    log_z = log_p(z)
    return log_z - _beside(log_z, log_units + precision * left_out)


def find_born(density: nn.Module) -> BornDensity:
    """The Born density inside its wrappers."""
    inner: nn.Module | None = density
    while inner is not None and not isinstance(inner, BornDensity):
        inner = dict(inner.named_children()).get("density")
    if inner is None:
        raise TypeError(f"{type(density).__name__} holds no Born density")
    return inner


def expand(density: Density) -> Any:
    """Write a density as a sum of terms, once for as long as it stays as it is.

    A Born density on a box, a Gaussian or a mixture of Gaussians, or one of its wrappers, gives a
    :class:`BornMixture`, on a mixture of parts a :class:`FactoredMixture`, behind maps and kinds
    of columns a :class:`TableDensity`.
    """
    if isinstance(density, BornMixture):
        return density
    return density.derived("expansion", density.expansion)

r"""The log-density of a fitted density as one formula, with all that is constant computed once.

A fitted density is wrapped twice: :class:`StandardizedDensity` around :class:`DefensiveDensity`
around :class:`BornDensity`. Each asks its own modules for their own tensors, which for one row
takes longer than the arithmetic. Here they are one formula: all Gaussians, those of the base
measure and the background, are whitened by one product, and all constants are one.

The formula is written in operations that NumPy and torch share. A call of NumPy takes a
microsecond and one of torch several, so NumPy scores a few rows and torch blocks of them.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, TypeGuard, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from qaffde import functional as QF
from qaffde.functional.lattice import Array, namespace_of
from qaffde.nn.base import Density
from qaffde.nn.density import BornDensity, DefensiveDensity, StandardizedDensity
from qaffde.nn.measures import BoxMeasure, GaussianMeasure, KernelMeasure

FEW_ROWS = 4
"""Rows up to which a call costs more than its arithmetic."""
MEASURES = (BoxMeasure, GaussianMeasure, KernelMeasure)
Part = tuple[Tensor, Tensor, Tensor]
"""Logarithm of a weight, mean and Cholesky factor."""
T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Square:
    """‖Lφ‖² of shape (n,); the amplitudes of the features are in L.

    Parameters
    ----------
    W, b, L : Arrays of shapes (d, D), (D,), (D, r)
    """

    W: Array
    b: Array
    L: Array

    def __call__(self, z: Array) -> Array:
        """Values at z of shape (n, d)."""
        phi = z @ self.W
        phi += self.b
        y = namespace_of(z).cos(phi, out=phi) @ self.L
        y *= y
        return y.sum(1)


@dataclass(frozen=True, eq=False)
class Gaussians:
    """Logarithms, of shape (n, K), of weighted Gaussian densities.

    Parameters
    ----------
    whitening, offset, log_constant : Arrays of shapes (d, K·d), (K·d,), (K,)
    most : float
        Squares that are larger would overflow.
    """

    whitening: Array
    offset: Array
    log_constant: Array
    most: float

    @classmethod
    def of(cls, parts: list[Part], dtype: torch.dtype) -> "Gaussians":
        """From logarithms of weights, means and Cholesky factors."""
        log_weight, mean, cholesky = (torch.stack(tensors) for tensors in zip(*parts, strict=True))
        d = mean.shape[1]
        eye = torch.eye(d, dtype=mean.dtype, device=mean.device)
        inverse = torch.linalg.solve_triangular(cholesky, eye, upper=False)
        log_det = cholesky.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        return cls(
            inverse.flatten(0, 1).T.contiguous(),
            -(inverse @ mean[..., None]).flatten(),
            log_weight - log_det - 0.5 * d * math.log(2 * math.pi),
            torch.finfo(dtype).max / 2,
        )

    def __call__(self, z: Array) -> Array:
        """Values at z of shape (n, d)."""
        white = z @ self.whitening
        white += self.offset
        white *= white
        log_terms = white.reshape(len(z), len(self.log_constant), z.shape[1]).sum(-1)
        namespace_of(z).clip(log_terms, 0.0, self.most, out=log_terms)
        log_terms *= -0.5
        log_terms += self.log_constant
        return log_terms


@dataclass(frozen=True, eq=False)
class Units:
    """Standardization, in float64 whatever the precision: rows on the edge of a box stay inside.

    Parameters
    ----------
    location, scale : Arrays of shape (d,)
        Of z = (x − location) / scale.
    box : Array of shape (2, d), or None
        Ends of a base measure that is a box.
    far : float
        Deviations beyond which all points are as impossible; the cosine of ∞ is not a number.
    """

    location: Array
    scale: Array
    box: Array | None
    far: float

    @classmethod
    def of(cls, density: StandardizedDensity, dtype: torch.dtype) -> "Units":
        """The units of a density, and the ends of its box."""
        measure, box = born_of(density).measure, None
        if isinstance(measure, BoxMeasure):
            box = torch.stack([measure.lower, measure.upper])
        return cls(density.location, density.scale, box, torch.finfo(dtype).max ** 0.25)

    def __call__(self, x: Array) -> Array:
        """Standardized points."""
        z = x - self.location
        z /= self.scale
        return namespace_of(x).clip(z, -self.far, self.far, out=z)

    def inside(self, z: Array) -> Array | None:
        """Which points, of shape (n,), are in the box; None if there is none."""
        if self.box is None:
            return None
        return ((z >= self.box[0]) & (z <= self.box[1])).all(1)


@dataclass(frozen=True, eq=False)
class Formula:
    """The log-density, of shape (n,).

    Parameters
    ----------
    constant : float
        What is added to the logarithms of the square and of the base measure.
    square : Square
    series : LatticeSeries or None
        The quicker way to the same, on a lattice.
    gaussians : Gaussians or None
        Of the base measure, then the background.
    n_base : int
        Number of those of the base measure.
    """

    constant: float
    square: Square
    series: QF.LatticeSeries | None
    gaussians: Gaussians | None
    n_base: int

    @classmethod
    def of(cls, density: StandardizedDensity, dtype: torch.dtype, *, lattice: bool) -> "Formula":
        """The formula of a Born density in its wrappers; see :meth:`LogDensity.of`."""
        inner, born = density.density, born_of(density)
        log_scale = density.scale.log().sum()
        constant = -log_scale - born.log_normalizer()
        measure = born.measure
        parts: list[Part] = []
        if isinstance(measure, GaussianMeasure):
            parts += zip(measure.weights.log(), measure.means, measure.cholesky, strict=True)
        elif isinstance(measure, BoxMeasure):
            constant = constant - (measure.upper - measure.lower).log().sum()
        n_base = len(parts)
        if isinstance(inner, DefensiveDensity):
            constant = constant + math.log1p(-inner.epsilon)
            parts.append((math.log(inner.epsilon) - log_scale, inner.mean, inner.cholesky))
        features, L = born.features, born.factor * born.features.a
        return cls(
            float(constant),
            Square(features.W.T.contiguous(), features.b, L.T.contiguous()),
            born.series() if lattice else None,
            Gaussians.of(parts, dtype) if parts else None,
            n_base,
        )

    @property
    def width(self) -> int:
        """Numbers that are computed for a row at once."""
        waves = (self.square if self.series is None else self.series).b
        return max(len(waves), 0 if self.gaussians is None else len(self.gaussians.offset))

    def __call__(self, z: Array, inside: Array | None) -> Array:
        """Values at standardized points of shape (n, d), given which are in the box."""
        xp = namespace_of(z)
        q = self.square(z) if self.series is None else self.series(z, self.square)
        log_p = xp.log(q, out=q)
        log_p += self.constant
        if inside is not None:
            log_p = xp.where(inside, log_p, -math.inf)
        if self.gaussians is None:
            return log_p
        log_terms = self.gaussians(z)
        if self.n_base:
            log_p += _log_sum(log_terms[:, : self.n_base])
        if log_terms.shape[1] == self.n_base:
            return log_p
        return xp.logaddexp(log_p, log_terms[:, self.n_base])


@dataclass(frozen=True, eq=False)
class LogDensity:
    """The log-density of rows: their units, then the formula in a precision."""

    units: Units
    formula: Formula
    dtype: torch.dtype

    @classmethod
    @torch.no_grad()
    def of(
        cls,
        density: StandardizedDensity,
        dtype: torch.dtype = torch.float64,
        *,
        lattice: bool = True,
    ) -> "LogDensity":
        """The log-density of a Born density in its wrappers, its tensors as they are there.

        Parameters
        ----------
        density : StandardizedDensity
        dtype : torch.dtype, default=torch.float64
            Of the points in the formula.
        lattice : bool, default=True
            Whether a lattice is scored by its series. Single precision never is: it would take
            digits from a series that a square keeps.
        """
        lattice = lattice and dtype == torch.float64
        return cls(Units.of(density, dtype), Formula.of(density, dtype, lattice=lattice), dtype)

    def __call__(self, x: Array) -> Array:
        """Log-density of shape (n,) at points of shape (n, d) in float64."""
        z = self.units(x)
        inside = self.units.inside(z)
        return self.formula(z if self.dtype == torch.float64 else z.to(self.dtype), inside)


def converted(part: T, convert: Callable[[Tensor], Array]) -> T:
    """A dataclass with all its tensors converted, at any depth."""
    if isinstance(part, Tensor):
        return convert(part.detach())
    if not is_dataclass(part):
        return part
    names = [field.name for field in fields(part)]
    return replace(part, **{name: converted(getattr(part, name), convert) for name in names})  # type: ignore[type-var]


def _log_sum(log_terms: Array) -> Array:
    """Logarithms, of shape (n,), of the sums of rows."""
    if log_terms.shape[1] == 1:
        return log_terms[:, 0]
    xp = namespace_of(log_terms)
    most = xp.amax(log_terms, 1)
    total = xp.exp(log_terms - most[:, None]).sum(1)
    return most + xp.log(total, out=total)


class Score:
    """Compiled log-density of the fitted density of an estimator.

    Parameters
    ----------
    density : StandardizedDensity
        Of a :class:`DefensiveDensity` or a :class:`BornDensity`.
    dtype : torch.dtype, default=torch.float64
        Of what is computed for blocks of points. Their units and a few points are in float64.
    device : torch.device or str, default="cpu"

    Attributes
    ----------
    width : int
        Numbers that are computed for a row at once.

    Examples
    --------
    >>> from qaffde.nn import BoxMeasure, FourierFeatures
    >>> one = torch.ones(1, dtype=torch.float64)
    >>> born = BornDensity(
    ...     FourierFeatures.draw("paired", 8, one), torch.eye(8).double(), BoxMeasure(-one, one)
    ... )
    >>> density = StandardizedDensity(born, 0 * one, 2 * one)
    >>> Score(density)(torch.zeros(1, 1).double()).exp()
    tensor([0.2500], dtype=torch.float64)
    """

    def __init__(
        self,
        density: StandardizedDensity,
        dtype: torch.dtype = torch.float64,
        device: torch.device | str = "cpu",
    ) -> None:
        exact = LogDensity.of(density)
        blocks = exact if dtype == torch.float64 else LogDensity.of(density, dtype)
        self.width = blocks.formula.width
        self._few = converted(exact, _as_numpy)
        self._blocks = replace(
            blocks,
            units=converted(blocks.units, lambda tensor: tensor.to(device)),
            formula=converted(blocks.formula, lambda tensor: tensor.to(device, dtype)),
        )

    @torch.no_grad()
    def __call__(self, x: Tensor) -> Tensor:
        """Log-density of shape (n,) at points of shape (n, d) in float64, on the device."""
        log_p: Tensor = self._blocks(x)
        return log_p

    def of_few(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """Log-density of shape (n,) at a few points of shape (n, d), in float64 on the CPU."""
        with np.errstate(divide="ignore", over="ignore"):
            log_p: NDArray[np.float64] = self._few(x)
        return log_p


def compiled_score(
    density: Density, dtype: torch.dtype = torch.float64, device: torch.device | str = "cpu"
) -> Score | None:
    """The compiled log-density of a fitted density, or None if it is built in another way."""
    if not is_scored(density):
        return None
    return density.derived((dtype, str(device)), lambda: Score(density, dtype, device))


def is_scored(density: Density) -> TypeGuard[StandardizedDensity]:
    """Whether a density is a Born density in the wrappers of a fit."""
    if not isinstance(density, StandardizedDensity):
        return False
    born = born_of(density)
    return isinstance(born, BornDensity) and isinstance(born.measure, MEASURES)


def born_of(density: StandardizedDensity) -> Any:
    """The module inside a density's units and its background, a Born density for those of fits."""
    inner: nn.Module = density.density
    return inner.density if isinstance(inner, DefensiveDensity) else inner


def _as_numpy(tensor: Tensor) -> NDArray[np.float64]:
    array: NDArray[np.float64] = tensor.double().cpu().numpy()
    return array

r"""Fitted densities with everything done that does not depend on the point.

A fitted density is wrapped twice: :class:`StandardizedDensity` around :class:`DefensiveDensity`
around :class:`BornDensity`. Each asks its own modules for their own tensors, which for one row
takes longer than the arithmetic. Here the layers are one: all Gaussians, those of the base measure
and the background, are whitened by one product, and all constants are one.

The few operations that are left are those which NumPy and torch spell alike. A call of NumPy's
takes a microsecond and one of torch's several, so a few rows are left to NumPy, and blocks of
them to torch.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from qaffde.nn.born import BornDensity, DefensiveDensity, Density, StandardizedDensity
from qaffde.nn.measures import BoxMeasure, GaussianMeasure, KernelMeasure

FEW_ROWS = 4
"""Rows up to which a call costs more than its arithmetic."""

MEASURES = (BoxMeasure, GaussianMeasure, KernelMeasure)

Array = Any
"""A tensor, or an array of NumPy's."""
Part = tuple[Tensor, Tensor, Tensor]
"""Logarithm of a weight, mean and Cholesky factor."""


class FrozenDensity:
    """Log-density of the fitted density of an estimator, for as long as it stays as it is.

    Parameters
    ----------
    density : StandardizedDensity
        Of a :class:`DefensiveDensity` or a :class:`BornDensity`.
    dtype : torch.dtype, default=torch.float64
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
    >>> FrozenDensity(density)(torch.zeros(1, 1).double()).exp()
    tensor([0.2500], dtype=torch.float64)
    """

    @torch.no_grad()
    def __init__(
        self,
        density: StandardizedDensity,
        dtype: torch.dtype = torch.float64,
        device: torch.device | str = "cpu",
    ) -> None:
        self.dtype, self.device = dtype, torch.device(device)
        found = [d for m in density.modules() for d in _tensors_and_modules(m)]
        self._dicts = [values for values in found if values]
        self._tensors = [v for d in self._dicts for v in d.values() if isinstance(v, Tensor)]
        self._state = self._key()
        formula = _converted(_formula(density, dtype), lambda tensor: tensor.to(dtype))
        self._in_torch = _converted(formula, lambda tensor: tensor.to(self.device))
        self._in_numpy = _converted(formula, lambda tensor: tensor.double().cpu().numpy())
        self.width = formula.width

    def serves(self, dtype: torch.dtype, device: torch.device | str) -> bool:
        """Whether this is the current form for a precision and a device."""
        return self.dtype == dtype and self.device == torch.device(device) and self.is_current()

    def is_current(self) -> bool:
        """Whether the density has the tensors, and they the values, that it was frozen with."""
        return self._key() == self._state

    def _key(self) -> tuple[list[int], list[int]]:
        """Which tensors and modules there are, and how often the tensors were changed."""
        present = chain.from_iterable(values.values() for values in self._dicts)
        return list(map(id, present)), [tensor._version for tensor in self._tensors]

    @torch.no_grad()
    def __call__(self, x: Tensor) -> Tensor:
        """Log-density of shape (n,) at points of shape (n, d), of the dtype and on the device."""
        log_p: Tensor = self._in_torch(x)
        return log_p

    @torch.no_grad()
    def compiled(self, x: Tensor) -> Tensor:
        """The same by :func:`torch.compile`, anew for every number of points.

        Raises
        ------
        RuntimeError
            If it cannot be compiled.
        """
        from torch._dynamo.exc import TorchDynamoException  # takes seconds to import

        try:
            log_p: Tensor = self._compiled(x)
        except TorchDynamoException as error:
            raise RuntimeError(
                "the density could not be compiled, which needs a C++ compiler; "
                f"compile=False does without ({str(error).partition(chr(10))[0]})"
            ) from error
        return log_p

    @cached_property
    def _compiled(self) -> Callable[[Tensor], Tensor]:
        formula: Callable[[Tensor], Tensor] = self._in_torch.__call__
        return torch.compile(formula, dynamic=False)

    def of_few(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """Log-density of shape (n,) at a few points of shape (n, d), on the CPU."""
        with np.errstate(divide="ignore", over="ignore"):
            log_p: NDArray[np.float64] = self._in_numpy(x)
        return log_p


_FORMS: "WeakKeyDictionary[Density, FrozenDensity]" = WeakKeyDictionary()


def frozen_form(
    density: Density, dtype: torch.dtype = torch.float64, device: torch.device | str = "cpu"
) -> FrozenDensity | None:
    """The frozen form of a fitted density, made once, or None if it is built in another way."""
    known = _FORMS.get(density)
    if known is not None and known.serves(dtype, device):
        return known
    if not isinstance(density, StandardizedDensity):
        return None
    born = _inside(density.density)
    if not isinstance(born, BornDensity) or not isinstance(born.measure, MEASURES):
        return None
    _FORMS[density] = FrozenDensity(density, dtype, device)
    return _FORMS[density]


@dataclass(frozen=True, eq=False)
class _Square:
    """‖Lφ‖² of shape (n,); the amplitudes of the features are in L.

    Parameters
    ----------
    W, b, L : Arrays of shapes (d, D), (D,), (D, r)
    """

    W: Array
    b: Array
    L: Array

    @property
    def width(self) -> int:
        return len(self.b)

    def __call__(self, z: Array) -> Array:
        phi = z @ self.W
        phi += self.b
        y = _namespace(z).cos(phi, out=phi) @ self.L
        y *= y
        return y.sum(1)


@dataclass(frozen=True, eq=False)
class _LatticeSquare:
    """The same by the series of a lattice, :class:`qaffde.functional.LatticeSeries`.

    Parameters
    ----------
    W, b : Arrays of shapes (m, d), (m, 1)
        Frequencies and phases of all waves.
    A : Array of shape (m₂, m₁)
    faint : float
    square : _Square
    """

    W: Array
    b: Array
    A: Array
    faint: float
    square: _Square

    @property
    def width(self) -> int:
        return len(self.b)

    def __call__(self, z: Array) -> Array:
        waves = self.W @ z.T
        waves += self.b
        _namespace(z).cos(waves, out=waves)
        first = self.A.shape[1]
        terms = self.A @ waves[:first]
        if len(waves) > first:
            terms *= waves[first:]
        q = terms.sum(0)
        faint = q < self.faint
        if faint.any():
            q[faint] = self.square(z[faint])
        return q


@dataclass(frozen=True, eq=False)
class _Gaussians:
    """Logarithms, of shape (n, K), of weighted Gaussian densities, whitened by one product.

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
    def of(cls, parts: list[Part], dtype: torch.dtype) -> "_Gaussians":
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
        white = z @ self.whitening
        white += self.offset
        white *= white
        log_terms = white.reshape(len(z), len(self.log_constant), -1).sum(-1)
        _namespace(z).clip(log_terms, 0.0, self.most, out=log_terms)
        log_terms *= -0.5
        log_terms += self.log_constant
        return log_terms


@dataclass(frozen=True, eq=False)
class _Formula:
    """The log-density, of shape (n,).

    Parameters
    ----------
    location, scale : Arrays of shape (d,)
        Of z = (x − location) / scale.
    constant : float
        What is added to the logarithms of the square and of the base measure.
    square : _Square or _LatticeSquare
    gaussians : _Gaussians or None
        Of the base measure, then the background.
    n_base : int
        Number of those of the base measure.
    box : Array of shape (2, d), or None
        Ends of a base measure that is a box.
    far : float
        Deviations beyond which all points are as impossible; the cosine of ∞ is no number.
    """

    location: Array
    scale: Array
    constant: float
    square: _Square | _LatticeSquare
    gaussians: _Gaussians | None
    n_base: int
    box: Array | None
    far: float

    @property
    def width(self) -> int:
        return max(self.square.width, 0 if self.gaussians is None else len(self.gaussians.offset))

    def __call__(self, x: Array) -> Array:
        xp = _namespace(x)
        z = x - self.location
        z /= self.scale
        xp.clip(z, -self.far, self.far, out=z)
        q = self.square(z)
        log_p = xp.log(q, out=q)
        log_p += self.constant
        if self.box is not None:
            inside = ((z >= self.box[0]) & (z <= self.box[1])).all(1)
            log_p = xp.where(inside, log_p, -math.inf)
        if self.gaussians is None:
            return log_p
        log_terms = self.gaussians(z)
        if self.n_base:
            log_p += _log_sum(log_terms[:, : self.n_base])
        if log_terms.shape[1] == self.n_base:
            return log_p
        return xp.logaddexp(log_p, log_terms[:, self.n_base])


def _formula(density: StandardizedDensity, dtype: torch.dtype) -> _Formula:
    inner, born = density.density, _inside(density.density)
    assert isinstance(born, BornDensity)
    parts: list[Part] = []
    box, measure = None, born.measure
    log_scale = density.scale.log().sum()
    constant = -log_scale - born.log_normalizer()
    if isinstance(measure, GaussianMeasure):
        parts += zip(measure.weights.log(), measure.means, measure.cholesky, strict=True)
    elif isinstance(measure, BoxMeasure):
        box = torch.stack([measure.lower, measure.upper])
        constant = constant - (measure.upper - measure.lower).log().sum()
    n_base = len(parts)
    if isinstance(inner, DefensiveDensity):
        constant = constant + math.log1p(-inner.epsilon)
        parts.append((math.log(inner.epsilon) - log_scale, inner.mean, inner.cholesky))
    return _Formula(
        density.location,
        density.scale,
        float(constant),
        _square(born, dtype),
        _Gaussians.of(parts, dtype) if parts else None,
        n_base,
        box,
        torch.finfo(dtype).max ** 0.25,
    )


def _square(born: BornDensity, dtype: torch.dtype) -> _Square | _LatticeSquare:
    """Single precision would take digits from a series that a square keeps."""
    features = born.features
    series = born.series() if dtype == torch.float64 else None
    L = (born.factor * features.a).T.contiguous()
    square = _Square(features.W.T.contiguous(), features.b, L)
    if series is None:
        return square
    W, b = series.lattice.all_waves
    return _LatticeSquare(W, b, series.A.T.contiguous(), series.faint, square)


def _inside(density: nn.Module) -> nn.Module:
    return density.density if isinstance(density, DefensiveDensity) else density


def _converted(part: Any, convert: Callable[[Tensor], Array]) -> Any:
    """A dataclass with all its tensors converted, at any depth."""
    if isinstance(part, Tensor):
        return convert(part.detach())
    if not is_dataclass(part):
        return part
    names = [field.name for field in fields(part)]
    return replace(part, **{name: _converted(getattr(part, name), convert) for name in names})  # type: ignore[type-var]


def _namespace(array: Array) -> Any:
    return np if isinstance(array, np.ndarray) else torch


def _log_sum(log_terms: Array) -> Array:
    """Logarithms, of shape (n,), of the sums of rows."""
    if log_terms.shape[1] == 1:
        return log_terms[:, 0]
    xp = _namespace(log_terms)
    most = xp.amax(log_terms, 1)
    total = xp.exp(log_terms - most[:, None]).sum(1)
    return most + xp.log(total, out=total)


def _tensors_and_modules(module: nn.Module) -> Iterator[dict[str, object]]:
    yield from (module._parameters, module._buffers, module._modules)  # type: ignore[misc]

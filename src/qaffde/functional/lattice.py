r"""Shortcuts for frequencies on a lattice, :math:`w_i = k_i \cdot \text{step}` with whole k.

Products of two features have frequencies on the same lattice, of at most twice the size, so
whatever is quadratic in the features is a trigonometric polynomial on a torus,

.. math:: q(x) = f_1(\theta_1)^\top A\, f_2(\theta_2), \qquad
          f(\theta) = (1, \cos\theta, \ldots, \cos M\theta, \sin\theta, \ldots, \sin M\theta)

with the angles :math:`\theta_j = \text{step}_j x_j`. In two columns D features need M of about
:math:`2\sqrt{D/\pi}` waves a column: a point costs some :math:`5 D` multiplications, whatever the
rank, and so does a row in the sum :math:`\rho = \sum_n w_n \phi(x_n) \phi(x_n)^\top`, all of whose
entries are among the moments :math:`\sum_n w_n f_1 f_2^\top`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

Array = Any
"""A tensor, or an array of NumPy's."""

MAX_COLUMNS = 2
BLOCK = 1024
"""Nodes whose features are computed at once."""
OFF_LATTICE = 1e-12
"""Rounding error allowed for a whole number, relative to the largest."""


@dataclass(frozen=True, eq=False)
class Lattice:
    """Frequencies that are whole multiples of one step in each of at most two columns.

    Parameters
    ----------
    index : Tensor of shape (D, 2), int64
        Multiples k; zero in a second column that is not there.
    step : Tensor of shape (d,)

    Examples
    --------
    >>> lattice = Lattice.of(0.5 * torch.arange(20, dtype=torch.float64)[:, None])
    >>> lattice.step.item(), lattice.index[-1].tolist(), lattice.n_waves
    (0.5, [19, 0], (77, 1))
    """

    index: Tensor
    step: Tensor

    @classmethod
    def of(cls, W: Tensor) -> "Lattice | None":
        """The lattice of frequencies of shape (D, d), or None if a shortcut would be longer."""
        if W.shape[1] > MAX_COLUMNS or W.dtype != torch.float64:
            return None
        size = W.abs()
        step = torch.where(size > 0, size, torch.inf).amin(0)
        step = torch.where(step.isinf(), 1.0, step)
        multiple = W / step
        index = multiple.round()
        most, off = float(index.abs().max()), float((multiple - index).abs().max())
        if most > len(W) or off > OFF_LATTICE * most:
            return None
        index = torch.nn.functional.pad(index.long(), (0, MAX_COLUMNS - W.shape[1]))
        lattice = cls(index, step)
        return lattice if math.prod(lattice.n_waves) < len(W) ** 2 / 2 else None

    @cached_property
    def degree(self) -> tuple[int, ...]:
        """Largest multiple M of the step, in each column, of a product of two features."""
        return tuple(2 * int(k) for k in self.index.abs().amax(0))

    @property
    def n_waves(self) -> tuple[int, ...]:
        """Numbers 2M + 1 of cosines and sines in f₁ and f₂."""
        return tuple(2 * M + 1 for M in self.degree)

    def waves(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Values of f₁ and f₂, of shapes (2M₁ + 1, n) and (2M₂ + 1, n), at x of shape (n, d)."""
        W, b = self.all_waves
        first, second = self.n_waves
        waves = torch.addmm(b, W, x.T).cos_()
        return waves[:first], waves[first:] if len(self.step) > 1 else x.new_ones(second, len(x))

    def add_moments(self, moments: Tensor | None, x: Tensor, weight: Tensor) -> Tensor:
        """Add the sum of w f₁f₂ᵀ over rows of shape (n, d) to moments, in place, or begin them."""
        first, second = self.waves(x)
        product = second.mul_(weight).T
        return first @ product if moments is None else moments.addmm_(first, product)

    @cached_property
    def nodes(self) -> Tensor:
        """Points of shape (n, d) of a torus whose values of q determine A."""
        axes = [_nodes(M).to(self.step) / step for M, step in self._columns]
        return torch.cartesian_prod(*axes).reshape(-1, len(axes))

    def series(self, values: Tensor) -> Tensor:
        """A of shape (2M₁ + 1, 2M₂ + 1) from the values of q, of shape (n,), at the nodes."""
        first, second = (_analysis(M).to(values) for M in self.degree)
        return first @ values.reshape(self.n_waves) @ second.T

    @cached_property
    def frequencies(self) -> Tensor:
        """Frequencies of shape (n, d) of all products of two features, and some more."""
        axes = [torch.arange(-M, M + 1).to(self.step) * w for M, w in self._columns]
        return torch.cartesian_prod(*axes).reshape(-1, len(axes))

    def characteristic(self, moments: Tensor) -> Tensor:
        """Σ w exp(iω·x), of shape (n,), at all frequencies ω, from moments of waves."""
        first, second = (_exponentials(M).to(moments.device) for M in self.degree)
        return (first @ moments.to(first.dtype) @ second.T).flatten()

    def gram(self, characteristic: Tensor, b: Tensor, a: Tensor) -> Tensor:
        r"""Matrix ∫φφᵀdμ of shape (D, D).

        Parameters
        ----------
        characteristic : Tensor of shape (n,), complex
            ∫exp(iω·x)dμ at all ``frequencies``.
        b, a : Tensors of shape (D,)
            Phases and amplitudes.
        """
        M, n = self.degree, self.n_waves[1]
        flat, origin = self.index[:, 0] * n + self.index[:, 1], M[0] * n + M[1]
        z = torch.polar(a, b)
        pairs = characteristic[flat[:, None] - flat + origin].mul_(z.conj())
        pairs += characteristic[flat[:, None] + flat + origin].mul_(z)
        return pairs.mul_(z[:, None]).real.mul(0.5)

    @cached_property
    def all_waves(self) -> tuple[Tensor, Tensor]:
        """Frequencies (n, d) and phases (n, 1) of all waves, those of f₁ first."""
        W = [(_multiples(M).to(self.step) * step)[:, None] for M, step in self._columns]
        b = [-math.pi / 2 * _is_sine(M).to(self.step)[:, None] for M, _ in self._columns]
        return torch.block_diag(*W), torch.cat(b)

    @property
    def _columns(self) -> list[tuple[int, Tensor]]:
        """Degree and step of each column that is there."""
        return list(zip(self.degree, self.step, strict=False))


@dataclass(frozen=True, eq=False)
class LatticeSeries:
    """The square ‖Lφ(x)‖² of features on a lattice, as one trigonometric polynomial.

    Rounding is relative to the sum of its coefficients, not to its value: what is below ``faint``
    has fewer than nine digits, and is computed as a square.

    Parameters
    ----------
    W, b : Arrays of shapes (m₁ + m₂, d), (m₁ + m₂, 1)
        Frequencies and phases of the waves, those of f₁ first; of one column, m₂ = 0. They and A
        may be arrays of NumPy's, and points then are.
    A : Array of shape (m₂, m₁), or (1, m₁)
        The coefficients, transposed.
    faint : float
    """

    W: Array
    b: Array
    A: Array
    faint: float

    @classmethod
    def of(cls, lattice: Lattice, square: Callable[[Tensor], Tensor]) -> "LatticeSeries":
        """The series of a function that is such a square, from its values."""
        values = torch.cat([square(x) for x in lattice.nodes.split(BLOCK)])
        A = lattice.series(values).T.contiguous()
        faint = 1e9 * torch.finfo(A.dtype).eps * float(A.abs().sum())
        return cls(*lattice.all_waves, A, faint)

    def __call__(self, x: Array, square: Callable[[Array], Array]) -> Array:
        """Values of shape (n,) at x of shape (n, d), the faint ones by the square itself."""
        waves = self.W @ x.T
        waves += self.b
        namespace_of(x).cos(waves, out=waves)
        first = self.A.shape[1]
        terms = self.A @ waves[:first]
        if len(waves) > first:
            terms *= waves[first:]
        q = terms.sum(0)
        faint = q < self.faint
        if faint.any():
            q[faint] = square(x[faint])
        return q

    def on_sheared_grid(self, first: Tensor, shift: Tensor, second: Tensor) -> Tensor:
        r"""Values (n, m) at the points (first_i, shift_i + second_j) of two columns.

        All have the rounding of the largest, and may be below zero. Given the first column they
        are :math:`\operatorname{Re} \sum_k z_k e^{ik\theta}`, and a shift turns the z.
        """
        n_first, degree = self.A.shape[1], len(self.A) // 2
        waves = torch.cos(self.W[:n_first, :1] * first + self.b[:n_first])
        c, s = (self.A @ waves).split([degree + 1, degree])  # of the cosines and the sines
        z = torch.complex(c, -torch.nn.functional.pad(s, (0, 0, 1, 0)))  # (degree + 1, n)
        omega = self.W[n_first : n_first + degree + 1, 1:]
        turn, wave = (torch.exp(1j * omega * column) for column in (shift, second))
        return ((z * turn).T @ wave).real


def namespace_of(array: Array) -> Any:
    """NumPy or torch, whichever the array is of: what they spell alike is written once."""
    return np if isinstance(array, np.ndarray) else torch


def _multiples(degree: int) -> Tensor:
    """Multiples k of 1, cos θ, …, cos Mθ, sin θ, …, sin Mθ."""
    return torch.cat([torch.arange(degree + 1), torch.arange(1, degree + 1)])


def _is_sine(degree: int) -> Tensor:
    return torch.arange(2 * degree + 1) > degree


def _nodes(degree: int) -> Tensor:
    n = 2 * degree + 1
    return 2 * math.pi / n * torch.arange(n, dtype=torch.float64)


def _analysis(degree: int) -> Tensor:
    """Matrix from values at the nodes of one column to the coefficients of its waves."""
    angles = torch.outer(_multiples(degree).double(), _nodes(degree))
    waves = torch.where(_is_sine(degree)[:, None], angles.sin(), angles.cos())
    waves[1:] *= 2
    return waves / len(waves)


def _exponentials(degree: int) -> Tensor:
    """Matrix from waves to exp(ikθ), k from −M to M."""
    k, multiples, is_sine = torch.arange(-degree, degree + 1), _multiples(degree), _is_sine(degree)
    same = (k.abs()[:, None] == multiples).double()
    return torch.complex(same * ~is_sine, same * is_sine * k.sign()[:, None])

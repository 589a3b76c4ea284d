r"""Fourier features whose inner product approximates the square root of a Gaussian kernel.

.. math:: \phi_i(x) = a_i \cos(w_i \cdot x + b_i)

The paper squares the inner product (Eq. 2): :math:`k_\gamma = k_{\gamma/2}^2 \approx
\langle \phi(x), \phi(y) \rangle^2`, so frequencies follow the spectrum of :math:`k_{\gamma/2}`,
which is :math:`\mathcal{N}(0, \gamma I)`. Every map here returns frequencies W of shape (D, d),
phases b (a sine is a cosine with phase −π/2) and amplitudes a, of shape (D,).

**Lattices.** Frequencies :math:`w_i = k_i \cdot \text{step}` with whole k have shortcuts.
Products of two features have frequencies on the same lattice, of at most twice the size, so
whatever is quadratic in the features is a trigonometric polynomial on a torus,

.. math:: q(x) = f_1(\theta_1)^\top A\, f_2(\theta_2), \qquad
          f(\theta) = (1, \cos\theta, \ldots, \cos M\theta, \sin\theta, \ldots, \sin M\theta)

with the angles :math:`\theta_j = \text{step}_j x_j`. In two columns D features need M of about
:math:`2\sqrt{D/\pi}` waves a column: a point costs some :math:`5 D` multiplications, whatever the
rank, and so does a row in the sum :math:`\rho = \sum_n w_n \phi(x_n) \phi(x_n)^\top`, all of whose
entries are among the moments :math:`\sum_n w_n f_1 f_2^\top`.

**Arrays.** What scores rows is written in operations that NumPy and torch spell alike: NumPy
scores a few rows, since its calls take less time, torch blocks of them, and has gradients.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from scipy.stats import qmc
from torch import Generator, Tensor

Array = Any
"""A tensor, or an array of NumPy's."""


def namespace_of(array: Array) -> Any:
    """NumPy or torch, whichever the array is of."""
    return np if isinstance(array, np.ndarray) else torch


def has_gradient(array: Array) -> bool:
    """Whether gradients flow through an array."""
    return getattr(array, "requires_grad", False)


def reusable(array: Array) -> Array | None:
    """The array as a place for a result, None where gradients still need its values."""
    return None if has_gradient(array) else array


def clipped(array: Array, low: float, high: float) -> Array:
    """The array between two ends, in its place where it may be; quicker than NumPy's own."""
    if isinstance(array, np.ndarray):
        return np.maximum(np.minimum(array, high, out=array), low, out=array)
    return torch.clip(array, low, high, out=reusable(array))


def gamma_from_bandwidth(h: Tensor) -> Tensor:
    """The paper's γ = 1/(2h²) of bandwidths h of any shape: the only place where this is done."""
    return 0.5 / h.square()


def gaussian_kernel(X: Tensor, Y: Tensor, h: Tensor) -> Tensor:
    """Gaussian kernel k_γ, of shape (n, m), between all rows of `X` and all rows of `Y`.

    Parameters
    ----------
    X, Y : Tensors of shapes (n, d), (m, d)
    h : Tensor of shape () or (d,)
        Bandwidth.

    Examples
    --------
    >>> from torch import tensor
    >>> gaussian_kernel(tensor([[0.0]]), tensor([[0.0], [1.0]]), tensor(1.0))
    tensor([[1.0000, 0.6065]])
    """
    root_gamma = gamma_from_bandwidth(h).sqrt()
    difference = (X * root_gamma)[:, None] - (Y * root_gamma)
    return difference.square().sum(-1).neg().exp()


def log_kernel_mass(h: Tensor, n_dims: int) -> Tensor:
    r"""Logarithm of :math:`M_\gamma = \int k_\gamma(x, y)\,dy = (2 \pi h^2)^{d/2}`."""
    return 0.5 * (math.pi / gamma_from_bandwidth(h)).log().expand(n_dims).sum()


Frequencies = tuple[Tensor, Tensor, Tensor]
MakeFrequencies = Callable[[int, Tensor, Tensor, Generator], Frequencies]


def fourier_features(X: Tensor, W: Tensor, b: Tensor, a: Tensor) -> Tensor:
    """Evaluate φ_i(x) = a_i cos(w_i·x + b_i), of shape (n, D).

    Parameters
    ----------
    X, W, b, a : Tensors of shapes (n, d), (D, d), (D,), (D,)

    Examples
    --------
    >>> fourier_features(torch.zeros(1, 1), torch.ones(2, 1), torch.zeros(2), torch.ones(2))
    tensor([[1., 1.]])
    """
    phi = fourier_waves(X, W, b)
    return phi * a if has_gradient(phi) else phi.mul_(a)


def fourier_waves(X: Array, W: Array, b: Array) -> Array:
    """Evaluate cos(w_i·x + b_i), of shape (n, D): features without their amplitudes."""
    phase = X @ W.T + b if isinstance(X, np.ndarray) else torch.addmm(b, X, W.T)
    return namespace_of(X).cos(phase, out=reusable(phase))


def random_frequencies(
    n_features: int, h: Tensor, period: Tensor, generator: Generator
) -> Frequencies:
    """Rahimi and Recht's features, the paper's: Gaussian frequencies, uniform phases."""
    W = _gaussian(n_features, h, generator) * _spectral_scale(h)
    b = 2 * math.pi * torch.rand(n_features, generator=generator, dtype=h.dtype)
    return W, b, torch.full_like(b, math.sqrt(2 / n_features))


def _paired(draw: Callable[[int, Tensor, Generator], Tensor]) -> MakeFrequencies:
    """Normal draws as frequencies, each with a cosine and a sine: ‖φ(x)‖ is the same for all x."""

    def make(n_features: int, h: Tensor, period: Tensor, generator: Generator) -> Frequencies:
        n = max(n_features // 2, 1)
        W = draw(n, h, generator) * _spectral_scale(h)
        return _pair(W, torch.full((n,), math.sqrt(1 / n), dtype=h.dtype))

    return make


def _gaussian(n: int, h: Tensor, generator: Generator) -> Tensor:
    return torch.randn(n, len(h), generator=generator, dtype=h.dtype)


def _orthogonal(n: int, h: Tensor, generator: Generator) -> Tensor:
    """Orthogonal random features (Yu et al., 2016): blocks of d directions with χ_d lengths.

    Up to sign each has the law of a Gaussian frequency, but in a block none repeats another.
    """
    d = len(h)
    shape = -(-n // d), d, d
    blocks, lengths = (torch.randn(shape, generator=generator, dtype=h.dtype) for _ in range(2))
    return (torch.linalg.qr(blocks).Q * lengths.norm(dim=-1)[..., None]).reshape(-1, d)[:n]


def _sobol(n: int, h: Tensor, generator: Generator) -> Tensor:
    """Quasi-Monte Carlo: scrambled Sobol points through the normal quantile.

    Sobol points are balanced in powers of two only, so the next power is drawn and its head kept.
    """
    seed = int(torch.randint(2**31 - 1, (), generator=generator))
    points = qmc.Sobol(len(h), rng=seed).random_base2(max(n - 1, 1).bit_length())[:n]
    return torch.special.ndtri(torch.as_tensor(points, dtype=torch.float64)).to(h)


def lattice_frequencies(
    n_features: int, h: Tensor, period: Tensor, generator: Generator
) -> Frequencies:
    """Fourier series of the kernel on a torus of the given period: no randomness at all.

    The frequencies are 2πk/P for integer vectors k, heaviest first, and a_k² is the spectrum there
    (the trapezoidal rule on Bochner's integral, exact up to the wrapped kernel). In one and two
    dimensions this has neither the variance nor the floor of random frequencies; the number of
    lattice points in a ball makes it useless beyond four. D is one constant and as many pairs of
    a cosine and a sine as fit.
    """
    n = (n_features - 1) // 2
    step = 2 * math.pi / period
    K = _half_lattice(n, step * h)  # (n, d), the origin left out
    W = torch.cat([torch.zeros(1, len(h), dtype=h.dtype), K * step])
    weight = torch.exp(-0.5 * (W / _spectral_scale(h)).square().sum(1))
    weight[0] /= 2  # k and −k share a pair; the origin stands alone
    W, b, a = _pair(W, (weight / weight.sum()).sqrt())
    keep = torch.arange(len(b)) != n + 1  # all but the sine of the zero frequency
    return W[keep], b[keep], a[keep]


FREQUENCIES: dict[str, MakeFrequencies] = {
    "random": random_frequencies,
    "paired": _paired(_gaussian),
    "orthogonal": _paired(_orthogonal),
    "sobol": _paired(_sobol),
    "lattice": lattice_frequencies,
}


def _spectral_scale(h: Tensor) -> Tensor:
    """Standard deviation √γ of the spectrum of k_{γ/2}."""
    return gamma_from_bandwidth(h).sqrt()


def _pair(W: Tensor, a: Tensor) -> Frequencies:
    b = torch.zeros(len(W), dtype=W.dtype)
    return torch.cat([W, W]), torch.cat([b, b - math.pi / 2]), torch.cat([a, a])


def _half_lattice(n: int, weight: Tensor) -> Tensor:
    """First n integer vectors by Σ(weight·k)², one of each pair ±k, without the origin."""
    d = len(weight)
    volume = math.pi ** (d / 2) / math.gamma(d / 2 + 1)
    radius = (2 * n / volume * weight.prod().item()) ** (1 / d) + weight.norm().item()
    reach = [min(int(radius / w) + 1, n) for w in weight.tolist()]  # n of them fill any axis
    axes = [torch.arange(-m, m + 1) for m in reach]
    K = torch.cartesian_prod(*axes).reshape(-1, d)
    K = K[len(K) // 2 + 1 :].to(weight)  # lexicographically after the origin: one of each pair
    return K[torch.argsort((K * weight).square().sum(1), stable=True)[:n]]


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
        if W.shape[1] > 2 or W.dtype != torch.float64:
            return None
        size = W.abs()
        step = torch.where(size > 0, size, torch.inf).amin(0)
        step = torch.where(step.isinf(), 1.0, step)
        multiple = W / step
        index = multiple.round()
        most, off = float(index.abs().max()), float((multiple - index).abs().max())
        if most > len(W) or off > 1e-12 * most:  # but for rounding
            return None
        index = torch.nn.functional.pad(index.long(), (0, 2 - W.shape[1]))
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

    def quadratic(self, M: Tensor, b: Tensor, a: Tensor, x: Tensor) -> Tensor:
        """Values φᵀMφ, of shape (n,), at x of shape (n, d): `gram` the other way round.

        Their rounding is relative to the entries of M, so that small ones may be below zero.
        """
        n = self.n_waves[1]
        flat, origin = self.index[:, 0] * n + self.index[:, 1], math.prod(self.n_waves) // 2
        z = torch.polar(a, b)
        sums = z.new_zeros(math.prod(self.n_waves))
        for sign, other in ((-1, z.conj()), (1, z)):
            place = flat[:, None] + sign * flat + origin
            sums.index_add_(0, place.flatten(), (M * z[:, None] * other).flatten())
        first, second = (_exponentials(degree) for degree in self.degree)
        A = (first.T @ sums.reshape(self.n_waves) @ second).real / 2
        f1, f2 = self.waves(x)
        return ((A.T @ f1) * f2).sum(0)

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

    W (m₁ + m₂, d) and b (m₁ + m₂, 1) are the frequencies and phases of the waves, those of f₁
    first; of one column, m₂ = 0. A (m₂, m₁), or (1, m₁), are the coefficients, transposed.
    """

    W: Array
    b: Array
    A: Array
    faint: float

    @classmethod
    def of(cls, lattice: Lattice, square: Callable[[Tensor], Tensor]) -> "LatticeSeries":
        """The series of a function that is such a square, from its values."""
        values = torch.cat([square(x) for x in lattice.nodes.split(1024)])
        A = _coefficients(_coefficients(values.reshape(lattice.n_waves)).T)
        faint = 1e9 * torch.finfo(A.dtype).eps * float(A.abs().sum())
        return cls(*lattice.all_waves, A, faint)

    def converted(self, convert: Callable[[Tensor], Array]) -> "LatticeSeries":
        """The same series of converted tensors."""
        return LatticeSeries(convert(self.W), convert(self.b), convert(self.A), self.faint)

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


def _multiples(degree: int) -> Tensor:
    """Multiples k of 1, cos θ, …, cos Mθ, sin θ, …, sin Mθ."""
    return torch.cat([torch.arange(degree + 1), torch.arange(1, degree + 1)])


def _is_sine(degree: int) -> Tensor:
    return torch.arange(2 * degree + 1) > degree


def _nodes(degree: int) -> Tensor:
    return 2 * math.pi / (2 * degree + 1) * torch.arange(2 * degree + 1, dtype=torch.float64)


def _coefficients(values: Tensor) -> Tensor:
    """Coefficients of 1, cos θ, …, sin θ, … from values at the nodes, along the last axis."""
    c = torch.fft.rfft(values, norm="forward")
    return torch.cat([c.real[..., :1], 2 * c.real[..., 1:], -2 * c.imag[..., 1:]], -1)


def _exponentials(degree: int) -> Tensor:
    """Matrix from waves to exp(ikθ), k from −M to M."""
    k, multiples, is_sine = torch.arange(-degree, degree + 1), _multiples(degree), _is_sine(degree)
    same = (k.abs()[:, None] == multiples).double()
    return torch.complex(same * ~is_sine, same * is_sine * k.sign()[:, None])

r"""Orthonormal functions of one part of a table, the physical index of a tensor train.

A part has a law of its own: standard normal on a line, uniform on a circle, a mass function of
codes. Its functions are orthonormal under that law m, and the first of them is one:

.. math:: \int e_k(x)\, e_l(x)\, dm(x) = \delta_{kl}, \qquad e_0 = 1

All integrals of a train follow from those of the products, which are sums of M functions with
known integrals, :math:`e_k e_l = \sum_m P_{kl,m} f_m`.
"""

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from qaffde.nn.parts import CIRCLE, LINE, Part

N_CELLS = 128
"""Cells of the table that a quantile is looked up in."""
MAX_STEPS, TOLERANCE = 60, 1e-15
"""Of Newton's method inside a cell."""


class ColumnBasis(nn.Module, ABC):
    """K functions of a part that are orthonormal under its law.

    Attributes
    ----------
    products : Tensor of shape (K, K, M)
        P, coefficients of the products of two functions.
    roughness : Tensor of shape (K,)
        Mean square of the derivative of each function; zero for the constant.
    """

    products: Tensor
    roughness: Tensor

    @property
    def n_functions(self) -> int:
        """The number of functions K."""
        return len(self.products)

    @property
    @abstractmethod
    def part(self) -> Part:
        """The kind of the part."""

    @abstractmethod
    def log_law(self, x: Tensor) -> Tensor:
        """Log-density (n,) of the part's own law at values (n,)."""

    @abstractmethod
    def values(self, x: Tensor) -> Tensor:
        """Functions (n, K) at values (n,)."""

    @abstractmethod
    def integrals(self, region: Tensor) -> Tensor:
        """Integrals (n, M) of f over regions: ends (n, 2), or masks (n, C) of codes."""

    @abstractmethod
    def quantiles(self, state: Tensor, q: Tensor) -> Tensor:
        """Values (n,) up to which the densities eᵀσe of n states have mass q (n,).

        Parameters
        ----------
        state : Tensor of shape (n, K, K) or (1, K, K)
            σ, of trace one.
        q : Tensor of shape (n,)
        """

    def gram(self, region: Tensor) -> Tensor:
        """Integrals (n, K, K) of all products over regions."""
        return torch.einsum("nm,klm->nkl", self.integrals(region), self.products.double())


class WaveBasis(ColumnBasis):
    r"""Cosines :math:`\sqrt2 \cos \pi k u` of u = Φ(x), or the Fourier basis of a circle.

    Parameters
    ----------
    n_functions : int
        K.
    periodic : bool, default=False
        Whether x is a point of a circle of length one, with the functions
        :math:`1, \sqrt2 \cos 2\pi x, \sqrt2 \sin 2\pi x, …`

    Examples
    --------
    >>> basis = WaveBasis(3, periodic=True)
    >>> e = basis.values(torch.arange(64).double() / 64)
    >>> torch.allclose(e.T @ e / 64, torch.eye(3).double())
    True
    """

    frequency: Tensor
    phase: Tensor

    def __init__(self, n_functions: int, *, periodic: bool = False) -> None:
        super().__init__()
        self.periodic = periodic
        k = torch.arange(n_functions)
        frequency, phase = (2 * ((k + 1) // 2), (k > 0) * (k + 1) % 2) if periodic else (k, 0 * k)
        self.register_buffer("frequency", math.pi * frequency.double())
        self.register_buffer("phase", math.pi / 2 * phase.double())
        self.register_buffer("roughness", self.frequency.square())
        self.register_buffer("products", _wave_products(frequency, phase))

    @property
    def part(self) -> Part:
        """A line or a circle."""
        return CIRCLE if self.periodic else LINE

    def log_law(self, x: Tensor) -> Tensor:
        """Logarithm of the normal density, or of the uniform one."""
        return 0 * x if self.periodic else -0.5 * (x.square() + math.log(2 * math.pi))

    def values(self, x: Tensor) -> Tensor:
        """Functions (n, K) at values (n,)."""
        angle = self._level(x)[:, None] * self.frequency.to(x)
        waves = (angle - self.phase.to(x) if self.periodic else angle).cos()
        return waves * _amplitude(self.frequency).to(x)

    def integrals(self, region: Tensor) -> Tensor:
        """Integrals (n, M) of 1, cos πmu, … (on a circle sin πmu, … too) between ends (n, 2)."""
        low, high = (self._antiderivative(self._level(end.double())) for end in region.T)
        return high - low

    def quantiles(self, state: Tensor, q: Tensor) -> Tensor:
        """Values (n,) up to which the densities eᵀσe of n states have mass q (n,)."""
        c = torch.einsum("nkl,klm->nm", state.double(), self.products)
        edges = torch.linspace(0, 1, N_CELLS + 1, dtype=torch.float64)
        table = (c @ self._antiderivative(edges).T).cummax(1).values.expand(len(q), -1)
        cell = torch.searchsorted(table.contiguous(), q[:, None])[:, 0]
        low = edges[(cell - 1).clamp(0, N_CELLS - 1)]
        level = self._solved(low, low + 1 / N_CELLS, c, q)
        level = torch.where(q >= 1, 1.0, torch.where(q <= 0, 0.0, level))
        return level if self.periodic else torch.special.ndtri(level)

    def _solved(self, low: Tensor, high: Tensor, c: Tensor, q: Tensor) -> Tensor:
        """Levels u (n,) between others with F(u) = q, by Newton's steps inside a bracket."""
        u = (low + high) / 2
        for _ in range(MAX_STEPS):
            excess = (self._antiderivative(u) * c).sum(1) - q
            low, high = torch.where(excess < 0, u, low), torch.where(excess < 0, high, u)
            slope = (self._waves(u) * c).sum(1)
            new = u - excess / slope.clamp(min=1e-300)
            new = torch.where((new > low) & (new < high), new, (low + high) / 2)
            if (new - u).abs().max() < TOLERANCE:
                return new
            u = new
        return u

    def _waves(self, u: Tensor) -> Tensor:
        """The functions f (n, M) whose integrals are the antiderivatives."""
        angle = u[:, None] * self._multiples()
        waves = [torch.ones_like(u)[:, None], angle.cos()]
        return torch.cat([*waves, angle.sin()] if self.periodic else waves, 1)

    def _multiples(self) -> Tensor:
        top = self.products.shape[2]
        n = (top - 1) // 2 if self.periodic else top - 1
        return math.pi * torch.arange(1, n + 1, dtype=torch.float64)

    def _level(self, x: Tensor) -> Tensor:
        return x if self.periodic else torch.special.ndtr(x)

    def _antiderivative(self, u: Tensor) -> Tensor:
        m = self._multiples()
        angle = u[:, None] * m
        found = [u[:, None], angle.sin() / m]
        return torch.cat([*found, (1 - angle.cos()) / m] if self.periodic else found, 1)

    def extra_repr(self) -> str:
        """Show the size and the kind."""
        return f"{self.n_functions}, periodic={self.periodic}"


class CodeBasis(ColumnBasis):
    """Functions of codes, orthonormal under their mass function.

    They are cosines of the codes' middle levels made orthonormal: the first vary slowly from code
    to code.

    Parameters
    ----------
    masses : Tensor of shape (C,)
        Positive, of sum one.
    n_functions : int, optional
        K, at most C, which is the default.

    Examples
    --------
    >>> basis = CodeBasis(torch.tensor([0.5, 0.25, 0.25]).double())
    >>> e = basis.values(torch.arange(3))
    >>> torch.allclose(e.T @ (basis.masses[:, None] * e), torch.eye(3).double())
    True
    """

    masses: Tensor
    table: Tensor

    def __init__(self, masses: Tensor, n_functions: int | None = None) -> None:
        super().__init__()
        masses = masses.double()
        K = len(masses) if n_functions is None else min(n_functions, len(masses))
        frequency = math.pi * torch.arange(K, dtype=torch.float64)
        waves = ((masses.cumsum(0) - masses / 2)[:, None] * frequency).cos()
        Q, R = torch.linalg.qr(masses.sqrt()[:, None] * waves)
        table = Q * R.diagonal().sign() / masses.sqrt()[:, None]
        products = table[:, :, None] * table[:, None, :] * masses[:, None, None]
        self.register_buffer("masses", masses)
        self.register_buffer("table", table)
        self.register_buffer("roughness", frequency.square())
        self.register_buffer("products", products.permute(1, 2, 0).contiguous())

    @property
    def part(self) -> Part:
        """Codes."""
        return Part("codes", len(self.masses))

    def log_law(self, x: Tensor) -> Tensor:
        """Logarithm of the masses."""
        return self.masses.log()[x.long()].to(x)

    def values(self, x: Tensor) -> Tensor:
        """Functions (n, K) at codes (n,)."""
        return self.table[x.long()]

    def integrals(self, region: Tensor) -> Tensor:
        """Masks (n, C) themselves."""
        return region.double()

    def quantiles(self, state: Tensor, q: Tensor) -> Tensor:
        """First codes (n,) up to which n states have mass q (n,)."""
        masses = torch.einsum("nkl,klm->nm", state.double(), self.products)
        level = masses.clamp(min=0).cumsum(1).expand(len(q), -1).contiguous()
        found = torch.searchsorted(level, (q * level[:, -1])[:, None])[:, 0]
        return found.clamp(max=len(self.masses) - 1).double()


def _wave_products(frequency: Tensor, phase: Tensor) -> Tensor:
    """Coefficients (K, K, M) of a_k a_l cos(θ_k − φ_k) cos(θ_l − φ_l) in cos πmu and sin πmu.

    Phases φ are numbers of right angles.
    """
    K, top = len(frequency), int(2 * frequency.max()) + 1
    amplitude = _amplitude(frequency)
    half = amplitude[:, None] * amplitude / 2
    P = torch.zeros(K, K, 2 * top, dtype=torch.float64)
    rows, columns = torch.meshgrid(torch.arange(K), torch.arange(K), indexing="ij")
    for sign in (1, -1):
        m = frequency[:, None] + sign * frequency
        turn = math.pi / 2 * (phase[:, None] + sign * phase).double()
        P.index_put_((rows, columns, m.abs()), half * turn.cos(), accumulate=True)
        P.index_put_((rows, columns, top + m.abs()), half * turn.sin() * m.sign(), accumulate=True)
    cosines, sines = P[:, :, :top], P[:, :, top + 1 :]  # the sine of frequency 0 is zero
    return torch.cat([cosines, sines], 2) if phase.any() else cosines


def _amplitude(frequency: Tensor) -> Tensor:
    return (1 + (frequency > 0).double()).sqrt()

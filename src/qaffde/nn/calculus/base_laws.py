r"""Base laws of one coordinate: uniform and normal. The base of a term is a product of them.

A term lives in coordinates u that are independent under its base: uniform on [−1, 1] or standard
normal. All that the calculus asks of the law are three functions of a frequency,

.. math:: E[\cos \omega u], \quad E[u \sin \omega u], \quad E[u^2 \cos \omega u].
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from qaffde.functional.born import negative_half_squares


class Law(ABC):
    """Law of one coordinate, symmetric about zero; a term's base is a product of them."""

    reach: float
    """All but 3e-12 of the mass lies in [−reach, reach]."""
    bandwidth: float
    """Highest frequency of the density itself, to 3e-11."""
    bounded: bool
    """Whether mass outside the reach is exactly zero."""

    @abstractmethod
    def log_density(self, u: Tensor) -> Tensor:
        """Log-density of a product of laws, of shape (...), at u of shape (..., d)."""

    @abstractmethod
    def draw(self, n: int, d: int, generator: Generator) -> Tensor:
        """Independent draws of shape (n, d), float64."""

    @abstractmethod
    def between(self, low: Tensor, high: Tensor, level: Tensor) -> tuple[Tensor, Tensor]:
        """Quantiles of the law between two ends, and the mass between them; elementwise."""

    @abstractmethod
    def below(self, u: Tensor) -> Tensor:
        """Distribution function less a half, elementwise; for differences."""

    @abstractmethod
    def characteristic(self, omega: Tensor, order: int = 0) -> Tensor:
        """E[u^k cos ωu] for even order k, E[u^k sin ωu] for odd, k ≤ 2; elementwise."""

    @abstractmethod
    def triangular(self, C: Tensor) -> tuple[Tensor, Tensor]:
        """Lower-triangular C′ and orthogonal Q with C = C′Qᵀ, where Qᵀu has the law of u."""

    def pair_characteristic(self, W: Tensor, sign: int) -> Tensor:
        """Product over columns of E[cos((w_i + sign·w_j)u)], of shape (H, H)."""
        columns = (self.characteristic(w[:, None] + sign * w) for w in W.T)
        return math.prod(columns, start=torch.ones((), dtype=W.dtype))


class UniformLaw(Law):
    """Uniform on [−1, 1].

    Examples
    --------
    >>> UniformLaw().characteristic(torch.tensor([0.0, math.pi])).abs().round(decimals=6)
    tensor([1., 0.])
    """

    reach, bandwidth, bounded = 1.0, 0.0, True

    def log_density(self, u: Tensor) -> Tensor:
        """−d log 2 inside, −∞ outside; an edge is inside, up to rounding."""
        inside = (u.abs() <= 1 + 1e-12).all(-1)
        log_inside = torch.tensor(-u.shape[-1] * math.log(2), dtype=u.dtype)
        return torch.where(inside, log_inside, -torch.inf)

    def draw(self, n: int, d: int, generator: Generator) -> Tensor:
        """Uniform numbers, moved to [−1, 1]."""
        return 2 * torch.rand(n, d, generator=generator, dtype=torch.float64) - 1

    def between(self, low: Tensor, high: Tensor, level: Tensor) -> tuple[Tensor, Tensor]:
        """A point on the line between the ends, cut to [−1, 1]."""
        low, high = low.clamp(-1, 1), high.clamp(-1, 1)
        return low + level * (high - low), (high - low) / 2

    def below(self, u: Tensor) -> Tensor:
        """Half the coordinate, cut to [−1, 1]."""
        return u.clamp(-1, 1) / 2

    def characteristic(self, omega: Tensor, order: int = 0) -> Tensor:
        """The cardinal sine, and minus its first and second derivatives."""
        if order == 0:
            return torch.sinc(omega / math.pi)
        small = omega.abs() < 1
        w = torch.where(small, 1, omega)
        if order == 1:
            closed = (w.sin() - w * w.cos()) / w.square()
        else:
            closed = ((w.square() - 2) * w.sin() + 2 * w * w.cos()) / w**3
        return torch.where(small, _sinc_series(torch.where(small, omega, 0), order), closed)

    def triangular(self, C: Tensor) -> tuple[Tensor, Tensor]:
        """A permuted diagonal matrix has one entry in each row: sort the columns by it."""
        order = C.abs().argmax(1)
        return C[:, order], torch.eye(len(C), dtype=C.dtype)[:, order]


class NormalLaw(Law):
    """Standard normal.

    Examples
    --------
    >>> NormalLaw().characteristic(torch.tensor([0.0, 1.0]))
    tensor([1.0000, 0.6065])
    """

    reach, bandwidth, bounded = 7.0, 7.0, False

    def log_density(self, u: Tensor) -> Tensor:
        """−½‖u‖² − (d/2) log 2π."""
        return -0.5 * u.square().sum(-1) - 0.5 * u.shape[-1] * math.log(2 * math.pi)

    def draw(self, n: int, d: int, generator: Generator) -> Tensor:
        """Normal numbers."""
        return torch.randn(n, d, generator=generator, dtype=torch.float64)

    def between(self, low: Tensor, high: Tensor, level: Tensor) -> tuple[Tensor, Tensor]:
        """By the lower tail, which has digits where the distribution function is near one."""
        flip = low > 0
        low, high = torch.where(flip, -high, low), torch.where(flip, -low, high)
        below, above = torch.special.ndtr(low), torch.special.ndtr(high)
        u = torch.special.ndtri(below + level * (above - below)).clamp(-40, 40)
        return torch.where(flip, -u, u), above - below

    def below(self, u: Tensor) -> Tensor:
        """Half the error function, which is quicker than the distribution function."""
        return torch.erf(u / math.sqrt(2)) / 2

    def characteristic(self, omega: Tensor, order: int = 0) -> Tensor:
        """exp(−½ω²) times 1, ω or 1 − ω²."""
        factor = (1, omega, 1 - omega.square())[order]
        return factor * torch.exp(-0.5 * omega.square())

    def triangular(self, C: Tensor) -> tuple[Tensor, Tensor]:
        """QR of the transpose: the standard normal does not see a rotation."""
        Q, R = torch.linalg.qr(C.T)
        sign = torch.where(R.diagonal() < 0, -1.0, 1.0).to(C.dtype)
        return R.T * sign, Q * sign

    def pair_characteristic(self, W: Tensor, sign: int) -> Tensor:
        """Exponential of −½‖w_i ± w_j‖²."""
        return negative_half_squares(W, sign).exp_()


class PartLaw(ABC):
    """Law of a column that is no coordinate of a base; its mass may be that of a region."""

    @abstractmethod
    def characteristic(self, omega: Tensor) -> Tensor:
        """E[exp(iωx)], elementwise."""

    def pair_characteristic(self, W: Tensor, sign: int) -> Tensor:
        """E[exp(i(w_j + sign·w_i)x)] of frequencies (H, 1), of shape (H, H)."""
        return self.characteristic(W.T + sign * W)


@dataclass(frozen=True, eq=False)
class PointLaw(PartLaw):
    """Masses (m,) at points (m,).

    Examples
    --------
    >>> coin = PointLaw(torch.tensor([0.0, 1.0]), torch.tensor([0.5, 0.5]))
    >>> coin.characteristic(torch.tensor([0.0, math.pi])).real.round()
    tensor([1., 0.])
    """

    points: Tensor
    masses: Tensor

    def characteristic(self, omega: Tensor) -> Tensor:
        """A sum of waves."""
        return torch.exp(1j * omega[..., None] * self.points) @ (self.masses + 0j)

    def pair_characteristic(self, W: Tensor, sign: int) -> Tensor:
        """Sums as one product."""
        wave = torch.exp(1j * W * self.points)
        return ((wave.conj() if sign < 0 else wave) * self.masses) @ wave.mT


@dataclass(frozen=True, eq=False)
class WrappedLaw(PartLaw):
    """Normal law wrapped on a circle of length one, for frequencies that are multiples of 2π."""

    mean: Tensor
    deviation: Tensor

    def characteristic(self, omega: Tensor) -> Tensor:
        """That of the normal law."""
        size = torch.exp(-0.5 * (omega * self.deviation).square())
        return torch.polar(size, omega * self.mean)


@dataclass(frozen=True, eq=False)
class ProductLaw:
    """Independent laws of several columns."""

    laws: tuple[PartLaw, ...]

    def pair_characteristic(self, W: Tensor, sign: int) -> Tensor:
        """Product over columns, of shape (H, H)."""
        columns = zip(self.laws, W.T, strict=True)
        pairs = (law.pair_characteristic(w[:, None], sign) for law, w in columns)
        return math.prod(pairs, start=torch.ones((), dtype=torch.complex128))


def _sinc_series(omega: Tensor, order: int) -> Tensor:
    """Minus the derivative of sin(ω)/ω of the given order, for |ω| < 1, by its power series."""
    total = torch.zeros_like(omega)
    for k in range(1, 10):
        slope = 2 * k if order == 1 else 2 * k * (2 * k - 1)
        total -= (-1) ** k * slope * omega ** (2 * k - order) / math.factorial(2 * k + 1)
    return total

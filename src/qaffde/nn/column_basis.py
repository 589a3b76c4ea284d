r"""Orthonormal functions of one part of a table, the physical index of a tensor train.

A part has a law of its own: standard normal on a line, uniform on a circle, a mass function of
codes. Its functions are orthonormal under that law m, and the first of them is one:

.. math:: \int e_k(x)\, e_l(x)\, dm(x) = \delta_{kl}, \qquad e_0 = 1

All integrals of a train follow from those of the products, which are sums of M functions with
known integrals, :math:`e_k e_l = \sum_m P_{kl,m} f_m`.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor, nn

from qaffde.nn.parts import CIRCLE, LINE, Part

N_CELLS = 128
"""Cells of the table that a quantile is looked up in."""
MAX_STEPS, TOLERANCE = 30, 1e-13
"""Of the secants inside a cell."""
STRIDE = 4
"""Cosines that others are recurrences of."""


class ColumnBasis(nn.Module, ABC):
    """K functions of a part that are orthonormal under its law.

    Attributes
    ----------
    part : Part
    products : Tensor of shape (K, K, M)
        P, coefficients of the products of two functions.
    roughness : Tensor of shape (K,)
        Mean square of the derivative of each function; zero for the constant.
    """

    part: Part
    products: Tensor
    roughness: Tensor

    @property
    def n_functions(self) -> int:
        """The number of functions K."""
        return len(self.products)

    @abstractmethod
    def log_law(self, x: Tensor) -> Tensor:
        """Log-density (n,) of the part's own law at values (n,)."""

    @abstractmethod
    def values(self, x: Tensor) -> Tensor:
        """Functions (n, K) at values (n,)."""

    def loaded(self, x: Tensor, V: Tensor) -> Tensor:
        """V e(x) of shape (n, b) at values (n,), with V of shape (b, K)."""
        return self.values(x).to(V.dtype) @ V.T

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

    def breaks(self) -> Tensor:
        """Values (k,) where functions may jump."""
        return torch.empty(0, dtype=torch.float64)

    def gram(self, region: Tensor) -> Tensor:
        """Integrals (n, K, K) of all products over regions."""
        return torch.einsum("nm,klm->nkl", self.integrals(region), self.products.double())


class LevelBasis(ColumnBasis):
    """Functions of a part, written in its level u, which is uniform on [0, 1] under its law.

    Attributes
    ----------
    level, of_level : callable
        Levels (n,) of values (n,), and back.
    """

    level: Callable[[Tensor], Tensor]
    of_level: Callable[[Tensor], Tensor]

    @abstractmethod
    def at_level(self, u: Tensor, V: Tensor) -> Tensor:
        """V e of shape (n, b) at levels (n,)."""

    @abstractmethod
    def antiderivative(self, u: Tensor) -> Tensor:
        """Integrals (n, M) of f up to levels (n,)."""

    def values(self, x: Tensor) -> Tensor:
        """Functions (n, K) at values (n,)."""
        return self.loaded(x, torch.eye(self.n_functions, dtype=x.dtype))

    def loaded(self, x: Tensor, V: Tensor) -> Tensor:
        """V e(x) of shape (n, b) at values (n,), with V of shape (b, K)."""
        return self.at_level(self.level(x), V)

    def integrals(self, region: Tensor) -> Tensor:
        """Integrals (n, M) of f between ends (n, 2)."""
        low, high = (self.antiderivative(self.level(end.double())) for end in region.T)
        return high - low

    def quantiles(self, state: Tensor, q: Tensor) -> Tensor:
        """Values (n,) up to which the densities of n states have mass q (n,).

        By secants of a bracket, an end of which counts half once the other has moved twice.
        """
        c = torch.einsum("nkl,klm->nm", state.double(), self.products)
        cells = torch.linspace(0, 1, N_CELLS + 1, dtype=torch.float64)
        edges = torch.cat([self.level(self.breaks()), cells]).unique()
        table = (c @ self.antiderivative(edges).T).cummax(1).values.expand(len(q), -1)
        cell = torch.searchsorted(table.contiguous(), q[:, None]).clamp(1, len(edges) - 1)
        (low, below), (high, above) = (
            (edges[k[:, 0]], table.gather(1, k)[:, 0] - q) for k in (cell - 1, cell)
        )
        u, rose = (low + high) / 2, torch.zeros_like(q)
        for _ in range(MAX_STEPS):
            excess = (self.antiderivative(u) * c).sum(1) - q
            rises = excess < 0
            below = torch.where(rises, excess, torch.where(rose < 0, below / 2, below))
            above = torch.where(rises, torch.where(rose > 0, above / 2, above), excess)
            low, high = torch.where(rises, u, low), torch.where(rises, high, u)
            rose = torch.where(rises, 1.0, -1.0)
            new = low - below * ((high - low) / (above - below)).nan_to_num(0, 0, 0)
            moved, u = (new - u).abs().max(), new
            if moved < TOLERANCE:
                break
        return self.of_level(torch.where(q >= 1, 1.0, torch.where(q <= 0, 0.0, u)))


class WaveBasis(LevelBasis):
    r"""Cosines of a line whose law is standard normal, denser where they are asked to be.

    With u = Φ(x) and a piecewise linear v(u) of slope s from [0, 1] to [0, 1],

    .. math:: g_0 = 1, \qquad g_k = \sqrt{2 s} \cos \pi k v

    are made orthonormal in this order. The resolution is 1/K in v: rare values can have more of
    it than their share of the law. For v = u they are the cosines of u.

    Parameters
    ----------
    n_functions : int
        K.
    knots : Tensor of shape (2, J), optional
        u and v where the slope changes, from (0, 0) to (1, 1), both rising.

    Examples
    --------
    >>> basis = WaveBasis(3, torch.tensor([[0.0, 0.8, 1.0], [0.0, 0.5, 1.0]]).double())
    >>> x = torch.special.ndtri((torch.arange(20000).double() + 0.5) / 20000)
    >>> e = basis.values(x)
    >>> torch.allclose(e.T @ e / 20000, torch.eye(3).double(), atol=1e-3)
    True
    """

    part = LINE
    level, of_level = staticmethod(torch.special.ndtr), staticmethod(torch.special.ndtri)
    knots: Tensor
    mixing: Tensor

    def __init__(self, n_functions: int, knots: Tensor | None = None) -> None:
        super().__init__()
        line = torch.tensor([[0.0, 1.0], [0.0, 1.0]], dtype=torch.float64)
        self.register_buffer("knots", line if knots is None else knots.double())
        k = torch.arange(n_functions)
        self.register_buffer("roughness", (math.pi * k.double()).square())
        products = _line_products(n_functions)
        whole = self.antiderivative(torch.ones(1, dtype=torch.float64))[0]
        mixing = torch.linalg.inv(torch.linalg.cholesky(products @ whole))
        self.register_buffer("mixing", mixing)
        self.register_buffer("products", torch.einsum("ij,kl,jlm->ikm", mixing, mixing, products))

    def log_law(self, x: Tensor) -> Tensor:
        """Logarithm of the normal density."""
        return -0.5 * (x.square() + math.log(2 * math.pi))

    def at_level(self, u: Tensor, V: Tensor) -> Tensor:
        """V e of shape (n, b); V takes up what makes the cosines orthonormal."""
        v, slope, _ = self._warped(u)
        waves = multiple_cosines(math.pi * v, (2 * slope).sqrt(), self.n_functions - 1)
        mixed = V @ self.mixing.to(V.dtype)
        return torch.addmm(mixed[:, :1], mixed[:, 1:], waves.to(V.dtype)).T

    def breaks(self) -> Tensor:
        """Values (k,) at the inner knots."""
        return torch.special.ndtri(self.knots[0, 1:-1])

    def _warped(self, u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """v, its slope and the piece, each of shape (n,), at u (n,)."""
        knots = self.knots.to(u.dtype)
        piece = torch.searchsorted(knots[0].contiguous(), u.detach().contiguous(), right=True)
        piece = (piece - 1).clamp(0, knots.shape[1] - 2)
        slopes = knots[1].diff() / knots[0].diff()
        return knots[1][piece] + slopes[piece] * (u - knots[0][piece]), slopes[piece], piece

    def antiderivative(self, u: Tensor) -> Tensor:
        """Integrals (n, M) up to u (n,) of 1, of √(2s) cos πkv and of s cos πmv."""
        K = len(self.roughness)
        v, slope, piece = self._warped(u)
        m = math.pi * torch.arange(1, 2 * K - 1, dtype=torch.float64)
        sines, edges = (v[:, None] * m).sin() / m, (self.knots[1][:, None] * m).sin() / m
        slopes = self.knots[1].diff() / self.knots[0].diff()
        steps = edges[:, : K - 1].diff(dim=0) * (2 / slopes).sqrt()[:, None]
        before = torch.cat([torch.zeros_like(steps[:1]), steps.cumsum(0)])[piece]
        roots = before + (sines - edges[piece])[:, : K - 1] * (2 / slope).sqrt()[:, None]
        return torch.cat([u[:, None], roots, v[:, None], sines], 1)

    def extra_repr(self) -> str:
        """Show the size."""
        return f"{self.n_functions}, {self.knots.shape[1]} knots"


class CircleBasis(LevelBasis):
    r"""The Fourier basis of a circle.

    Its functions are one, :math:`\sqrt2 \cos 2\pi kx` and :math:`\sqrt2 \sin 2\pi kx`.

    Parameters
    ----------
    n_functions : int
        K.

    Examples
    --------
    >>> e = CircleBasis(3).values(torch.arange(64).double() / 64)
    >>> torch.allclose(e.T @ e / 64, torch.eye(3).double())
    True
    """

    part = CIRCLE
    level = of_level = staticmethod(torch.positive)
    frequency: Tensor
    phase: Tensor

    def __init__(self, n_functions: int) -> None:
        super().__init__()
        k = torch.arange(n_functions)
        frequency, phase = 2 * ((k + 1) // 2), (k > 0) * (k + 1) % 2
        self.register_buffer("frequency", math.pi * frequency.double())
        self.register_buffer("phase", math.pi / 2 * phase.double())
        self.register_buffer("roughness", self.frequency.square())
        self.register_buffer("products", wave_products(frequency, phase))

    def log_law(self, x: Tensor) -> Tensor:
        """Zero: the law is uniform."""
        return 0 * x

    def at_level(self, u: Tensor, V: Tensor) -> Tensor:
        """V e of shape (n, b)."""
        waves = (u[:, None] * self.frequency.to(u) - self.phase.to(u)).cos()
        return (waves * wave_amplitude(self.frequency).to(u)).to(V.dtype) @ V.T

    def antiderivative(self, u: Tensor) -> Tensor:
        """Integrals (n, M) up to u (n,) of 1, cos πmu, …, sin πmu, …."""
        m = math.pi * torch.arange(1, (self.products.shape[2] + 1) // 2, dtype=torch.float64)
        angle = u[:, None] * m
        return torch.cat([u[:, None], angle.sin() / m, (1 - angle.cos()) / m], 1)

    def extra_repr(self) -> str:
        """Show the size."""
        return str(self.n_functions)


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
        self.part = Part("codes", len(masses))
        self.register_buffer("masses", masses)
        self.register_buffer("table", table)
        self.register_buffer("roughness", frequency.square())
        self.register_buffer("products", products.permute(1, 2, 0).contiguous())

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


def multiple_cosines(angle: Tensor, size: Tensor, K: int) -> Tensor:
    """Cosines size · cos kθ for k = 1 … K, of shape (K, n), at angles (n,).

    By cos (k + s)θ = 2 cos sθ cos kθ − cos (k − s)θ, which takes a third of the time of cosines.
    """
    k = torch.arange(1, min(STRIDE, K) + 1, dtype=angle.dtype)[:, None]
    now, before = size * (k * angle).cos(), size * ((k - len(k)) * angle).cos()
    found, twice = [now], 2 * (len(k) * angle).cos()
    while len(found) * len(k) < K:
        now, before = twice * now - before, now
        found.append(now)
    return torch.cat(found)[:K]


def _line_products(K: int) -> Tensor:
    """Coefficients (K, K, M) of g_k g_l in 1, √(2s) cos πkv (k ≥ 1), and s cos πmv."""
    P = torch.zeros(K, K, 1 + (K - 1) + (2 * K - 1), dtype=torch.float64)
    P[0, 0, 0] = 1
    k = torch.arange(1, K)
    P[0, k, k] = P[k, 0, k] = 1
    rows, columns = torch.meshgrid(k, k, indexing="ij")
    one = torch.ones_like(rows, dtype=torch.float64)
    for m in (rows + columns, (rows - columns).abs()):
        P.index_put_((rows, columns, K + m), one, accumulate=True)
    return P


def wave_products(frequency: Tensor, phase: Tensor) -> Tensor:
    """Coefficients (K, K, M) of a_k a_l cos(θ_k − φ_k) cos(θ_l − φ_l) in cos πmu and sin πmu.

    Phases φ are numbers of right angles.
    """
    K, top = len(frequency), int(2 * frequency.max()) + 1
    amplitude = wave_amplitude(frequency)
    half = amplitude[:, None] * amplitude / 2
    P = torch.zeros(K, K, 2 * top, dtype=torch.float64)
    rows, columns = torch.meshgrid(torch.arange(K), torch.arange(K), indexing="ij")
    for sign in (1, -1):
        m = frequency[:, None] + sign * frequency
        turn = math.pi / 2 * (phase[:, None] + sign * phase).double()
        P.index_put_((rows, columns, m.abs()), half * turn.cos(), accumulate=True)
        P.index_put_((rows, columns, top + m.abs()), half * turn.sin() * m.sign(), accumulate=True)
    return torch.cat([P[:, :, :top], P[:, :, top + 1 :]], 2)  # the sine of frequency 0 is zero


def wave_amplitude(frequency: Tensor) -> Tensor:
    """Amplitudes (K,) that make waves of frequencies (K,) orthonormal: one, else √2."""
    return (1 + (frequency > 0).double()).sqrt()

r"""Parts of a table: real numbers, codes of a finite set, points of a circle.

Every column of a table becomes one or two parts (:mod:`qaffde.nn.table`). Densities of parts are
against the product of Lebesgue measure (lines, circles of length one) and counting measure
(codes). NaN stands for a part that is not known and is integrated out.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor, nn

from qaffde.nn.base import Density
from qaffde.nn.calculus.base_laws import PartLaw, PointLaw, WrappedLaw
from qaffde.nn.calculus.integrals import panels, quantiles

REACH = 8.5
"""Deviations beyond which a normal law adds nothing."""
MAX_DEVIATION, MIN_DEVIATION = 0.6, 2e-3
"""Of a wrapped normal law, in turns: the largest is uniform to one in a thousand."""
WIDE, HARMONICS = 0.1, 14
"""Deviation, in turns, from which on so many terms of a Fourier series are exact to rounding."""
CIRCLE_PANELS = 128
MAX_TURNS = 32
"""Of a wave on a circle in one turn."""
NODES, PLANE_NODES = 8, 7
"""Of a panel of a quadrature."""
MAX_PLANE_BREAKS = 16
"""Kinks of a function at which the panels of a plane end."""
MASS_ERROR = 1e-7
"""Mass of a row that a quadrature may miss before it gets panels of its own."""
FAINT = 30.0
"""Logarithm of the highest density of a row over that outside of its own panels."""
Region = Tensor | None
"""Of one part: ends (n, 2) on a line or circle, a mask (n, C) of codes, or None for all of it."""


@dataclass(frozen=True)
class Part:
    """Kind of a part.

    Parameters
    ----------
    kind : {"line", "circle", "codes"}
        A real number, a point of a circle in turns [0, 1), or one of the codes 0 … size − 1.
    size : int, default=0
        Number of codes.
    """

    kind: str
    size: int = 0

    @property
    def is_line(self) -> bool:
        """Whether it is a real number."""
        return self.kind == "line"

    def rule(self) -> tuple[Tensor, Tensor]:
        """Nodes and weights (m,) for integrals over a circle or sums over codes."""
        if self.kind == "circle":
            return panels(torch.linspace(0, 1, CIRCLE_PANELS + 1, dtype=torch.float64), NODES)
        codes = torch.arange(self.size, dtype=torch.float64)
        return codes, torch.ones_like(codes)


LINE, CIRCLE = Part("line"), Part("circle")


class PartsDensity(Density):
    """Density of q parts, closed under marginals and conditionals.

    Attributes
    ----------
    parts : tuple of Part
    """

    parts: tuple[Part, ...]

    @abstractmethod
    def log_prob(self, x: Tensor) -> Tensor:
        """Log-density (n,) of the known parts of x (n, q): NaN is integrated out."""

    @abstractmethod
    def marginal(self, parts: Sequence[int]) -> "PartsDensity":
        """Density of some parts, in the order given."""

    @abstractmethod
    def condition(self, parts: Sequence[int], values: Tensor) -> "PartsDensity":
        """Density of the other parts where `parts` have `values` of shape (t,)."""

    def condition_known(self, parts: Sequence[int], values: Tensor) -> "PartsDensity":
        """Density of the others where `parts` have `values` (t,); NaN is integrated out."""
        known = ~values.isnan()
        if known.all():
            return self.condition(parts, values)
        missing = {part for part, is_known in zip(parts, known, strict=True) if not is_known}
        kept = [part for part in range(len(self.parts)) if part not in missing]
        inner = [kept.index(part) for part in parts if part not in missing]
        return self.marginal(kept).condition(inner, values[known])

    @abstractmethod
    def fill(self, x: Tensor, generator: Generator) -> Tensor:
        """A copy of x (n, q) with a draw given the known parts of the row in place of NaN."""

    @abstractmethod
    def probability(self, regions: Sequence[Region]) -> tuple[Tensor, Tensor]:
        """Probabilities (n,) of products of regions, and their errors, zero where exact.

        Parameters
        ----------
        regions : sequence of q Tensors or None
            Of each part. Ends on a circle are turns: the first in [0, 1], the second up to one
            turn further.
        """

    @abstractmethod
    def edges(self, part: int, *, plane: bool) -> Tensor:
        """Ends (k,) of panels of a line in which the density of the part is smooth.

        A `plane` of two parts has fewer panels.
        """

    def quadrature(
        self, part: int, breaks: Tensor, *, plane: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Nodes and weights (m,) for integrals of smooth functions times the density of a part.

        Parameters
        ----------
        part : int
        breaks : Tensor of shape (k,)
            Where the functions have kinks; of a line only.
        plane : bool, default=False
            Whether the rule is for one of two parts, with fewer nodes.
        """
        if not self.parts[part].is_line:
            return self.parts[part].rule()
        edges = self.edges(part, plane=plane)
        if plane:
            breaks = breaks[:: max(1, -(-len(breaks) // MAX_PLANE_BREAKS))]
        breaks = breaks.double().clamp(edges[0], edges[-1])
        return panels(torch.cat([edges, breaks]).unique(), PLANE_NODES if plane else NODES)

    def log_prob_along(self, x: Tensor, part: int, nodes: Tensor) -> Tensor:
        """Log-density (n, m) of a part at nodes (m,), given the known parts of rows x (n, q).

        The part itself is not known in any row.
        """
        joint = x.repeat_interleave(len(nodes), 0)
        joint[:, part] = nodes.repeat(len(x))
        return self.log_prob(joint).reshape(len(x), -1) - self.log_prob(x)[:, None]

    def rule_given(self, given: Tensor, breaks: Tensor) -> tuple[Tensor, Tensor]:
        """Nodes and masses (n, m) of the last part, row by row given the others (n, q − 1)."""
        part = len(self.parts) - 1
        nodes, weights = self.quadrature(part, breaks)
        unknown = torch.cat([given, given.new_full((len(given), 1), torch.nan)], 1)
        log_p = self.log_prob_along(unknown, part, nodes)
        mass, nodes = log_p.exp() * weights, nodes.repeat(len(given), 1)
        missed = ~((mass.sum(1) - 1).abs() <= MASS_ERROR)
        if self.parts[part].is_line and missed.any():  # even panels, where it has mass
            near = log_p[missed] > log_p[missed].amax(1, keepdim=True) - FAINT
            first, last = near.int().argmax(1), near.flip(1).int().argmax(1)
            own, m = nodes[missed], len(weights)
            low = own.gather(1, (first - 1).clamp(min=0)[:, None])
            high = own.gather(1, (m - last).clamp(max=m - 1)[:, None])
            even = torch.lerp(low, high, torch.linspace(0, 1, m // NODES + 1).double())
            z, weights = panels(even, NODES)
            rows = torch.cat([given[missed].repeat_interleave(m, 0), z.reshape(-1, 1)], 1)
            log_p = self.log_prob(rows).reshape(z.shape) - self.log_prob(unknown[missed])[:, None]
            nodes[missed], mass[missed] = z, log_p.exp() * weights
        return nodes, mass

    def ppf(self, q: Tensor) -> Tensor:
        """Quantiles (n,) of one part, a line or a circle."""
        is_line = self.parts[0].is_line
        ends = self.edges(0, plane=True)[[0, -1]] if is_line else torch.tensor([0.0, 1.0]).double()
        start = -torch.inf if is_line else 0.0

        def cdf(x: Tensor) -> Tensor:
            return self.probability([torch.stack([torch.full_like(x, start), x], 1)])[0]

        found = quantiles(cdf, q, *ends)
        if is_line:
            found = torch.where(q == 0, -torch.inf, torch.where(q == 1, torch.inf, found))
        return found

    def sample(self, n: int, generator: Generator) -> Tensor:
        """Exact draws, of shape (n, q)."""
        nothing = torch.full((n, len(self.parts)), torch.nan, dtype=torch.float64)
        return self.fill(nothing, generator)


def gap_patterns(x: Tensor) -> list[tuple[list[int], list[int], Tensor]]:
    """Known and missing columns, and the rows that have them so, of x (n, d) with NaN."""
    missing = x.isnan()
    if not len(x):
        return []
    if not missing.any():
        return [(list(range(x.shape[1])), [], torch.ones(len(x), dtype=torch.bool))]
    patterns, group = missing.unique(dim=0, return_inverse=True)
    return [
        (
            (~pattern).nonzero()[:, 0].tolist(),
            pattern.nonzero()[:, 0].tolist(),
            group == number,
        )
        for number, pattern in enumerate(patterns)
    ]


class Factor(nn.Module, ABC):
    """Laws of one part in K components, each independent of the other parts of its component.

    Attributes
    ----------
    part : Part
    """

    part: Part

    @abstractmethod
    def log_values(self, x: Tensor) -> Tensor:
        """Log-densities (n, K) at values (n,)."""

    @abstractmethod
    def masses(self, region: Tensor) -> Tensor:
        """Probabilities (n, K) of regions."""

    @abstractmethod
    def laws(self, region: Tensor | None = None) -> list[PartLaw]:
        """Laws of the components, or what is theirs in a region of shape (C,) or (2,)."""

    @abstractmethod
    def draw(self, component: Tensor, generator: Generator) -> Tensor:
        """A value (n,) from each of the components (n,)."""

    @abstractmethod
    def select(self, components: Tensor) -> "Factor":
        """The laws of some components."""

    @abstractmethod
    def overlaps(self, other: Any) -> Tensor:
        """Integrals (K, L) of the products with the laws of another factor of the same part."""


class CodeFactor(Factor):
    """Mass functions of codes.

    Parameters
    ----------
    log_mass : Tensor of shape (K, C)
        Their logarithms; each row has mass one.

    Examples
    --------
    >>> fair = CodeFactor(torch.full((1, 2), 0.5).double().log())
    >>> fair.log_values(torch.tensor([1.0])).exp()
    tensor([[0.5000]], dtype=torch.float64)
    """

    log_mass: Tensor

    def __init__(self, log_mass: Tensor) -> None:
        super().__init__()
        self.part = Part("codes", log_mass.shape[1])
        self.register_buffer("log_mass", log_mass)

    def log_values(self, x: Tensor) -> Tensor:
        """Entries of the table."""
        return self.log_mass.T[x.long()]

    def masses(self, region: Tensor) -> Tensor:
        """Sums over masks (n, C)."""
        return region.double() @ self.log_mass.exp().T

    def laws(self, region: Tensor | None = None) -> list[PartLaw]:
        """Masses of codes."""
        mass = self.log_mass.exp() if region is None else self.log_mass.exp() * region
        codes = torch.arange(mass.shape[1], dtype=torch.float64)
        return [PointLaw(codes, own) for own in mass]

    def draw(self, component: Tensor, generator: Generator) -> Tensor:
        """Codes by their masses."""
        share = self.log_mass.exp()[component]
        return torch.multinomial(share, 1, generator=generator)[:, 0].double()

    def select(self, components: Tensor) -> "CodeFactor":
        """Some rows of the table."""
        return CodeFactor(self.log_mass[components])

    def overlaps(self, other: "CodeFactor") -> Tensor:
        """Sums of products of masses."""
        return self.log_mass.exp() @ other.log_mass.exp().T


class CircleFactor(Factor):
    r"""Wrapped normal laws on a circle of length one.

    .. math:: f(u) = \sum_j N(u + j;\, \mu, \sigma^2)

    Parameters
    ----------
    mean, deviation : Tensors of shape (K,)
        μ and σ ≤ 0.6, in turns.

    Examples
    --------
    >>> law = CircleFactor(torch.zeros(1).double(), torch.full((1,), 0.1).double())
    >>> law.log_values(torch.tensor([0.9, 0.1]).double()).exp()[:, 0]
    tensor([2.4197, 2.4197], dtype=torch.float64)
    """

    part = CIRCLE
    mean: Tensor
    deviation: Tensor

    def __init__(self, mean: Tensor, deviation: Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("deviation", deviation)

    def log_values(self, x: Tensor) -> Tensor:
        """Logarithm of the sum over windings or, of wide laws, of their Fourier series."""
        wide = self.deviation > WIDE
        if wide.any() and not wide.all():
            order = torch.cat([wide.nonzero(), (~wide).nonzero()])[:, 0]
            both = [self.select(part).log_values(x) for part in (wide, ~wide)]
            return torch.cat(both, 1)[:, order.argsort()]
        if wide.all():
            return self._series(x).log()
        away = x[:, None] - self.mean
        away = away - away.round()
        total = -0.5 * (away / self.deviation).square()
        for turn in (-1, 1):  # two turns away are e^−100 of it
            total = torch.logaddexp(total, -0.5 * ((away + turn) / self.deviation).square())
        return total - (self.deviation * math.sqrt(2 * math.pi)).log()

    def _series(self, x: Tensor) -> Tensor:
        """Densities (n, K) as 1 + 2 Σ exp(−σ²ω²/2) cos ω(x − μ), over whole turns ω."""
        omega = 2 * math.pi * torch.arange(1, HARMONICS + 1, dtype=torch.float64)
        size = (-0.5 * (self.deviation[:, None] * omega).square()).exp()  # (K, J)
        at, of = x[:, None] * omega, self.mean[:, None] * omega
        return 1 + 2 * (at.cos() @ (size * of.cos()).T + at.sin() @ (size * of.sin()).T)

    def masses(self, region: Tensor) -> Tensor:
        """Sums of normal probabilities."""
        low, high = (end[:, None] - self.mean % 1 for end in region.T)
        total = torch.zeros_like(low)
        most = 2 + math.ceil(REACH * float(self.deviation.max()))
        for turn in range(-most, most + 1):
            total += torch.special.ndtr((high + turn) / self.deviation)
            total -= torch.special.ndtr((low + turn) / self.deviation)
        return total

    def laws(self, region: Tensor | None = None) -> list[PartLaw]:
        """The normal laws, or Gauss–Legendre rules on an arc."""
        if region is None:
            parts = zip(self.mean, self.deviation, strict=True)
            return [WrappedLaw(mean, deviation) for mean, deviation in parts]
        low, high = region
        n = 2 + math.ceil(float(high - low) * (1 / float(self.deviation.min()) + MAX_TURNS))
        u, weights = panels(torch.lerp(low, high, torch.linspace(0, 1, n).double()), NODES)
        return [PointLaw(u, own) for own in self.log_values(u).T.exp() * weights]

    def draw(self, component: Tensor, generator: Generator) -> Tensor:
        """Normal draws, wrapped."""
        normal = torch.randn(len(component), generator=generator, dtype=torch.float64)
        return (self.mean[component] + self.deviation[component] * normal) % 1

    def select(self, components: Tensor) -> "CircleFactor":
        """Some of the laws."""
        return CircleFactor(self.mean[components], self.deviation[components])

    def overlaps(self, other: "CircleFactor") -> Tensor:
        """Densities of the differences, which are wrapped normal too, at zero."""
        mean = self.mean[:, None] - other.mean
        deviation = torch.hypot(self.deviation[:, None], other.deviation)
        at = CircleFactor(mean.flatten(), deviation.flatten()).log_values(mean.new_zeros(1))
        return at.exp().reshape(mean.shape)

"""Bases of many terms at once: where some columns have values, and the masses of cells."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from qaffde.nn.calculus.base_laws import Law
from qaffde.nn.calculus.mixture import constant_form
from qaffde.nn.calculus.terms import Term

ROUGH_REACH = 4.0
"""Deviations beyond which drafts have no cells; a Gaussian has 6e-5 there."""
STRIPS = 512
"""Strips of parts at once: their numbers stay in cache."""


@dataclass(frozen=True)
class Bases:
    """Bases that share a law, in coordinates x = offset + scale·u, and what multiplies them."""

    law: Law
    family: Tensor  # (K,), numbers of polynomials
    log_weight: Tensor  # (K,)
    offset: Tensor  # (K, d)
    scale: Tensor  # (K, d, d), lower-triangular

    @classmethod
    def of(cls, terms: Sequence[tuple[int, Term]]) -> "Bases":
        """Bases of terms of one law, each with the number of its polynomial."""
        family, bases = zip(*terms, strict=True)
        weight = torch.stack([base.log_coefficient for base in bases])
        offset = torch.stack([base.offset for base in bases])
        scale = torch.stack([base.scale for base in bases])
        return cls(bases[0].law, torch.tensor(family), weight, offset, scale)

    def condition(self, x: Tensor) -> "Bases":
        """Bases of the other columns where the first are `x` of shape (t,); not normalized."""
        t = len(x)
        C = self.scale[:, :t, :t]
        u = torch.linalg.solve_triangular(C, (x - self.offset[:, :t])[..., None], upper=False)
        log_volume = C.diagonal(dim1=1, dim2=2).abs().log().sum(1)
        return replace(
            self,
            log_weight=self.log_weight + self.law.log_density(u[..., 0]) - log_volume,
            offset=self.offset[:, t:] + (self.scale[:, t:, :t] @ u)[..., 0],
            scale=self.scale[:, t:, t:],
        )

    def above(self, floor: float, log_scale: float) -> "Bases":
        """Those with a weight of at least `floor`, in units of a scale."""
        kept = self.log_weight >= floor
        weight = self.log_weight[kept] - log_scale
        return Bases(self.law, self.family[kept], weight, self.offset[kept], self.scale[kept])

    def each(self) -> Iterator[tuple[int, Term]]:
        """The number of the polynomial of each base, and the base alone as a term."""
        one = constant_form(self.offset.shape[1])
        parts = zip(self.log_weight, self.offset, self.scale, strict=True)
        for k, (weight, offset, scale) in zip(self.family.tolist(), parts, strict=True):
            yield k, Term(weight, self.law, offset, scale, one)

    def masses(self, edges: Sequence[Tensor], n: int, *, draft: bool = False) -> Tensor:
        """Masses (n, m) or (n, m, m) of cells of one or two columns, of n families.

        Where the second column depends on the first, it is taken for a Gaussian in each strip of
        the first: about the median there, and as wide as it is there.
        """
        m, reach = len(edges[0]) - 1, self.law.reach
        reach = min(reach, ROUGH_REACH) if draft else reach
        u = (edges[0] - self.offset[:, :1]) / self.scale[:, 0, :1]
        part, strip = ((u[:, :-1] < reach) & (u[:, 1:] > -reach)).nonzero(as_tuple=True)
        levels = u.new_tensor([[0.16], [0.5], [0.84]])
        ends, mass = self.law.between(u[part, strip], u[part, strip + 1], levels)
        mass *= self.log_weight.exp()[part]
        row = m * self.family[part] + strip
        if len(edges) == 1:
            return mass.new_zeros(n * m).index_add_(0, row, mass).reshape(n, m)
        slope = self.scale[part, 1, 0]
        middle = self.offset[part, 1] + slope * ends[1]
        width = torch.hypot(self.scale[part, 1, 1], slope * (ends[2] - ends[0]) / 2)
        origin = edges[1][1:-1].mean()  # single precision has digits for distances from there
        precision = torch.float32 if draft else torch.float64
        columns = (row, mass, middle - origin, width)
        edge = (edges[1] - origin).to(precision)
        below = edge.new_zeros(n * m, len(edge))
        for rows, weight, center, spread in zip(*(c.split(STRIPS) for c in columns), strict=True):
            weight, center, spread = (c[:, None].to(precision) for c in (weight, center, spread))
            below.index_add_(0, rows, self.law.below((edge - center) / spread).mul_(weight))
        return below.diff().clamp_(min=0).double().reshape(n, m, -1)

"""Columns of a table: the values of each kind as parts, and back.

| column | parts |
| --- | --- |
| real, bounded | a line, behind a map |
| integer, category | codes |
| periodic | a circle |
| atom and real | codes (0 real, 1 at the atom) and a line, which is missing at the atom |
"""

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from qaffde.nn.columns import ColumnMap, ColumnMaps
from qaffde.nn.parts import CIRCLE, LINE, Part, Region

NO_BREAKS = torch.empty(0, dtype=torch.float64)
Regions = list[Region]


class TableColumn(nn.Module, ABC):
    """One column of a table: its values as parts and back.

    Attributes
    ----------
    parts : tuple of Part
    has_order : bool
        Whether values can be compared, so that there are intervals.
    """

    parts: tuple[Part, ...]
    has_order = True

    @abstractmethod
    def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Parts (n, p) of values (n,), and log-slopes (n,): −∞ where a value is impossible."""

    @abstractmethod
    def decode(self, parts: Tensor) -> Tensor:
        """Values (n,) of parts (n, p)."""

    @abstractmethod
    def regions(self, lower: Tensor, upper: Tensor) -> list[Regions]:
        """Disjoint regions of the parts whose union are the closed intervals between ends (n,)."""

    def breaks(self) -> Tensor:
        """Where the values are no smooth function of the last part."""
        return NO_BREAKS


class RealColumn(TableColumn):
    """Real numbers behind a map.

    Parameters
    ----------
    map : ColumnMap
    """

    parts = (LINE,)

    def __init__(self, map: ColumnMap | None = None) -> None:
        super().__init__()
        self.map = ColumnMap() if map is None else map

    def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Values behind the map; its slope."""
        known = ~x.isnan()
        z, log_slope = x.clone()[:, None], torch.zeros_like(x)
        z[known], log_slope[known] = self._maps()(x[known, None])
        return z, log_slope

    def decode(self, parts: Tensor) -> Tensor:
        """The inverse of the map."""
        return self._maps().inverse(parts)[:, 0]

    def regions(self, lower: Tensor, upper: Tensor) -> list[Regions]:
        """Intervals behind the map."""
        ends = [self._maps().edges(end[:, None])[:, 0] for end in (lower, upper)]
        return [[torch.stack(ends, 1)]]

    def breaks(self) -> Tensor:
        """The knots."""
        return self.map.values

    def _maps(self) -> ColumnMaps:
        return ColumnMaps([self.map])


class CircleColumn(TableColumn):
    """Points of a circle; values that differ by the period are the same.

    Parameters
    ----------
    period : float
    start : float, default=0
        Least of the values that are given back.
    """

    parts = (CIRCLE,)

    def __init__(self, period: float, start: float = 0.0) -> None:
        super().__init__()
        self.period, self.start = float(period), float(start)

    def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Turns."""
        log_slope = torch.where(x.isnan(), 0.0, -math.log(self.period)).to(x)
        return self._turns(x)[:, None] % 1, log_slope

    def decode(self, parts: Tensor) -> Tensor:
        """Values in [start, start + period)."""
        return self.start + self.period * parts[:, 0]

    def regions(self, lower: Tensor, upper: Tensor) -> list[Regions]:
        """Arcs within one turn from the start."""
        ends = [self._turns(end).clamp(0, 1) for end in (lower, upper)]
        return [[torch.stack(ends, 1)]]

    def _turns(self, x: Tensor) -> Tensor:
        return (x - self.start) / self.period


class CodeColumn(TableColumn):
    """Whole numbers of an interval, or numbers of categories.

    Parameters
    ----------
    size : int
        Number of values.
    first : int, default=0
        The least of them.
    has_order : bool, default=True
        False for categories.
    """

    def __init__(self, size: int, first: int = 0, *, has_order: bool = True) -> None:
        super().__init__()
        self.size, self.first, self.has_order = size, first, has_order
        self.parts = (Part("codes", size),)

    def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Codes; all other numbers are impossible."""
        code = x - self.first
        possible = (code == code.round()) & (code >= 0) & (code < self.size)
        log_slope = torch.where(possible | x.isnan(), 0.0, -torch.inf).to(x)
        return torch.where(possible | x.isnan(), code, 0.0)[:, None], log_slope

    def decode(self, parts: Tensor) -> Tensor:
        """Values of codes."""
        return parts[:, 0] + self.first

    def regions(self, lower: Tensor, upper: Tensor) -> list[Regions]:
        """Codes between the ends."""
        code = torch.arange(self.size, dtype=torch.float64) + self.first
        return [[(code >= lower[:, None]) & (code <= upper[:, None])]]


class AtomColumn(TableColumn):
    """Real numbers and one value that has a probability of its own.

    Parameters
    ----------
    value : float
    rest : RealColumn
        The other values.
    """

    parts = (Part("codes", 2), LINE)

    def __init__(self, value: float, rest: RealColumn) -> None:
        super().__init__()
        self.value, self.rest = float(value), rest

    def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Whether a value is the atom, and the line, missing at the atom."""
        at = x == self.value
        z, log_slope = self.rest.encode(torch.where(at, torch.nan, x))
        code = torch.where(x.isnan(), torch.nan, at.double())
        return torch.cat([code[:, None], z], 1), log_slope

    def decode(self, parts: Tensor) -> Tensor:
        """The atom, or the value of the line."""
        at = parts[:, 0] == 1
        return torch.where(at, self.value, self.rest.decode(parts[:, 1:]))

    def regions(self, lower: Tensor, upper: Tensor) -> list[Regions]:
        """Intervals of the line, and the atom where it lies inside."""
        inside = (lower <= self.value) & (self.value <= upper)
        line = self.rest.regions(lower, upper)[0][0]
        real = torch.tensor([[True, False]]).expand(len(lower), 2)
        return [[real, line], [torch.stack([torch.zeros_like(inside), inside], 1), None]]

    def breaks(self) -> Tensor:
        """The knots of the map."""
        return self.rest.breaks()

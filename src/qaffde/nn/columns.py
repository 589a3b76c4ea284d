"""Columns of a table: the values of each kind as parts, and back.

| column | parts |
| --- | --- |
| real, bounded | a line, behind a map |
| integer, category | codes |
| periodic | a circle |
| atom and real | codes (0 real, 1 at the atom) and a line, which is missing at the atom |
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from qaffde.nn.maps import MapTable
from qaffde.nn.parts import CIRCLE, LINE, Part, Region

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

    @abstractmethod
    def __str__(self) -> str:
        """The column in words."""

    def breaks(self) -> Tensor:
        """Where the values are no smooth function of the last part."""
        return torch.empty(0, dtype=torch.float64)


class RealColumn(TableColumn):
    """Real numbers behind a map (``qaffde.nn.maps``); without knots it is the identity.

    Parameters
    ----------
    knots, values, slopes : Tensors of shape (K,), optional
        x, z and dz/dx at the knots of the spline.
    tails : Tensor of shape (2,), optional
        λ below the first and above the last knot; zero by default.
    ends : Tensor of shape (2,), optional
        Ends of the possible values, outside the knots; infinite where there is none, as both are
        by default.
    inset : Tensor of shape (2,), optional
        A value on an end, where z is infinite, has the density of the value so far inside.

    Examples
    --------
    >>> knots = torch.tensor([1.0, 2.0]).double()
    >>> ends = torch.tensor([0.0, torch.inf]).double()
    >>> positive = RealColumn(knots, knots, torch.ones_like(knots), ends=ends)
    >>> z, log_slope = positive.encode(torch.tensor([2.0, 0.5, -1.0]).double())
    >>> z[:2, 0], log_slope.exp()
    (tensor([2.0000, 0.3069], dtype=torch.float64), tensor([1., 2., 0.], dtype=torch.float64))
    """

    parts = (LINE,)
    knots: Tensor
    values: Tensor
    slopes: Tensor
    tails: Tensor
    ends: Tensor
    inset: Tensor

    def __init__(
        self,
        knots: Tensor | None = None,
        values: Tensor | None = None,
        slopes: Tensor | None = None,
        tails: Tensor | None = None,
        ends: Tensor | None = None,
        inset: Tensor | None = None,
    ) -> None:
        super().__init__()
        given = {"knots": knots, "values": values, "slopes": slopes}
        given |= {"tails": tails, "ends": ends, "inset": inset}
        default = {"tails": [0.0, 0.0], "ends": [-torch.inf, torch.inf], "inset": [0.0, 0.0]}
        for name, value in given.items():
            missing = torch.tensor(default.get(name, []), dtype=torch.float64)
            self.register_buffer(name, missing if value is None else value)

    @property
    def is_identity(self) -> bool:
        """Whether z = x."""
        return not len(self.knots)

    def __str__(self) -> str:
        if self.is_identity:
            return "as it is"
        lower, upper = self.ends.tolist()
        text = f"{len(self.knots)} knots"
        if self.ends.isfinite().all():
            return f"{text}, from {lower:.6g} to {upper:.6g}"
        if lower > -torch.inf:
            return f"{text}, from {lower:.6g} on"
        return f"{text}, up to {upper:.6g}" if upper < torch.inf else text

    def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Values behind the map; its slope."""
        gap, inner = x.isnan(), 0.0 if self.is_identity else float(self.knots[0])
        z, log_slope = MapTable.of([self])(torch.where(gap, inner, x)[:, None])
        return torch.where(gap[:, None], torch.nan, z), torch.where(gap, 0.0, log_slope)

    def decode(self, parts: Tensor) -> Tensor:
        """The inverse of the map; a logarithm may have more room than float64 has numbers."""
        largest = torch.finfo(torch.float64).max
        return MapTable.of([self]).inverse(parts)[:, 0].clamp(-largest, largest)

    def regions(self, lower: Tensor, upper: Tensor) -> list[Regions]:
        """Intervals behind the map."""
        table = MapTable.of([self])
        return [[torch.cat([table.edges(end[:, None]) for end in (lower, upper)], 1)]]

    def breaks(self) -> Tensor:
        """The knots."""
        return self.values


def encode_columns(columns: Sequence[TableColumn], x: Tensor) -> tuple[Tensor, Tensor]:
    """Parts (n, q) of rows (n, d), and log-slopes (n,): −∞ where a value is impossible."""
    if all(isinstance(column, RealColumn) for column in columns) and not x.isnan().any():
        return MapTable.of(columns)(x)
    return encode_each(columns, x)


def encode_each(columns: Sequence[TableColumn], x: Tensor) -> tuple[Tensor, Tensor]:
    """The same by operations that do not depend on the values."""
    found = [column.encode(x[:, k]) for k, column in enumerate(columns)]
    parts, log_slopes = zip(*found, strict=True)
    return torch.cat(parts, 1), sum(log_slopes)


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

    def __str__(self) -> str:
        return f"period {self.period}, from {self.start} on"

    def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Turns."""
        slope = torch.tensor(1 / self.period, dtype=torch.float64)
        log_slope = torch.where(x.isnan(), 0.0, slope.log())
        return ((x - self.start) / self.period)[:, None] % 1, log_slope

    def decode(self, parts: Tensor) -> Tensor:
        """Values in [start, start + period)."""
        return self.start + self.period * parts[:, 0]

    def regions(self, lower: Tensor, upper: Tensor) -> list[Regions]:
        """Arcs within one turn from the start."""
        ends = torch.stack([lower, upper], 1)
        return [[((ends - self.start) / self.period).clamp(0, 1)]]


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

    def __str__(self) -> str:
        return f"{self.size} codes from {self.first} on"

    def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Codes; all other numbers are impossible."""
        code = x - self.first
        possible = x.isnan() | (code == code.round()) & (code >= 0) & (code < self.size)
        log_slope = torch.where(possible, 0.0, -torch.inf).to(x)
        return torch.where(possible, code, 0.0)[:, None], log_slope

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

    def __str__(self) -> str:
        return f"{self.value}, else {self.rest}"

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

"""Densities of tables: columns of several kinds, each behind one or two parts.

Densities are against the product of Lebesgue measure (real and periodic columns) and counting
measure (integers, categories, atoms). NaN is a value that is not known: it is integrated out.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import product

import torch
from torch import Generator, Tensor, nn

from qaffde.nn.base import Density
from qaffde.nn.density import expansion
from qaffde.nn.parts import PartsDensity
from qaffde.nn.table_columns import (
    NO_BREAKS,
    AtomColumn,
    CircleColumn,
    CodeColumn,
    Regions,
    TableColumn,
)

BISECTIONS = 64
MAX_PAIRS = 1 << 16
"""Rows that a quadrature evaluates at once."""
MASS_ERROR = 1e-8
"""Mass that a quadrature may miss before it is done in panels of the row's own quantiles."""


class TableDensity(Density):
    """Density of the columns of a table.

    It has the methods of :class:`~qaffde.nn.BornMixture`. Means and covariances are sums and
    quadratures of one and two columns.

    Parameters
    ----------
    density : PartsDensity
        Of the parts of all columns, one column after the other.
    columns : iterable of TableColumn

    Examples
    --------
    >>> from qaffde.nn import CodeColumn, CodeFactor, FactoredMixture
    >>> coin = CodeFactor(torch.tensor([[0.25, 0.75]]).double().log())
    >>> parts = FactoredMixture([coin.part], torch.zeros(1).double(), None, [coin])
    >>> density = TableDensity(parts, [CodeColumn(2, first=1)])
    >>> density.log_prob(torch.tensor([[1.0], [2.0], [2.5]]).double()).exp()
    tensor([0.2500, 0.7500, 0.0000], dtype=torch.float64)
    """

    def __init__(self, density: PartsDensity, columns: Iterable[TableColumn]) -> None:
        super().__init__()
        self.density = density
        self.columns = nn.ModuleList(columns)

    @property
    def n_dims(self) -> int:
        """The number of columns d."""
        return len(self.columns)

    def column(self, number: int) -> TableColumn:
        """One of the columns."""
        found = self.columns[number]
        assert isinstance(found, TableColumn)
        return found

    def _each(self) -> list[TableColumn]:
        return [self.column(k) for k in range(self.n_dims)]

    def _numbers(self, columns: Iterable[int]) -> list[int]:
        """Numbers of the parts of some columns."""
        counts = [len(column.parts) for column in self._each()]
        starts = [sum(counts[:k]) for k in range(len(counts))]
        return [starts[k] + j for k in columns for j in range(counts[k])]

    def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Parts (n, q) of rows (n, d), and log-slopes (n,): −∞ where a value is impossible."""
        found = [column.encode(v) for column, v in zip(self._each(), x.T, strict=True)]
        return torch.cat([parts for parts, _ in found], 1), torch.stack(
            [log_slope for _, log_slope in found]
        ).sum(0)

    def decode(self, parts: Tensor) -> Tensor:
        """Rows (n, d) of parts (n, q)."""
        numbers = [self._numbers([k]) for k in range(self.n_dims)]
        values = [c.decode(parts[:, k]) for c, k in zip(self._each(), numbers, strict=True)]
        return torch.stack(values, 1)

    def log_prob(self, x: Tensor) -> Tensor:
        """Log-density (n,) of the known values of rows (n, d): NaN is integrated out."""
        parts, log_slope = self.encode(x)
        log_p = torch.full_like(log_slope, -torch.inf)
        possible = log_slope > -torch.inf
        log_p[possible] = self.density.log_prob(parts[possible]) + log_slope[possible]
        return log_p

    def log_prob_given(self, x: Tensor, t: int) -> Tensor:
        """Log-density (n,) of the columns from t on, row by row given the first t of x (n, d)."""
        given = x.clone()
        given[:, t:] = torch.nan
        log_given = self.log_prob(given)
        _check_possible(x[:, :t], log_given)
        return self.log_prob(x) - log_given

    def marginal(self, columns: Sequence[int]) -> "TableDensity":
        """Density of some columns, in the order given: the others are integrated out exactly."""
        kept = [self.column(k) for k in columns]
        return TableDensity(self.density.marginal(self._numbers(columns)), kept)

    def reordered(self, columns: Sequence[int]) -> "TableDensity":
        """The density of the same columns in another order."""
        return self.marginal(columns)

    def condition(self, columns: Sequence[int], values: Tensor) -> "TableDensity":
        """Density of the other columns where `columns` have `values` of shape (t,)."""
        row = torch.full((1, self.n_dims), torch.nan, dtype=torch.float64)
        row[0, list(columns)] = values
        parts, log_slope = self.encode(row)
        _check_possible(values[None], log_slope)
        rest = [k for k in range(self.n_dims) if k not in columns]
        known = (~parts[0].isnan()).nonzero()[:, 0].tolist()
        kept = sorted([*known, *self._numbers(rest)])  # at an atom the line is integrated out
        inner = self.density.marginal(kept)
        places = [kept.index(k) for k in known]
        conditional = inner.condition(places, parts[0, known])
        return TableDensity(conditional, [self.column(k) for k in rest])

    def probability(
        self, lower: Tensor, upper: Tensor, sets: Mapping[int, Tensor] | None = None
    ) -> tuple[Tensor, Tensor]:
        """Probabilities (n,) of closed boxes, and their errors, zero where they are exact.

        Parameters
        ----------
        lower, upper : Tensors of shape (n, d)
            May be infinite. A column without order has two infinite ends.
        sets : dict of {int: Tensor of bool of shape (C,)}, optional
            Masks of codes that integers or categories are to have, in place of ends.
        """
        sets, n = {} if sets is None else sets, len(lower)
        choices: list[list[Regions]] = []
        for k, (column, low, high) in enumerate(zip(self._each(), lower.T, upper.T, strict=True)):
            free = bool((low == -torch.inf).all() and (high == torch.inf).all())
            if k in sets:
                choices.append([[sets[k].expand(n, -1)]])
            elif free:
                choices.append([[None for _ in column.parts]])
            else:
                _check_order(column, k, low, high)
                choices.append(column.regions(low, high))
        value, error = torch.zeros(2, n, dtype=torch.float64)
        for choice in product(*choices):
            more, unsure = self.density.probability([region for part in choice for region in part])
            value, error = value + more, error + unsure
        return value.clamp(0, 1), error

    def cdf(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Distribution function (n,) at points of shape (n, d), and its errors."""
        return self.probability(torch.full_like(x, -torch.inf), x)

    def ppf(self, q: Tensor) -> Tensor:
        """Quantiles (n,) of a density of one column: the least values whose cdf reaches q."""
        column = self.column(0)
        if not column.has_order:
            raise ValueError("categories have no order, and so no quantiles; ask for probability")
        if isinstance(column, AtomColumn):
            return self._ppf_of_atom(column, q)
        if isinstance(column, CodeColumn):
            codes = torch.arange(column.size, dtype=torch.float64)[:, None]
            cumulative = self.log_prob(column.decode(codes)[:, None]).exp().cumsum(0)
            place = torch.searchsorted(cumulative, q - 1e-12).clamp(max=column.size - 1)
            return column.decode(codes[place])
        return column.decode(self._part_quantiles(q)[:, None])

    def _ppf_of_atom(self, column: AtomColumn, q: Tensor) -> Tensor:
        """Quantiles of the line beside its atom."""
        at = self.density.marginal([0]).log_prob(torch.ones(1, 1, dtype=torch.float64)).exp()
        if at >= 1:
            return torch.full_like(q, column.value)
        line = TableDensity(self.density.condition([0], torch.zeros(1).double()), [column.rest])
        below = (1 - at) * line.cdf(torch.full((1, 1), column.value).double())[0]
        level = torch.where(q <= below, q, q - at) / (1 - at)
        inside = (q > below) & (q <= below + at)
        return torch.where(inside, column.value, line.ppf(level.clamp(0, 1)))

    def _part_quantiles(self, q: Tensor) -> Tensor:
        """Quantiles (n,) of the one part, a line or a circle, by bisection of its cdf."""
        nodes = self.density.quadrature(0, NO_BREAKS)[0]
        is_line = self.density.parts[0].is_line
        ends = nodes.amin() - 1, nodes.amax() + 1
        low, high = (end.expand_as(q).clone() for end in ends)
        if not is_line:
            low, high = torch.zeros_like(q), torch.ones_like(q)
        start = torch.full_like(q, -torch.inf) if is_line else torch.zeros_like(q)
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            short = self.density.probability([torch.stack([start, middle], 1)])[0] < q
            low, high = torch.where(short, middle, low), torch.where(short, high, middle)
        found = (low + high) / 2
        if is_line:
            found = torch.where(q == 0, -torch.inf, torch.where(q == 1, torch.inf, found))
        return found

    def sample(self, n: int, generator: Generator) -> Tensor:
        """Exact draws, of shape (n, d)."""
        return self.decode(self.density.sample(n, generator))

    def fill(self, x: Tensor, generator: Generator) -> Tensor:
        """A copy of rows (n, d) with a draw given the rest of the row in place of NaN."""
        parts, log_slope = self.encode(x)
        _check_possible(x, log_slope)
        return torch.where(x.isnan(), self.decode(self.density.fill(parts, generator)), x)

    def even_points(self, n: int) -> tuple[Tensor, Tensor]:
        """Points (m, 1) of a density of one column, and their probabilities (m,)."""
        x, mass = self._masses(0)
        return x[:, None], mass

    def _points(self, k: int, *, plane: bool = False) -> tuple[Tensor, Tensor]:
        """Nodes of the parts (m, p) and weights (m,) of integrals over one column."""
        column, last = self.column(k), self._numbers([k])[-1]
        nodes, weights = self.density.quadrature(last, column.breaks(), plane=plane)
        if not isinstance(column, AtomColumn):
            return nodes[:, None], weights
        at = torch.tensor([[1.0, torch.nan]], dtype=torch.float64)
        line = torch.stack([torch.zeros_like(nodes), nodes], 1)
        return torch.cat([line, at]), torch.cat([weights, torch.ones(1).double()])

    def _masses(self, k: int) -> tuple[Tensor, Tensor]:
        """Values (m,) of one column and their probabilities (m,), of sum one to rounding."""
        parts, weights = self._points(k)
        mass = self.density.marginal(self._numbers([k])).log_prob(parts).exp() * weights
        return self.column(k).decode(parts), mass / mass.sum()

    def mean(self) -> Tensor:
        """Mean of shape (d,)."""
        self._check_moments()
        found = [self._masses(k) for k in range(self.n_dims)]
        return torch.stack([x @ mass for x, mass in found])

    def covariance(self) -> Tensor:
        """Covariance of shape (d, d)."""
        mean = self.mean()
        covariance = torch.empty(self.n_dims, self.n_dims, dtype=torch.float64)
        for i in range(self.n_dims):
            x, mass = self._masses(i)
            covariance[i, i] = mass @ (x - mean[i]).square()
            for j in range(i):
                covariance[i, j] = covariance[j, i] = self._covariance(i, j, mean)
        return covariance

    def _covariance(self, i: int, j: int, mean: Tensor) -> Tensor:
        """Covariance of two columns."""
        (a, u), (b, v) = (self._points(k, plane=True) for k in (i, j))
        joint = self.density.marginal(self._numbers([i, j]))
        if b.shape[1] == 1:
            known = torch.cat([a, torch.full_like(a[:, :1], torch.nan)], 1)
            log_p = joint.log_prob(known)[:, None] + joint.log_prob_along(known, -1, b[:, 0])
        else:
            pairs = torch.cat([a.repeat_interleave(len(b), 0), b.repeat(len(a), 1)], 1)
            log_p = torch.cat([joint.log_prob(part) for part in pairs.split(MAX_PAIRS)])
        mass = log_p.exp().reshape(len(u), len(v)) * u[:, None] * v
        x, y = self.column(i).decode(a) - mean[i], self.column(j).decode(b) - mean[j]
        return x @ mass @ y / mass.sum()

    def _check_moments(self) -> None:
        for k, column in enumerate(self._each()):
            if not column.has_order or isinstance(column, CircleColumn):
                what = "periodic" if column.has_order else "a category"
                raise ValueError(
                    f"column {k} is {what} and has no mean; take the marginal of the others first"
                )

    def fill_expected(self, x: Tensor) -> Tensor:
        """A copy of rows (n, d) with conditional means in place of NaN.

        On a circle it is the mean direction, of categories the most probable one.
        """
        filled = x.clone()
        _check_possible(x, self.encode(x)[1])
        for k in range(self.n_dims):
            missing = x[:, k].isnan()
            if missing.any():
                filled[missing, k] = self._expected(x[missing], k)
        return filled

    def _expected(self, x: Tensor, k: int) -> Tensor:
        """Expected values (n,) of a column given the known values of rows (n, d)."""
        nodes, weights = self._points(k)
        values, numbers = self.column(k).decode(nodes), self._numbers([k])
        parts, m = self.encode(x)[0], len(nodes)
        found = torch.empty(len(x), dtype=torch.float64)
        for rows in torch.arange(len(x)).split(max(1, MAX_PAIRS // m)):
            if len(numbers) == 1:
                log_p = self.density.log_prob_along(parts[rows], numbers[0], nodes[:, 0])
            else:
                joint = parts[rows].repeat_interleave(m, 0)
                joint[:, numbers] = nodes.repeat(len(rows), 1)
                log_p = self.density.log_prob(joint).reshape(len(rows), m)
                log_p = log_p - self.density.log_prob(parts[rows])[:, None]
            mass = log_p.exp() * weights
            found[rows] = _center(self.column(k), values, mass)
            for row in rows[(mass.sum(1) - 1).abs() > MASS_ERROR].tolist():
                found[row] = self._expected_alone(x[row], k)
        return found

    def _expected_alone(self, row: Tensor, k: int) -> Tensor:
        """The same of one row, in panels of its own conditional."""
        known = (~row.isnan()).nonzero()[:, 0].tolist()
        if not known:
            values, mass = self._masses(k)
        else:
            rest = [c for c in range(self.n_dims) if c not in known]
            own = self.condition(known, row[known]).marginal([rest.index(k)])
            values, mass = own._masses(0)
        return _center(self.column(k), values, mass[None])[0]


def _center(column: TableColumn, values: Tensor, mass: Tensor) -> Tensor:
    """Mean (n,) of values (m,) under masses (n, m), the mean direction, or the likeliest code."""
    if not column.has_order:
        return values[mass.argmax(1)]
    if isinstance(column, CircleColumn):
        angle = 2 * math.pi * column.encode(values)[0][:, 0]
        turn = torch.atan2(mass @ angle.sin(), mass @ angle.cos()) / (2 * math.pi)
        return column.decode(turn[:, None] % 1)
    return (mass @ values) / mass.sum(1)


def _check_possible(x: Tensor, log_slope: Tensor) -> None:
    impossible = log_slope == -torch.inf
    if impossible.any():
        row = x[impossible][0].tolist()
        raise ValueError(f"no conditional density given {row}: the density is zero there")


def _check_order(column: TableColumn, k: int, lower: Tensor, upper: Tensor) -> None:
    if not column.has_order:
        raise ValueError(
            f"column {k} is a category and has no order: leave its ends infinite, and ask for "
            "the probability of a set of categories"
        )


@expansion.register
def _(density: TableDensity) -> TableDensity:
    return density

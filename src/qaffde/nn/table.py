"""Densities of tables: columns of several kinds, each behind one or two parts.

Densities are against the product of Lebesgue measure (real and periodic columns) and counting
measure (integers, categories, atoms). NaN is a value that is not known: it is integrated out.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from itertools import accumulate, product

import torch
from torch import Generator, Tensor, nn

from qaffde.functional.fourier import Array
from qaffde.nn.base import Density, FormulaDensity
from qaffde.nn.calculus.factored import FactoredMixture
from qaffde.nn.calculus.mixture import BornMixture
from qaffde.nn.columns import (
    AtomColumn,
    CircleColumn,
    CodeColumn,
    RealColumn,
    Regions,
    TableColumn,
    encode_columns,
)
from qaffde.nn.density import expand
from qaffde.nn.features import Formula
from qaffde.nn.maps import MapTable
from qaffde.nn.parts import MASS_ERROR, PartsDensity, gap_patterns

MAX_PAIRS = 1 << 16
"""Rows that a quadrature evaluates at once."""
MAX_ROWS_GIVEN = 128
"""Rows whose conditional means are found at once."""


class TableDensity(FormulaDensity):
    r"""Density of the columns of a table, each behind a map or codes.

    .. math:: \log p(x) = \log p_z(g(x)) + \sum_t \log g_t'(x_t)

    It is zero where a column has an impossible value. With a density of parts inside, as
    :func:`~qaffde.nn.expand` makes it, it has the methods of :class:`~qaffde.nn.BornMixture`:
    every column has its own map, so that the calculus of z is one of x. Means and covariances are
    sums and quadratures of one and two columns, with an error of about 1e-6 of the deviations.

    Parameters
    ----------
    density : PartsDensity, or density of real columns
        Of the parts z of all columns, one column after the other.
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

    density: PartsDensity  # or, before it is expanded, any density of them

    def __init__(self, density: Density, columns: Iterable[TableColumn]) -> None:
        super().__init__()
        self.density = density  # type: ignore[assignment]
        self.columns = nn.ModuleList(columns)

    @property
    def n_dims(self) -> int:
        """The number of columns d."""
        return len(self.columns)

    def column(self, number: int) -> TableColumn:
        """One of the columns."""
        return self.each()[number]

    def each(self) -> list[TableColumn]:
        """The columns."""
        return list(self.columns)  # type: ignore[arg-type]

    @property
    def maps(self) -> MapTable:
        """Maps of columns that are all real."""
        return self.derived("maps", lambda: MapTable.of(self.each()))

    @property
    def lines(self) -> BornMixture | None:
        """The sum of terms behind maps of real columns; None of other densities."""
        inner = self.density
        return inner.sum_of_terms() if isinstance(inner, FactoredMixture) else None

    def _numbers(self, columns: Iterable[int]) -> list[int]:
        """Numbers of the parts of some columns."""
        starts = [0, *accumulate(len(column.parts) for column in self.each())]
        return [part for k in columns for part in range(starts[k], starts[k + 1])]

    def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Parts (n, q) of rows (n, d), and log-slopes (n,): −∞ where a value is impossible."""
        return encode_columns(self.each(), x)

    def decode(self, parts: Tensor) -> Tensor:
        """Rows (n, d) of parts (n, q)."""
        numbers = [self._numbers([k]) for k in range(self.n_dims)]
        values = [c.decode(parts[:, k]) for c, k in zip(self.each(), numbers, strict=True)]
        return torch.stack(values, 1)

    def formula(self, dtype: torch.dtype | None = None, *, shortcuts: bool = True) -> Formula:
        """The inner formula at the mapped columns, Jacobian included; real columns have one."""
        if not self._is_real:
            return Density.formula(self)
        inner = self.density.formula(dtype, shortcuts=shortcuts)
        return Formula(_log_mapped, inner, MapTable.of(self.each()))

    def log_prob(self, x: Tensor) -> Tensor:
        """Log-density (n,) at rows (n, d); of parts, NaN is integrated out."""
        if self._is_real:
            return super().log_prob(x)
        parts, log_slope = self.encode(x)
        log_p = torch.full_like(log_slope, -torch.inf)
        possible, gaps = log_slope > -torch.inf, parts.isnan().any(1)
        if isinstance(self.density, PartsDensity):
            gaps = torch.zeros_like(gaps)  # it takes them
        for has_gaps in (False, True):
            rows = possible & (gaps == has_gaps)
            if rows.any():
                density = expand(self).density if has_gaps else self.density
                log_p[rows] = density.log_prob(parts[rows]) + log_slope[rows]
        return log_p

    @property
    def _is_real(self) -> bool:
        """Whether the density is one of real columns behind maps, that has a formula."""
        columns = all(isinstance(column, RealColumn) for column in self.each())
        return columns and not isinstance(self.density, PartsDensity)

    def expansion(self) -> "TableDensity":
        """The table of the terms of its lines and waves of its parts."""
        if isinstance(self.density, PartsDensity):
            return self
        inner, columns = expand(self.density), deepcopy(self.columns).double()
        if isinstance(inner, BornMixture):
            parts = [part for column in self.each() for part in column.parts]
            level = torch.zeros(len(inner.terms), dtype=torch.float64)
            inner = FactoredMixture(parts, level, inner, [])
        return TableDensity(inner, columns)

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
        parts, log_slope = encode_columns([self.column(k) for k in columns], values[None])
        _check_possible(values[None], log_slope)
        rest = [k for k in range(self.n_dims) if k not in columns]
        inner = self.density.condition_known(self._numbers(columns), parts[0])
        return TableDensity(inner, [self.column(k) for k in rest])

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
        for k, (column, low, high) in enumerate(zip(self.each(), lower.T, upper.T, strict=True)):
            if k in sets:
                choices.append([[sets[k].expand(n, -1)]])
            elif (low == -torch.inf).all() and (high == torch.inf).all():
                choices.append([[None for _ in column.parts]])
            elif column.has_order:
                choices.append(column.regions(low, high))
            else:
                raise ValueError(
                    f"column {k} is a category and has no order: leave its ends infinite, and ask "
                    "for the probability of a set of categories"
                )
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
        return column.decode(self.density.ppf(q)[:, None])

    def _ppf_of_atom(self, column: AtomColumn, q: Tensor) -> Tensor:
        """Quantiles of the line beside its atom."""
        at = self.density.marginal([0]).log_prob(torch.ones(1, 1, dtype=torch.float64)).exp()
        if at >= 1:
            return torch.full_like(q, column.value)
        line = TableDensity(self.density.condition([0], torch.zeros(1).double()), [column.rest])
        below = (1 - at) * line.cdf(torch.full((1, 1), column.value, dtype=torch.float64))[0]
        level = torch.where(q <= below, q, q - at) / (1 - at)
        inside = (q > below) & (q <= below + at)
        return torch.where(inside, column.value, line.ppf(level.clamp(0, 1)))

    def sample(self, n: int, generator: Generator) -> Tensor:
        """Exact draws, of shape (n, d)."""
        return self.decode(self.density.sample(n, generator))

    def fill(self, x: Tensor, generator: Generator | None = None) -> Tensor:
        """A copy of rows (n, d) with draws, or means, given the rest of the row in place of NaN.

        There are draws if there is a generator. The mean on a circle is the mean direction, of
        categories the most probable one.
        """
        parts, log_slope = self.encode(x)
        _check_possible(x, log_slope)
        if generator is not None:
            return torch.where(x.isnan(), self.decode(self.density.fill(parts, generator)), x)
        filled = x.clone()
        for k in range(self.n_dims):
            missing = x[:, k].isnan()
            if missing.any():
                filled[missing, k] = self._expected(parts[missing], k)
        return filled

    def even_points(self, n: int) -> tuple[Tensor, Tensor]:
        """Points (m, 1) of a density of one column, and their probabilities (m,)."""
        if (lines := self.lines) is not None:
            z, weight = lines.even_points(n)
            return self.decode(z)[:, :1], weight
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
        for k, column in enumerate(self.each()):
            if not column.has_order or isinstance(column, CircleColumn):
                what = "periodic" if column.has_order else "a category"
                raise ValueError(
                    f"column {k} is {what} and has no mean; take the marginal of the others first"
                )

    def _expected(self, parts: Tensor, k: int) -> Tensor:
        """Expected values (n,) of a column given the known parts of rows (n, q)."""
        found, column = torch.empty(len(parts), dtype=torch.float64), self.column(k)
        *code, last = self._numbers([k])
        for have, _, rows in gap_patterns(parts):
            given = parts[rows][:, have]
            if isinstance(column, AtomColumn):
                at = given.new_ones(len(given), 1)
                known, unknown = torch.cat([given, at], 1), torch.cat([given, torch.nan * at], 1)
                joint = self.density.marginal([*have, *code])
                mass = (joint.log_prob(known) - joint.log_prob(unknown)).exp()
                given = torch.cat([given, 0 * at], 1)
                line = self._expected_part([*have, *code], given, last, column.rest)
                found[rows] = mass * column.value + (1 - mass) * line
            else:
                found[rows] = self._expected_part(have, given, last, column)
        return found

    def _expected_part(
        self, have: list[int], given: Tensor, part: int, column: TableColumn
    ) -> Tensor:
        """Expected values (n,) of a column of one part, given others (n, t)."""
        joint = self.density.marginal([*have, part])
        lines = joint.sum_of_terms() if isinstance(joint, FactoredMixture) else None
        if lines is not None and isinstance(column, RealColumn) and column.is_identity:
            return lines.mean_given(given)[:, 0]
        found = []
        for rows in given.split(MAX_ROWS_GIVEN):
            nodes, mass = joint.rule_given(rows, column.breaks())
            values = column.decode(nodes.reshape(-1, 1)).reshape(nodes.shape)
            found.append(_center(column, values, mass))
            for row in (~((mass.sum(1) - 1).abs() <= MASS_ERROR)).nonzero()[:, 0].tolist():
                alone = joint.condition(range(len(have)), rows[row]) if have else joint
                nodes, weights = alone.quadrature(0, column.breaks())
                own = alone.log_prob(nodes[:, None]).exp() * weights
                found[-1][row] = _center(column, column.decode(nodes[:, None]), own[None])[0]
        return torch.cat(found)


def _center(column: TableColumn, values: Tensor, mass: Tensor) -> Tensor:
    """Mean (n,) of values under masses (n, m), the mean direction, or the likeliest code."""
    values = values.expand_as(mass)
    if not column.has_order:
        return values.gather(1, mass.argmax(1, keepdim=True))[:, 0]
    if isinstance(column, CircleColumn):
        angle = 2 * math.pi / column.period * values
        turn = torch.atan2((mass * angle.sin()).sum(1), (mass * angle.cos()).sum(1))
        return column.decode(column.encode(column.period / (2 * math.pi) * turn)[0])
    return (mass * values).sum(1) / mass.sum(1)


def _log_mapped(x: Array, log_p: Formula, maps: MapTable) -> Array:
    z, log_slope = maps(x)
    return log_p(z) + log_slope


def _check_possible(x: Tensor, log_slope: Tensor) -> None:
    impossible = log_slope == -torch.inf
    if impossible.any():
        row = x[impossible][0].tolist()
        raise ValueError(f"no conditional density given {row}: the density is zero there")

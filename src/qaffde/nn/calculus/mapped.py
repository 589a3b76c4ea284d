"""The calculus of a sum of terms behind maps of its columns.

Every column has a map of its own, so a set of columns, a value of a column and a box are the same
in the units of the data and in those of the terms: all is exact but for means and covariances,
which are integrals of the inverse maps.
"""

from collections.abc import Sequence

import torch
from torch import Generator, Tensor

from qaffde.nn.base import Density
from qaffde.nn.calculus.integrals import legendre
from qaffde.nn.calculus.mixture import BornMixture
from qaffde.nn.columns import ColumnMaps

TAILS = (1e-9, 1e-6, 1e-4, 1e-3, 0.01)
"""Quantiles, and the same from above, at which panels of a quadrature end."""
N_QUANTILES = 16
"""Number of even ones between them."""
COARSE, PANELS, NODES, PLANE_NODES = 256, 48, 8, 7
"""Points that find where a conditional has mass; panels there; nodes of a panel."""
MAX_PLANE_KNOTS = 16
"""Knots of a map at which the panels of a plane end."""
MASS_ERROR = 1e-7
"""Mass that a quadrature may miss before it is done in panels of the row's own quantiles."""


class MappedMixture(Density):
    """Density of x when the columns z = g(x) have a sum of terms as their density.

    It has the methods of :class:`~qaffde.nn.BornMixture`. Means and covariances are quadratures
    of one and two columns: the former have a relative error of about 1e-8, and 1e-6 where values
    are given; the latter of about 1e-6.

    Parameters
    ----------
    density : BornMixture
        Of z.
    maps : ColumnMaps
        g, in double precision.
    """

    def __init__(self, density: BornMixture, maps: ColumnMaps) -> None:
        super().__init__()
        self.density = density
        self.maps = maps

    @property
    def n_dims(self) -> int:
        """The number of columns d."""
        return self.density.n_dims

    def log_prob(self, x: Tensor) -> Tensor:
        """Log-density of shape (n,) at points of shape (n, d)."""
        z, log_slope = self.maps(x)
        log_p: Tensor = self.density.log_prob(z) + log_slope
        return log_p

    def reordered(self, columns: Sequence[int]) -> "MappedMixture":
        """The density of the same columns in another order."""
        return MappedMixture(self.density.reordered(columns), self.maps.select(columns))

    def marginal(self, columns: Sequence[int]) -> "MappedMixture":
        """Density of some columns, in the order given: the others are integrated out exactly."""
        return MappedMixture(self.density.marginal(columns), self.maps.select(columns))

    def condition(self, columns: Sequence[int], values: Tensor) -> "MappedMixture":
        """Density of the other columns where `columns` have `values` of shape (t,)."""
        z = given_in(self.maps.select(columns), values[None])[0]
        rest = [c for c in range(self.n_dims) if c not in columns]
        return MappedMixture(self.density.condition(columns, z), self.maps.select(rest))

    def probability(self, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
        """Probabilities (n,) of boxes, and their errors, zero where they are exact."""
        return self.density.probability(self.maps.edges(lower), self.maps.edges(upper))

    def cdf(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Distribution function (n,) at points of shape (n, d), and its errors."""
        return self.probability(torch.full_like(x, -torch.inf), x)

    def ppf(self, q: Tensor) -> Tensor:
        """Quantiles of shape (n,) of a density of one column."""
        return self.maps.inverse(self.density.ppf(q)[:, None])[:, 0]

    def even_points(self, n: int) -> tuple[Tensor, Tensor]:
        """About n points (m, 1) of a density of one column that divide it evenly, and weights."""
        z, weight = self.density.even_points(n)
        return self.maps.inverse(z), weight

    def sample(self, n: int, generator: Generator) -> Tensor:
        """Exact draws, of shape (n, d)."""
        return self.maps.inverse(self.density.sample(n, generator))

    def sample_given(self, x: Tensor, generator: Generator) -> Tensor:
        """Draws (n, d − t) of the last columns, row by row given the first, `x` (n, t)."""
        z = self.density.sample_given(self._given(x), generator)
        return self._rest(x.shape[1]).inverse(z)

    def log_prob_given(self, x: Tensor, t: int) -> Tensor:
        """Log-density (n,) of the columns from t on, row by row given the first t of x (n, d)."""
        given = self._given(x[:, :t])
        z, log_slope = self._rest(t)(x[:, t:])
        log_p: Tensor = self.density.log_prob_given(torch.cat([given, z], 1), t) + log_slope
        return log_p

    def mean_given(self, x: Tensor) -> Tensor:
        """Means (n, d − t) of the last columns, row by row given the first, `x` (n, t)."""
        t, given = x.shape[1], self._given(x)
        mean = self.density.mean_given(given)
        for k in self._rest(t).mapped:
            joint = self.density.marginal([*range(t), t + k])
            mean[:, k] = _expectation(joint, given, self.maps.select([t + k]))
        return mean

    def mean(self) -> Tensor:
        """Mean of shape (d,)."""
        return self.mean_given(torch.empty(1, 0, dtype=torch.float64))[0]

    def covariance(self) -> Tensor:
        """Covariance of shape (d, d)."""
        covariance, mean, mapped = self.density.covariance(), self.mean(), self.maps.mapped
        for i in range(self.n_dims):
            for j in range(i + 1):
                if i in mapped or j in mapped:
                    covariance[i, j] = covariance[j, i] = self._covariance(i, j, mean)
        return covariance

    def _covariance(self, i: int, j: int, mean: Tensor) -> Tensor:
        """Covariance of two columns, which may be the same."""
        columns = [i] if i == j else [i, j]
        joint, maps = self.density.marginal(columns), self.maps.select(columns)
        rules = [
            panel_rule(joint.marginal([k]), maps[k].values, plane=i != j)
            for k in range(len(columns))
        ]
        axes, weights = zip(*rules, strict=True)
        z = torch.cartesian_prod(*axes).reshape(-1, len(columns))
        log_p = torch.cat([joint.log_prob(part) for part in z.split(1 << 14)])
        mass = torch.cartesian_prod(*weights).reshape(z.shape).prod(1) * log_p.exp()
        centered = maps.inverse(z) - mean[columns]
        return (mass @ (centered[:, 0] * centered[:, -1])) / mass.sum()

    def _given(self, x: Tensor) -> Tensor:
        return given_in(self.maps.select(range(x.shape[1])), x) if x.shape[1] else x

    def _rest(self, t: int) -> ColumnMaps:
        return self.maps.select(range(t, self.n_dims))


def given_in(maps: ColumnMaps, x: Tensor) -> Tensor:
    """Conditions x of shape (n, t) in the units of z; impossible ones are refused."""
    z: Tensor
    z, log_slope = maps(x)
    impossible = log_slope == -torch.inf
    if impossible.any():
        row = x[impossible][0].tolist()
        raise ValueError(f"no conditional density given {row}: the density is zero there")
    return z


def panel_rule(
    column: BornMixture, knots: Tensor, *, plane: bool = False
) -> tuple[Tensor, Tensor]:
    """Nodes and weights, of shape (m,), for integrals under a density of one column.

    Gauss–Legendre rules between quantiles, ends of boxes and knots of the map (k,): between them
    the integrand is smooth. In a plane, nodes and knots are fewer.
    """
    knots = _thinned(knots, MAX_PLANE_KNOTS) if plane else knots
    edges = _edges(column, N_QUANTILES)
    edges = torch.cat([edges, knots.clamp(edges[0], edges[-1])]).unique()
    nodes, weights = legendre(PLANE_NODES if plane else NODES, edges[:-1, None], edges[1:, None])
    return nodes.flatten(), weights.flatten()


def _edges(column: BornMixture, n: int) -> Tensor:
    """About n quantiles of a density of one column, ends of its terms, and steps to the last."""
    levels = torch.linspace(0, 1, n + 1, dtype=torch.float64)[1:-1]
    tails = torch.tensor(TAILS, dtype=torch.float64)
    quantiles = column.ppf(torch.cat([tails, levels, 1 - tails]))
    reach = torch.stack([term.reach[:, 0] for term in column.terms])
    low, high = reach[:, 0].min(), reach[:, 1].max()
    steps = torch.linspace(0, 1, 9, dtype=torch.float64)
    far = torch.lerp(low, quantiles.min(), steps), torch.lerp(quantiles.max(), high, steps)
    ends = [term.reach[:, 0] for term in column.terms if term.law.bounded]
    return torch.cat([quantiles, *far, *ends]).clamp(low, high).unique()


def _thinned(knots: Tensor, most: int) -> Tensor:
    return knots[:: max(1, -(-len(knots) // most))]


def _expectation(joint: BornMixture, given: Tensor, maps: ColumnMaps) -> Tensor:
    """Mean (n,) of the map's inverse of the last column, given the first ones (n, t)."""
    if not given.shape[1]:
        return _expectation_alone(joint, maps)[None]
    coarse = _edges(joint.marginal([joint.n_dims - 1]), COARSE)
    log_p = _log_prob_at(joint, given, coarse.expand(len(given), -1))
    near = log_p > log_p.amax(1, keepdim=True) - 30
    first, last = near.int().argmax(1), near.shape[1] - 1 - near.flip(1).int().argmax(1)
    low = coarse[(first - 1).clamp(min=0)][:, None]
    high = coarse[(last + 1).clamp(max=len(coarse) - 1)][:, None]
    even = torch.lerp(low, high, torch.linspace(0, 1, PANELS + 1, dtype=torch.float64))
    edges = [term.reach[:, -1] for term in joint.terms if term.law.bounded]
    breaks = torch.cat([_thinned(maps[0].values, PANELS), *edges]).expand(len(given), -1)
    cuts = torch.cat([even, breaks.clamp(low, high)], 1).sort(1)[0]
    nodes, weights = legendre(NODES, cuts[:, :-1, None], cuts[:, 1:, None])
    z, weights = nodes.flatten(1), weights.flatten(1)
    mass = _log_prob_at(joint, given, z).exp() * weights
    values = (mass * maps.inverse(z.reshape(-1, 1)).reshape(z.shape)).sum(1) / mass.sum(1)
    for row in ((mass.sum(1) - 1).abs() > MASS_ERROR).nonzero()[:, 0].tolist():
        alone = joint.condition(range(given.shape[1]), given[row])
        values[row] = _expectation_alone(alone, maps)
    return values


def _expectation_alone(column: BornMixture, maps: ColumnMaps) -> Tensor:
    z, weights = panel_rule(column, maps[0].values)
    mass = column.log_prob(z[:, None]).exp() * weights
    return (mass @ maps.inverse(z[:, None])[:, 0]) / mass.sum()


def _log_prob_at(joint: BornMixture, given: Tensor, z: Tensor) -> Tensor:
    """Log-density (n, m) of the last column at z (n, m), given the first ones (n, t)."""
    n, m = z.shape
    rows = torch.cat([given.repeat_interleave(m, 0), z.reshape(-1, 1)], 1)
    parts = [joint.log_prob_given(part, given.shape[1]) for part in rows.split(1 << 16)]
    return torch.cat(parts).reshape(n, m)

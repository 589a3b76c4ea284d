"""Cells of columns, and the masses that a density has in them: what pictures show."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from qaffde.estimators.calculus import BornEstimator
from qaffde.kinds import Atom, Category, Integer, Kind, Periodic, Real
from qaffde.nn import BornMixture, TableDensity, expand
from qaffde.nn.calculus.slices import Slices, cell_edges
from qaffde.nn.table_cells import Side, plane_of, side_of
from qaffde.streams.names import framed_for

Array = NDArray[np.float64]

SUBPOINTS = {1: 8, 2: 1}
"""Points in a cell, along each axis, of a density without a distribution function."""
PLANE_CELLS, PLANE_NODES = 128, (64, 128, 256)
"""Cells along each axis at least, and nodes tried, of a plane with one."""


@dataclass(frozen=True)
class Scale:
    """Cells of one column: intervals of a line or a circle, or unit ones about single values."""

    name: str
    kind: Kind
    edges: Array  # (n + 1,), even
    atom: float | None = None  # probability of the value of an atom, which is none of the cells

    @property
    def is_counted(self) -> bool:
        """Whether values are integers or categories, so that a density is a probability."""
        return isinstance(self.kind, Integer | Category)

    @property
    def points(self) -> Array:
        """Middles (n,) of the cells."""
        return (self.edges[1:] + self.edges[:-1]) / 2

    @property
    def step(self) -> float:
        """Measure of a cell: a length, or one for values that are counted."""
        return float(self.edges[1] - self.edges[0])

    @property
    def ends(self) -> tuple[float, float]:
        """Ends of the axis."""
        return float(self.edges[0]), float(self.edges[-1])


def kinds_of(model: Any) -> list[Kind]:
    """Kinds of a model's columns."""
    schema = getattr(model, "schema_", None)
    return [Real()] * model.n_features_in_ if schema is None else list(schema.kinds)


def axis_ends(kind: Kind, values: Array, tail: float, margin: float) -> tuple[float, float]:
    """Ends of an axis: all of a category or a period, else of all but the tails of some values.

    Those of a line are widened by a margin, as a share, but not beyond what the kind allows.
    """
    if isinstance(kind, Category):
        return -0.5, len(kind.values or ()) - 0.5
    if isinstance(kind, Periodic):
        return kind.start, kind.start + kind.period
    low, high = np.quantile(values, [tail, 1 - tail])
    if isinstance(kind, Integer):
        return float(np.floor(low)) - 0.5, float(np.ceil(high)) + 0.5
    rest = kind.rest if isinstance(kind, Atom) else kind
    room = margin * (high - low if high > low else 1.0)
    limits = rest.ends if isinstance(rest, Real) else (-np.inf, np.inf)
    low, high = np.clip([low - room, high + room], *limits).tolist()
    return low, high


def cell_density(model: Any, scales: Sequence[Scale]) -> Array:
    """Density of one or two columns, as means over the cells of their scales.

    They are integrals where the model has a distribution function, so that nothing is lost that
    is narrower than a cell; else means over a few points of each cell.
    """
    return _cell_masses(model, scales) / cell_size(scales)


def cell_size(scales: Sequence[Scale]) -> float:
    """Measure of the cells."""
    return float(np.prod([scale.step for scale in scales]))


def _cell_masses(model: Any, scales: Sequence[Scale]) -> Array:
    mixture: BornMixture | TableDensity | None = None
    if isinstance(model, BornEstimator):
        with suppress(TypeError, ValueError):  # of an infinite base measure
            mixture = expand(model.density_)
    if mixture is None:
        return _midpoint_masses(model, scales)
    if isinstance(mixture, TableDensity) and mixture.lines is None:
        return table_masses(mixture, scales)[0]
    n, ends = len(scales[0].points), [scale.ends for scale in scales]
    if len(scales) == 1:
        return _side(mixture, ends[0], n)[1:-1].numpy()
    parts = -(-PLANE_CELLS // n)
    sides = [_side(mixture.marginal([k]), pair, n * parts) for k, pair in enumerate(ends)]
    given = torch.empty(0, dtype=torch.float64)
    slices = Slices(mixture)
    fine = slices.plane(given, slices.log_mass, ends, sides, PLANE_NODES).mass[1:-1, 1:-1]
    return _pooled(fine.numpy(), parts)


def _side(mixture: BornMixture | TableDensity, ends: tuple[float, float], n: int) -> torch.Tensor:
    """Masses (n + 2,) of even cells of one column and, first and last, beyond them."""
    return mixture.cdf(cell_edges(*ends, n)[:, None])[0].diff()


def _midpoint_masses(model: Any, scales: Sequence[Scale]) -> Array:
    """Masses by the density in the middles of parts of the cells."""
    parts = SUBPOINTS[len(scales)]
    fine = [np.linspace(*s.ends, len(s.points) * parts + 1) for s in scales]
    axes = [(edges[1:] + edges[:-1]) / 2 for edges in fine]
    points = np.stack(np.meshgrid(*axes, indexing="ij"), -1)
    rows = framed_for(model, points.reshape(-1, len(scales)))
    mass = np.exp(model.score_samples(rows)) * cell_size(scales) / parts ** len(scales)
    return _pooled(mass.reshape(points.shape[:-1]), parts)


def _pooled(mass: Array, parts: int) -> Array:
    """Sums over groups of so many cells along each axis."""
    shape = [size for n in mass.shape for size in (n // parts, parts)]
    return np.asarray(mass.reshape(shape).sum(tuple(range(1, len(shape), 2))))


def table_masses(
    density: TableDensity, scales: Sequence[Scale], *, atoms: bool = False, draft: bool = False
) -> tuple[Array, list[Array], list[Side]]:
    """Masses of the cells of one or two columns of a table.

    Also the masses of the cells of each column alone, and those of all its values. A value that is
    counted fills the unit interval about its number; an atom the cell that it lies in, or none.
    """
    alone = [density] if len(scales) == 1 else [density.marginal([k]) for k in (0, 1)]
    pairs = list(zip(scales, alone, strict=True))
    sides = [side_of(column, torch.as_tensor(s.edges), draft=draft) for s, column in pairs]
    shares = [_shares(*pair, atoms=atoms) for pair in zip(scales, sides, strict=True)]
    each = [share @ side.mass.numpy() for share, side in zip(shares, sides, strict=True)]
    if len(scales) == 1:
        return each[0], each, sides
    mass = shares[0] @ plane_of(density, *sides).numpy() @ shares[1].T
    return np.asarray(mass), each, sides


def _shares(scale: Scale, side: Side, *, atoms: bool) -> Array:
    """Shares (n, m) that the cells of a scale have of those of a side."""
    if scale.is_counted:
        codes = side.points.numpy()
        return np.diff(np.clip(scale.edges[:, None], codes - 0.5, codes + 0.5), axis=0)
    n, (low, high) = len(scale.points), scale.ends
    shares = np.eye(n, len(side.mass), 1)
    if atoms and isinstance(scale.kind, Atom) and low <= scale.kind.value <= high:
        shares[min(int((scale.kind.value - low) / scale.step), n - 1), -1] = 1
    return shares

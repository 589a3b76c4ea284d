"""Cells of columns, and the masses that a density has in them: what pictures show."""

from collections.abc import Sequence
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
    """Cells of one column: intervals of a line or a circle, integers, or categories."""

    name: str
    kind: Kind
    edges: Array  # (n + 1,), even
    atom: float | None = None  # probability of the value of an atom, which is none of the cells

    @property
    def is_counted(self) -> bool:
        """Whether cells are unit intervals about values, so that a density is a probability."""
        return is_counted(self.kind)

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


def is_counted(kind: Kind) -> bool:
    """Whether a column has single values, each of which is a cell."""
    return isinstance(kind, Integer | Category)


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


def scale_of(name: str, kind: Kind, ends: tuple[float, float], n: int) -> Scale:
    """Scale of a column between two ends, in n cells where it is continuous."""
    even = np.arange(ends[0], ends[1] + 0.5) if is_counted(kind) else np.linspace(*ends, n + 1)
    return Scale(name, kind, even)


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
    mixture = _mixture_of(model)
    if mixture is None:
        return _midpoint_masses(model, scales)
    if isinstance(mixture, TableDensity) and mixture.lines is None:
        kinds, edges = [s.kind for s in scales], [s.edges for s in scales]
        return table_masses(mixture, kinds, edges)[0]
    n, ends = len(scales[0].points), [scale.ends for scale in scales]
    if len(scales) == 1:
        return _side(mixture, ends[0], n)[1:-1].numpy()
    parts = -(-PLANE_CELLS // n)
    sides = [_side(mixture.marginal([k]), pair, n * parts) for k, pair in enumerate(ends)]
    given = torch.empty(0, dtype=torch.float64)
    fine = Slices(mixture).plane(given, ends, sides, PLANE_NODES).mass[1:-1, 1:-1]
    return _pooled(fine.numpy(), parts)


def _mixture_of(model: Any) -> BornMixture | TableDensity | None:
    """The density as a sum of terms that can be integrated, if it is one."""
    if not isinstance(model, BornEstimator):
        return None
    try:
        return expand(model.density_)
    except (TypeError, ValueError):  # of an infinite base measure
        return None


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
    density: TableDensity,
    kinds: Sequence[Kind],
    edges: Sequence[Array],
    *,
    atoms: bool = False,
    draft: bool = False,
) -> tuple[Array, list[Array], list[Side]]:
    """Masses of the cells between even edges of one or two columns of a table.

    Also the masses of the cells of each column alone, and those of all its values. A value that is
    counted fills the unit interval about its number; an atom the cell that it lies in, or none.
    """
    alone = [density] if len(edges) == 1 else [density.marginal([k]) for k in (0, 1)]
    pairs = zip(alone, edges, strict=True)
    sides = [side_of(column, torch.as_tensor(edge), draft=draft) for column, edge in pairs]
    parts = zip(kinds, edges, sides, strict=True)
    shares = [_shares(*part, atoms=atoms) for part in parts]
    each = [share @ side.mass.numpy() for share, side in zip(shares, sides, strict=True)]
    if len(edges) == 1:
        return each[0], each, sides
    mass = shares[0] @ plane_of(density, *sides).numpy() @ shares[1].T
    return np.asarray(mass), each, sides


def _shares(kind: Kind, edges: Array, side: Side, *, atoms: bool) -> Array:
    """Shares (n, m) that the cells between edges have of those of a side."""
    if is_counted(kind):
        codes = side.points.numpy()
        return np.diff(np.clip(edges[:, None], codes - 0.5, codes + 0.5), axis=0)
    n = len(edges) - 1
    shares = np.eye(n, len(side.mass), 1)
    if atoms and isinstance(kind, Atom) and edges[0] <= kind.value <= edges[-1]:
        shares[min(int((kind.value - edges[0]) / (edges[1] - edges[0])), n - 1), -1] = 1
    return shares

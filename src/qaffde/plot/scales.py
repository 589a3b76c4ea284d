"""Scales of columns: where their cells lie, and how a density of one column is drawn on them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qaffde.kinds import Atom, Category, Integer, Kind, Periodic, Real
from qaffde.plot.style import DATA, DENSITY, percent

Array = NDArray[np.float64]
MAX_TICKS = 12


@dataclass(frozen=True)
class Scale:
    """Cells of one column: intervals of a line or a circle, integers, or categories."""

    name: str
    points: Array  # (n,), middles of the cells
    step: float  # their measure: a length, or one for values that are counted
    kind: Kind
    atom: float | None = None  # probability of the value of an atom, which is none of the cells

    @property
    def is_counted(self) -> bool:
        """Whether cells are single values, so that a density is a probability."""
        return isinstance(self.kind, Integer | Category)

    @property
    def ends(self) -> tuple[float, float]:
        """Ends of the axis."""
        half = self.step / 2
        return float(self.points[0] - half), float(self.points[-1] + half)

    @property
    def edges(self) -> Array:
        """Ends (n + 1,) of the cells."""
        half = self.step / 2
        return np.append(self.points - half, self.points[-1] + half)

    @property
    def atom_text(self) -> str:
        """The probability of an atom in words, or nothing."""
        if self.atom is None or not isinstance(self.kind, Atom):
            return ""
        return f"{percent(self.atom)} at {self.name} = {self.kind.value:g}"

    def set_axis(self, axis: Any, *, labels: bool = True) -> None:
        """Ticks of a matplotlib axis: labels of categories, whole numbers of integers."""
        from matplotlib.ticker import MaxNLocator

        if isinstance(self.kind, Category) and labels:
            every = -(-len(self.points) // MAX_TICKS)
            words = [shortened(str(label)) for label in self.kind.values or ()]
            axis.set_ticks(self.points[::every], words[::every])
        elif isinstance(self.kind, Integer):
            axis.set_major_locator(MaxNLocator(nbins="auto", integer=True))


def scale_of(name: str, kind: Kind, ends: tuple[float, float], n: int) -> Scale:
    """Scale of a column that is shown between two ends, in n cells where it is continuous."""
    if isinstance(kind, Category):
        return Scale(name, np.arange(len(kind.values or ()), dtype=np.float64), 1.0, kind)
    if isinstance(kind, Integer):
        return Scale(name, np.arange(np.floor(ends[0] + 0.5), ends[1] + 0.5), 1.0, kind)
    if isinstance(kind, Periodic):
        ends = kind.start, kind.start + kind.period
    rest = kind.rest if isinstance(kind, Atom) else kind
    if isinstance(rest, Real):
        ends = np.clip(ends, *rest.ends).tolist()
    edges = np.linspace(*ends, n + 1)
    return Scale(name, (edges[1:] + edges[:-1]) / 2, float(edges[1] - edges[0]), kind)


def shortened(label: str, most: int = 12) -> str:
    """A label that fits below an axis."""
    return label if len(label) <= most else f"{label[: most - 1]}…"


def draw_counted(
    ax: Any,
    scale: Scale,
    mass: Array,
    *,
    inside: Sequence[tuple[str, NDArray[np.bool_]]] = (),
) -> None:
    """Probabilities (n,) as bars of categories or stems of integers, darker `inside` regions.

    Regions are pairs of a label and a mask of shape (n,), the largest one first.
    """
    alphas = np.linspace(0.45, 0.9, len(inside))
    parts = [("", np.ones(len(mass), dtype=bool), 0.22 if inside else 0.7)]
    parts += [(*region, alpha) for region, alpha in zip(inside, alphas, strict=True)]
    for label, mask, alpha in parts:
        x, y, look = scale.points[mask], mass[mask], {"color": DENSITY, "alpha": alpha}
        if isinstance(scale.kind, Category):
            ax.bar(x, y, width=0.7, lw=0, label=label or None, **look)
        else:
            ax.vlines(x, 0, y, lw=2, label=label or None, **look)
            ax.plot(x, y, "o", ms=3.5, mew=0, **look)


def draw_line(ax: Any, scale: Scale, density: Array, **look: Any) -> None:
    """A curve, of a circle closed at its end, or dots of values that are counted."""
    x, y = closed(scale, density)
    style = {"marker": "o", "ms": 3.5, "ls": ":"} if scale.is_counted else {}
    ax.plot(x, y, **{"lw": 2, **look, **style})


def closed(scale: Scale, density: Array) -> tuple[Array, Array]:
    """Points of a curve; that of a circle begins and ends at the cut, with the same height.

    Examples
    --------
    >>> circle = Scale("hour", np.array([6.0, 18.0]), 12.0, Periodic(24))
    >>> closed(circle, np.array([1.0, 3.0]))
    (array([ 0.,  6., 18., 24.]), array([2., 1., 3., 2.]))
    """
    if not isinstance(scale.kind, Periodic):
        return scale.points, density
    at_cut = [(density[0] + density[-1]) / 2]
    first, last = scale.ends
    x = np.concatenate([[first], scale.points, [last]])
    return x, np.concatenate([at_cut, density, at_cut])


def draw_atom(ax: Any, scale: Scale) -> None:
    """A spike at the value of an atom, as high as the axes, with its probability."""
    if scale.atom is None or not isinstance(scale.kind, Atom):
        return
    at, (low, high) = scale.kind.value, scale.ends
    across = ax.get_xaxis_transform()
    ax.plot([at, at], [0, 0.93], color=DENSITY, lw=2.5, transform=across, clip_on=False)
    ax.plot([at], [0.93], "^", color=DENSITY, ms=6, transform=across, clip_on=False)
    left = at > (low + high) / 2
    ax.annotate(
        f"{percent(scale.atom)} at {at:g}",
        (at, 0.93),
        xycoords=across,
        xytext=(-7 if left else 7, -3),
        textcoords="offset points",
        ha="right" if left else "left",
        fontsize=8,
    )


def draw_shares(ax: Any, scale: Scale, values: Array) -> None:
    """Shares of the data at values that are counted, as short lines."""
    shares = (values[:, None] == scale.points).mean(0)
    look = {"marker": "_", "s": 90, "lw": 1.4, "color": DATA, "zorder": 3}
    ax.scatter(scale.points, shares, label="data", **look)

"""Marks of densities of one column: curves, bars, stems, spikes, and ticks of their axes."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qaffde.kinds import Atom, Category, Integer, Periodic
from qaffde.plot.cells import Array, Scale
from qaffde.plot.style import DENSITY, label, percent

MAX_TICKS, LONGEST_LABEL = 12, 12
HIGH, FEW, MOST = 3, 1 / 64, 0.8
"""Spikes are that many times higher than usual, no more of the cells, and less of the mass."""
MAX_LABELS = 3


def set_axis(axis: Any, scale: Scale) -> None:
    """Ticks of a matplotlib axis: labels of categories, whole numbers of integers."""
    from matplotlib.ticker import MaxNLocator

    if isinstance(scale.kind, Category):
        words = [str(value) for value in scale.kind.values or ()]
        n, every = LONGEST_LABEL, -(-len(words) // MAX_TICKS)
        short = [word if len(word) <= n else f"{word[: n - 1]}…" for word in words]
        axis.set_ticks(scale.points[::every], short[::every])
    elif isinstance(scale.kind, Integer):
        axis.set_major_locator(MaxNLocator(nbins="auto", integer=True))


def draw_counted(
    ax: Any, scale: Scale, mass: Array, inside: Sequence[tuple[str, NDArray[np.bool_]]] = ()
) -> None:
    """Probabilities (n,) as bars of categories or stems of integers, darker `inside` regions.

    Regions are pairs of a label and a mask of shape (n,), the largest one first.
    """
    alphas = [0.22, *np.linspace(0.45, 0.9, len(inside))] if inside else [0.7]
    regions = [(None, np.ones(len(mass), dtype=bool)), *inside]
    for (name, mask), alpha in zip(regions, alphas, strict=True):
        x, y, look = scale.points[mask], mass[mask], {"color": DENSITY, "alpha": alpha}
        if isinstance(scale.kind, Category):
            ax.bar(x, y, width=0.7, lw=0, label=name, **look)
        else:
            ax.vlines(x, 0, y, lw=2, label=name, **look)
            ax.plot(x, y, "o", ms=3.5, mew=0, **look)


def draw_curve(
    ax: Any, scale: Scale, density: Array, top: float, *, shade: float, row: int = 0, **look: Any
) -> None:
    """A curve with a shade below it and its spikes beyond a height labeled; dots if counted."""
    x, y = closed(scale, density)
    if scale.is_counted:
        ax.plot(x, y, marker="o", ms=3.5, ls=":", **look)
        return
    ax.plot(x, y, **look)
    ax.fill_between(x, y, color=look["color"], alpha=shade, lw=0)
    label_spikes(ax, scale, density, top, row)


def closed(scale: Scale, density: Array) -> tuple[Array, Array]:
    """Points of a curve; that of a circle begins and ends at the cut, with the same height.

    Examples
    --------
    >>> circle = Scale("hour", Periodic(24), np.array([0.0, 12.0, 24.0]))
    >>> closed(circle, np.array([1.0, 3.0]))
    (array([ 0.,  6., 18., 24.]), array([2., 1., 3., 2.]))
    """
    if not isinstance(scale.kind, Periodic):
        return scale.points, density
    first, last = scale.ends
    at_cut = (density[0] + density[-1]) / 2
    return np.r_[first, scale.points, last], np.r_[at_cut, density, at_cut]


def draw_atom(ax: Any, scale: Scale) -> None:
    """A spike at the value of an atom, as high as the axes, with its probability."""
    if scale.atom is None or not isinstance(scale.kind, Atom):
        return
    at, across = scale.kind.value, ax.get_xaxis_transform()
    ax.plot([at, at], [0, 0.93], color=DENSITY, lw=2.5, transform=across, clip_on=False)
    ax.plot([at], [0.93], "^", color=DENSITY, ms=6, transform=across, clip_on=False)
    left = at > sum(scale.ends) / 2
    label(ax, f"{percent(scale.atom)} at {at:g}", (at, 0.92), left=left, xycoords=across)


def ceiling(density: Array) -> float:
    """Height at which a picture ends, that of its spikes apart."""
    values = np.sort(density, axis=None)
    *rest, usual = values[: density.size - int(density.size * FEW)]
    few = sum(rest) > (1 - MOST) * values.sum()
    return float(1.25 * usual if few and values[-1] > HIGH * usual else values[-1])


def label_spikes(ax: Any, scale: Scale, density: Array, top: float, row: int) -> None:
    """Say how much mass the largest spikes hold that are cut off, from a row of text on."""
    x, across = scale.points, ax.get_xaxis_transform()
    runs = np.flatnonzero(np.diff(density > top, prepend=False, append=False)).reshape(-1, 2)
    masses = [density[slice(*run)].sum() * scale.step for run in runs]
    for k in np.argsort(masses)[::-1][:MAX_LABELS]:
        at, row = x[slice(*runs[k])].mean(), row + 1
        place, text = (at, 1 - 0.07 * row), f"{percent(masses[k])} here"
        label(ax, text, place, left=at > x.mean(), xycoords=across)


def draw_dots(ax: Any, rows: Array, scales: Sequence[Scale], **look: Any) -> None:
    """Rows (m, 2) as dots, spread within the cells of values that are counted to be seen."""
    counted = np.array([scale.is_counted for scale in scales])
    shift = np.random.default_rng(0).uniform(-0.3, 0.3, rows.shape)
    ax.scatter(*(rows + np.where(counted, shift, 0.0)).T, lw=0, **look)

"""Densities of columns: a curve, contours, a surface, the grid of all pairs, and slices."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from qaffde.estimators.regions import cell_levels
from qaffde.plot.panels import (
    MAX_SHOWN,
    Array,
    Panel,
    Wishes,
    ceiling,
    cell_density,
    cell_size,
    find_ends,
    label_spikes,
    marginal_of,
    middles,
    numbers_of,
    share_text,
    shown_rows,
)
from qaffde.plot.style import COLORS, DATA, DENSITY, caption, percent
from qaffde.streams.names import column_names

PAIR_POINTS, SLICE_POINTS = 64, 512
SLICES = (0.1, 0.3, 0.5, 0.7, 0.9)
FLAT = 0.01
"""Share of the largest density below which a surface is not drawn: it would hide the floor."""
MAX_PAIRS = 8
SPIKE = 0.1
"""Mass of nine cells that is worth a label."""


@dataclass(frozen=True)
class GridPanel(Panel):
    """Density of one or two columns on even cells, its highest-density regions and the data."""

    axes: list[Array]  # middles (n,) of the cells
    density: Array  # (n,) or (n, n), means over the cells; rows follow the second column
    names: list[str]
    masses: Sequence[float]  # of the regions
    levels: Sequence[float]  # densities at their edges
    rows: Array | None  # (m, d), of the data

    n_columns: ClassVar[int] = 2
    n_points: ClassVar[int]

    @classmethod
    def of(cls, model: Any, rows: Array | None, wishes: Wishes) -> Self:
        """Density of as many columns as the picture shows."""
        columns = numbers_of(model, wishes.columns)
        if len(columns) != cls.n_columns:
            wanted = {1: "one column", 2: "two columns"}[cls.n_columns]
            raise ValueError(f"this shows {wanted}, got {len(columns)}; name them in columns")
        density = marginal_of(model, columns)
        own = None if rows is None else rows[:, columns]
        ends, n = find_ends(density, own, wishes.random_state), wishes.n_points or cls.n_points
        axes = [middles(pair, n) for pair in ends]
        values = cell_density(density, ends, n).T
        levels = list(cell_levels(values * cell_size(*axes), wishes.masses) / cell_size(*axes))
        names = [column_names(model)[j] for j in columns]
        shown = None if own is None else shown_rows(own, wishes.random_state)
        return cls(axes, values, names, wishes.masses, levels, shown)

    @property
    def mass(self) -> float:
        """Mass that is drawn."""
        return float(self.density.sum()) * cell_size(*self.axes)


@dataclass(frozen=True)
class CurvePanel(GridPanel):
    """Density of a column, its highest-density regions and the data as a rug."""

    n_columns, n_points = 1, 512

    def draw(self, ax: Any) -> None:
        """Draw the regions, the curve and the rug."""
        (x,) = self.axes
        ordered = sorted(zip(self.masses, self.levels, strict=True), reverse=True)
        for (mass, level), alpha in zip(
            ordered, np.linspace(0.22, 0.5, len(ordered)), strict=True
        ):
            style = {"color": DENSITY, "alpha": alpha, "lw": 0}
            inside, label = self.density >= level, f"{percent(mass)} of the mass"
            ax.fill_between(x, self.density, where=inside, label=label, **style)
        ax.plot(x, self.density, color=DENSITY, lw=2)
        ax.set(xlabel=self.names[0], ylabel="density", xlim=(x[0], x[-1]))
        top = 1.08 * ceiling(self.density)
        ax.set_ylim(0, top)
        label_spikes(ax, x, self.density, top)
        place = {"xycoords": "axes fraction", "textcoords": "offset points", "ha": "right"}
        ax.annotate(share_text(self.mass), (1, 0), (0, -28), color="0.35", size=8.5, **place)
        if self.rows is not None:
            at = {"color": DATA, "lw": 0.6, "alpha": 0.35, "transform": ax.get_xaxis_transform()}
            ax.vlines(self.rows[:, 0], 0, 0.035, label="data", **at)
        ax.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=3, borderpad=0)


@dataclass(frozen=True)
class ContourPanel(GridPanel):
    """Density of two columns as colors, edges of its regions as lines, data as dots."""

    n_points = 128
    size = (5.4, 4.3)

    def draw(self, ax: Any) -> None:
        """Draw colors on a square-root scale, which shows faint parts, lines and dots."""
        image = self.draw_plane(ax, 1.1)
        if self.rows is not None:
            ax.scatter(*self.rows.T, s=3, lw=0, color="white", alpha=0.55)
        ax.set(xlabel=self.names[0], ylabel=self.names[1])
        extend = "max" if self.density.max() > image.norm.vmax else "neither"
        label = "density (square-root scale)"
        ax.figure.colorbar(image, ax=ax, label=label, pad=0.02, extend=extend)
        masses = " and ".join(percent(mass) for mass in self.masses)
        parts = [f"lines enclose {masses} of the mass" if masses else "", share_text(self.mass)]
        caption(ax, "; ".join(filter(None, parts)))

    def draw_plane(self, ax: Any, width: float) -> Any:
        """Draw the colors, and the edges of the regions as lines of a width."""
        from matplotlib.colors import PowerNorm

        halves = [(axis[1] - axis[0]) / 2 for axis in self.axes]
        pairs = zip(self.axes, halves, strict=True)
        ends = [end for axis, half in pairs for end in (axis[0] - half, axis[-1] + half)]
        style = {"origin": "lower", "aspect": "auto", "interpolation": "bilinear", "cmap": COLORS}
        norm = PowerNorm(0.5, vmin=0, vmax=ceiling(self.density))
        image = ax.imshow(self.density, extent=ends, norm=norm, **style)
        lines = {"colors": "white", "linewidths": width}
        crossed = [v for v in set(self.levels) if self.density.min() < v < self.density.max()]
        if crossed:
            ax.contour(*self.axes, self.density, sorted(crossed), **lines)
        ax.set(xlim=ends[:2], ylim=ends[2:])
        self._label_spike(ax)
        return image

    def _label_spike(self, ax: Any) -> None:
        """Say how much mass a spike holds that few could see: its cell and those around it."""
        i, j = np.unravel_index(self.density.argmax(), self.density.shape)
        near = self.density[max(i - 1, 0) : i + 2, max(j - 1, 0) : j + 2]
        mass = near.sum() * cell_size(*self.axes)
        if mass > SPIKE:
            x, y = self.axes
            left = j > len(x) / 2
            place = {"textcoords": "offset points", "ha": "right" if left else "left"}
            at, shift = (x[j], y[i]), (-5 if left else 5, 3)
            ax.annotate(f"{percent(mass)} here", at, shift, color="white", size=8, **place)


@dataclass(frozen=True)
class SurfacePanel(GridPanel):
    """Density of two columns as a surface, with data on the floor."""

    n_points = 72
    size = (6.0, 4.8)

    def make_axes(self, figure: Any) -> Any:
        """Axes of three dimensions."""
        return figure.add_subplot(projection="3d")

    def draw(self, ax: Any) -> None:
        """Draw the surface, and contours and data below it."""
        if ax.name != "3d":
            raise ValueError('a surface needs axes of three dimensions: projection="3d"')
        top = ceiling(self.density)
        floor = -0.3 * top
        X, Y = np.meshgrid(*self.axes)
        heights = np.minimum(self.density, top)
        raised = np.where(heights > FLAT * top, heights, np.nan)
        style = {"rstride": 1, "cstride": 1, "lw": 0, "antialiased": False}
        ax.plot_surface(X, Y, raised, cmap=COLORS, vmin=0, vmax=top, **style)
        ax.contourf(X, Y, heights, 12, zdir="z", offset=floor, cmap=COLORS, alpha=0.35)
        if self.rows is not None:
            ax.scatter(*self.rows.T, floor, s=2, lw=0, color=DATA, alpha=0.35)
        ax.set(xlabel=self.names[0], ylabel=self.names[1], zlabel="density", zlim=(floor, top))
        ax.set_zticks([tick for tick in ax.get_zticks() if 0 <= tick <= top])
        ax.view_init(elev=28, azim=-58)
        for axis in (ax.xaxis, ax.yaxis, ax.zaxis):
            axis.pane.set_alpha(0.0)
        ax.grid(visible=False)
        ax.set_box_aspect(None, zoom=0.9)
        caption(ax, share_text(self.mass))


@dataclass(frozen=True)
class PairsPanel(Panel):
    """Exact marginals of all columns and pairs; above the diagonal the data, if there are any."""

    curves: list[CurvePanel]
    planes: dict[tuple[int, int], ContourPanel]  # by row and column
    dots: Array | None  # (m, d)

    @classmethod
    def of(cls, model: Any, rows: Array | None, wishes: Wishes) -> "PairsPanel":
        """All marginals of one and two columns."""
        columns = numbers_of(model, wishes.columns)
        if not 2 <= len(columns) <= MAX_PAIRS:
            raise ValueError(
                f"pairs show 2 to {MAX_PAIRS} columns, got {len(columns)}; name some in columns"
            )
        guide = rows
        if rows is None and hasattr(model, "sample"):
            guide = model.sample(MAX_SHOWN, random_state=wishes.random_state)
        curves = [CurvePanel.of(model, guide, replace(wishes, columns=[j])) for j in columns]
        small = replace(wishes, n_points=wishes.n_points or PAIR_POINTS)
        planes = {
            (i, j): ContourPanel.of(model, guide, replace(small, columns=[columns[j], columns[i]]))
            for i in range(len(columns))
            for j in range(i)
        }
        dots = None if rows is None else shown_rows(rows, wishes.random_state)[:, columns]
        return cls(curves, planes, dots)

    @property
    def size(self) -> tuple[float, float]:  # type: ignore[override]
        """Of a grid of squares."""
        side = 1.2 + 1.75 * len(self.curves)
        return side, side

    def make_axes(self, figure: Any) -> Any:
        """A square of axes."""
        d = len(self.curves)
        return figure.subplots(d, d, squeeze=False)

    def draw(self, ax: Any) -> None:
        """Draw all axes of a square array."""
        d = len(self.curves)
        axes = np.asarray(ax, dtype=object)
        if axes.shape != (d, d):
            raise ValueError(f"pairs of {d} columns need axes of shape ({d}, {d})")
        for (i, j), place in np.ndenumerate(axes):
            if i == j:
                self._draw_curve(place, self.curves[i])
            elif i > j:
                self.planes[i, j].draw_plane(place, 0.8)
            else:
                self._draw_dots(place, i, j)
            self._label(place, i, j)
        axes[0, 0].figure.align_ylabels(axes[:, 0])

    def _draw_curve(self, ax: Any, curve: CurvePanel) -> None:
        (x,) = curve.axes
        ax.fill_between(x, curve.density, color=DENSITY, alpha=0.2, lw=0)
        ax.plot(x, curve.density, color=DENSITY, lw=1.6)
        ax.set(xlim=(x[0], x[-1]), yticks=[])
        top = 1.15 * ceiling(curve.density)
        ax.set_ylim(0, top)
        label_spikes(ax, x, curve.density, top)
        ax.spines["left"].set_visible(False)

    def _draw_dots(self, ax: Any, i: int, j: int) -> None:
        if self.dots is None:
            ax.set_axis_off()
            return
        ax.scatter(self.dots[:, j], self.dots[:, i], s=2, lw=0, color=DATA, alpha=0.35)
        ax.set(xlim=self.curves[j].axes[0][[0, -1]], ylim=self.curves[i].axes[0][[0, -1]])

    def _label(self, ax: Any, i: int, j: int) -> None:
        d = len(self.curves)
        if i == d - 1:
            ax.set_xlabel(self.curves[j].names[0])
        else:
            ax.set_xticklabels([])
        if j == 0:
            ax.set_ylabel(self.curves[i].names[0])
        if j > 0 or i == 0:
            ax.set_yticklabels([])
        if (i, j) == (0, 0):
            least = min([c.mass for c in self.curves] + [p.mass for p in self.planes.values()])
            short = f"marginals, {percent(least)} drawn"
            caption(ax, short if share_text(least) else "exact marginals")
        elif (i, j) == (0, d - 1) and self.dots is not None:
            caption(ax, "data")


@dataclass(frozen=True)
class SlicesPanel(Panel):
    """Density of a column where others have given values, a curve for each."""

    x: Array  # (n,), middles of even cells
    densities: Array  # (k, n), means over them
    labels: Sequence[str]
    name: str  # of the column
    given: str  # names of those that are given

    @classmethod
    def of(cls, model: Any, rows: Array | None, wishes: Wishes) -> "SlicesPanel":
        """Conditional densities of one column."""
        if not hasattr(model, "condition") or model.n_features_in_ < 2:
            raise ValueError(
                "slices need a density with exact conditionals and two columns or more, such as a "
                "QAFFDE of two"
            )
        names, given = column_names(model), dict(wishes.given or {})
        fixed = numbers_of(model, given) if given else []
        column = _sliced_column(model, wishes, fixed)
        if not fixed:
            fixed = [0 if column else 1]
            given = {fixed[0]: _typical(model, rows, fixed[0])}
        values = np.broadcast_arrays(*(np.atleast_1d(value) for value in given.values()))
        conditions: Any = model.condition(dict(zip(fixed, values, strict=True)))
        place = [j for j in range(len(names)) if j not in fixed].index(column)
        own = None if rows is None else rows[:, [column]]
        (ends,) = find_ends(marginal_of(model, [column]), own, wishes.random_state)
        x = middles(ends, wishes.n_points or SLICE_POINTS)
        parts = (marginal_of(condition, [place]) for condition in conditions)
        densities = np.stack([cell_density(part, [ends], len(x)) for part in parts])
        labels = [", ".join(f"{value:.3g}" for value in row) for row in zip(*values, strict=True)]
        return cls(x, densities, labels, names[column], ", ".join(names[j] for j in fixed))

    def draw(self, ax: Any) -> None:
        """Draw the curves, first ones darkest."""
        from matplotlib import colormaps

        colors = colormaps[COLORS](np.linspace(0.05, 0.85, len(self.labels)))
        top = 1.08 * ceiling(self.densities)
        for k, (density, label, color) in enumerate(
            zip(self.densities, self.labels, colors, strict=True)
        ):
            ax.plot(self.x, density, color=color, lw=2, label=label)
            ax.fill_between(self.x, density, color=color, alpha=0.08, lw=0)
            label_spikes(ax, self.x, density, top, row=k)
        ax.set(xlabel=self.name, ylabel=f"density given {self.given}")
        ax.set_xlim(self.x[0], self.x[-1])
        ax.set_ylim(0, top)
        text = share_text(float(self.densities.sum(1).min()) * cell_size(self.x))
        caption(ax, text and f"at least {text}")
        ax.legend(frameon=False, title=self.given if len(self.labels) > 1 else None)


def _sliced_column(model: Any, wishes: Wishes, fixed: Sequence[int]) -> int:
    if wishes.columns is None:
        return max(j for j in range(model.n_features_in_) if j not in fixed)
    columns = numbers_of(model, wishes.columns)
    if len(columns) != 1 or columns[0] in fixed:
        raise ValueError("slices show one column, which is not given itself; name it in columns")
    return columns[0]


def _typical(model: Any, rows: Array | None, column: int) -> Array:
    """Values of a column that spread over its mass."""
    if rows is not None:
        return np.asarray(np.quantile(rows[:, column], SLICES))
    return np.asarray(model.marginal([column]).ppf(SLICES))

"""Densities of columns: a curve, contours, the grid of all pairs, and slices."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from qaffde.functional.regions import cell_levels
from qaffde.kinds import Atom, Category
from qaffde.plot import marks
from qaffde.plot.cells import Array, Scale, cell_density, cell_size, kinds_of
from qaffde.plot.panels import (
    Panel,
    Wishes,
    draws_of,
    find_scales,
    marginal_of,
    numbers_of,
    shown_rows,
)
from qaffde.plot.style import COLORS, DATA, DENSITY, caption, label, percent
from qaffde.streams.names import column_names

PAIR_POINTS, SLICE_POINTS = 64, 512
SLICES = (0.1, 0.3, 0.5, 0.7, 0.9)
MAX_PAIRS = 8
SPIKE = 0.1
"""Mass of nine cells that is worth a label."""


@dataclass(frozen=True)
class GridPanel(Panel):
    """Density of one or two columns on even cells, its highest-density regions and the data."""

    scales: list[Scale]
    density: Array  # (n,) or (n, n), means over the cells; rows follow the second column
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
        density, n = marginal_of(model, columns), wishes.n_points or cls.n_points
        scales = find_scales(model, columns, rows, n, wishes.random_state)
        values, size = cell_density(density, scales).T, cell_size(scales)
        levels = list(_levels(values * size, wishes.masses, scales) / size)
        shown = None if rows is None else shown_rows(rows[:, columns], wishes.random_state)
        return cls(scales, values, wishes.masses, levels, shown)

    @property
    def axes(self) -> list[Array]:
        """Middles of the cells."""
        return [scale.points for scale in self.scales]

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        return [scale.name for scale in self.scales]

    @property
    def mass(self) -> float:
        """Mass that is drawn, or said to be at an atom."""
        drawn = float(self.density.sum()) * cell_size(self.scales)
        if len(self.scales) == 1:
            return drawn + (self.scales[0].atom or 0.0)
        return 1.0 if any(scale.atom for scale in self.scales) else drawn


def _levels(mass: Array, shares: Sequence[float], scales: Sequence[Scale]) -> Array:
    """Masses of cells at the edges of regions; an atom of one column is within all of them.

    In a plane with atoms, regions are those of the mass beside the atoms.
    """
    atoms = [scale.atom for scale in scales if scale.atom]
    if atoms and len(scales) == 2:
        return mass.sum() * cell_levels(mass / mass.sum(), shares)
    return cell_levels(np.append(mass, atoms), shares)


def share_text(mass: float) -> str:
    """Words for the mass that is drawn, if that is not all."""
    return "" if abs(mass - 1) < 5e-4 else f"{percent(mass)} drawn"


@dataclass(frozen=True)
class CurvePanel(GridPanel):
    """Density of a column, its highest-density regions and the data as a rug."""

    n_columns, n_points = 1, 512

    def draw(self, ax: Any) -> None:
        """Draw the regions, the curve, bars or stems, and the data."""
        (scale,) = self.scales
        ordered = sorted(zip(self.masses, self.levels, strict=True), reverse=True)
        regions = [(f"{percent(m)} of the mass", self.density >= level) for m, level in ordered]
        self.draw_curve(ax, 1.08, regions)
        ax.set(xlabel=scale.name, ylabel="probability" if scale.is_counted else "density")
        place = {"xycoords": "axes fraction", "textcoords": "offset points", "ha": "right"}
        ax.annotate(share_text(self.mass), (1, 0), (0, -28), color="0.35", size=8.5, **place)
        if self.rows is not None and scale.is_counted:
            shares = (self.rows == scale.points).mean(0)
            look = {"marker": "_", "s": 90, "lw": 1.4, "color": DATA, "zorder": 3}
            ax.scatter(scale.points, shares, label="data", **look)
            ax.set_ylim(0, None)
        elif self.rows is not None:
            at = {"color": DATA, "lw": 0.6, "alpha": 0.35, "transform": ax.get_xaxis_transform()}
            ax.vlines(self.rows[:, 0], 0, 0.035, label="data", **at)
        ax.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=3, borderpad=0)

    def draw_curve(
        self, ax: Any, room: float, regions: Sequence[tuple[str, NDArray[np.bool_]]] = ()
    ) -> None:
        """Draw a curve and its regions, or all below it, or bars or stems; and an atom."""
        (scale,) = self.scales
        top = room * marks.ceiling(self.density)
        if scale.is_counted:
            marks.draw_counted(ax, scale, self.density, regions)
        else:
            alphas = np.linspace(0.22, 0.5, len(regions))
            for (name, inside), alpha in zip(regions, alphas, strict=True):
                style = {"color": DENSITY, "alpha": alpha, "lw": 0}
                ax.fill_between(scale.points, self.density, where=inside, label=name, **style)
            shade, width = (0.0, 2.0) if regions else (0.2, 1.6)
            look: dict[str, Any] = {"color": DENSITY, "lw": width}
            marks.draw_curve(ax, scale, self.density, top, shade=shade, **look)
        ax.set(xlim=scale.ends, ylim=(0, top))
        marks.set_axis(ax.xaxis, scale)
        marks.draw_atom(ax, scale)


@dataclass(frozen=True)
class ContourPanel(GridPanel):
    """Density of two columns as colors, edges of its regions as lines, data as dots."""

    n_points = 128
    size = (5.4, 4.3)

    def draw(self, ax: Any) -> None:
        """Draw colors on a square-root scale, which shows faint parts, lines and dots."""
        image = self.draw_plane(ax, 1.1)
        if self.rows is not None:
            marks.draw_dots(ax, self.rows, self.scales, s=3, color="white", alpha=0.55)
        ax.set(xlabel=self.names[0], ylabel=self.names[1])
        extend = "max" if self.density.max() > image.norm.vmax else "neither"
        name = "density (square-root scale)"
        ax.figure.colorbar(image, ax=ax, label=name, pad=0.02, extend=extend)
        parts = [
            f"{percent(scale.atom or 0)} at {scale.name} = {scale.kind.value:g}"
            for scale in self.scales
            if isinstance(scale.kind, Atom)
        ]
        masses = " and ".join(percent(mass) for mass in self.masses)
        if masses and not any(scale.is_counted for scale in self.scales):
            parts.append(f"lines enclose {masses} of the {'rest' if parts else 'mass'}")
        caption(ax, "; ".join(filter(None, [*parts, share_text(self.mass)])))

    def draw_plane(self, ax: Any, width: float) -> Any:
        """Draw the colors, and the edges of the regions as lines of a width."""
        from matplotlib.colors import PowerNorm

        first, second = self.scales
        norm = PowerNorm(0.5, vmin=0, vmax=marks.ceiling(self.density))
        if first.is_counted or second.is_counted:
            image = ax.pcolormesh(first.edges, second.edges, self.density, norm=norm, cmap=COLORS)
        else:
            style = {"origin": "lower", "aspect": "auto", "interpolation": "bilinear"}
            ends = (*first.ends, *second.ends)
            image = ax.imshow(self.density, extent=ends, norm=norm, cmap=COLORS, **style)
            lines = {"colors": "white", "linewidths": width}
            crossed = [v for v in set(self.levels) if self.density.min() < v < self.density.max()]
            if crossed:
                ax.contour(*self.axes, self.density, sorted(crossed), **lines)
            self._label_spike(ax)
        ax.set(xlim=first.ends, ylim=second.ends)
        marks.set_axis(ax.xaxis, first)
        marks.set_axis(ax.yaxis, second)
        return image

    def _label_spike(self, ax: Any) -> None:
        """Say how much mass a spike holds that few could see: its cell and those around it."""
        i, j = np.unravel_index(self.density.argmax(), self.density.shape)
        near = self.density[max(i - 1, 0) : i + 2, max(j - 1, 0) : j + 2]
        mass = near.sum() * cell_size(self.scales)
        if mass > SPIKE:
            x, y = self.axes
            label(
                ax, f"{percent(mass)} here", (x[j], y[i]), left=bool(j > len(x) / 2), color="white"
            )


@dataclass(frozen=True)
class RidgePanel(ContourPanel):
    """Density of two columns, and the points of its ridges."""

    ridges: Array = field(default_factory=lambda: np.empty((0, 2)))

    @classmethod
    def of(cls, model: Any, rows: Array | None, wishes: Wishes) -> Self:
        """Contours, and ridges of the marginal."""
        panel = super().of(model, rows, wishes)
        shown = marginal_of(model, numbers_of(model, wishes.columns))
        if not hasattr(shown, "ridges"):
            raise ValueError(f"{type(model).__name__} has no ridges; fit a QAFFDE of two columns")
        return replace(panel, ridges=shown.ridges(random_state=wishes.random_state))

    def draw(self, ax: Any) -> None:
        """Draw contours, and a dot for each point of a ridge."""
        super().draw(ax)
        ax.scatter(*self.ridges.T, s=4, color=DENSITY, linewidths=0, zorder=3, label="ridges")
        ax.legend(frameon=False, loc="lower right", labelcolor="white")


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
        guide = draws_of(model, wishes.random_state) if rows is None else rows
        curves = [CurvePanel.of(model, guide, replace(wishes, columns=[j])) for j in columns]
        small = replace(wishes, n_points=wishes.n_points or PAIR_POINTS)
        planes = {
            (i, j): ContourPanel.of(model, guide, replace(small, columns=[columns[j], columns[i]]))
            for i in range(len(columns))
            for j in range(i)
        }
        dots = None if rows is None else shown_rows(rows, wishes.random_state)[:, columns]
        return cls(curves, planes, dots)

    def make_axes(self, plt: Any) -> Any:
        """A square of square axes."""
        d = len(self.curves)
        size = [1.2 + 1.75 * d] * 2
        return plt.subplots(d, d, squeeze=False, figsize=size, layout="constrained")[1]

    def draw(self, ax: Any) -> None:
        """Draw all axes of a square array."""
        d = len(self.curves)
        axes = np.asarray(ax, dtype=object)
        if axes.shape != (d, d):
            raise ValueError(f"pairs of {d} columns need axes of shape ({d}, {d})")
        for (i, j), place in np.ndenumerate(axes):
            if i == j:
                self.curves[i].draw_curve(place, 1.15)
                place.set_yticks([])
                place.spines["left"].set_visible(False)
            elif i > j:
                self.planes[i, j].draw_plane(place, 0.8)
            else:
                self._draw_dots(place, i, j)
            self._label(place, i, j)
        least = min([c.mass for c in self.curves] + [p.mass for p in self.planes.values()])
        drawn = share_text(least)
        caption(axes[0, 0], f"marginals, {drawn}" if drawn else "exact marginals")
        if self.dots is not None:
            caption(axes[0, -1], "data")
        axes[0, 0].figure.align_ylabels(axes[:, 0])

    def _draw_dots(self, ax: Any, i: int, j: int) -> None:
        if self.dots is None:
            ax.set_axis_off()
            return
        scales = [self.curves[k].scales[0] for k in (j, i)]
        marks.draw_dots(ax, self.dots[:, [j, i]], scales, s=2, color=DATA, alpha=0.35)
        ax.set(xlim=scales[0].ends, ylim=scales[1].ends)

    def _label(self, ax: Any, i: int, j: int) -> None:
        """Ticks and names at the left and at the bottom only."""
        across, up = (self.curves[k].scales[0] for k in (j, i))
        if i != j:
            marks.set_axis(ax.yaxis, up)
        marks.set_axis(ax.xaxis, across)
        if i == len(self.curves) - 1:
            ax.set_xlabel(across.name)
        else:
            ax.set_xticklabels([])
        if j == 0:
            ax.set_ylabel(up.name)
        if j > 0 or i == 0:
            ax.set_yticklabels([])


@dataclass(frozen=True)
class SlicesPanel(Panel):
    """Density of a column where others have given values, a curve for each."""

    scale: Scale
    densities: Array  # (k, n), means over its cells
    labels: Sequence[str]
    given: str  # names of those that are given

    @classmethod
    def of(cls, model: Any, rows: Array | None, wishes: Wishes) -> "SlicesPanel":
        """Conditional densities of one column."""
        if not hasattr(model, "condition") or model.n_features_in_ < 2:
            raise ValueError(
                "slices need a density with exact conditionals and two columns or more, such as a "
                "QAFFDE of two"
            )
        given = dict(wishes.given or {})
        fixed = numbers_of(model, given) if given else []
        free = [j for j in range(model.n_features_in_) if j not in fixed]
        column, *more = free[-1:] if wishes.columns is None else numbers_of(model, wishes.columns)
        if more or column not in free:
            raise ValueError(
                "slices show one column, which is not given itself; name it in columns"
            )
        if not fixed:
            fixed = [0 if column else 1]
            given = {fixed[0]: _typical(model, rows, fixed[0])}
        values = np.broadcast_arrays(*(np.atleast_1d(value) for value in given.values()))
        conditions: Any = model.condition(dict(zip(fixed, values, strict=True)))
        place = [j for j in range(model.n_features_in_) if j not in fixed].index(column)
        n = wishes.n_points or SLICE_POINTS
        (scale,) = find_scales(model, [column], rows, n, wishes.random_state)
        parts = (marginal_of(condition, [place]) for condition in conditions)
        densities = np.stack([cell_density(part, [scale]) for part in parts])
        labels = [", ".join(map(_shown, row)) for row in zip(*values, strict=True)]
        return cls(scale, densities, labels, ", ".join(column_names(model)[j] for j in fixed))

    def draw(self, ax: Any) -> None:
        """Draw the curves, first ones darkest."""
        from matplotlib import colormaps

        scale = self.scale
        colors = colormaps[COLORS](np.linspace(0.05, 0.85, len(self.labels)))
        top = 1.08 * marks.ceiling(self.densities)
        curves = zip(self.densities, self.labels, colors, strict=True)
        for k, (density, name, color) in enumerate(curves):
            look: dict[str, Any] = {"color": color, "label": name, "lw": 2}
            marks.draw_curve(ax, scale, density, top, shade=0.08, row=k, **look)
        height = "probability" if scale.is_counted else "density"
        ax.set(xlabel=scale.name, ylabel=f"{height} given {self.given}")
        ax.set(xlim=scale.ends, ylim=(0, top))
        marks.set_axis(ax.xaxis, scale)
        text = share_text(float(self.densities.sum(1).min()) * scale.step)
        caption(ax, text and f"at least {text}")
        ax.legend(frameon=False, title=self.given if len(self.labels) > 1 else None)


def _shown(value: Any) -> str:
    return str(value) if isinstance(value, str | np.str_ | bool | np.bool_) else f"{value:.3g}"


def _typical(model: Any, rows: Array | None, column: int) -> NDArray[Any]:
    """Values of a column that spread over its mass; labels of a category."""
    kind = kinds_of(model)[column]
    if isinstance(kind, Category):
        return np.array((kind.values or ())[: len(SLICES)], dtype=object)
    if rows is not None:
        found = np.quantile(rows[:, column], SLICES, method="closest_observation")
    else:
        found = model.marginal([column]).ppf(SLICES)
    return np.asarray(np.unique(found))

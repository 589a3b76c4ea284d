"""Densities of two columns: contours, a surface, and the grid of all pairs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from qaffde.plot.curves import CurvePanel, curve_panel
from qaffde.plot.evaluate import (
    Array,
    find_view,
    log_density,
    marginal_of,
    mass_levels,
    names_of,
    numbers_of,
    plane,
    shown_rows,
)
from qaffde.plot.panels import Panel, Wishes
from qaffde.plot.style import COLORS, DATA, DENSITY, caption, percent, quiet

FLAT = 0.01
"""Share of the largest density below which a surface is not drawn: it would hide the floor."""
POINTS, PAIR_POINTS, SURFACE_POINTS = 128, 64, 72
MAX_PAIRS = 8


@dataclass(frozen=True)
class ContourPanel(Panel):
    """Density of two columns as colors, edges of its regions as lines, data as dots.

    Parameters
    ----------
    x, y : ndarrays of shape (n,)
    density : ndarray of shape (n, n)
        Rows follow y.
    names : tuple of two str
    masses, levels : sequences of float
    dots : ndarray of shape (m, 2) or None
    """

    x: Array
    y: Array
    density: Array
    names: tuple[str, str]
    masses: Sequence[float]
    levels: Sequence[float]
    dots: Array | None
    size = (5.4, 4.3)

    def draw(self, ax: Any) -> None:
        """Draw colors on a square-root scale, which shows faint parts, lines and dots."""
        image = self.draw_colors(ax)
        self.draw_lines(ax, 1.1)
        if self.dots is not None:
            ax.scatter(*self.dots.T, s=3, lw=0, color="white", alpha=0.55)
        ax.set(xlabel=self.names[0], ylabel=self.names[1])
        ax.figure.colorbar(image, ax=ax, label="density (square-root scale)", pad=0.02)
        masses = " and ".join(percent(mass) for mass in self.masses)
        caption(ax, f"lines enclose {masses} of the mass" if masses else "")

    def draw_lines(self, ax: Any, width: float) -> None:
        """Draw the edges of the regions."""
        levels = sorted(self.levels)
        ax.contour(self.x, self.y, self.density, levels, colors="white", linewidths=width)

    def draw_colors(self, ax: Any) -> Any:
        """Draw the colors alone."""
        from matplotlib.colors import PowerNorm

        norm = PowerNorm(0.5, vmin=0, vmax=float(self.density.max()))
        ends = (self.x[0], self.x[-1], self.y[0], self.y[-1])
        image = ax.imshow(
            self.density,
            extent=ends,
            origin="lower",
            aspect="auto",
            cmap=COLORS,
            norm=norm,
            interpolation="bilinear",
        )
        ax.set(xlim=ends[:2], ylim=ends[2:])
        return image


def contour_panel(model: Any, rows: Array | None, wishes: Wishes) -> ContourPanel:
    """Density of two columns."""
    columns = numbers_of(model, wishes.columns)
    if len(columns) != 2:
        raise ValueError(f"this shows two columns, got {len(columns)}; name two in columns")
    density = marginal_of(model, columns)
    own = None if rows is None else rows[:, columns]
    view = find_view(density, own, wishes.random_state)
    n = wishes.n_points or POINTS
    x, y, points = plane(view, n)
    log_p = log_density(density, points).reshape(n, n)
    names = names_of(model)
    dots = None if own is None else shown_rows(own, wishes.random_state)
    return ContourPanel(
        x,
        y,
        np.exp(log_p),
        (names[columns[0]], names[columns[1]]),
        wishes.masses,
        list(mass_levels(log_p, wishes.masses)),
        dots,
    )


@dataclass(frozen=True)
class SurfacePanel(Panel):
    """Density of two columns as a surface, with data on the floor."""

    flat: ContourPanel
    size = (6.0, 4.8)

    def make_axes(self, figure: Any) -> Any:
        """Axes of three dimensions."""
        return figure.add_subplot(projection="3d")

    def draw(self, ax: Any) -> None:
        """Draw the surface, and contours and data below it."""
        if ax.name != "3d":
            raise ValueError('a surface needs axes of three dimensions: projection="3d"')
        flat, top = self.flat, float(self.flat.density.max())
        floor = -0.3 * top
        X, Y = np.meshgrid(flat.x, flat.y)
        raised = np.where(flat.density > FLAT * top, flat.density, np.nan)
        ax.plot_surface(
            X,
            Y,
            raised,
            cmap=COLORS,
            vmin=0,
            vmax=top,
            rstride=1,
            cstride=1,
            lw=0,
            antialiased=False,
        )
        ax.contourf(X, Y, flat.density, 12, zdir="z", offset=floor, cmap=COLORS, alpha=0.35)
        if flat.dots is not None:
            ax.scatter(*flat.dots.T, floor, s=2, lw=0, color=DATA, alpha=0.35)
        ax.set(xlabel=flat.names[0], ylabel=flat.names[1], zlabel="density", zlim=(floor, top))
        ax.set_zticks([tick for tick in ax.get_zticks() if 0 <= tick <= top])
        ax.view_init(elev=28, azim=-58)
        for axis in (ax.xaxis, ax.yaxis, ax.zaxis):
            axis.pane.set_alpha(0.0)
        ax.grid(visible=False)
        ax.set_box_aspect(None, zoom=0.9)


def surface_panel(model: Any, rows: Array | None, wishes: Wishes) -> SurfacePanel:
    """Surface of two columns."""
    points = wishes.n_points or SURFACE_POINTS
    return SurfacePanel(contour_panel(model, rows, replace(wishes, n_points=points)))


@dataclass(frozen=True)
class PairsPanel(Panel):
    """Exact marginals of all columns and pairs; above the diagonal the data, if there are any.

    Parameters
    ----------
    curves : list of CurvePanel
    planes : dict of {(row, column): ContourPanel}
    dots : ndarray of shape (m, d) or None
    """

    curves: list[CurvePanel]
    planes: dict[tuple[int, int], ContourPanel]
    dots: Array | None

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
                self._draw_plane(place, self.planes[i, j])
            else:
                self._draw_dots(place, i, j)
            self._label(place, i, j)
        axes[0, 0].figure.align_ylabels(axes[:, 0])

    def _draw_curve(self, ax: Any, curve: CurvePanel) -> None:
        ax.fill_between(curve.x, curve.density, color=DENSITY, alpha=0.2, lw=0)
        ax.plot(curve.x, curve.density, color=DENSITY, lw=1.6)
        ax.set(xlim=(curve.x[0], curve.x[-1]), yticks=[])
        ax.set_ylim(0, 1.15 * float(curve.density.max()))
        quiet(ax)
        ax.spines["left"].set_visible(False)

    def _draw_plane(self, ax: Any, flat: ContourPanel) -> None:
        flat.draw_colors(ax)
        flat.draw_lines(ax, 0.8)

    def _draw_dots(self, ax: Any, i: int, j: int) -> None:
        if self.dots is None:
            ax.set_axis_off()
            return
        ax.scatter(self.dots[:, j], self.dots[:, i], s=2, lw=0, color=DATA, alpha=0.35)
        ends = self.curves[j].x, self.curves[i].x
        ax.set(xlim=ends[0][[0, -1]], ylim=ends[1][[0, -1]])
        quiet(ax)

    def _label(self, ax: Any, i: int, j: int) -> None:
        d = len(self.curves)
        if i == d - 1:
            ax.set_xlabel(self.curves[j].name)
        else:
            ax.set_xticklabels([])
        if j == 0:
            ax.set_ylabel(self.curves[i].name)
        if j > 0 or i == 0:
            ax.set_yticklabels([])
        if (i, j) == (0, 0):
            caption(ax, "exact marginals")
        elif (i, j) == (0, d - 1) and self.dots is not None:
            caption(ax, "data")


def pairs_panel(model: Any, rows: Array | None, wishes: Wishes) -> PairsPanel:
    """All marginals of one and two columns."""
    columns = numbers_of(model, wishes.columns)
    if not 2 <= len(columns) <= MAX_PAIRS:
        raise ValueError(
            f"pairs show 2 to {MAX_PAIRS} columns, got {len(columns)}; name some in columns"
        )
    if rows is None and hasattr(model, "sample"):
        guide = model.sample(2000, random_state=wishes.random_state)
    else:
        guide = rows
    points = wishes.n_points or PAIR_POINTS
    curves = [curve_panel(model, guide, replace(wishes, columns=[j])) for j in columns]
    small = replace(wishes, n_points=points)
    planes = {
        (i, j): contour_panel(model, guide, replace(small, columns=[columns[j], columns[i]]))
        for i in range(len(columns))
        for j in range(i)
    }
    dots = None if rows is None else shown_rows(rows, wishes.random_state)[:, columns]
    return PairsPanel(curves, planes, dots)

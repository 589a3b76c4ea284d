"""Densities of one column: a curve with its regions, and slices through others."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from qaffde.estimators.columns import resolve_columns
from qaffde.plot.evaluate import (
    Array,
    find_view,
    log_density,
    marginal_of,
    mass_levels,
    names_of,
    numbers_of,
    shown_rows,
)
from qaffde.plot.panels import Panel, Wishes
from qaffde.plot.style import DATA, DENSITY, percent, quiet, ramp

POINTS = 512
SLICES = (0.1, 0.3, 0.5, 0.7, 0.9)


@dataclass(frozen=True)
class CurvePanel(Panel):
    """Density of a column, its highest-density regions and the data as a rug.

    Parameters
    ----------
    x, density : ndarrays of shape (n,)
    name : str
    masses, levels : sequences of float
        Of the regions, and the densities at their edges.
    rug : ndarray of shape (m,) or None
    """

    x: Array
    density: Array
    name: str
    masses: Sequence[float]
    levels: Sequence[float]
    rug: Array | None

    def draw(self, ax: Any) -> None:
        """Draw the regions, the curve and the rug."""
        ordered = sorted(zip(self.masses, self.levels, strict=True), reverse=True)
        shades: Array = np.linspace(0.22, 0.5, len(ordered))
        for (mass, level), shade in zip(ordered, shades, strict=True):
            inside = self.density >= level
            label = f"{percent(mass)} of the mass"
            ax.fill_between(
                self.x, self.density, where=inside, color=DENSITY, alpha=shade, lw=0, label=label
            )
        ax.plot(self.x, self.density, color=DENSITY, lw=2)
        top = float(self.density.max())
        ax.set(xlabel=self.name, ylabel="density", xlim=(self.x[0], self.x[-1]))
        ax.set_ylim(0, 1.08 * top)
        if self.rug is not None:
            at = {"color": DATA, "lw": 0.6, "alpha": 0.35, "transform": ax.get_xaxis_transform()}
            ax.vlines(self.rug, 0, 0.035, label="data", **at)
        quiet(ax)
        ax.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=3, borderpad=0)


def curve_panel(model: Any, rows: Array | None, wishes: Wishes) -> CurvePanel:
    """Curve of a density of one column."""
    columns = numbers_of(model, wishes.columns)
    if len(columns) != 1:
        raise ValueError(f"a curve shows one column, got {len(columns)}; name one in columns")
    density = marginal_of(model, columns)
    own = None if rows is None else rows[:, columns]
    view = find_view(density, own, wishes.random_state)
    x = np.linspace(view[0, 0], view[1, 0], wishes.n_points or POINTS)
    log_p = log_density(density, x[:, None])
    if hasattr(density, "hdr_level"):
        levels = np.exp(density.hdr_level(list(wishes.masses), random_state=0))
    else:
        levels = mass_levels(log_p, wishes.masses)
    rug = None if own is None else shown_rows(own, wishes.random_state)[:, 0]
    name = names_of(model)[columns[0]]
    return CurvePanel(x, np.exp(log_p), name, wishes.masses, list(levels), rug)


@dataclass(frozen=True)
class SlicesPanel(Panel):
    """Density of a column where others have given values, a curve for each.

    Parameters
    ----------
    x : ndarray of shape (n,)
    densities : ndarray of shape (k, n)
    labels : sequence of str
    name, given : str
        Of the column, and of those that are given.
    """

    x: Array
    densities: Array
    labels: Sequence[str]
    name: str
    given: str

    def draw(self, ax: Any) -> None:
        """Draw the curves, first ones darkest."""
        for density, label, color in zip(
            self.densities, self.labels, ramp(len(self.labels)), strict=True
        ):
            ax.plot(self.x, density, color=color, lw=2, label=label)
            ax.fill_between(self.x, density, color=color, alpha=0.08, lw=0)
        ax.set(xlabel=self.name, ylabel=f"density given {self.given}")
        ax.set_xlim(self.x[0], self.x[-1])
        ax.set_ylim(bottom=0)
        quiet(ax)
        ax.legend(frameon=False, title=self.given if len(self.labels) > 1 else None)


def slices_panel(model: Any, rows: Array | None, wishes: Wishes) -> SlicesPanel:
    """Conditional densities of one column."""
    if not hasattr(model, "condition") or model.n_features_in_ < 2:
        raise ValueError(
            "slices need a density with exact conditionals and two columns or more, such as a "
            "QAFFDE of two"
        )
    names = names_of(model)
    given = {} if wishes.given is None else dict(wishes.given)
    fixed = (
        resolve_columns(given, len(names), getattr(model, "feature_names_in_", None))
        if given
        else []
    )
    column = _sliced_column(model, wishes, fixed)
    if not fixed:
        fixed = [next(j for j in range(len(names)) if j != column)]
        given = {fixed[0]: _typical(model, rows, fixed[0], wishes.random_state)}
    values = np.broadcast_arrays(*(np.atleast_1d(value) for value in given.values()))
    conditions: Any = model.condition(dict(zip(fixed, values, strict=True)))
    place = [j for j in range(len(names)) if j not in fixed].index(column)
    own = None if rows is None else rows[:, [column]]
    view = find_view(marginal_of(model, [column]), own, wishes.random_state)
    x = np.linspace(view[0, 0], view[1, 0], wishes.n_points or POINTS)
    densities = [
        np.exp(log_density(marginal_of(condition, [place]), x[:, None]))
        for condition in conditions
    ]
    labels = [", ".join(f"{value:.3g}" for value in row) for row in zip(*values, strict=True)]
    said = ", ".join(names[j] for j in fixed)
    return SlicesPanel(x, np.stack(densities), labels, names[column], said)


def _sliced_column(model: Any, wishes: Wishes, fixed: Sequence[int]) -> int:
    if wishes.columns is None:
        return max(j for j in range(model.n_features_in_) if j not in fixed)
    columns = numbers_of(model, wishes.columns)
    if len(columns) != 1 or columns[0] in fixed:
        raise ValueError("slices show one column, which is not given itself; name it in columns")
    return columns[0]


def _typical(model: Any, rows: Array | None, column: int, random_state: int) -> Array:
    """Values of a column that spread over its mass."""
    if rows is not None:
        return np.asarray(np.quantile(rows[:, column], SLICES))
    return np.asarray(model.marginal([column]).ppf(SLICES))

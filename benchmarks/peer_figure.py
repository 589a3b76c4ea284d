"""The picture of the comparison of kernel density estimates."""

from typing import Any

from benchmarks.peer_methods import METHODS
from experiments.figures import new_figure, spread_labels, styled
from experiments.rows import Row

OURS = ("qaffde-100", "qaffde-full")
COLOURS = {
    "qaffde-100": "#0b5fa5",
    "qaffde-full": "#4fa3e0",
    "sklearn-exact": "#8c4a00",
    "sklearn-1e-2": "#e07b00",
    "scipy": "#8a6fb0",
    "kdepy-fft": "#2f9e44",
    "kdepy-tree": "#94b447",
    "mlpack": "#c2255c",
    "pykeops": "#d6a800",
    "figtree": "#555555",
}

Cells = dict[tuple[int, int], dict[str, Row]]
"""Rows of each method, by columns and rows of the data."""


@styled
def figure(cells: Cells) -> Any:
    """Seconds to score over the rows, one panel for each number of columns."""
    columns = sorted({d for d, _ in cells})
    drawn = new_figure((5.0 * len(columns) + 0.6, 4.2))
    axes = drawn.subplots(1, len(columns), sharey=True, squeeze=False)[0]
    highest = 0.0
    for ax, d in zip(axes, columns, strict=True):
        found = {name: _curve(ax, cells, d, name) for name in COLOURS}
        ends = {name: end for name, end in found.items() if end is not None}
        ax.set(xscale="log", yscale="log", xlabel="rows N")
        ax.set_title(f"{d} columns", loc="left")
        ax.grid(axis="y", color="0.92")
        reach = max(n for e, n in cells if e == d)
        for name, y in spread_labels(ends, 1.8).items():
            style = {"color": COLOURS[name], "va": "center", "fontsize": 8}
            at = {"textcoords": "offset points", "annotation_clip": False}
            ax.annotate(METHODS[name].label, (reach, y), (8, 0), **at, **style)
            highest = max(highest, y)
    axes[0].set_ylim(top=2 * highest)
    axes[0].set_ylabel("seconds for 10,000 points")
    return drawn


def _curve(ax: Any, cells: Cells, d: int, name: str) -> float | None:
    """Draw one method; hollow where only some queries were scored. Return where it ends."""
    rows = [of[name] for (e, _), of in cells.items() if e == d and name in of]
    rows = [row for row in rows if "score_seconds" in row]
    if not rows:
        return None
    n, seconds = [row["n"] for row in rows], [row["score_seconds"] for row in rows]
    strong = name in OURS
    ax.plot(n, seconds, color=COLOURS[name], lw=2.4 if strong else 1.4, zorder=3 if strong else 2)
    for x, y, row in zip(n, seconds, rows, strict=True):
        face = "white" if row["extrapolated"] else COLOURS[name]
        ax.plot(x, y, "o", ms=5, mec=COLOURS[name], mfc=face, zorder=4)
    return seconds[-1]

"""Picture of the rooms of the package and of what they import, drawn from the imports themselves.

    python docs/_ext/rooms.py

writes docs/images/rooms.png; `make docs` does it too.
"""

import tomllib
from pathlib import Path

import grimp
import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

ROOT = Path(__file__).resolve().parents[2]
PICTURE = ROOT / "docs/images/rooms.png"
STEPS = {"streams": "rows", "selection": "summary, plan", "estimators": "fit", "files": "file"}
"""The way of one datum."""
WIDTH, HEIGHT = 0.9, 0.22
"""Half of those of a box."""


def layers() -> list[list[str]]:
    """Rooms from top to bottom, as import-linter checks them, without the leaf modules below."""
    config = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    found = config["tool"]["importlinter"]["contracts"][0]["layers"]
    return [
        [name.strip().removeprefix("qaffde.") for name in row.split("|")] for row in found[:-1]
    ]


def imports() -> set[tuple[str, str]]:
    """Pairs of rooms of which the first imports the second, lazily or not."""
    graph = grimp.build_graph("qaffde", cache_dir=None)
    pairs = set()
    for module in graph.modules:
        for other in graph.find_modules_directly_imported_by(module):
            rooms = tuple([*name.split("."), ""][1] for name in (module, other))
            if all(rooms) and rooms[0] != rooms[1]:
                pairs.add(rooms)
    return pairs  # type: ignore[return-value]


def direct(pairs: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """Pairs without those that follow from two others."""
    return {
        (a, c)
        for a, c in pairs
        if not any((a, b) in pairs and (b, c) in pairs for b in {pair[1] for pair in pairs})
    }


def draw(path: Path = PICTURE) -> None:
    """Draw the rooms, and an arrow from each to those it imports."""
    rows, place = layers(), {}
    figure = Figure(figsize=(8, 0.85 * len(rows)), layout="constrained")
    axes = figure.subplots()
    axes.set(xlim=(0, 8), ylim=(-len(rows) + 0.6, 0.4))
    axes.axis("off")
    for depth, row in enumerate(rows):
        for number, name in enumerate(row):
            x = 8 * (number + 0.5) / len(row)
            place[name] = (x, -depth)
            box = (x - WIDTH, -depth - HEIGHT)
            color = "#dbe7f5" if name in STEPS else "#f2f2f2"
            axes.add_patch(
                FancyBboxPatch(box, 2 * WIDTH, 2 * HEIGHT, "round,pad=0.04", fc=color, ec="#888")
            )
            label = f"{name}\n({STEPS[name]})" if name in STEPS else name
            axes.text(x, -depth, label, ha="center", va="center", fontsize=10)
    for a, b in sorted(direct(imports())):
        if a in place and b in place:
            _arrow(axes, place[a], place[b])
    figure.savefig(path, dpi=130, metadata={"Software": None})


def _arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float]) -> None:
    """Straight to the next layer; around a corner, by the side of the middle, to one below."""
    (x, y), (to_x, to_y) = start, end
    side = (WIDTH + 0.04) * (1 if max(x, to_x) > 4 else -1)
    below = HEIGHT + 0.04
    bend = "arc3"
    if x == to_x or y - to_y <= 1:
        y, to_y = y - below, to_y + below
    elif to_x == 4:
        x, y, to_x, bend = x + side / 2, y - below, to_x + side, "angle,angleA=-90,angleB=0,rad=8"
    else:
        x, to_y, bend = x + side, to_y + below, "angle,angleA=0,angleB=-90,rad=8"
    style = {"arrowstyle": "-|>", "color": "#5b7ea6", "lw": 1, "shrinkA": 0, "shrinkB": 0}
    style["connectionstyle"] = bend
    axes.annotate("", (to_x, to_y), (x, y), arrowprops=style, zorder=0.5)


if __name__ == "__main__":
    mpl.use("Agg")
    draw()

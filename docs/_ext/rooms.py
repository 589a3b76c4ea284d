"""Picture of the rooms of the package and of what they import, drawn from the imports themselves.

    python docs/_ext/rooms.py

writes docs/images/rooms.png; `make docs` does it too.
"""

import tomllib
from pathlib import Path

import grimp
import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

ROOT = Path(__file__).resolve().parents[2]
PICTURE = ROOT / "docs/images/rooms.png"
STEPS = {"streams": "rows", "selection": "summary, plan", "estimators": "fit", "files": "file"}
"""The way of one datum."""


def layers() -> list[list[str]]:
    """Rooms from top to bottom, as import-linter checks them, without the leaves below."""
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
    figure = Figure(figsize=(8, 0.95 * len(rows)), layout="constrained")
    axes = figure.subplots()
    axes.set(xlim=(0, 8), ylim=(-len(rows) + 0.3, 0.7))
    axes.axis("off")
    for depth, row in enumerate(rows):
        for number, name in enumerate(row):
            x = 8 * (number + 0.5) / len(row)
            place[name] = (x, -depth)
            box = (x - 0.8, -depth - 0.22)
            color = "#dbe7f5" if name in STEPS else "#f2f2f2"
            axes.add_patch(
                FancyBboxPatch(box, 1.6, 0.44, "round,pad=0.04", fc=color, ec="#888", zorder=3)
            )
            label = f"{name}\n({STEPS[name]})" if name in STEPS else name
            axes.text(x, -depth, label, ha="center", va="center", fontsize=8.5, zorder=4)
    for a, b in sorted(direct(imports())):
        if a in place and b in place:
            start, end = (place[a][0], place[a][1] - 0.26), (place[b][0], place[b][1] + 0.26)
            style = {
                "arrowstyle": "-|>",
                "color": "#5b7ea6",
                "lw": 0.9,
                "shrinkA": 0,
                "shrinkB": 0,
            }
            axes.annotate("", end, start, arrowprops=style)
    figure.savefig(path, dpi=130, metadata={"Software": None})


if __name__ == "__main__":
    mpl.use("Agg")
    draw()

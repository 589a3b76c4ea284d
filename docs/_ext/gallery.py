"""What sphinx-gallery asks of us: the order of the tutorials, and how their figures look."""

from pathlib import Path
from typing import Any

import matplotlib as mpl

TUTORIALS = [
    "plot_density",
    "plot_bounded_data",
    "plot_conditionals",
    "plot_anomaly",
    "plot_classification",
    "plot_streaming",
    "plot_network",
]
STYLE = {"font.size": 11, "axes.titlesize": 11.5, "savefig.facecolor": "white"}


def order(filename: str) -> tuple[int, str]:
    """Key of a script: tutorials from the simple to the special, then all others by name."""
    stem = Path(filename).stem
    return (TUTORIALS.index(stem) if stem in TUTORIALS else len(TUTORIALS)), stem


def set_style(gallery_conf: dict[str, Any], fname: str) -> None:
    """Set the style before a script runs."""
    mpl.rcParams.update(STYLE)

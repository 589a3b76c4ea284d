"""How pictures look: colors, matplotlib settings and small text."""

from importlib import import_module
from typing import Any

STYLE: dict[Any, Any] = {
    "axes.spines.top": False,
    "axes.spines.right": False,
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "svg.hashsalt": "qaffde",
}
COLORS = "viridis"
DENSITY = "#D55E00"
DATA = "0.25"


def import_pyplot() -> Any:
    """The module matplotlib.pyplot, loaded when it is first used."""
    return import_module("matplotlib.pyplot")


def percent(share: float) -> str:
    """A share in hundredths.

    Examples
    --------
    >>> percent(0.5), percent(0.995)
    ('50 %', '99.5 %')
    """
    return f"{100 * share:.3g} %"


def caption(ax: Any, text: str) -> None:
    """A line of small text above the axes."""
    ax.set_title(text, loc="left", fontsize=8.5, color="0.35")


def label(ax: Any, text: str, at: tuple[float, float], *, left: bool, **look: Any) -> None:
    """Small text at the left or the right of a point."""
    place = {"xytext": (-5 if left else 5, 0), "ha": "right" if left else "left"}
    ax.annotate(text, at, textcoords="offset points", fontsize=8, **place, **look)

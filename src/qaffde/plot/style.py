"""How pictures look: colors and matplotlib settings."""

from typing import Any

from qaffde.extras import import_extra

STYLE: dict[Any, Any] = {
    "axes.spines.top": False,
    "axes.spines.right": False,
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "svg.hashsalt": "qaffde",
}
COLORS = "viridis"
DENSITY = "#D55E00"
SECOND = "#0072B2"
DATA = "0.25"


def import_pyplot() -> Any:
    """The module matplotlib.pyplot, or an error that says how to install it."""
    return import_extra("matplotlib.pyplot", "plot", "pictures need")


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

"""How pictures look: colors and matplotlib settings."""

from typing import Any

__all__ = [
    "COLORS",
    "DATA",
    "DENSITY",
    "SECOND",
    "STYLE",
    "caption",
    "import_pyplot",
    "percent",
    "quiet",
    "ramp",
]

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
CAPTION = {"fontsize": 8.5, "color": "0.35"}


def import_pyplot() -> Any:
    """The module matplotlib.pyplot, or an error that says how to install it."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(
            "pictures need matplotlib, which is not installed; run: pip install 'qaffde[plot]'"
        ) from error
    return plt


def ramp(n: int) -> Any:
    """As many colors of the map, its lightest end left out."""
    from matplotlib import colormaps

    stops = [0.45] if n == 1 else [0.05 + 0.8 * k / (n - 1) for k in range(n)]
    return colormaps[COLORS](stops)


def quiet(ax: Any) -> None:
    """Take away the ends of the axes that carry no numbers."""
    ax.spines[["top", "right"]].set_visible(False)


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
    ax.set_title(text, loc="left", **CAPTION)

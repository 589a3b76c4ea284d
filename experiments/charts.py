"""Line charts as inline SVG: points are links to their rows, colours follow the page."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 560, 340
LEFT, RIGHT, TOP, BOTTOM = 62, 16, 14, 44
MARKERS = {
    "": "",
    "o": '<circle r="4.5"/>',
    "s": '<rect x="-4" y="-4" width="8" height="8"/>',
    "^": '<path d="M0-5 5 4H-5Z"/>',
    "v": '<path d="M0 5 5-4H-5Z"/>',
    "<": '<path d="M-5 0 4-5V5Z"/>',
    ">": '<path d="M5 0-4-5V5Z"/>',
    "P": '<path d="M-2-5H2V-2H5V2H2V5H-2V2H-5V-2H-2Z"/>',
    "D": '<path d="M0-5 5 0 0 5-5 0Z"/>',
    "d": '<path d="M0-5 3.5 0 0 5-3.5 0Z"/>',
    "X": '<path d="M-5-3-3-5 0-2 3-5 5-3 2 0 5 3 3 5 0 2-3 5-5 3-2 0Z"/>',
    "h": '<path d="M0-5 4.5-2.5V2.5L0 5-4.5 2.5V-2.5Z"/>',
    "*": '<path d="M0-6 1.6-2H6L2.6.8 3.8 5 0 2.5-3.8 5-2.6.8-6-2H-1.6Z"/>',
}


@dataclass(frozen=True)
class Point:
    """One point: where it is, where its row is, and what is shown of it."""

    x: float
    y: float
    row: str = ""
    tip: str = ""


@dataclass(frozen=True)
class Series:
    """A line of points.

    Parameters
    ----------
    label, colour, marker : str
    points : tuple of Point
    strong : bool
        Draw it heavier than the others.
    dashed : bool
    """

    label: str
    colour: str
    marker: str
    points: tuple[Point, ...]
    strong: bool = False
    dashed: bool = False


@dataclass(frozen=True)
class Axis:
    """One direction of a chart, from data to pixels."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def at(self, value: float) -> float:
        """Pixel of a value."""
        low, high, v = (self._number(part) for part in (self.low, self.high, value))
        return self.start + (v - low) / (high - low or 1) * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Round values within the ends."""
        return _decades(self.low, self.high) if self.log else _round_steps(self.low, self.high)

    def _number(self, value: float) -> float:
        return math.log10(value) if self.log else value


def line_chart(
    title: str,
    series: Sequence[Series],
    x_label: str,
    y_label: str,
    *,
    x_ticks: Sequence[float] | None = None,
    log_x: bool = False,
    log_y: bool = False,
) -> str:
    """SVG of lines, and the legend below it."""
    points = [point for line in series for point in line.points]
    x = _axis([p.x for p in points], LEFT + 10, WIDTH - RIGHT - 10, log=log_x)
    y = _axis([p.y for p in points], HEIGHT - BOTTOM, TOP, log=log_y, margin=0.06)
    body = [
        *(_y_tick(y, value) for value in y.ticks()),
        *(_x_tick(x, value) for value in (x_ticks or x.ticks())),
        f'<text class="label" x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 6}" '
        f'text-anchor="middle">{escape(x_label)}</text>',
        f'<text class="label" transform="translate(13 {(TOP + HEIGHT - BOTTOM) / 2}) rotate(-90)" '
        f'text-anchor="middle">{escape(y_label)}</text>',
        *(_line(line, x, y) for line in sorted(series, key=lambda line: line.strong)),
    ]
    svg = "\n".join(body)
    return (
        f'<figure class="chart"><figcaption>{escape(title)}</figcaption>\n'
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="group" aria-label="{escape(title)}">\n'
        f"{svg}\n</svg>\n{_legend(series)}</figure>"
    )


def _axis(
    values: Sequence[float], start: float, end: float, *, log: bool = False, margin: float = 0.0
) -> Axis:
    low, high = min(values), max(values)
    if log:
        factor = (high / low) ** margin
        return Axis(low / factor, high * factor, start, end, log=True)
    room = margin * (high - low or abs(high) or 1)
    return Axis(low - room, high + room, start, end)


def _line(line: Series, x: Axis, y: Axis) -> str:
    path = " ".join(f"{x.at(p.x):.1f},{y.at(p.y):.1f}" for p in line.points)
    shown = [_marker(line, p, x.at(p.x), y.at(p.y)) for p in line.points if line.marker]
    kind = "series strong" if line.strong else "series"
    dash = ' stroke-dasharray="2 4"' if line.dashed else ""
    return (
        f'<g class="{kind}" style="--c:{line.colour}">'
        f'<polyline points="{path}"{dash}/>{"".join(shown)}</g>'
    )


def _marker(line: Series, point: Point, x: float, y: float) -> str:
    shape = f'<g transform="translate({x:.1f} {y:.1f})">{MARKERS[line.marker]}</g>'
    if not point.row:
        return shape
    tip = escape(point.tip)
    return f'<a href="#row-{point.row}" data-tip="{tip}" aria-label="{tip}">{shape}</a>'


def _y_tick(axis: Axis, value: float) -> str:
    y = axis.at(value)
    return (
        f'<path class="grid" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>'
        f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>'
    )


def _x_tick(axis: Axis, value: float) -> str:
    return (
        f'<text x="{axis.at(value):.1f}" y="{HEIGHT - BOTTOM + 18}" '
        f'text-anchor="middle">{value:g}</text>'
    )


def _legend(series: Sequence[Series]) -> str:
    entries = "".join(
        f'<li><svg viewBox="-7 -7 14 14" style="--c:{line.colour}" aria-hidden="true">'
        f"{MARKERS[line.marker or 's']}</svg>{escape(line.label)}</li>"
        for line in series
    )
    return f'<ul class="legend">{entries}</ul>'


def _round_steps(low: float, high: float, about: int = 5) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten.

    Examples
    --------
    >>> _round_steps(0.81, 1.0)
    [0.85, 0.9, 0.95, 1.0]
    """
    raw = (high - low) / about or 1.0
    power = 10 ** math.floor(math.log10(raw))
    step = next(s * power for s in (1, 2, 5, 10) if s * power >= raw)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(k * step, 10) for k in range(first, last + 1)]


def _decades(low: float, high: float) -> list[float]:
    """Powers of ten within the ends.

    Examples
    --------
    >>> _decades(0.005, 20)
    [0.01, 0.1, 1.0, 10.0]
    """
    first, last = math.ceil(math.log10(low)), math.floor(math.log10(high))
    return [float(f"1e{k}") for k in range(first, last + 1)]

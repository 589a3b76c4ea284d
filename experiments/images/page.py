"""The section of the page on images."""

from collections.abc import Callable
from html import escape

from experiments.charts import Point, Series, line_chart
from experiments.images.figures import mosaic
from experiments.images.methods import IMAGE_METHODS
from experiments.images.pictures import unpack_images
from experiments.images.results import ImageResults
from experiments.images.tables import (
    METRICS,
    MINUTES,
    NOTES,
    foreign_kinds,
    is_reached,
    number,
    published,
    shown,
)
from experiments.markup import Section, headline, row_link, sortable_table
from experiments.results import Figure
from experiments.thumbnails import pixels_image, shares_image

Cells = Callable[[str], list[str]]
"""Cells of a method's line."""
Draw = Callable[[str, str], str]
"""Picture of a set and a method as a data URL; empty where there is none."""

EMPTY = '<td data-value="NaN"></td>'
CONFUSION_SIDE, LIKELY_WIDTH = 130, 300
DIGITS = {"accuracy": 4, "nll": 3, "calibration_error": 3}


def images_section(results: ImageResults, title: str) -> Section:
    """Accuracies, confidence, foreign images, confusion, and what is likely."""
    charts = "".join(_reliability_chart(results, name) for name in results.sets)
    parts = [
        f"<h3>Accuracy</h3><p>{escape(_plain(NOTES['accuracy']))}</p>\n{_accuracies(results)}",
        f"<h3>Labels and confidence</h3><p>{escape(NOTES['labels'])}</p>\n{_labels(results)}",
        f'<div class="charts">{charts}</div>',
        f"<h3>Foreign images</h3><p>{escape(NOTES['foreign'])}</p>\n{_foreign(results)}",
        f"<h3>Minutes</h3><p>{escape(NOTES['budget'])}</p>\n{_minutes(results)}",
        "<h3>What is taken for what</h3><p>Each line is a true class, each column what was "
        f"predicted of it; colours go by the root of the share.</p>\n{_confusions(results)}",
    ]
    if results.pictures:
        parts.append(
            "<h3>Most and least likely images</h3><p>Of the test images of each class, the two of "
            "the highest density within it (above) and the two of the lowest (below).</p>\n"
            f"{_likely(results)}"
        )
    return Section("images", title, "\n".join(parts))


def _plain(note: str) -> str:
    return note.replace("beside it", "below it").replace("bold", "marked")


def _accuracies(results: ImageResults) -> str:
    heads = ["method", *map(shown, results.sets)]
    return _table(
        results,
        heads,
        lambda method: [_accuracy(results, name, method) for name in results.sets],
    )


def _accuracy(results: ImageResults, name: str, method: str) -> str:
    figure, (paper, target) = results.figure(name, method, "accuracy"), published(name, method)
    said = {"paper": paper, "target": target}
    text = ", ".join(f"{key} {value:.3f}" for key, value in said.items() if value is not None)
    below = f"<small>{text}</small>" if text else ""
    reached = figure is not None and is_reached(figure, paper, target)
    return _cell(figure, "accuracy", below, best=reached)


def _labels(results: ImageResults) -> str:
    pairs = [(name, metric) for name in results.sets for metric in METRICS]
    heads = ["method", *(f"{shown(name)}, {METRICS[metric]}" for name, metric in pairs)]
    return _table(
        results,
        heads,
        lambda method: [_cell(results.figure(n, method, metric), metric) for n, metric in pairs],
    )


def _cell(figure: Figure | None, metric: str, below: str = "", *, best: bool = False) -> str:
    if figure is None:
        return f'<td data-value="NaN">{below}</td>'
    digits = DIGITS[metric]
    link = row_link(figure.rows[0], f"{figure.value:.{digits}f}", number(figure, digits))
    mark = ' class="best"' if best else ""
    return f'<td{mark} data-value="{figure.value!r}">{link}{below}</td>'


def _foreign(results: ImageResults) -> str:
    kinds = foreign_kinds(results)

    def cell(name: str, kind: str, method: str) -> str:
        auc = results.separation(name, method).get(kind)
        if auc is None:
            return EMPTY
        return _number(auc["density"], f"{auc['density']:.3f} ({auc['confidence']:.3f})")

    heads = ["method", *(f"{shown(name)} against {kind}" for name, kind in kinds)]
    return _table(results, heads, lambda method: [cell(*pair, method) for pair in kinds])


def _minutes(results: ImageResults) -> str:
    pairs = [(name, key) for name in results.sets for key in MINUTES]

    def cell(name: str, key: str, method: str) -> str:
        seconds = results.figure(name, method, key)
        return EMPTY if seconds is None else _number(seconds.value, f"{seconds.value / 60:.1f}")

    heads = ["method", *(f"{shown(name)}, {MINUTES[key]}" for name, key in pairs)]
    return _table(results, heads, lambda method: [cell(*pair, method) for pair in pairs])


def _number(value: float, text: str) -> str:
    return f'<td data-value="{value!r}">{text}</td>'


def _table(results: ImageResults, heads: list[str], cells: Cells) -> str:
    lines = [
        f'<tr><th scope="row">{escape(IMAGE_METHODS[method].label)}</th>'
        f"{''.join(cells(method))}</tr>"
        for method in results.methods()
    ]
    return sortable_table(heads, lines)


def _reliability_chart(results: ImageResults, name: str) -> str:
    series = [Series("as sure as right", "#888888", "", (Point(0, 0), Point(1, 1)), dashed=True)]
    for method in results.methods(name):
        look, row = IMAGE_METHODS[method], results.complete[name, method][0]
        points = tuple(
            Point(x, y, row["id"], f"{headline(row)}\n{n} images, confidence {x:.3f}: {y:.3f}")
            for n, x, y in results.reliability(name, method)
        )
        dashed = look.kind != "ours"
        series.append(Series(look.label, look.colour, look.marker, points, dashed=dashed))
    return line_chart(f"{shown(name)}: accuracy over confidence", series, "confidence", "accuracy")


def _confusions(results: ImageResults) -> str:
    return _gallery(
        results,
        lambda name, method: shares_image(results.confusion(name, method)),
        f'width="{CONFUSION_SIDE}" height="{CONFUSION_SIDE}"',
        "confusion matrix",
    )


def _likely(results: ImageResults) -> str:
    def draw(name: str, method: str) -> str:
        packed = results.picture(name, method)
        return "" if packed is None else pixels_image(mosaic(unpack_images(packed)))

    size = f'width="{LIKELY_WIDTH}"'
    return _gallery(results, draw, size, "most and least likely images")


def _gallery(results: ImageResults, draw: Draw, size: str, what: str) -> str:
    """Methods by sets, each picture a link to its row."""
    heads = "".join(f'<th scope="col">{escape(shown(name))}</th>' for name in results.sets)
    lines = []
    for method in results.methods():
        cells = []
        for name in results.sets:
            rows = results.complete.get((name, method), [])
            source = draw(name, method) if rows else ""
            alt = escape(f"{what}, {IMAGE_METHODS[method].label} on {shown(name)}")
            image = f'<img src="{source}" alt="{alt}" {size} loading="lazy">'
            cells.append(f"<td>{row_link(rows[0], image) if source else ''}</td>")
        label = escape(IMAGE_METHODS[method].label)
        lines.append(f'<tr><th scope="row">{label}</th>{"".join(cells)}</tr>')
    body = "\n".join(lines)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(what)}">'
        f'<table class="panels"><thead><tr><td></td>{heads}</tr></thead>\n'
        f"<tbody>\n{body}\n</tbody></table></div>"
    )

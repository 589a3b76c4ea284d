"""One self-contained HTML page from rows: tables, densities, curves, and the rows themselves."""

import math
from collections.abc import Callable, Iterable, Sequence
from html import escape
from pathlib import Path
from statistics import mean
from string import Template

from experiments.charts import Point, Series, line_chart
from experiments.kernel import GRID, KINDS, SHOWN_FEATURES, errors_of, true_curve
from experiments.markup import Section, headline, row_link, sortable_table
from experiments.methods import METHODS
from experiments.pictures import TRUTH
from experiments.results import METRICS, SECONDS, Figure, Results, paper_figures
from experiments.rows import Row
from experiments.sets import dims_and_scale
from experiments.tables import (
    DIGITS,
    METRIC_NOTES,
    UNTUNED,
    dimension_verdict,
    number,
    verdict,
)
from experiments.thumbnails import mesh_image, scatter_image

ASSETS = Path(__file__).parent / "assets"


def build_page(sections: Sequence[Section], origin: str) -> str:
    """The whole page."""
    nav = "\n".join(f'<li><a href="#{s.anchor}">{escape(s.title)}</a></li>' for s in sections)
    body = "\n".join(
        f'<section id="{s.anchor}" aria-labelledby="{s.anchor}-title">\n'
        f'<h2 id="{s.anchor}-title">{escape(s.title)}</h2>\n{s.body}\n</section>'
        for s in sections
    )
    template = Template(_asset("page.html"))
    return template.substitute(
        css=_asset("page.css").rstrip(),
        js=_asset("page.js").rstrip(),
        origin=escape(origin),
        nav=nav,
        sections=body,
    )


def planar_section(results: Results, title: str) -> Section:
    """Tables of the metrics, the mesh of densities and the scatter."""
    paper = paper_figures()["planar"]
    parts = [f'<p class="lead">{escape(verdict(results))}</p>']
    parts += [_metric_part(results, metric, paper.get(metric, {})) for metric in METRICS]
    parts += [_seconds_part(results), *_untuned_parts(results, METRICS, paper)]
    if results.pictures:
        parts += [
            "<h3>Densities</h3><p>The true density first. Colours go by the square root of the "
            "density, up to the largest true one of the set.</p>",
            _panels(results, mesh_image, [TRUTH, *results.methods]),
            "<h3>True against estimated density</h3><p>At a thousand test rows, the true density "
            "to the right, the estimated one upwards. A perfect estimate lies on the diagonal."
            "</p>",
            _panels(results, scatter_image, results.methods),
        ]
    return Section("planar", title, "\n".join(parts))


def dimensions_section(results: Results, title: str) -> Section:
    """Curves over the number of columns, and their tables."""
    scales = sorted({dims_and_scale(name)[1] for name in results.sets}, reverse=True)
    charts = [
        _dimension_chart(results, scale, metric)
        for metric in ("spearman", "excess_nll")
        for scale in scales
    ]
    shown = ("spearman", "excess_nll")
    tables = [_metric_part(results, metric, {}) for metric in shown]
    tables += [_seconds_part(results), *_untuned_parts(results, shown, {})]
    body = (
        "<p>Mixtures of 10·d Gaussians of standard deviation s in d columns. s = 1 is the paper's "
        "text, and the modes overlap; s = 0.2 keeps them apart. Dotted lines are classical "
        f"methods. {escape(dimension_verdict(results))}</p>"
        f'\n<div class="charts">{"".join(charts)}</div>\n'
    )
    return Section("dimensions", title, body + "\n".join(tables))


def kernel_section(rows: Sequence[Row], title: str) -> Section:
    """The kernel around two from few features, and errors as their number grows."""
    shown = {row["kind"]: row for row in rows if "curve" in row}
    x = GRID[:, 0].tolist()
    truth = tuple(Point(*xy) for xy in zip(x, true_curve(), strict=True))
    curves = [
        _curve_chart(kind, shown[kind]["curve"], x, truth) for kind in KINDS if kind in shown
    ]
    errors = [_error_series(kind, of) for kind, of in errors_of(rows).items()]
    sizes = sorted({row["n_features"] for row in rows})
    chart = line_chart(
        "Mean squared error on held-out pairs",
        errors,
        "number of features D",
        "mean squared error",
        x_ticks=sizes,
        log_x=True,
        log_y=True,
    )
    body = (
        "<p>RFF are random Fourier features, AFF those of the paper's Algorithm 1; a square where "
        "the squared inner product approximates the kernel.</p>"
        f'<div class="charts">{chart}{"".join(curves)}</div>'
    )
    return Section("kernel", title, body)


def _untuned_parts(
    results: Results, metrics: Iterable[str], paper: dict[str, dict[str, dict[str, float]]]
) -> list[str]:
    untuned = results.untuned
    if not untuned.finals:
        return []
    parts = [_metric_part(untuned, metric, paper.get(metric, {})) for metric in metrics]
    return [f"<h3>Untuned</h3><p>{UNTUNED}</p>", *parts]


def _metric_part(results: Results, metric: str, paper: dict[str, dict[str, float]]) -> str:
    lines = []
    for name in results.sets:
        best = results.best(name, metric, results.methods)
        cells = [
            _cell(
                results.figure(name, m, metric), metric, paper.get(m, {}).get(name), best=m == best
            )
            for m in results.methods
        ]
        lines.append(f'<tr><th scope="row">{escape(name)}</th>{"".join(cells)}</tr>')
    heads = ["set", *(METHODS[m].label for m in results.methods)]
    note = METRIC_NOTES[metric] + (" Below, the paper's figure." if paper else "")
    which = ", untuned" if results.stage == "untuned" else ""
    return f"<h3>{METRICS[metric]}{which}</h3><p>{note}</p>\n{sortable_table(heads, lines)}"


def _cell(figure: Figure | None, metric: str, paper: float | None, *, best: bool) -> str:
    below = f"<small>paper {paper:.4f}</small>" if paper is not None else ""
    if figure is None:
        return f'<td data-value="NaN">{below}</td>'
    value = f"{figure.value:.{DIGITS[metric]}f}"
    link = row_link(figure.rows[0], value, number(figure, metric))
    mark = ' class="best"' if best else ""
    return f'<td{mark} data-value="{figure.value!r}">{link}{below}</td>'


def _seconds_part(results: Results) -> str:
    lines = []
    for method in results.methods:
        values = [results.seconds(method, key) for key in SECONDS]
        cells = "".join(f'<td data-value="{value!r}">{value:.3g}</td>' for value in values)
        lines.append(f'<tr><th scope="row">{escape(METHODS[method].label)}</th>{cells}</tr>')
    heads = ["method", *SECONDS.values()]
    table = sortable_table(heads, lines, narrow=True)
    return f"<h3>Seconds</h3><p>Medians over sets, of the processor, one thread.</p>\n{table}"


def _panels(results: Results, draw: Callable[[Row, Row], str], methods: Sequence[str]) -> str:
    heads = "".join(f'<th scope="col">{escape(_label(m))}</th>' for m in methods)
    lines = []
    for name in results.sets:
        truth = results.picture(name, TRUTH)
        cells = "".join(_panel(results, name, m, draw, truth) for m in methods)
        lines.append(f'<tr><th scope="row">{escape(name)}</th>{cells}</tr>')
    body = "\n".join(lines)
    return (
        '<div class="scroll" tabindex="0" role="region" aria-label="Pictures">'
        f'<table class="panels"><thead><tr><td></td>{heads}</tr></thead>\n'
        f"<tbody>\n{body}\n</tbody></table></div>"
    )


def _panel(
    results: Results,
    name: str,
    method: str,
    draw: Callable[[Row, Row], str],
    truth: Row | None,
) -> str:
    own = results.picture(name, method)
    if own is None or truth is None:
        return "<td></td>"
    alt = escape(f"{_label(method)} on {name}")
    image = f'<img src="{draw(own, truth)}" alt="{alt}" width="84" height="84" loading="lazy">'
    if method == TRUTH:
        return f"<td>{image}</td>"
    return f"<td>{row_link(results.finals[name, method][0], image)}</td>"


def _label(method: str) -> str:
    return "true" if method == TRUTH else METHODS[method].label


def _dimension_chart(results: Results, scale: float, metric: str) -> str:
    series = []
    for method in results.methods:
        look, points = METHODS[method], []
        for name in results.sets:
            d, s = dims_and_scale(name)
            figure = results.figure(name, method, metric)
            if s == scale and figure is not None and math.isfinite(figure.value):
                row = figure.rows[0]
                tip = f"{headline(row)}\n{METRICS[metric]} {number(figure, metric)}"
                points.append(Point(d, figure.value, row["id"], tip))
        if points:
            ordered = tuple(sorted(points, key=lambda point: point.x))
            strong, dashed = look.kind == "ours", look.kind == "classical"
            series.append(Series(look.label, look.colour, look.marker, ordered, strong, dashed))
    if not series:
        return ""
    ticks = sorted({dims_and_scale(name)[0] for name in results.sets})
    unit = METRICS[metric] + (", nats" if metric == "excess_nll" else "")
    title = f"{METRICS[metric]}, s = {scale:g}"
    return line_chart(title, series, "number of columns d", unit, x_ticks=ticks)


def _error_series(kind: str, by_size: dict[int, list[Row]]) -> Series:
    points = tuple(
        Point(
            D,
            mean(row["mse"] for row in rows),
            rows[0]["id"],
            f"{kind}, D = {D}\nmean of {len(rows)} seeds {mean(row['mse'] for row in rows):.2e}",
        )
        for D, rows in by_size.items()
    )
    return Series(kind, KINDS[kind].colour, KINDS[kind].marker, points, strong="²" in kind)


def _curve_chart(
    kind: str, values: Sequence[float], x: Sequence[float], truth: tuple[Point, ...]
) -> str:
    points = tuple(Point(*xy) for xy in zip(x, values, strict=True))
    bare = [
        Series("Gaussian kernel", "#888888", "", truth),
        Series(kind, KINDS[kind].colour, "", points, strong=True),
    ]
    return line_chart(f"{kind}: k(2, x) from {SHOWN_FEATURES} features", bare, "x", "k(2, x)")


def _asset(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")

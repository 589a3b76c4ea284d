"""Pieces of the page: tables that sort, links to rows, and the rows themselves."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from experiments.images.methods import IMAGE_METHODS
from experiments.methods import METHODS
from experiments.results import METRICS, SECONDS, Results
from experiments.rows import Row
from experiments.tables import DIGITS, shown_parameters

HIDDEN = {"curve"}
"""Parts of a row that are drawn and not listed."""


@dataclass(frozen=True)
class Section:
    """Part of the page: an anchor, a title, and HTML."""

    anchor: str
    title: str
    body: str


def rows_section(densities: Sequence[Results], others: Sequence[Row]) -> Section:
    """Every final row in full, its trials below it; then those of other experiments."""
    parts = []
    for results in densities:
        trials: dict[tuple[str, str], list[Row]] = {}
        for trial in results.trials:
            trials.setdefault((trial["set"], trial["method"]), []).append(trial)
        for row in results.current:
            if row["stage"] != "trial" or row["status"] == "failed":
                own = trials.get((row["set"], row["method"]), [])
                parts.append(_row_details(row, own if row["stage"] == "final" else []))
    parts += [_row_details(row, []) for row in others]
    return Section("rows", "Rows", "\n".join(parts))


def sortable_table(heads: Sequence[str], lines: Sequence[str], *, narrow: bool = False) -> str:
    """Table of lines that are HTML already; its heads sort."""
    head = "".join(
        f'<th scope="col"><button type="button">{escape(text)}</button></th>' for text in heads
    )
    body = "\n".join(lines)
    kind = "scroll narrow" if narrow else "scroll"
    return (
        f'<div class="{kind}" tabindex="0" role="region" aria-label="Table">'
        f"<table><thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>"
    )


def row_link(row: Row, content: str, shown: str = "") -> str:
    """Link to a row that says what it is of, and its figures, when pointed at."""
    tip = escape("\n".join(part for part in (headline(row), shown, _figures(row)) if part))
    return f'<a href="#row-{row["id"]}" data-tip="{tip}">{content}</a>'


def headline(row: Row) -> str:
    """What a row is of."""
    if "kind" in row:
        return f"{row['kind']}, D = {row['n_features']}, seed {row['seed']}"
    if row.get("experiment") in ("tables", "regression", "outliers"):
        limit = f", {row['limit']} s" if row.get("limit") else ""
        limit = f", {row['protocol']}" if "protocol" in row else limit
        return f"{row['method']} on {row['set']}, seed {row['seed']}{limit}"
    methods = IMAGE_METHODS if _is_of_images(row) else METHODS
    untuned = ", untuned" if row.get("stage") == "untuned" else ""
    return f"{methods[row['method']].label} on {row['set']}, seed {row['seed']}{untuned}"


def _figures(row: Row) -> str:
    if row["status"] == "failed":
        return f"{row['error']['type']}: {row['error']['message']}"
    if "kind" in row:
        return f"mean squared error {row['mse']:.2e}"
    if row.get("experiment") == "tables":
        likelihood = row["metrics"]["log_likelihood"]
        return f"log-likelihood {likelihood:.3f} · training s {row['fit_cpu_seconds']:.3g}"
    if row.get("experiment") in ("regression", "outliers"):
        found = [
            f"{name} {value:.4g}" for name, value in row["metrics"].items() if value is not None
        ]
        return " · ".join([*found, f"training s {row['fit_cpu_seconds']:.3g}"])
    if _is_of_images(row):
        metrics, minutes = row["metrics"], row["fit_seconds"] / 60
        return (
            f"accuracy {metrics['accuracy']:.4f} · NLL {metrics['nll']:.3f} · calibration error "
            f"{metrics['calibration_error']:.3f} · training {minutes:.1f} min"
        )
    found = [
        f"{label} {row['metrics'][metric]:.{DIGITS[metric]}f}"
        for metric, label in METRICS.items()
        if row["metrics"][metric] is not None
    ]
    times = [f"{label} {row[key]:.3g}" for key, label in SECONDS.items()]
    return " · ".join([*found, *times])


def _is_of_images(row: Row) -> bool:
    return row.get("experiment") == "images"


def _row_details(row: Row, trials: Sequence[Row]) -> str:
    text = json.dumps(
        {key: value for key, value in row.items() if key not in HIDDEN},
        indent=1,
        ensure_ascii=False,
    )
    kind = ' class="failed"' if row["status"] == "failed" else ""
    return (
        f'<details id="row-{row["id"]}"{kind}><summary>{escape(headline(row))} '
        f'<span class="soft">{escape(_figures(row))}</span> <code>{row["id"]}</code></summary>'
        f"<div>{_trials(trials)}<pre>{escape(text)}</pre></div></details>"
    )


def _trials(trials: Sequence[Row]) -> str:
    if not trials:
        return ""
    lines = []
    for trial in trials:
        sampled = shown_parameters(trial["sampled"])
        value = "" if trial["validation"] is None else f"{trial['validation']:.4f}"
        cells = [
            str(trial["trial"]),
            trial["status"],
            value,
            sampled,
            f"{trial['seconds']:.1f}",
        ]
        lines.append(f"<tr>{''.join(f'<td>{escape(c)}</td>' for c in cells)}</tr>")
    heads = ["trial", "status", "validation log-likelihood", "parameters", "seconds"]
    return sortable_table(heads, lines)

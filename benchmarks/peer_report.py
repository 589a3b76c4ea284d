"""Tables, targets and picture of the comparison of kernel density estimates, from its rows."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks.peer_figure import Cells, figure
from benchmarks.peer_methods import METHODS
from experiments.figures import save_figure
from experiments.pages import fill
from experiments.rows import ROOT, Row, markdown_table

PAGE = ROOT / "docs/cost.md"
OURS, SINGLE, FULL = "qaffde-100", "qaffde-single", "qaffde-full"
BARE = {OURS: "bare-100", FULL: "bare-full"}
FASTER: dict[str, dict[int, float]] = {
    "sklearn-1e-2": {2: 100, 8: 500},
    "mlpack": {2: 50, 8: 50},
    "pykeops": {2: 50, 8: 50},
}
"""How many times faster ours is to score at 10⁵ rows, by columns; ten times that at 10⁶."""
AT, GROWTH = (100_000, 1_000_000), 10
OVERHEAD, CONSTANT, ERROR, SLOPE = 1.5, 1.1, 0.02, 1.05
HEAD = (
    *("method", "fit s", "score s", "times ours", "peak MiB"),
    *("median error", "95 %", "queries", "mean log p", "over exact", "note"),
)


def gather(rows: Iterable[Row]) -> Cells:
    """One row for each method and size: the median of its rounds, number by number."""
    found: dict[tuple[int, int], dict[str, list[Row]]] = {}
    for row in rows:
        if row["comparison"] == "peers":
            found.setdefault((row["d"], row["n"]), {}).setdefault(row["method"], []).append(row)
    order = list(METHODS)
    return {
        size: {name: _merged(of[name]) for name in sorted(of, key=order.index)}
        for size, of in sorted(found.items())
    }


def _merged(rounds: list[Row]) -> Row:
    measured = [row for row in rounds if "reason" not in row] or rounds[-1:]
    numbers = {
        key: median(row[key] for row in measured)
        for key, value in measured[0].items()
        if isinstance(value, float) and all(row.get(key) is not None for row in measured)
    }
    return measured[-1] | numbers


def summary(row: Row) -> str:
    """One line on one measurement."""
    name = f"{METHODS[row['method']].label}, N = {row['n']:,}, d = {row['d']}"
    if "reason" in row:
        return f"{name}: {row['reason']}"
    error = f"{row['median_error']:.2%} off" if "median_error" in row else "no density"
    return f"{name}: fit {_time(row, 'fit')} s, score {_time(row, 'score')} s, {error}"


def table(of: Mapping[str, Row]) -> str:
    """All methods at one size."""
    return markdown_table(HEAD, [_line(row, of.get(OURS, {})) for row in of.values()])


def _line(row: Row, ours: Row) -> list[str]:
    label = METHODS[row["method"]].label
    if "score_seconds" not in row:
        fit = _time(row, "fit") if "fit_seconds" in row else ""
        return [label, fit, *[""] * (len(HEAD) - 3), row["reason"]]
    ratio = row["score_seconds"] / ours["score_seconds"] if "score_seconds" in ours else None
    log_p = row.get("mean_log_density")
    judged = "median_error" in row
    over = "" if log_p is None else f"{log_p - row['exact_mean_log_density']:+.4f}"
    return [
        label,
        _time(row, "fit"),
        ("~" if row["extrapolated"] else "") + _time(row, "score"),
        "" if ratio is None else _figure(ratio),
        f"{row['peak_mib']:,.0f}",
        f"{row['median_error']:.2%}" if judged else "",
        f"{row['p95_error']:.2%}" if judged else "",
        f"{row['n_judged']:,}" if judged else "",
        ("−∞" if log_p is None else f"{log_p:.4f}") if judged else "",
        over,
        _note(row),
    ]


def _note(row: Row) -> str:
    notes = [f"from {row['n_scored']:,} queries"] if row["extrapolated"] else []
    if METHODS[row["method"]].kind == "likelihood":
        notes.append("no estimate of the KDE")
    return ", ".join(notes)


def _time(row: Row, what: str) -> str:
    return f"{row[f'{what}_seconds']:.3g}"


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def verdicts(rows: Iterable[Row]) -> list[str]:
    """What the comparison was to show, and what it shows; only what was measured."""
    rows = list(rows)
    cells = gather(rows)
    parts = (speed(cells), grid(cells), overhead(cells), errors(cells), slopes(cells))
    return [line for part in (*parts, verdict_of_constant(rows)) for line in part]


def speed(cells: Cells) -> Iterator[str]:
    """How many times faster ours is to score than its peers."""
    for number, n in enumerate(AT):
        for name, by_columns in FASTER.items():
            for d, factor in by_columns.items():
                target = factor * GROWTH**number
                for ours in (OURS, SINGLE):
                    ratio = _ratio(cells.get((d, n), {}), name, ours, "score_seconds")
                    if ratio is not None:
                        yield (
                            f"N = {n:,}, d = {d}: {METHODS[ours].label} is {_figure(ratio)} times "
                            f"as fast to score as {METHODS[name].label}; "
                            f"{_judged(ratio >= target, f'{target:,g}')}"
                        )


def grid(cells: Cells) -> Iterator[str]:
    """How much faster the one that may be faster is."""
    for (d, n), of in cells.items():
        ratio = _ratio(of, OURS, "kdepy-fft", "score_seconds")
        if ratio is not None:
            yield f"N = {n:,}, d = {d}: the grid scores {_figure(ratio)} times as fast as ours"


def overhead(cells: Cells) -> Iterator[str]:
    """Ours over the bare products and cosines; a fit also has eigenvectors to find."""
    for (d, n), of in cells.items():
        for name, bare in BARE.items():
            score, fit = (_ratio(of, name, bare, f"{what}_seconds") for what in ("score", "fit"))
            if score is not None and fit is not None:
                good = _judged(score <= OVERHEAD, f"at most {OVERHEAD:g}")
                yield (
                    f"N = {n:,}, d = {d}: {METHODS[name].label} takes {score:.2f} times the bare "
                    f"cost to score; {good}; its fit takes {fit:.2f} times the bare ρ"
                )


def errors(cells: Cells) -> Iterator[str]:
    """Median relative error in two columns."""
    for (d, n), of in cells.items():
        for name in (OURS, FULL):
            error = of.get(name, {}).get("median_error")
            if d == 2 and error is not None:
                good = _judged(error <= ERROR, f"at most {ERROR:.0%}")
                yield f"N = {n:,}, d = 2: {METHODS[name].label} is {error:.2%} off; {good}"


def slopes(cells: Cells) -> Iterator[str]:
    """Growth of the fit with the rows, in processor time."""
    for d in sorted({d for d, _ in cells}):
        of = {n: cell[OURS] for (e, n), cell in cells.items() if e == d and OURS in cell}
        fits = {n: row["fit_cpu_seconds"] for n, row in of.items() if "fit_cpu_seconds" in row}
        if len(fits) > 2:
            slope = log_slope(list(fits), list(fits.values()))
            beyond = slope_beyond(list(fits), list(fits.values()))
            yield (
                f"d = {d}: processor time of the fit grows as N^{slope:.2f} from N = "
                f"{min(fits):,} to {max(fits):,}, what is added to the first as N^{beyond:.2f}; "
                f"{_judged(slope <= SLOPE, 'slope 1')}"
            )


def verdict_of_constant(rows: Iterable[Row]) -> Iterator[str]:
    """Scoring by fits of few and of many rows, in turn."""
    last = {(row["method"], row["d"]): row for row in rows if row["comparison"] == "constant"}
    for (method, d), row in last.items():
        good = _judged(abs(row["ratio"] - 1) <= CONSTANT - 1, f"within {CONSTANT - 1:.0%}")
        yield (
            f"d = {d}: {METHODS[method].label} takes {row['ratio']:.3f} times as long to score "
            f"when fitted to {row['n'][-1]:,} rows as when to {row['n'][0]:,}; {good}"
        )


def log_slope(x: list[float], y: list[float]) -> float:
    """Slope of log y over log x by least squares."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def slope_beyond(x: list[float], y: list[float]) -> float:
    """The same for what is added to the smallest size: one, if it grows by so much a row.

    Examples
    --------
    >>> round(slope_beyond([1, 10, 100], [7.2, 9.0, 27.0]), 6)  # 7 and 0.2 for each
    1.0
    """
    added = [(a - x[0], b - y[0]) for a, b in zip(x[1:], y[1:], strict=True) if b > y[0]]
    return log_slope(*map(list, zip(*added, strict=True))) if len(added) > 1 else float("nan")


def _ratio(of: Mapping[str, Row], above: str, below: str, key: str) -> float | None:
    values = [of.get(name, {}).get(key) for name in (above, below)]
    return None if None in values else values[0] / values[1]  # type: ignore[operator]


def _judged(good: bool, target: str) -> str:  # noqa: FBT001
    return f"target {target}, {'reached' if good else 'MISSED'}"


def report(rows: list[Row], page: Path = PAGE) -> str:
    """Write tables and targets between the markers of the page, and the picture beside it."""
    if not any(row["comparison"] == "peers" for row in rows):
        raise SystemExit("no rows; run `python -m benchmarks.kernel_peers run` first")
    body = "\n\n".join(_sections(rows))
    fill(page, "kernel_peers", body)
    save_figure(figure(gather(rows)), page.parent / "figures" / "kernel_peers.png")
    return body


def _sections(rows: list[Row]) -> Iterator[str]:
    cells = gather(rows)
    for (d, n), of in cells.items():
        yield f"### {d} columns, {n:,} rows"
        judged = next((row for row in of.values() if "true_mean_log_density" in row), None)
        if judged is not None:
            yield (
                f"Scott's bandwidth {judged['bandwidth']:.4f}, {judged['threads']} thread(s). "
                f"Mean log-density of the truth {judged['true_mean_log_density']:.4f}, of the "
                f"exact estimate {judged['exact_mean_log_density']:.4f}."
            )
        yield table(of)
    yield "### Targets"
    yield "\n".join(f"- {line}" for line in verdicts(rows))
    yield f"Versions: {', '.join(_packages(rows))}."


def _packages(rows: Iterable[Row]) -> list[str]:
    return sorted({row["package"] for row in rows if "package" in row})

"""How the cost of QAFFDE grows with rows, features, columns and rank.

    python -m benchmarks.growth run [--threads T] [--repetitions R] [--out FILE]
    python -m benchmarks.growth report [--results FILE] [--page FILE]

One size grows at a time, the others stay. Time is processor time of a fit with nothing to search,
and of scoring 10,000 points. ``report`` fits log–log slopes by least squares, writes them into
docs/cost.md and draws the picture beside it.
"""

from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from statistics import median
from typing import Any

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from benchmarks.commands import run_or_report
from benchmarks.peer_report import log_slope, slope_beyond
from benchmarks.peer_worker import timed
from experiments.figures import new_figure, save_figure, spread_labels, styled
from experiments.rows import ROOT, Row, markdown_table, provenance, read_rows
from qaffde import QAFFDE

RESULTS = ROOT / "benchmarks/results/growth.jsonl"
PAGE = ROOT / "docs/cost.md"
PLENTY = 5.0
"""Seconds after which a fit is not repeated."""
NAMES = {"N": "rows N", "D": "features D", "d": "columns d", "rank": "rank r"}
COSTS = {"fit": "fit", "score": "score 10,000 points"}
COLOURS = {"fit": "#0b5fa5", "score": "#e07b00"}


@dataclass(frozen=True)
class Size:
    """Size of one fit: rows, features, columns and rank."""

    N: int = 50_000
    D: int = 1000
    d: int = 8
    rank: int = 100


@dataclass(frozen=True)
class Sizes:
    """What grows, and through which values.

    Parameters
    ----------
    N, D, d, rank : tuples of int
        Values of the size that grows.
    fixed : Size
        The others meanwhile.
    columns : tuple of int
        Numbers of columns that all but d itself grow in; two have a lattice of frequencies.
    n_queries : int
    repetitions : int
    """

    N: tuple[int, ...] = (1_000, 100_000, 300_000, 1_000_000, 3_000_000)
    D: tuple[int, ...] = (125, 250, 500, 1000, 2000)
    d: tuple[int, ...] = (4, 8, 16, 32, 64)
    rank: tuple[int, ...] = (12, 37, 111, 333, 999)
    fixed: Size = Size()
    columns: tuple[int, ...] = (2, 8)
    n_queries: int = 10_000
    repetitions: int = 3


def run(sizes: Sizes, threads: int) -> Iterator[Row]:
    """One row for each size of each axis, on so many threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with threadpool_limits(threads):
            yield from _rows(sizes)
    finally:
        torch.set_num_threads(before)


def _rows(sizes: Sizes) -> Iterator[Row]:
    for axis in NAMES:
        for d in (None,) if axis == "d" else sizes.columns:
            fixed = sizes.fixed if d is None else replace(sizes.fixed, d=d)
            for value in getattr(sizes, axis):
                size = replace(fixed, **{axis: value})
                yield {"axis": axis, "columns": d, **measure(size, sizes)}


def measure(size: Size, sizes: Sizes) -> Row:
    """Wall and processor seconds of a fit and of scoring; features and rank as they came out."""
    rng = np.random.default_rng(0)
    X, Q = (rng.normal(size=(n, size.d)) for n in (size.N, sizes.n_queries))
    base, h = ("box", 0.1) if size.d <= 2 else ("gaussian", 0.5)
    model = QAFFDE(size.D, h, size.rank, base_measure=base, random_state=0)
    model.fit(X[:500]).score_samples(Q[:10])  # imports and first allocations, on nobody's clock
    fit = repeated(lambda: model.fit(X), sizes.repetitions)
    model.score_samples(Q)
    score = repeated(lambda: model.score_samples(Q), 2 * sizes.repetitions + 1)
    return {
        "N": size.N,
        "D": model.n_fourier_features_,
        "d": size.d,
        "rank": model.rank_,
        "n_queries": sizes.n_queries,
        **{f"fit_{name}": value for name, value in fit.items()},
        **{f"score_{name}": value for name, value in score.items()},
        **provenance(),
    }


def repeated(call: Callable[[], Any], repetitions: int) -> dict[str, float]:
    """Medians of wall and processor seconds; what takes long is not repeated."""
    times: list[tuple[float, float]] = []
    while len(times) < repetitions and sum(wall for wall, _ in times) < PLENTY:
        _, wall, busy = timed(call)
        times.append((wall, busy))
    walls, cpus = zip(*times, strict=True)
    return {"seconds": median(walls), "cpu_seconds": median(cpus), "repetitions": len(times)}


def curves(rows: Iterable[Row]) -> dict[tuple[str, int | None], list[Row]]:
    """Rows of each axis and number of columns, in growing order."""
    found: dict[tuple[str, int | None], list[Row]] = {}
    for row in rows:
        found.setdefault((row["axis"], row["columns"]), []).append(row)
    return {key: sorted(of, key=lambda row: row[key[0]]) for key, of in found.items()}


def slopes(axis: str, rows: list[Row], cost: str) -> tuple[float, float]:
    """Slope over the whole range, and that over its two largest sizes."""
    x, y = [row[axis] for row in rows], [row[f"{cost}_cpu_seconds"] for row in rows]
    return log_slope(x, y), log_slope(x[-2:], y[-2:])


def table(rows: Iterable[Row]) -> str:
    """Slopes of every axis, and what stayed meanwhile."""
    head = ["what grows", "from", "to", "meanwhile"]
    head += [f"{name}: {what}" for name in ("fit", "score") for what in ("slope", "at the end")]
    head += ["fit s", "score s"]
    return markdown_table(head, [_line(axis, of) for (axis, _), of in curves(rows).items()])


def per_row(rows: Iterable[Row]) -> Iterator[str]:
    """Growth of the fit with the rows, its fixed cost left out."""
    for (axis, d), of in curves(rows).items():
        if axis == "N":
            N, seconds = ([row[key] for row in of] for key in ("N", "fit_cpu_seconds"))
            each = (seconds[-1] - seconds[0]) / (N[-1] - N[0])
            yield (
                f"d = {d}: beyond {seconds[0]:.2f} s for {N[0]:,} rows, the fit grows as "
                f"N^{slope_beyond(N, seconds):.2f} up to {N[-1]:,} rows, {each * 1e6:.2f} s for "
                "every million."
            )


def _line(axis: str, rows: list[Row]) -> list[str]:
    last = rows[-1]
    fixed = ", ".join(f"{name} = {last[name]:,}" for name in NAMES if name != axis)
    return [
        NAMES[axis],
        f"{rows[0][axis]:,}",
        f"{last[axis]:,}",
        fixed,
        *(f"{slope:.2f}" for cost in COSTS for slope in slopes(axis, rows, cost)),
        *(
            f"{rows[0][key]:.3g} → {last[key]:.3g}"
            for key in (f"{cost}_cpu_seconds" for cost in COSTS)
        ),
    ]


@styled
def figure(rows: Iterable[Row]) -> Any:
    """Processor seconds over each size, with slopes; dashed where columns are two."""
    from matplotlib.ticker import EngFormatter, NullLocator

    found = curves(rows)
    drawn = new_figure((11, 3.6))
    panels = dict(zip(NAMES, drawn.subplots(1, len(NAMES), sharey=True), strict=True))
    for axis, ax in panels.items():
        of = {columns: these for (name, columns), these in found.items() if name == axis}
        ax.set(xscale="log", yscale="log", xlabel=NAMES[axis])
        sizes = [row[axis] for row in next(iter(of.values()))]
        ax.set_xticks([sizes[0], sizes[len(sizes) // 2], sizes[-1]])
        ax.xaxis.set(
            major_formatter=EngFormatter(places=None, sep=""), minor_locator=NullLocator()
        )
        ax.grid(axis="y", color="0.92")
        _draw(ax, axis, of)
    panels["N"].set_ylabel("processor seconds")
    handles, labels = panels["N"].get_legend_handles_labels()
    panels["d"].legend(
        handles, labels, loc="upper left", frameon=False, fontsize=8, handlelength=3.5
    )
    return drawn


def _draw(ax: Any, axis: str, of: Mapping[int | None, list[Row]]) -> None:
    """Curves of one panel, each with the slope between its two largest sizes."""
    ends: dict[str, float] = {}
    for (columns, rows), cost in product(of.items(), COSTS):
        x, y = [row[axis] for row in rows], [row[f"{cost}_cpu_seconds"] for row in rows]
        style, label = "--" if columns == 2 else "-", f"{COSTS[cost]}, d = {columns}"
        ax.plot(x, y, style, marker="o", ms=3.5, color=COLOURS[cost], label=label)
        ends[f"{cost} {slopes(axis, rows, cost)[1]:.2f} {columns}"] = y[-1]
    for name, height in spread_labels(ends, 1.35).items():
        cost, slope, _ = name.split()
        at = {"textcoords": "offset points", "color": COLOURS[cost], "fontsize": 8, "va": "center"}
        ax.annotate(slope, (x[-1], height), (7, 0), annotation_clip=False, **at)


def body(rows: list[Row]) -> str:
    """The slopes."""
    if not rows:
        raise SystemExit("no rows; run `python -m benchmarks.growth run` first")
    threads = ", ".join(sorted({str(row["threads"]) for row in rows}))
    grown = "\n".join(f"- {line}" for line in per_row(rows))
    return f"{table(rows)}\n\nProcessor time, {threads} thread(s).\n\n{grown}"


def main(arguments: list[str] | None = None, sizes: Sizes | None = None) -> None:
    """Run the command line; `sizes` are the published ones by default."""
    options = {
        "threads": {"type": int, "default": 1},
        "repetitions": {"type": int, "default": Sizes.repetitions},
    }

    def run_sizes(given: Namespace) -> Iterator[Row]:
        chosen = replace(sizes or Sizes(), repetitions=given.repetitions)
        return run(chosen, given.threads)

    given = run_or_report(__doc__, RESULTS, PAGE, run_sizes, body, arguments, options)
    if given.command == "report":
        rows = read_rows(given.results)
        save_figure(figure(rows), given.page.parent / "figures" / "growth.png")


if __name__ == "__main__":
    main()

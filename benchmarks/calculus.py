"""What the calculus costs beside scoring.

    python -m benchmarks.calculus run [--repetitions N] [--out FILE]
    python -m benchmarks.calculus report [--results FILE]

``run`` times, in turn and in one process, building marginals and conditionals, drawing and
scoring equally many rows, and filling gaps, and writes one JSON line for each timing. ``report``
writes the table into docs/calculus.md from the rows alone.
"""

from argparse import Namespace
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from statistics import median

import numpy as np

from benchmarks.commands import run_or_report
from benchmarks.overhead import Cases, interleave
from experiments.rows import ROOT, Row, markdown_table, provenance
from experiments.targets import PLANAR, get_target, random_gmm
from qaffde import QAFFDE

ROWS = ROOT / "benchmarks/results/calculus.jsonl"
PAGE = ROOT / "docs/calculus.md"
SAMPLE_BOUND = 20.0


@dataclass(frozen=True)
class Sizes:
    """How much is timed, and how often.

    Parameters
    ----------
    n_train, n_rows : int
        Rows to fit, and rows to draw, score or fill.
    n_features : int
    sets : tuple of str
        Planar densities to fit untuned.
    dims : tuple of int
        Columns of the larger models.
    ranks : tuple of int or float
        As in :class:`qaffde.QAFFDE`; 1.0 is full.
    repetitions : int
    """

    n_train: int = 20_000
    n_rows: int = 10_000
    n_features: int = 1000
    sets: tuple[str, ...] = PLANAR
    dims: tuple[int, ...] = (3, 5, 10)
    ranks: tuple[int | float, ...] = (32, 1.0)
    repetitions: int = 3


def run(sizes: Sizes) -> Iterator[Row]:
    """Rows of all comparisons; the first of each is scoring, of ratio one."""
    origin = provenance()
    for comparison in (compare_building, compare_planar, compare_dims, compare_filling):
        for row in comparison(sizes):
            yield {**row, **origin}


def compare_building(sizes: Sizes) -> Iterator[Row]:
    """Marginals and conditionals of one column, built, and built for the first score."""
    d = max(sizes.dims)
    models = {
        f"d = {d}, Gaussian": fitted(sizes, d, base_measure="gaussian"),
        f"d = {d}, mixture of 8": fitted(sizes, d, base_measure=8),
        f"d = {min(sizes.dims)}, box": fitted(sizes, min(sizes.dims), base_measure="box"),
    }
    for setting, model in models.items():
        x = model.sample(1, random_state=0)
        rest, given = x[:, 1:], {0: float(x[0, 0])}
        cases: Cases = {
            "score one row": lambda m=model, x=x: m.score_samples(x),
            "marginal": lambda m=model: m.marginal([0]),
            "marginal, one score": lambda m=model, x=x: m.marginal([0]).score_samples(x[:, :1]),
            "conditional": lambda m=model, g=given: m.condition(g),
            "conditional, one score": lambda m=model, g=given, r=rest: m.condition(
                g
            ).score_samples(r),
        }
        yield from _rows("build", setting, cases, replace(sizes, repetitions=20))


def compare_planar(sizes: Sizes) -> Iterator[Row]:
    """Draws from the untuned estimator on planar data."""
    for name in sizes.sets:
        X = get_target(name).sample(sizes.n_train, random_state=0)
        model = QAFFDE(sizes.n_features, random_state=0).fit(X)
        setting = f"{name}, {model.base_measure_}, rank {model.rank_}"
        yield from _rows("planar", setting, drawing(model, sizes.n_rows), sizes, SAMPLE_BOUND)


def compare_dims(sizes: Sizes) -> Iterator[Row]:
    """Draws in more columns, of low and of full rank."""
    for d in sizes.dims:
        for rank in sizes.ranks:
            model = fitted(sizes, d, rank=rank, base_measure=8)
            setting = f"d = {d}, mixture of 8, rank {model.rank_}"
            yield from _rows("draws", setting, drawing(model, sizes.n_rows), sizes)


def compare_filling(sizes: Sizes) -> Iterator[Row]:
    """Conditional scores and filled gaps, every row given its own values."""
    d = max(sizes.dims)
    model = fitted(sizes, d, base_measure=8)
    X = model.sample(sizes.n_rows, random_state=0)
    gaps = X.copy()
    gaps[:, -2:] = np.nan
    given = list(range(d - 2))
    cases: Cases = {
        "score": lambda: model.score_samples(X),
        "conditional scores": lambda: model.conditional_score_samples(X, given),
        "impute by draws": lambda: model.impute(gaps, random_state=0),
        "impute by means": lambda: model.impute(gaps, method="mean"),
    }
    yield from _rows("rows", f"d = {d}, mixture of 8, {d - 2} columns given", cases, sizes)


def fitted(sizes: Sizes, d: int, **options: object) -> QAFFDE:
    """Model of a random mixture of Gaussians in d columns, by a rule instead of a search."""
    X = random_gmm(d, scale=0.2).sample(sizes.n_train, random_state=0)
    settings = {"bandwidth": "scott", "base_measure": "mixture", "random_state": 0, **options}
    return QAFFDE(sizes.n_features, **settings).fit(X)


def drawing(model: QAFFDE, n: int) -> Cases:
    """Score rows, and draw as many."""
    X = model.sample(n, random_state=0)
    return {
        "score": lambda: model.score_samples(X),
        "sample": lambda: model.sample(n, random_state=1),
    }


def _rows(
    comparison: str, setting: str, cases: Cases, sizes: Sizes, bound: float | None = None
) -> Iterator[Row]:
    times = interleave(cases, sizes.repetitions, 0)
    first = next(iter(times))
    for name, seconds in times.items():
        yield {
            "comparison": comparison,
            "setting": setting,
            "case": name,
            "n_features": sizes.n_features,
            "n_rows": 1 if comparison == "build" else sizes.n_rows,
            "seconds": median(seconds),
            "ratio": median(seconds) / median(times[first]),
            "bound": bound if name == "sample" else None,
            "repetitions": len(seconds),
        }


def table(rows: Iterable[Row]) -> str:
    """One line a timing: what it took and how often the scoring beside it fits into it."""
    head = ["model", "operation", "rows", "time", "rows a second", "times scoring"]
    return markdown_table(head, [_line(row) for row in rows])


def verdict(rows: Iterable[Row]) -> str:
    """The largest bounded ratio beside its bound."""
    worst = max((row for row in rows if row["bound"] is not None), key=lambda row: row["ratio"])
    judged = "within" if worst["ratio"] <= worst["bound"] else "ABOVE"
    return (
        f"sampling: {worst['ratio']:.1f} times scoring at most ({worst['setting']}), "
        f"{judged} the bound of {worst['bound']:g}"
    )


def body(rows: list[Row]) -> str:
    """Table and verdict."""
    return f"{table(rows)}\n\n{verdict(rows)}."


def main(arguments: list[str] | None = None, sizes: Sizes | None = None) -> None:
    """Run the command line; `sizes` are the published ones by default."""
    options = {"repetitions": {"type": int, "default": Sizes.repetitions}}

    def run_sizes(given: Namespace) -> Iterator[Row]:
        return run(replace(sizes or Sizes(), repetitions=given.repetitions))

    run_or_report(__doc__, ROWS, PAGE, run_sizes, body, arguments, options)


def _line(row: Row) -> list[str]:
    n, seconds = row["n_rows"], row["seconds"]
    time = f"{seconds * 1000:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"
    speed = "" if n == 1 else f"{n / seconds:,.0f}"
    return [row["setting"], row["case"], f"{n:,}", time, speed, f"{row['ratio']:.1f}"]


if __name__ == "__main__":
    main()

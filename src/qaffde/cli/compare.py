"""``qaffde compare``: methods beside each other, on held-out rows of one's own data."""

import time
from dataclasses import dataclass

import numpy as np
import typer

from qaffde.cli.errors import message_of, usage
from qaffde.cli.fit import check_methods, make_estimator, note_missing
from qaffde.cli.inputs import open_data
from qaffde.cli.output import print_facts, print_table, progress
from qaffde.streams.blocks import Array
from qaffde.streams.names import framed
from qaffde.streams.selection import Missing, TableChunks, pick_columns
from qaffde.streams.table import DataError

FEWEST = 10


@dataclass(frozen=True)
class Result:
    """Result of a method, or its error."""

    method: str
    log_likelihood: float = -np.inf
    standard_error: float = np.nan
    fit_seconds: float = np.nan
    score_seconds: float = np.nan
    error: str | None = None


def compare(
    data: str,
    *,
    columns: list[str] | None,
    methods: str,
    held_out: float,
    max_rows: int,
    time_limit: float,
    seed: int,
    missing: Missing,
    header: bool | None,
    json: bool,
) -> None:
    """Fit several methods, untuned, and compare their log-likelihood on held-out rows."""
    names = [name.strip() for name in methods.split(",") if name.strip()]
    check_methods(names)
    if not 0 < held_out < 1:
        raise usage(f"--held-out must lie between 0 and 1, got {held_out}")
    with open_data(data, header=header) as table:
        rows = TableChunks(table, *pick_columns(table, columns or None), missing=missing)
        X, _ = rows.collect()
    note_missing(rows)
    train, test = (framed(part, rows.names) for part in split(X, held_out, max_rows, seed))
    results = []
    with progress("methods") as report:
        for number, name in enumerate(names):
            report("comparing", number, len(names))
            results.append(judge(name, train, test, time_limit, seed))
    results.sort(key=lambda result: -result.log_likelihood)
    _print(results, len(train), len(test), as_json=json)
    if all(result.error for result in results):
        raise DataError("no method could be fitted, see above")


def split(X: Array, share: float, max_rows: int, seed: int) -> tuple[Array, Array]:
    """Rows to train and rows to judge, shuffled."""
    if len(X) < FEWEST:
        raise DataError(f"{len(X)} rows are too few to compare methods; give at least {FEWEST}")
    shuffled = np.random.default_rng(seed).permutation(X)[:max_rows]
    n_test = min(max(1, round(share * len(shuffled))), len(shuffled) - 2)
    return shuffled[n_test:], shuffled[:n_test]


def judge(method: str, train: Array, test: Array, limit: float, seed: int) -> Result:
    """Fit one method and score the held-out rows."""
    model = make_estimator(method, strict=False, time_limit=limit, seed=seed)
    try:
        start = time.perf_counter()
        model.fit(train)
        middle = time.perf_counter()
        log_p = model.score_samples(test)
        end = time.perf_counter()
    except (ValueError, ImportError, RuntimeError) as error:
        return Result(method, error=message_of(error))
    spread = float(log_p.std() / np.sqrt(len(log_p)))
    return Result(method, float(log_p.mean()), spread, middle - start, end - middle)


def _print(results: list[Result], n_train: int, n_test: int, *, as_json: bool) -> None:
    if as_json:
        facts = {"train_rows": n_train, "test_rows": n_test, "methods": list(map(vars, results))}
        print_facts(facts, as_json=True)
        return
    title = f"{n_train:,} training rows, {n_test:,} held-out rows; higher is better"
    lines = [
        [
            r.method,
            f"{r.log_likelihood:.4f}",
            f"{r.standard_error:.4f}",
            f"{r.fit_seconds:.2f}",
            f"{r.score_seconds:.3f}",
        ]
        for r in results
        if r.error is None
    ]
    print_table(title, ["method", "log-likelihood", "±", "fit s", "score s"], lines)
    for r in results:
        if r.error is not None:
            typer.echo(f"{r.method} left out: {r.error}")

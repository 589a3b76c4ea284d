"""``qaffde compare``: methods beside each other, on held-out rows of one's own data."""

import time
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import typer

from qaffde.baselines import BASELINES
from qaffde.cli.commands import Columns, Data, Header, Json, MissingFit, Seed, framed
from qaffde.cli.data import DataError, open_table, pick_columns
from qaffde.cli.data.rows import Array, Missing, read_all
from qaffde.cli.errors import message_of, reporting, usage
from qaffde.cli.fit import tell_missing
from qaffde.cli.fitting import METHODS, make_estimator
from qaffde.cli.output import print_json, print_table, progress

DEFAULT = "qaffde,qaffde-sgd,kde,gmm,nsf"
FEWEST = 10


@dataclass(frozen=True)
class Result:
    """What a method reached, or why it did not."""

    method: str
    log_likelihood: float | None = None
    standard_error: float | None = None
    fit_seconds: float | None = None
    score_seconds: float | None = None
    error: str | None = None


def compare(
    data: Data,
    *,
    columns: Columns = None,
    methods: Annotated[str, typer.Option(help="Methods, by commas.")] = DEFAULT,
    held_out: Annotated[float, typer.Option(help="Share of rows that judge.")] = 0.2,
    max_rows: Annotated[
        int, typer.Option(min=FEWEST, help="Of more rows, as many are drawn.")
    ] = 20_000,
    time_limit: Annotated[
        float, typer.Option(min=0, help="Seconds for each method that trains.")
    ] = 30.0,
    seed: Seed = 0,
    missing: MissingFit = Missing.error,
    header: Header = None,
    json: Json = False,
) -> None:
    """Fit several methods, untuned, and compare their log-likelihood on held-out rows."""
    names = [name.strip() for name in methods.split(",") if name.strip()]
    for name in names:
        if name not in (*METHODS, *BASELINES):
            raise usage(f"unknown method {name!r}; choose of {', '.join([*METHODS, *BASELINES])}")
    if not 0 < held_out < 1:
        raise usage(f"--held-out must lie between 0 and 1, got {held_out}")
    with reporting():
        with open_table(data, header=header) as table:
            selection = pick_columns(table, columns)
            X, _, n_read, n_missing = read_all(selection, missing)
        tell_missing(n_missing, n_read - len(X), missing)
        train, test = split(X, held_out, max_rows, seed)
        results = []
        with progress("comparing", len(names), "methods") as tick:
            for name in names:
                results.append(judge(name, train, test, selection.names, time_limit, seed))
                tick(1)
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


def judge(
    method: str, train: Array, test: Array, names: list[str] | None, limit: float, seed: int
) -> Result:
    """Fit one method and score the held-out rows."""
    model = make_estimator(method, seed=seed)
    if "time_limit" in model.get_params():
        model.set_params(time_limit=limit)
    try:
        start = time.perf_counter()
        model.fit(framed(train, names))
        middle = time.perf_counter()
        log_p = model.score_samples(framed(test, names))
        end = time.perf_counter()
    except (ValueError, ImportError, RuntimeError) as error:
        return Result(method, error=message_of(error))
    spread = float(log_p.std() / np.sqrt(len(log_p)))
    return Result(method, float(log_p.mean()), spread, middle - start, end - middle)


def _print(results: list[Result], n_train: int, n_test: int, *, as_json: bool) -> None:
    ordered = sorted(results, key=lambda r: -np.inf if r.error else -(r.log_likelihood or 0.0))
    ordered.sort(key=lambda r: r.error is not None)
    if as_json:
        rows: list[dict[str, Any]] = [vars(result) for result in ordered]
        print_json({"train_rows": n_train, "test_rows": n_test, "methods": rows})
        return
    columns = ["method", "log-likelihood", "±", "fit s", "score s"]
    lines = [
        [
            r.method,
            f"{r.log_likelihood:.4f}",
            f"{r.standard_error:.4f}",
            f"{r.fit_seconds:.2f}",
            f"{r.score_seconds:.3f}",
        ]
        for r in ordered
        if r.error is None
    ]
    print_table(
        f"{n_train:,} training rows, {n_test:,} held-out rows; higher is better", columns, lines
    )
    for r in ordered:
        if r.error is not None:
            typer.echo(f"{r.method} left out: {r.error}")

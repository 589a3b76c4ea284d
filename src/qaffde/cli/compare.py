"""``qaffde compare``: methods beside each other, on held-out rows of one's own data."""

import time
from typing import Annotated, Any

import numpy as np
import typer
from typer import Option

from qaffde.cli.fit import kinds_by_column, make_estimator, note_missing, parse_kinds
from qaffde.cli.inputs import open_data
from qaffde.cli.options import (
    Columns,
    Data,
    Decimal,
    Encoding,
    Header,
    Json,
    KindOf,
    Missing,
    MissingFit,
    Seed,
)
from qaffde.cli.output import message_of, print_facts, print_table, progress, usage
from qaffde.kinds import Kind
from qaffde.streams.blocks import Array, Chunks
from qaffde.streams.chunked import TableChunks, pick_columns
from qaffde.streams.schemas import infer_schema
from qaffde.streams.table import DataError

FEWEST = 10
NUMBERS, KINDS = "qaffde,qaffde-sgd,kde,gmm,nsf", "qaffde,qaffde-tensor-train"
"""Methods for numbers, and for columns of several kinds."""
COLUMNS = {
    "log_likelihood": ("log-likelihood", 4),
    "standard_error": ("±", 4),
    "fit_seconds": ("fit s", 2),
    "score_seconds": ("score s", 3),
}


def compare(
    data: Data,
    *,
    columns: Columns = None,
    column: KindOf = None,
    methods: Annotated[str | None, Option(help="Methods, by commas.")] = None,
    held_out: Annotated[float, Option(help="Share of rows that judge.")] = 0.2,
    max_rows: Annotated[int, Option(min=10, help="Of more rows, as many are drawn.")] = 20_000,
    time_limit: Annotated[
        float, Option(min=0, help="Seconds for each method that trains.")
    ] = 30.0,
    seed: Seed = 0,
    missing: MissingFit = Missing.error,
    header: Header = None,
    decimal: Decimal = None,
    encoding: Encoding = None,
    json: Json = False,
) -> None:
    """Fit several methods, untuned, and compare their log-likelihood on held-out rows.

    Numbers are real, which every method takes. A table with text, or with kinds of its columns, is
    compared as `qaffde fit` reads it, by the methods that take kinds.
    """
    make_rivals(methods or NUMBERS, time_limit, seed)  # refuses unknown names before data are read
    if not 0 < held_out < 1:
        raise usage(f"--held-out must lie between 0 and 1, got {held_out}")
    with open_data(data, header=header, decimal=decimal, encoding=encoding) as table:
        names, _ = pick_columns(table, columns or None)
        kinds, has_text = parse_kinds(column, names), not {*names} <= {*table.numeric}
        mixed = table.named and bool(kinds or has_text)
        schema = infer_schema(table, names, kinds) if mixed else None
        rows = TableChunks(table, names, missing=missing, schema=schema)
        X = draw(rows, max_rows, seed)
    asked = kinds_by_column(kinds, schema, names)
    models = make_rivals(methods or (KINDS if asked else NUMBERS), time_limit, seed, asked)
    note_missing(rows)
    if len(X) < FEWEST:
        raise DataError(f"{len(X)} rows are too few to compare methods; give at least {FEWEST}")
    n_test = min(max(1, round(held_out * len(X))), len(X) - 2)
    train, test = rows.frame(X[n_test:]), rows.frame(X[:n_test])
    results = []
    with progress("methods") as report:
        for number, (name, model) in enumerate(models.items()):
            report("comparing", number, len(models))
            results.append({"method": name, **judge(model, train, test)[0]})
    results.sort(key=lambda result: -result["log_likelihood"])
    if json:
        facts = {"train_rows": len(train), "test_rows": len(test), "methods": results}
        print_facts(facts, as_json=True)
    else:
        title = f"{len(train):,} training rows, {len(test):,} held-out rows; higher is better"
        print_table(title, COLUMNS, {r["method"]: r for r in results if not r["error"]})
        for result in results:
            if result["error"]:
                typer.echo(f"{result['method']} left out: {result['error']}")
    if all(result["error"] for result in results):
        raise DataError("no method could be fitted, see above")


def make_rivals(
    methods: str, time_limit: float | None, seed: int, columns: dict[Any, Kind] | None = None
) -> dict[str, Any]:
    """Unfitted estimators by name; those that train get a limit of time.

    Without kinds all columns are real; with them, methods that do not know kinds are refused.
    """
    models = {}
    for name in filter(None, map(str.strip, methods.split(","))):
        models[name] = make_estimator(name, random_state=seed)
        own = {"columns": columns, "time_limit": time_limit}
        known = models[name].get_params(deep=False).keys()
        if columns and "columns" not in known:
            raise usage(f"{name} takes real columns only; leave it out, or pick --columns")
        models[name].set_params(**{key: own[key] for key in own.keys() & known})
    return models


def draw(rows: Chunks, n: int, seed: int) -> Array:
    """Not more than n rows, drawn and shuffled while they are read."""
    rng, kept, keys = np.random.default_rng(seed), np.empty((0, rows.n_columns)), np.empty(0)
    for block in rows.blocks():
        keys = np.concatenate([keys, rng.random(len(block.rows))])
        order = np.argsort(keys)[:n]
        kept, keys = np.concatenate([kept, block.rows])[order], keys[order]
    return kept


def judge(model: Any, train: Array, test: Array) -> tuple[dict[str, Any], Array]:
    """Fit one method and score held-out rows: the result, or its error, and log-densities."""
    log_p, error, times = np.array([-np.inf]), None, [np.nan, np.nan]
    try:
        start = time.perf_counter()
        model.fit(train)
        middle = time.perf_counter()
        log_p = model.score_samples(test)
        times = [middle - start, time.perf_counter() - middle]
    except (ValueError, ImportError, RuntimeError) as problem:
        error = message_of(problem)
    result = {
        "log_likelihood": float(log_p.mean()),
        "standard_error": np.nan if error else float(log_p.std() / np.sqrt(len(log_p))),
        "fit_seconds": times[0],
        "score_seconds": times[1],
        "error": error,
    }
    return result, log_p

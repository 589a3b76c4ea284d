"""``qaffde fit``: from data to a model file."""

import time
from typing import Annotated, Any

import typer

from qaffde.cli.commands import Columns, Data, Header, Json, MissingFit, ModelOut, Seed
from qaffde.cli.data import check_output, open_table, pick_columns
from qaffde.cli.data.rows import Missing
from qaffde.cli.errors import note, reporting
from qaffde.cli.fitting import Fitted, fit_table, make_estimator, number_or_word, parse_bounds
from qaffde.cli.output import print_facts, print_json
from qaffde.files.model import save


def fit(
    data: Data,
    output: ModelOut,
    *,
    columns: Columns = None,
    weights: Annotated[str | None, typer.Option(help="Column of weights.")] = None,
    method: Annotated[
        str, typer.Option(help="qaffde, qaffde-sgd, or a baseline such as kde, gmm, maf, nsf.")
    ] = "qaffde",
    features: Annotated[
        int | None, typer.Option(min=2, help="Number of Fourier features.")
    ] = None,
    bandwidth: Annotated[
        str | None, typer.Option(help="A number, one for each column by commas, scott, silverman.")
    ] = None,
    rank: Annotated[
        str | None, typer.Option(help="Eigenpairs to keep: a number, or a share below 1.")
    ] = None,
    base_measure: Annotated[
        str | None, typer.Option(help="box, gaussian, mixture; chosen where not given.")
    ] = None,
    bounds: Annotated[
        list[str] | None,
        typer.Option(help="Known ends: LOW:HIGH for all columns, or COLUMN=LOW:HIGH, repeated."),
    ] = None,
    time_limit: Annotated[
        float | None, typer.Option(min=0, help="Seconds, for methods that train.")
    ] = None,
    seed: Seed = 0,
    missing: MissingFit = Missing.error,
    header: Header = None,
    stream: Annotated[
        bool | None,
        typer.Option(help="Read in batches, twice; so by default where data are large."),
    ] = None,
    json: Json = False,
) -> None:
    """Fit a density to the columns of DATA, and write it to a model file."""
    with reporting():
        check_output(str(output))
        start = time.perf_counter()
        with open_table(data, header=header) as table:
            selection = pick_columns(table, columns, weights)
            model = make_estimator(
                method,
                features=features,
                bandwidth=number_or_word(bandwidth),
                rank=number_or_word(rank),
                base_measure=base_measure,
                bounds=parse_bounds(bounds, selection),
                time_limit=time_limit,
                seed=seed,
            )
            fitted = fit_table(model, selection, missing, stream=stream)
            names = [table.names[j] for j in selection.columns]
        tell_missing(fitted.n_missing, fitted.n_read - fitted.n_rows, missing)
        save(fitted.model, output.resolve())
        facts = _facts(fitted, names)
        facts |= {"seconds": round(time.perf_counter() - start, 3), "model": str(output)}
        (print_json if json else print_facts)(facts)


def tell_missing(n_missing: int, n_dropped: int, missing: Missing) -> None:
    """Say plainly what became of missing values."""
    if missing is Missing.impute and n_missing:
        note(
            f"{n_missing} missing values were filled with the means of their columns, which makes "
            "the density narrower than it is; --missing drop does not"
        )
    if n_dropped:
        note(f"{n_dropped} rows with missing values were dropped")


def _facts(fitted: Fitted, names: list[str]) -> dict[str, Any]:
    model = fitted.model
    facts: dict[str, Any] = {
        "class": type(model).__name__,
        "columns": names,
        "rows": fitted.n_rows,
        "missing_values": fitted.n_missing,
        "streamed": fitted.streamed,
    }
    for name in ("base_measure_", "bandwidth_", "n_fourier_features_", "rank_"):
        if hasattr(model, name):
            value = getattr(model, name)
            facts[name.rstrip("_")] = value.tolist() if hasattr(value, "tolist") else value
    return facts

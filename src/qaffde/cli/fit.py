"""``qaffde fit``: from data to a model file."""

import math
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Annotated, Any

from typer import Option

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
    ModelOut,
    Seed,
)
from qaffde.cli.output import check_output, note, print_facts, progress, usage
from qaffde.kinds import Kind, Real, as_kind
from qaffde.schema import Schema
from qaffde.streams.chunked import TableChunks, pick_columns
from qaffde.streams.names import find_columns
from qaffde.streams.schemas import infer_schema

STREAM_BYTES = 1 << 25
"""Rows that take more memory, before a fit takes a dozen times as much, are read in batches."""
SAVED = ("qaffde", "qaffde-sgd", "qaffde-tensor-train", "qaffde-autoregressive")
"""Methods whose models can be saved."""


def fit(
    data: Data,
    output: ModelOut,
    *,
    columns: Columns = None,
    weights: Annotated[str | None, Option(help="Column of weights.")] = None,
    method: Annotated[
        str | None,
        Option(
            help=f"One of {', '.join(SAVED)}. By default the likelihood of held-out rows decides; "
            "with options of one method, it is qaffde."
        ),
    ] = None,
    features: Annotated[int | None, Option(min=2, help="Number of Fourier features.")] = None,
    bandwidth: Annotated[
        str | None, Option(help="A number, one for each column by commas, scott, silverman.")
    ] = None,
    rank: Annotated[
        str | None, Option(help="Eigenpairs to keep: a number, or a share below 1.")
    ] = None,
    base_measure: Annotated[
        str | None, Option(help="box, gaussian, mixture; chosen where not given.")
    ] = None,
    column: KindOf = None,
    transformation: Annotated[
        str | None, Option(help="Maps of real columns: normal or none; chosen where not given.")
    ] = None,
    time_limit: Annotated[
        float | None,
        Option(min=0, help="Seconds for the fit; 120 where the method is to be chosen."),
    ] = None,
    seed: Seed = 0,
    missing: MissingFit = Missing.error,
    header: Header = None,
    decimal: Decimal = None,
    encoding: Encoding = None,
    stream: Annotated[
        bool | None, Option(help="Read in batches, twice; so by default where data are large.")
    ] = None,
    json: Json = False,
) -> None:
    """Fit a density to the columns of DATA, and write it to a model file."""
    check_output(output, data)
    options = (features, bandwidth, rank, base_measure, transformation, stream or None)
    is_open = method is None and all(option is None for option in options)
    method = method or "qaffde"
    if method not in SAVED:
        raise usage(
            f"model files hold methods {', '.join(SAVED)} only, not {method!r}; compare it "
            "with qaffde compare"
        )
    if stream and method != "qaffde":
        raise usage("--stream needs --method qaffde: other methods read all rows at once")
    start, shown = time.perf_counter(), sys.stderr.isatty()
    with (
        open_data(data, header=header, decimal=decimal, encoding=encoding) as table,
        progress() as report,
    ):
        names, weight_name = pick_columns(table, columns or None, weights)
        kinds = parse_kinds(column, names)
        schema = infer_schema(table, names, kinds) if table.named else None
        rows = TableChunks(
            table, names, weight_name, missing=missing, progress=report, schema=schema
        )
        model = make_estimator(
            method,
            n_features=features,
            bandwidth=number_or_word(bandwidth),
            rank=number_or_word(rank),
            base_measure=number_or_word(base_measure),
            columns=kinds_by_column(kinds, schema, names),
            transformation=transformation,
            time_limit=time_limit,
            random_state=seed,
        )
        most = STREAM_BYTES if stream is None and method == "qaffde" else math.inf
        whole = None if stream else rows.collect(most)
        X, weight = (rows, None) if whole is None else (rows.frame(whole[0]), whole[1])
        weight = weight if weights else None
        if is_open:
            from qaffde import fit as choose

            limit = 120.0 if time_limit is None else time_limit
            own: dict[str, Any] = {"time_limit": limit, "verbose": shown, "random_state": seed}
            model = choose(X, weight, columns=model.columns, **own)
        else:
            if shown and hasattr(model, "verbose"):  # its lines appear above the bar
                model.set_params(verbose=True)
            model.fit(X, sample_weight=weight)
        if hasattr(model, "verbose"):
            model.set_params(verbose=False)
    note_missing(rows)
    note_signed(rows)
    model.save(output.resolve())
    if schema is not None and not json:
        print(f"{schema}\n")
    if is_open and not json:
        print(f"{model.choice_}\n")
    facts = {
        "class": type(model).__name__,
        **({"columns": rows.columns, **kinds_of(model)} if json or schema is None else {}),
        "rows": rows.n_kept,
        "missing_values": rows.n_missing,
        "streamed": whole is None,
        **attributes(model, "base_measure_", "bandwidth_", "n_fourier_features_", "rank_"),
        **({"choice": asdict(model.choice_)["candidates"]} if is_open and json else {}),
        "seconds": round(time.perf_counter() - start, 3),
        "model": str(output),
    }
    print_facts(facts, as_json=json)


def make_estimator(method: str, **parameters: Any) -> Any:
    """Unfitted estimator of a method, with those parameters that are not None."""
    from qaffde import QAFFDE, QAFFDESGD, QAFFDEAutoregressive, QAFFDETensorTrain
    from qaffde.baselines import BASELINES

    methods: dict[str, Any] = {
        "qaffde": QAFFDE,
        "qaffde-sgd": QAFFDESGD,
        "qaffde-tensor-train": QAFFDETensorTrain,
        "qaffde-autoregressive": QAFFDEAutoregressive,
        **BASELINES,
    }
    if method not in methods:
        raise usage(f"unknown method {method!r}; choose one of {', '.join(methods)}")
    model = methods[method]()
    given = {name: value for name, value in parameters.items() if value is not None}
    for name in given.keys() - model.get_params(deep=False).keys():
        raise usage(f"--{name.replace('_', '-')} does not apply to {method}")
    return model.set_params(**given)


def number_or_word(text: str | None) -> Any:
    """A text as a number, several by commas, or a word such as "auto"; None stays.

    Examples
    --------
    >>> number_or_word("16"), number_or_word("0.5"), number_or_word("1,2"), number_or_word("auto")
    (16, 0.5, [1.0, 2.0], 'auto')
    """
    if text is None:
        return None
    try:
        if "," in text:
            return [float(part) for part in text.split(",")]
        return int(text) if text.strip().isdigit() else float(text)
    except ValueError:
        return text


def parse_kinds(texts: Sequence[str] | None, names: Sequence[str]) -> dict[str, Kind]:
    """Kinds of columns from texts such as ``hour=periodic:24``, or ``real:0:1`` for all columns.

    Examples
    --------
    >>> parse_kinds(["hour=periodic:24", "1=integer"], ["hour", "age"])
    {'hour': Periodic(period=24.0, start=0.0), 'age': Integer()}
    """
    kinds = {}
    for text in texts or ():
        column, _, kind = text.rpartition("=")
        for j in find_columns([column], names, "the fit") if column else range(len(names)):
            kinds[names[j]] = as_kind(kind, names[j])
    return kinds


def kinds_by_column(
    kinds: Mapping[str, Kind], schema: Schema | None, names: Sequence[str]
) -> dict[Any, Kind] | None:
    """Kinds as estimators take them: of all columns of a schema, or of those given, by number."""
    if schema is not None and any(kind != Real() for kind in schema.kinds):
        return {column.name: column.kind for column in schema.columns}
    return {names.index(name): kind for name, kind in kinds.items()} or None


def kinds_of(model: Any) -> dict[str, list[str]]:
    """Kinds of a model's columns, in words, where its fit was to a table."""
    schema = getattr(model, "schema_", None)
    return {} if schema is None else {"kinds": [str(kind) for kind in schema.kinds]}


def note_signed(rows: TableChunks) -> None:
    """Say which columns of text were read as numbers."""
    for name, cell in rows.table.signed.items():
        if name in rows.columns:
            note(f"column {name!r} is text such as {cell!r}, and was read as numbers")


def note_missing(rows: TableChunks) -> None:
    """Say plainly what became of missing values."""
    if rows.missing == "impute" and rows.n_missing:
        note(
            f"{rows.n_missing} missing values were filled with the means of their columns, which "
            "makes the density narrower than it is; --missing drop does not"
        )
    if rows.n_read > rows.n_kept:
        note(f"{rows.n_read - rows.n_kept} rows with missing values were dropped")


def attributes(model: Any, *names: str) -> dict[str, Any]:
    """Learned values of a model, as far as it has them."""
    return {name.rstrip("_"): getattr(model, name) for name in names if hasattr(model, name)}

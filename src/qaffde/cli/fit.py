"""``qaffde fit``: from data to a model file."""

import math
import time
from collections.abc import Sequence
from typing import Annotated, Any

from typer import Option

from qaffde.cli.inputs import open_data
from qaffde.cli.options import Columns, Data, Header, Json, Missing, MissingFit, ModelOut, Seed
from qaffde.cli.output import check_output, note, print_facts, progress, usage
from qaffde.streams.chunked import TableChunks, pick_columns
from qaffde.streams.names import find_columns, framed

STREAM_BYTES = 1 << 28
"""Rows that take more memory are read in batches."""
SAVED = ("qaffde", "qaffde-sgd", "qaffde-tensor-train")
"""Methods whose models can be saved."""


def fit(
    data: Data,
    output: ModelOut,
    *,
    columns: Columns = None,
    weights: Annotated[str | None, Option(help="Column of weights.")] = None,
    method: Annotated[str, Option(help="qaffde, qaffde-sgd or qaffde-tensor-train.")] = "qaffde",
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
    bounds: Annotated[
        list[str] | None,
        Option(help="Known ends: LOW:HIGH for all columns, or COLUMN=LOW:HIGH, repeated."),
    ] = None,
    time_limit: Annotated[
        float | None,
        Option(min=0, help="Seconds after which the search takes its best candidate."),
    ] = None,
    seed: Seed = 0,
    missing: MissingFit = Missing.error,
    header: Header = None,
    stream: Annotated[
        bool | None, Option(help="Read in batches, twice; so by default where data are large.")
    ] = None,
    json: Json = False,
) -> None:
    """Fit a density to the columns of DATA, and write it to a model file."""
    check_output(output, data)
    if method not in SAVED:
        raise usage(
            f"model files hold methods {', '.join(SAVED)} only, not {method!r}; compare it "
            "with qaffde compare"
        )
    if stream and method != "qaffde":
        raise usage("--stream needs --method qaffde: other methods read all rows at once")
    start = time.perf_counter()
    with open_data(data, header=header) as table, progress() as report:
        picked = pick_columns(table, columns or None, weights)
        rows = TableChunks(table, *picked, missing=missing, progress=report)
        model = make_estimator(
            method,
            n_features=features,
            bandwidth=number_or_word(bandwidth),
            rank=number_or_word(rank),
            base_measure=number_or_word(base_measure),
            bounds=parse_bounds(bounds, rows.column_names),
            time_limit=time_limit,
            random_state=seed,
        )
        most = STREAM_BYTES if stream is None and method == "qaffde" else math.inf
        whole = None if stream else rows.collect_up_to(most)
        if whole is None:
            model.fit(rows)
        else:
            X, weight = whole
            model.fit(framed(X, rows.names), sample_weight=weight if weights else None)
    note_missing(rows)
    model.save(output.resolve())
    facts = {
        "class": type(model).__name__,
        "columns": rows.column_names,
        "rows": rows.n_kept,
        "missing_values": rows.n_missing,
        "streamed": whole is None,
        **attributes(model, "base_measure_", "bandwidth_", "n_fourier_features_", "rank_"),
        "seconds": round(time.perf_counter() - start, 3),
        "model": str(output),
    }
    print_facts(facts, as_json=json)


def make_estimator(method: str, **parameters: Any) -> Any:
    """Unfitted estimator of a method, with those parameters that are not None."""
    from qaffde import QAFFDE, QAFFDESGD, QAFFDETensorTrain
    from qaffde.baselines import BASELINES

    methods: dict[str, Any] = {
        "qaffde": QAFFDE,
        "qaffde-sgd": QAFFDESGD,
        "qaffde-tensor-train": QAFFDETensorTrain,
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


def parse_bounds(texts: Sequence[str] | None, names: Sequence[str]) -> Any:
    """Ends of columns from texts such as ``0:1``, ``height=0:`` or ``:5``."""
    if not texts:
        return None
    bounds: list[tuple[float | None, float | None]] = [(None, None)] * len(names)
    for text in texts:
        column, _, ends = text.rpartition("=")
        try:
            low, high = (float(end) if end.strip() else None for end in ends.split(":"))
        except ValueError:
            raise usage(
                f"--bounds takes LOW:HIGH or COLUMN=LOW:HIGH, an end may be left out; got {text!r}"
            ) from None
        for j in find_columns([column], names, "the fit") if column else range(len(names)):
            bounds[j] = low, high
    return bounds


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

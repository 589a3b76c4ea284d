"""``qaffde fit``: from data to a model file."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from qaffde import QAFFDE, QAFFDESGD
from qaffde.baselines import BASELINES, get_baseline
from qaffde.cli.errors import note, usage
from qaffde.cli.inputs import open_data
from qaffde.cli.output import print_facts, progress
from qaffde.cli.sinks import check_output
from qaffde.files.model import save
from qaffde.streams.names import find_columns, framed
from qaffde.streams.selection import Missing, TableChunks, pick_columns

STREAM_BYTES = 1 << 29
"""Larger tables are not read into memory."""
METHODS = {"qaffde": QAFFDE, "qaffde-sgd": QAFFDESGD}
OPTIONS = {
    "features": "n_features",
    "bandwidth": "bandwidth",
    "rank": "rank",
    "base_measure": "base_measure",
    "bounds": "bounds",
    "time_limit": "time_limit",
    "seed": "random_state",
}
"""Options of the command line, and the parameters of estimators that they set."""


def fit(
    data: str,
    output: Path,
    *,
    columns: list[str] | None,
    weights: str | None,
    method: str,
    bounds: list[str] | None,
    missing: Missing,
    header: bool | None,
    stream: bool | None,
    json: bool,
    **options: Any,
) -> None:
    """Fit a density to the columns of a table, and write it to a file."""
    check_output(output, data)
    if method not in METHODS:
        raise usage(
            f"model files hold methods {' and '.join(METHODS)} only, not {method!r}; compare it "
            "with qaffde compare"
        )
    start = time.perf_counter()
    with open_data(data, header=header) as table, progress() as report:
        picked = pick_columns(table, columns or None, weights)
        rows = TableChunks(table, *picked, missing=missing, progress=report)
        options["bounds"] = parse_bounds(bounds, rows.column_names)
        model = make_estimator(method, **options)
        if stream and not isinstance(model, QAFFDE):
            raise usage("--stream needs --method qaffde: other methods read all rows at once")
        if stream is None:
            stream = isinstance(model, QAFFDE) and table.n_bytes > STREAM_BYTES
        if stream:
            model.fit(rows)
        else:
            X, weight = rows.collect()
            model.fit(framed(X, rows.names), sample_weight=weight if weights else None)
    note_missing(rows)
    save(model, output.resolve())
    facts = {
        "class": type(model).__name__,
        "columns": rows.column_names,
        "rows": rows.n_kept,
        "missing_values": rows.n_missing,
        "streamed": stream,
        **attributes(model, "base_measure_", "bandwidth_", "n_fourier_features_", "rank_"),
        "seconds": round(time.perf_counter() - start, 3),
        "model": str(output),
    }
    print_facts(facts, as_json=json)


def make_estimator(method: str, *, strict: bool = True, **options: Any) -> Any:
    """Unfitted estimator of a method, with the options that were given.

    Parameters
    ----------
    method : str
    strict : bool
        Whether to reject options that the method lacks, other than the seed.
    **options
        Keys of :data:`OPTIONS`; None is left out.
    """
    check_methods([method])
    model = METHODS[method]() if method in METHODS else get_baseline(method)
    known = model.get_params(deep=False)
    for option, value in options.items():
        if OPTIONS[option] in known and value is not None:
            model.set_params(**{OPTIONS[option]: number_or_word(value)})
        elif value is not None and option != "seed" and strict:
            raise usage(f"--{option.replace('_', '-')} does not apply to {method}")
    return model


def check_methods(methods: Sequence[str]) -> None:
    """Reject methods that are not known."""
    known = [*METHODS, *BASELINES]
    for method in methods:
        if method not in known:
            raise usage(f"unknown method {method!r}; choose one of {', '.join(known)}")


def number_or_word(value: Any) -> Any:
    """A text as a number, several by commas, or a word such as "auto"; others as they are.

    Examples
    --------
    >>> number_or_word("16"), number_or_word("0.5"), number_or_word("1,2"), number_or_word("auto")
    (16, 0.5, [1.0, 2.0], 'auto')
    """
    if not isinstance(value, str):
        return value
    try:
        if "," in value:
            return [float(part) for part in value.split(",")]
        return int(value) if value.strip().isdigit() else float(value)
    except ValueError:
        return value


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

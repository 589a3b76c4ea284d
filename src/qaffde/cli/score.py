"""``qaffde score`` and ``qaffde anomalies``: log-densities of rows, batch by batch."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from qaffde.cli.commands import (
    Array,
    Columns,
    Data,
    Header,
    Json,
    MissingScore,
    Model,
    Seed,
    TableOut,
    filler,
    framed,
    load_model,
)
from qaffde.cli.data import (
    DataError,
    Selection,
    check_output,
    open_sink,
    open_table,
    pick_for_model,
)
from qaffde.cli.data.formats import STANDARD
from qaffde.cli.data.rows import Chunk, Missing, read_rows
from qaffde.cli.data.sinks import Output
from qaffde.cli.data.table import import_pyarrow
from qaffde.cli.errors import note, reporting, usage
from qaffde.cli.output import print_json, progress
from qaffde.estimators.regions import weighted_quantile

LOG_DENSITY, ROW, ANOMALY = "log_density", "row", "anomaly"
N_DRAWS = 10_000


def score(
    model: Model,
    data: Data,
    *,
    output: TableOut = None,
    columns: Columns = None,
    missing: MissingScore = Missing.error,
    header: Header = None,
    json: Json = False,
) -> None:
    """Write the rows of DATA with a column log_density.

    With --json and no -o, only a summary is printed.
    """
    with reporting(), _target(output, json=json) as sink:
        density = load_model(model)
        n_rows, n_dropped, total, low, high = 0, 0, 0.0, np.inf, -np.inf
        with open_table(data, header=header) as table:
            selection = pick_for_model(table, density, columns)
            for chunk, log_p in scored(density, selection, missing, (LOG_DENSITY,)):
                sink.write(with_columns(chunk.batch, {LOG_DENSITY: log_p}))
                n_rows, n_dropped = n_rows + len(log_p), n_dropped + chunk.n_read - len(log_p)
                total += float(log_p.sum())
                low, high = min(low, log_p.min(initial=low)), max(high, log_p.max(initial=high))
        if not n_rows:
            raise DataError(f"{data} has no row without missing values")
        _tell_dropped(n_dropped)
        if json:
            print_json(
                {
                    "rows": n_rows,
                    "dropped": n_dropped,
                    "mean_log_density": total / n_rows,
                    "min_log_density": low,
                    "max_log_density": high,
                    "output": output,
                }
            )


def anomalies(
    model: Model,
    data: Data,
    *,
    fraction: Annotated[
        float | None,
        typer.Option(help="Call this share of DATA anomalies: the least likely rows."),
    ] = None,
    false_alarms: Annotated[
        float | None,
        typer.Option(help="Share of the model's own mass that is called so; 0.01 by default."),
    ] = None,
    threshold: Annotated[
        float | None, typer.Option(help="Log-density below which a row is an anomaly.")
    ] = None,
    all_rows: Annotated[
        bool, typer.Option("--all", help="Write all rows, with a column anomaly of 0 and 1.")
    ] = False,
    output: TableOut = None,
    columns: Columns = None,
    missing: MissingScore = Missing.error,
    header: Header = None,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Write the rows of DATA where the density is low, with their number and log_density."""
    if sum(value is not None for value in (fraction, false_alarms, threshold)) > 1:
        raise usage("--fraction, --false-alarms and --threshold exclude each other; give one")
    for name, share in (("--fraction", fraction), ("--false-alarms", false_alarms)):
        if share is not None and not 0 < share < 1:
            raise usage(f"{name} must lie between 0 and 1, got {share}")
    with reporting(), _target(output, json=json) as sink:
        density = load_model(model)
        found: list[dict[str, Any]] = []
        n_rows = n_anomalies = n_dropped = 0
        with open_table(data, header=header) as table:
            selection = pick_for_model(table, density, columns)
            limit = threshold
            if fraction is not None:
                limit = _lowest_share(density, selection, missing, fraction)
            elif limit is None:
                limit = natural_limit(density, false_alarms, seed)
            added = (ROW, LOG_DENSITY, *([ANOMALY] if all_rows else []))
            for chunk, log_p in scored(density, selection, missing, added):
                low = log_p < limit
                sink.write(_judged(chunk, log_p, low, all_rows=all_rows))
                n_rows, n_anomalies = n_rows + len(low), n_anomalies + int(low.sum())
                n_dropped += chunk.n_read - len(low)
                if json and output is None:
                    found += _listed(chunk, log_p, low)
        _tell_dropped(n_dropped)
        if json:
            facts: dict[str, Any] = {"rows": n_rows, "dropped": n_dropped, "threshold": limit}
            facts |= {"anomalies": n_anomalies, "output": output}
            print_json(facts | ({"found": found} if output is None else {}))
        else:
            note(f"{n_anomalies:,} of {n_rows:,} rows have a log-density below {limit:.4g}")


def scored(
    model: Any, selection: Selection, missing: Missing, added: tuple[str, ...]
) -> Iterator[tuple[Chunk, Array]]:
    """Chunks of rows and their log-densities; batches have all columns but those to be added."""
    fill = filler(model, selection.names) if missing is Missing.impute else None
    with progress("scoring", selection.table.n_rows) as tick:
        for chunk in read_rows(selection, missing, fill, without=added):
            log_p = np.empty(0)
            if len(chunk.X):
                log_p = model.score_samples(framed(chunk.X, selection.names))
            yield chunk, log_p
            tick(chunk.n_read)


def with_columns(batch: Any, columns: dict[str, NDArray[Any]]) -> Any:
    """Batch without old columns of these names, and with the new ones at its end."""
    pa = import_pyarrow()
    kept = [name for name in batch.schema.names if name not in columns]
    arrays = [*(batch.column(name) for name in kept), *(pa.array(v) for v in columns.values())]
    return pa.RecordBatch.from_arrays(arrays, names=[*kept, *columns])


def natural_limit(model: Any, false_alarms: float | None, seed: int) -> float:
    """Log-density below which a share of the model's own mass lies, or a detector's offset."""
    if false_alarms is None and hasattr(model, "offset_"):
        return float(model.offset_)
    share = 0.01 if false_alarms is None else false_alarms
    if hasattr(model, "hdr_level"):
        return float(model.hdr_level(1 - share, random_state=seed))
    if not hasattr(model, "sample"):
        raise DataError(
            f"{type(model).__name__} draws no samples to find a limit from; use --fraction or "
            "--threshold"
        )
    draws = framed(
        model.sample(N_DRAWS, random_state=seed), getattr(model, "feature_names_in_", None)
    )
    log_p = model.score_samples(draws)
    return float(weighted_quantile(log_p, np.ones_like(log_p), share))


def _lowest_share(model: Any, selection: Selection, missing: Missing, share: float) -> float:
    """Limit that has a share of the rows below it; eight bytes a row are kept."""
    parts = [log_p for _, log_p in scored(model, selection, missing, ())]
    scores = np.sort(np.concatenate([*parts, np.empty(0)]))
    if not len(scores):
        raise DataError(f"{selection.table.label} has no row without missing values")
    count = max(1, round(share * len(scores)))
    return float(scores[count]) if count < len(scores) else float("inf")


def _judged(chunk: Chunk, log_p: Array, low: NDArray[np.bool_], *, all_rows: bool) -> Any:
    columns: dict[str, NDArray[Any]] = {ROW: chunk.number, LOG_DENSITY: log_p}
    if all_rows:
        return with_columns(chunk.batch, columns | {ANOMALY: low.astype(np.int8)})
    return with_columns(chunk.batch, columns).filter(import_pyarrow().array(low))


def _listed(chunk: Chunk, log_p: Array, low: NDArray[np.bool_]) -> list[dict[str, Any]]:
    pairs = zip(chunk.number[low].tolist(), log_p[low].tolist(), strict=True)
    return [{ROW: row, LOG_DENSITY: value} for row, value in pairs]


def _tell_dropped(n: int) -> None:
    if n:
        note(f"{n} rows with missing values were dropped")


class _Nowhere:
    """Output that is not wanted."""

    def write(self, batch: Any) -> None:
        """Drop it."""


@contextmanager
def _target(output: str | None, *, json: bool) -> Iterator[Output | _Nowhere]:
    """Where rows go: a file, standard output, or nowhere where JSON takes its place."""
    if json and output == STANDARD:
        raise usage("--json and -o - would both write to standard output; name a file for rows")
    if json and output is None:
        yield _Nowhere()
        return
    if output not in (None, STANDARD):
        check_output(str(output))
    with open_sink(output or STANDARD) as sink:
        yield sink

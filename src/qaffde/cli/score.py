"""``qaffde score`` and ``qaffde anomalies``: log-densities of rows, batch by batch."""

from collections.abc import Iterator
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from typer import Option

from qaffde.cli.fit import note_missing
from qaffde.cli.inputs import load_model, open_data, rows_for_model
from qaffde.cli.options import (
    Columns,
    Data,
    Decimal,
    Encoding,
    Header,
    Json,
    Missing,
    MissingScore,
    Model,
    Seed,
)
from qaffde.cli.options import TableOut as Output
from qaffde.cli.output import note, print_facts, progress, usage
from qaffde.cli.sinks import open_sink
from qaffde.streams.blocks import Array, Block
from qaffde.streams.chunked import TableChunks
from qaffde.streams.names import framed_for
from qaffde.streams.table import DataError, import_pyarrow

LOG_DENSITY, ROW, ANOMALY = "log_density", "row", "anomaly"


def score(
    model: Model,
    data: Data,
    *,
    output: Output = None,
    columns: Columns = None,
    missing: MissingScore = Missing.error,
    header: Header = None,
    decimal: Decimal = None,
    encoding: Encoding = None,
    json: Json = False,
) -> None:
    """Write the rows of DATA with a column log_density.

    With --json and no -o, only a summary is printed.
    """
    density, total, low, high = load_model(model), 0.0, np.inf, -np.inf
    source = open_data(data, header=header, decimal=decimal, encoding=encoding)
    with open_sink(output, model, data, json=json) as write, source as table:
        rows = rows_for_model(table, density, columns, missing)
        for batch, log_p in scored(density, rows, LOG_DENSITY):
            write(with_columns(batch.table, {LOG_DENSITY: log_p}))
            total += float(log_p.sum())
            low, high = log_p.min(initial=low), log_p.max(initial=high)
    note_missing(rows)
    if json:
        facts = {
            "rows": rows.n_kept,
            "dropped": rows.n_read - rows.n_kept,
            "mean_log_density": total / rows.n_kept,
            "min_log_density": low,
            "max_log_density": high,
            "output": output,
        }
        print_facts(facts, as_json=True)


def anomalies(
    model: Model,
    data: Data,
    *,
    fraction: Annotated[
        float | None, Option(help="Call this share of DATA anomalies: the least likely rows.")
    ] = None,
    false_alarms: Annotated[
        float | None,
        Option(help="Share of the model's own mass that is called so; 0.01 by default."),
    ] = None,
    threshold: Annotated[
        float | None, Option(help="Log-density below which a row is an anomaly.")
    ] = None,
    all_rows: Annotated[
        bool, Option("--all", help="Write all rows, with a column anomaly of 0 and 1.")
    ] = False,
    output: Output = None,
    columns: Columns = None,
    missing: MissingScore = Missing.error,
    header: Header = None,
    decimal: Decimal = None,
    encoding: Encoding = None,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Write the rows of DATA where the density is low, with their number and log_density."""
    if sum(value is not None for value in (fraction, false_alarms, threshold)) > 1:
        raise usage("--fraction, --false-alarms and --threshold exclude each other; give one")
    for name, share in (("--fraction", fraction), ("--false-alarms", false_alarms)):
        if share is not None and not 0 < share < 1:
            raise usage(f"{name} must lie between 0 and 1, got {share}")
    found: list[dict[str, Any]] = []
    density, n_anomalies, limit = load_model(model), 0, threshold
    source = open_data(data, header=header, decimal=decimal, encoding=encoding)
    with open_sink(output, model, data, json=json) as write, source as table:
        rows = rows_for_model(table, density, columns, missing)
        if fraction is not None:
            limit = _lowest_share(density, rows, fraction)
        elif limit is None:
            limit = natural_limit(density, false_alarms, seed)
        for batch, log_p in scored(density, rows, ROW, LOG_DENSITY, *([ANOMALY] * all_rows)):
            low, number = log_p < limit, np.array(batch.number)
            flag = {ANOMALY: low.astype(np.int8)} if all_rows else {}
            judged = with_columns(batch.table, {ROW: number, LOG_DENSITY: log_p, **flag})
            write(judged if all_rows else judged.filter(import_pyarrow().array(low)))
            n_anomalies += int(low.sum())
            if json and output is None:
                pairs = zip(number[low].tolist(), log_p[low].tolist(), strict=True)
                found += [{ROW: row, LOG_DENSITY: p} for row, p in pairs]
    note_missing(rows)
    if json:
        facts: dict[str, Any] = {
            "rows": rows.n_kept,
            "dropped": rows.n_read - rows.n_kept,
            "threshold": limit,
            "anomalies": n_anomalies,
            "output": output,
        }
        print_facts(facts | ({"found": found} if output is None else {}), as_json=True)
    else:
        note(f"{n_anomalies:,} of {rows.n_kept:,} rows have a log-density below {limit:.4g}")


def scored(model: Any, rows: TableChunks, *added: str) -> Iterator[tuple[Block, Array]]:
    """Batches of rows and their log-densities; with all columns but those to be added."""
    table = rows.table
    others = [name for name in table.names if name not in added]
    with progress() as report:
        for batch in rows.batches(*others):
            X = batch.rows
            yield batch, model.score_samples(framed_for(model, X)) if len(X) else np.empty(0)
            report("scoring", rows.n_read, table.n_rows)


def with_columns(batch: Any, columns: dict[str, NDArray[Any]]) -> Any:
    """Batch without old columns of these names, and with the new ones at its end."""
    kept = {name: batch[name] for name in batch.schema.names if name not in columns}
    return import_pyarrow().RecordBatch.from_pydict(kept | columns)


def natural_limit(model: Any, false_alarms: float | None, seed: int) -> float:
    """Log-density below which a share of the model's own mass lies, or a detector's offset."""
    if false_alarms is None and hasattr(model, "offset_"):
        return float(model.offset_)
    if not hasattr(model, "hdr_level"):
        raise DataError(
            f"{type(model).__name__} draws no samples to find a limit from; use --fraction or "
            "--threshold"
        )
    return float(model.hdr_level(1 - (false_alarms or 0.01), random_state=seed))


def _lowest_share(model: Any, rows: TableChunks, share: float) -> float:
    """Limit that has a share of the rows below it; eight bytes a row are kept."""
    scores = np.sort(np.concatenate([log_p for _, log_p in scored(model, rows)]))
    count = max(1, round(share * len(scores)))
    return float(scores[count]) if count < len(scores) else float("inf")

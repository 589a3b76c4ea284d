"""``qaffde score`` and ``qaffde anomalies``: log-densities of rows, batch by batch."""

from collections.abc import Iterator
from functools import cached_property
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
from qaffde.streams.names import column_names, framed_for
from qaffde.streams.table import DataError, import_pyarrow

LOG_DENSITY, ROW, ANOMALY, REASON = "log_density", "row", "anomaly", "reason"
ADDED = ROW, LOG_DENSITY, ANOMALY, REASON
TOGETHER = "no column alone"
N_DRAWN = 1000
QUANTILES = 0.01, 0.1, 0.5, 0.9, 0.99


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
    """Write the rows of DATA with a column log_density, and a summary on standard error.

    With --json and no -o, only a summary is printed.
    """
    density, scores = load_model(model), []
    source = open_data(data, header=header, decimal=decimal, encoding=encoding)
    with open_sink(output, model, data, json=json) as write, source as table:
        rows = rows_for_model(table, density, columns, missing)
        for batch, log_p in scored(density, rows, LOG_DENSITY):
            write(with_columns(batch.table, {LOG_DENSITY: log_p}))
            scores.append(log_p)
    note_missing(rows)
    log_p = np.concatenate(scores)
    possible = log_p[log_p > -np.inf]
    levels = np.quantile(possible, QUANTILES).tolist() if len(possible) else []
    quantiles = dict(zip(QUANTILES, levels, strict=bool(levels)))
    if json:
        facts = {
            "rows": rows.n_kept,
            "dropped": rows.n_read - rows.n_kept,
            "impossible": len(log_p) - len(possible),
            "mean_log_density": log_p.mean(),
            "min_log_density": log_p.min(),
            "max_log_density": log_p.max(),
            "quantiles": quantiles,
            "output": output,
        }
        print_facts(facts, as_json=True)
        return
    parts = ", ".join(f"{100 * level:g} % {value:.4g}" for level, value in quantiles.items())
    note(
        f"{len(log_p):,} rows, {len(log_p) - len(possible):,} of them impossible; log-density: "
        f"mean {log_p.mean():.4g}; quantiles of the possible {parts}"
    )


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
    """Write the rows of DATA where the density is low, the least likely first, and why.

    A reason names columns that are unlikely given the others. With --all, rows keep their order.
    """
    if sum(value is not None for value in (fraction, false_alarms, threshold)) > 1:
        raise usage("--fraction, --false-alarms and --threshold exclude each other; give one")
    for name, share in (("--fraction", fraction), ("--false-alarms", false_alarms)):
        if share is not None and not 0 < share < 1:
            raise usage(f"{name} must lie between 0 and 1, got {share}")
    density, limit = load_model(model), threshold
    source, kept = open_data(data, header=header, decimal=decimal, encoding=encoding), []
    reasons = Reasons(density, seed) if not (output or "").endswith((".npy", ".npz")) else None
    with open_sink(output, model, data, json=json) as write, source as table:
        rows = rows_for_model(table, density, columns, missing)
        if fraction is not None:
            limit = _lowest_share(density, rows, fraction)
        elif limit is None:
            limit = natural_limit(density, false_alarms, seed)
        for batch, log_p in scored(density, rows, *ADDED):
            low = log_p < limit
            added = {ROW: np.array(batch.number), LOG_DENSITY: log_p}
            added |= {ANOMALY: low.astype(np.int8)} if all_rows else {}
            added |= {} if reasons is None else reasons(batch.rows, log_p, low)
            judged = with_columns(batch.table, added)
            kept.append(judged.filter(import_pyarrow().array(low)))
            write(judged if all_rows else judged.slice(0, 0))
        found = import_pyarrow().Table.from_batches(kept).sort_by(LOG_DENSITY)
        for batch in [] if all_rows else found.to_batches():
            write(batch)
    note_missing(rows)
    if json:
        facts: dict[str, Any] = {
            "rows": rows.n_kept,
            "dropped": rows.n_read - rows.n_kept,
            "threshold": limit,
            "anomalies": len(found),
            "output": output,
        }
        own = found.select([name for name in ADDED if name in found.column_names])
        print_facts(facts | ({"found": own.to_pylist()} if output is None else {}), as_json=True)
    else:
        note(f"{len(found):,} of {rows.n_kept:,} rows have a log-density below {limit:.4g}")


class Reasons:
    """Columns of a row that are unlikely given its others, by exact conditionals.

    log p(x_k | rest) = log p(x) − log p(rest) is compared with that of draws of the model: a
    column is named where it is below all but one draw of a hundred, with the nats by which it is
    below their median.
    """

    def __init__(self, model: Any, seed: int) -> None:
        inner = getattr(model, "estimator_", model)
        self.model, self.seed = model if isinstance(inner, list) else inner, seed
        self.columns = column_names(model)

    @cached_property
    def usual(self) -> Array | None:
        """Lowest hundredth and median (2, d) for draws; None without the conditionals."""
        schema = getattr(self.model, "schema_", None)
        try:
            drawn = self.model.sample(N_DRAWN, random_state=self.seed)
            X = np.asarray(drawn) if schema is None else schema.encode(drawn)
            log_p = self.model.score_samples(framed_for(self.model, X))
            return np.quantile(self.conditionals(X, log_p), (0.01, 0.5), axis=0)
        except (AttributeError, ValueError):
            name = type(self.model).__name__
            note(f"{name} has no density of each column given all others, so no reasons")
            return None

    def conditionals(self, X: Array, log_p: Array) -> Array:
        """Log-density (n, d) of each column, given the others; infinite where there is none."""
        found = np.empty_like(X)
        for k in range(X.shape[1]):
            rest = X.copy()
            rest[:, k] = np.nan
            with np.errstate(invalid="ignore"):  # impossible for another column
                found[:, k] = log_p - self.model.score_samples(framed_for(self.model, rest))
        return np.where(np.isnan(X) | np.isnan(found), np.inf, found)

    def __call__(self, X: Array, log_p: Array, chosen: NDArray[np.bool_]) -> dict[str, Any]:
        """Column of reasons (n,) for those rows that are chosen, empty for others."""
        if len(self.columns) < 2 or self.usual is None:
            return {}
        reasons = np.full(len(X), "", dtype=object)
        if chosen.any():
            low, median = self.usual
            found = self.conditionals(X[chosen], log_p[chosen])
            reasons[chosen] = [self.worded(row < low, row - median) for row in found]
        return {REASON: import_pyarrow().array(reasons, type="string")}

    def worded(self, low: NDArray[np.bool_], nats: Array) -> str:
        """Columns that are low, the lowest first."""
        order = [k for k in np.argsort(nats) if low[k]]
        by = ["impossible" if np.isinf(nats[k]) else f"{nats[k]:.1f}" for k in order]
        named = (f"{self.columns[k]} ({value})" for k, value in zip(order, by, strict=True))
        return ", ".join(named) or TOGETHER


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

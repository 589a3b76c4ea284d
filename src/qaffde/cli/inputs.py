"""Input of commands: tables from files or standard input, and models."""

import math
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from qaffde.cli.output import usage
from qaffde.streams.blocks import Array
from qaffde.streams.chunked import TableChunks, pick_columns
from qaffde.streams.files import open_table
from qaffde.streams.names import find_columns, framed_for, names_in
from qaffde.streams.table import DataError, Table

STANDARD = "-"


@contextmanager
def open_data(source: str, **text: Any) -> Iterator[Table]:
    """Table of a file, or of standard input, which is kept on the disk to be read twice.

    How `text` is read is said as in `open_table`.
    """
    if source != STANDARD:
        yield open_table(source, **text)
        return
    if sys.stdin is None:
        raise DataError("standard input is closed; name a file")
    pipe: Any = sys.stdin.buffer
    with tempfile.NamedTemporaryFile(prefix="qaffde-") as copy:
        while part := pipe.read1(1 << 16):  # one read at a time: a signal ends it
            copy.write(part)
        copy.flush()
        yield open_table(copy.name, label="standard input", **text)


def rows_for_model(
    table: Table, model: Any, columns: Sequence[str] | None, missing: Any
) -> TableChunks:
    """Rows of the columns that a model has: by name where both have names, else by place."""
    wanted, picked = names_in(model), columns or None
    have, _ = pick_columns(table, picked)
    if wanted is not None and table.named:
        lacking = sorted({*wanted} - {*have}, key=wanted.index)
        if not lacking:
            have = wanted
        elif picked is None:
            raise DataError(
                f"{table.label} lacks the model's columns {', '.join(lacking)}; say with columns= "
                "which ones stand for them"
            )
    if len(have) != model.n_features_in_:
        raise DataError(
            f"the model has {model.n_features_in_} columns and {table.label} has {len(have)}; "
            "pick them with columns="
        )
    schema = getattr(model, "schema_", None)
    if missing == "impute" and not hasattr(model, "impute"):
        raise DataError(
            f"{type(model).__name__} has no conditional mean to fill gaps with; use missing=drop"
        )

    def fill(rows: Array) -> Array:
        filled = model.impute(framed_for(model, rows), method="mean")
        return np.asarray(filled) if schema is None else schema.encode(filled)

    missing = fill if missing == "impute" else missing
    return TableChunks(table, have, missing=missing, schema=schema)


def load_model(path: Path, *needs: str) -> Any:
    """Fitted estimator of a file, with the methods that are needed."""
    if path.is_dir() or not path.exists():
        raise DataError(f"{path} is a folder" if path.exists() else f"{path} does not exist")
    from qaffde import load
    from qaffde.estimators.recipes import fitted

    model = load(path)
    if not fitted(model):
        raise DataError(f"{path} holds a {type(model).__name__} that was not fitted")
    for need in ("score_samples", *needs):
        if not hasattr(model, need):
            raise DataError(f"{path} holds a {type(model).__name__}, which has no {need}")
    return model


def parse_values(
    model: Any, texts: Sequence[str], names: Sequence[str], wanted: str, *, several: bool = False
) -> dict[int, list[Any]]:
    """Values by number of column, one or several, from texts such as ``height=1.6,1.8``.

    They are labels where a column of the model is a category. A message says what is `wanted`.
    """
    found: dict[int, list[Any]] = {}
    for text in texts:
        column, _, values = text.rpartition("=")
        columns = find_columns([column], names, "the model") if column else []
        parts = values.split(",") if several else [values]
        own = {j: [_value(model, j, part) for part in parts] for j in columns}
        if not own or any(None in given for given in own.values()):
            raise usage(f"{wanted}; got {text!r}")
        for j in own.keys() & found.keys():
            raise usage(f"the column {names[j]!r} has two values")
        found |= own
    return found


def _value(model: Any, column: int, text: str) -> Any:
    """A label or a finite number; None where a text is neither."""
    schema = getattr(model, "schema_", None)
    labels = () if schema is None else schema.columns[column].codes
    if labels:
        return next((label for label in labels if str(label) == text), text)
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None

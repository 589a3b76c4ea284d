"""Schemas of files: kinds of their columns, and batches of rows as numbers."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from qaffde.frames import LOOKED_AT_ROWS, as_frame, is_date
from qaffde.kinds import Category, Integer
from qaffde.schema import Schema, asked_kinds
from qaffde.streams.blocks import Array
from qaffde.streams.files import matrix
from qaffde.streams.names import framed
from qaffde.streams.table import DataError, Table, import_pyarrow


def infer_schema(table: Table, columns: Sequence[str], kinds: Any) -> Schema:
    """Schema of columns of a file, with kinds that are asked for as in `Schema.infer`.

    Text that is dates in ISO 8601 becomes days; other text, and bools, categories.
    """
    first = _dated(_first_rows(table, columns))
    try:
        schema = Schema.infer(first.to_pandas(), kinds)
    except ValueError as error:
        raise DataError(f"{table.label}: {error}") from None
    found, numbers = [], {*table.numeric}
    asked = asked_kinds(kinds, schema.names)
    for number, column in enumerate(schema.columns):
        if isinstance(column.kind, Integer) and column.dtype == "float64":
            column = replace(column, dtype="int64")  # of text, which was read as floats
        is_word = column.name not in numbers and isinstance(column.kind, Category)
        is_open = asked.get(number) in (None, Category())
        if is_word and is_open and first.num_rows >= LOOKED_AT_ROWS:
            column = replace(column, kind=Category(_labels(table, str(column.name))))
        found.append(column)
    return replace(schema, columns=tuple(found))


def _first_rows(table: Table, columns: Sequence[str]) -> Any:
    """Rows from the start, as a table of Arrow; numbers as floats."""
    held, n = [], 0
    for batch in table.read(columns, {*columns} & {*table.numeric}):
        held.append(batch)
        n += batch.num_rows
        if n >= LOOKED_AT_ROWS:
            break
    if not n:
        raise DataError(f"{table.label} has no rows")
    return import_pyarrow().Table.from_batches(held)


def _dated(table: Any) -> Any:
    """Columns of text as moments, where all of it are dates."""
    pa = import_pyarrow()
    for k, name in enumerate(table.column_names):
        column = table.column(k)
        if pa.types.is_string(column.type) and column.null_count < len(column):
            try:
                table = table.set_column(k, name, column.cast(pa.timestamp("us")))
            except pa.ArrowInvalid:
                continue
    return table


def _labels(table: Table, column: str) -> tuple[Any, ...]:
    """Different values of a column of a whole file, sorted."""
    seen: set[Any] = set()
    for batch in table.read([column], ()):
        seen |= set(batch.column(0).unique().to_pylist())
    return tuple(sorted(seen - {None}))


def encode_batch(schema: Schema | None, batch: Any, label: str, first: int = 0) -> Array:
    """Numbers (n, d) of a batch, by a schema of its columns if any; NaN where they are missing.

    Messages count rows from `first`.
    """
    if schema is None:
        return matrix(batch)
    pa, names = import_pyarrow(), [str(column.name) for column in schema.columns]
    table = pa.Table.from_batches([batch]).rename_columns(names)
    try:
        for k, column in enumerate(schema.columns):
            if not pa.types.is_string(table.column(k).type):
                continue
            if is_date(column.dtype):
                table = table.set_column(k, names[k], table.column(k).cast(pa.timestamp("us")))
            elif column.dtype.lower().startswith("bool"):
                table = table.set_column(k, names[k], _bools(table.column(k)))
        return schema.encode(table, first) if len(table) else np.empty((0, len(names)))
    except ValueError as error:  # of Arrow too
        raise DataError(f"{label}: {error}") from None


def _bools(words: Any) -> Any:
    """Text as bools; as it is where some of it is neither."""
    pa = import_pyarrow()
    import pyarrow.compute as pc

    lower = pc.utf8_lower(words)
    yes, no = (pc.is_in(lower, pa.array(own)) for own in (["true", "yes"], ["false", "no"]))
    found = pc.if_else(yes, True, pc.if_else(no, False, None))
    return found if found.null_count == words.null_count else words


def record_batch(rows: Any, names: Sequence[str]) -> Any:
    """Rows of an array or a data frame as a batch of Arrow."""
    frame = as_frame(framed(rows, names) if isinstance(rows, np.ndarray) else rows)
    return frame.to_arrow().combine_chunks().to_batches()[0]

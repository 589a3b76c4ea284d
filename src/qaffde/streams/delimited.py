"""Text with delimiters: CSV, TSV, and what looks like them."""

import csv
import io
import re
from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from qaffde.streams.table import (
    DataError,
    Table,
    clear_errors,
    import_pyarrow,
    made_names,
    shortened,
)

BLOCK_BYTES = 1 << 22
LOOKED_AT, LOOKED_AT_LINES, LOOKED_AT_RECORDS = 1 << 18, 20, 200
"""Bytes that tell delimiter, header and types; more where these are fewer lines, up to a limit."""
MAX_LOOKED_AT = 1 << 26
DELIMITERS = (",", "\t", ";", "|")
MISSING = frozenset(
    ("", ".", "?", "-", "#N/A", "#NA", "-NaN", "-nan", "N/A", "NA", "NULL", "NaN", "None", "n/a")
) | {"nan", "null"}
CELL_ERROR = re.compile(r"In CSV column #(\d+): (?:Row #(\d+): )?.*invalid value '(.*)'", re.S)

Records = Sequence[Sequence[str]]


def open_text(
    path: Path, label: str, delimiter: str | None = None, *, header: bool | None = None
) -> Table:
    """Table in text, also compressed; delimiter and header are found where not given."""
    pa = import_pyarrow()
    import pyarrow.csv as text

    kind = "text with delimiters"
    with clear_errors(label, kind):
        with pa.input_stream(str(path), compression="detect") as stream:
            start = read_lines(stream, label)
        look = take_look(start, label, delimiter)
        block_bytes = max(BLOCK_BYTES, 4 * max(map(len, start.split(b"\n"))))
        first, *rest = look.records
        named = has_header(first, rest) if header is None else header
        body = rest if named else look.records
        names = made_names(len(first))
        if named:
            names = [cell.strip() or made for cell, made in zip(first, names, strict=True)]
        numeric = [all(map(is_number, cells_of(body, j))) for j in range(len(names))]

    def read(columns: Sequence[int], floats: Collection[int], size: int) -> Iterator[Any]:
        kinds = [pa.float64() if j in floats else pa.string() for j in range(len(names))]
        types = {str(j): kind for j, kind in enumerate(kinds)}
        try:
            batches = text.open_csv(
                pa.input_stream(str(path), compression="detect"),
                text.ReadOptions(
                    use_threads=False,
                    block_size=block_bytes,
                    column_names=list(types),
                    skip_rows=look.n_blank,
                    skip_rows_after_names=int(named),
                ),
                text.ParseOptions(delimiter=look.delimiter, newlines_in_values=True),
                text.ConvertOptions(
                    column_types=types,
                    null_values=sorted(MISSING),
                    include_columns=[str(j) for j in columns],
                ),
            )
            for batch in batches:
                yield batch.rename_columns([names[j] for j in columns])
        except ValueError as error:
            raise _explained(error, label, names, look.n_blank) from None

    return Table(label, kind, names, numeric, read, None if body else 0, named)


def _explained(error: ValueError, label: str, names: Sequence[str], n_blank: int) -> ValueError:
    """Error that names the column and the value, where a cell is wrong."""
    found = CELL_ERROR.search(str(error))
    if found is None:
        return error
    column, row, value = found.groups()
    where = "" if row is None else f" in line {int(row) + n_blank}"
    return DataError(
        f"{label}: column {names[int(column)]!r} has {shortened(value, 60)!r}{where}, which is "
        "not a number; correct it, or leave the column out with columns="
    )


def is_number(cell: str) -> bool:
    """Whether a cell is a number."""
    try:
        float(cell)
    except ValueError:
        return False
    return cell.strip() not in MISSING


def cells_of(records: Records, column: int) -> list[str]:
    """Cells of a column that are not missing."""
    cells = [record[column].strip() for record in records if column < len(record)]
    return [cell for cell in cells if cell not in MISSING]


def has_header(first: Sequence[str], rest: Records) -> bool:
    """Whether the first record names the columns.

    It does where a column of numbers begins with a word, or where no cell is a number.
    """
    words = [not is_number(cell) and cell not in MISSING for cell in first]
    below = [cells_of(rest, j) for j in range(len(first))]
    return all(words) or any(
        word and cells and all(map(is_number, cells))
        for word, cells in zip(words, below, strict=True)
    )


class Look(NamedTuple):
    """Empty lines before the first record, the delimiter, and the first records."""

    n_blank: int
    delimiter: str
    records: list[list[str]]


def read_lines(stream: Any, label: str) -> bytes:
    """First whole lines of a stream: enough to tell what it holds, or all of it."""
    start = b""
    while start.count(b"\n") < LOOKED_AT_LINES and len(start) < MAX_LOOKED_AT:
        more = stream.read(max(LOOKED_AT, len(start)))
        if not more:
            return start
        start += more
    if b"\n" not in start:
        raise DataError(f"{label} has no line that ends within {len(start) >> 20} MB")
    return start[: start.rindex(b"\n") + 1]


def take_look(start: bytes, label: str, delimiter: str | None) -> Look:
    """Delimiter and first records of text that begins with some bytes.

    Examples
    --------
    >>> take_look(b"a;b" + bytes([10]) + b"1;2", "text", None)
    Look(n_blank=0, delimiter=';', records=[['a', 'b'], ['1', '2']])
    """
    try:
        text = start.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise DataError(f"{label} is not text in UTF-8, nor a format that is known") from None
    if "\0" in text:
        raise DataError(f"{label} is not text: it has a NUL character")
    lines = text.splitlines()
    n_blank = next((k for k, line in enumerate(lines) if line), len(lines))
    if n_blank == len(lines):
        raise DataError(f"{label} is empty")
    delimiter = delimiter or max(DELIMITERS, key=lines[n_blank].count)
    body = io.StringIO("\n".join(lines[n_blank:]), newline="")
    try:
        records = filter(None, csv.reader(body, delimiter=delimiter))
        return Look(n_blank, delimiter, list(islice(records, LOOKED_AT_RECORDS + 1)))
    except csv.Error as error:
        raise DataError(f"{label} cannot be read as text with delimiters: {error}") from None

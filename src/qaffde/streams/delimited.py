"""Text with delimiters: CSV, TSV, and what looks like them."""

import csv
import io
import re
from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from qaffde.extras import one_line
from qaffde.streams.table import DataError, Table, clear_errors, import_pyarrow, made_names

BLOCK_BYTES = 1 << 22
LOOKED_AT, LOOKED_AT_LINES, LOOKED_AT_RECORDS = 1 << 18, 20, 200
"""Bytes that tell delimiter, header and types; more where these are fewer lines, up to a limit."""
MAX_LOOKED_AT = 1 << 26
DELIMITERS = (",", "\t", ";", "|")
MISSING = frozenset(
    ("", ".", "?", "-", "#N/A", "#NA", "-NaN", "-nan", "N/A", "NA", "NULL", "NaN", "None", "n/a")
) | {"nan", "null"}
Records = Sequence[Sequence[str]]
CELL_ERROR = re.compile(r"In CSV column #(\d+): (?:Row #(\d+): )?.*invalid value '(.*)'", re.S)


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
        n_blank, delimiter, records = take_look(start, label, delimiter)
    block_bytes = max(BLOCK_BYTES, 4 * max(map(len, start.split(b"\n"))))
    first, made = records[0], made_names(len(records[0]))
    named = has_header(first, records[1:]) if header is None else header
    names = [cell.strip() or x for cell, x in zip(first, made, strict=True)] if named else made

    def read(columns: Sequence[str], floats: Collection[str], size: int) -> Iterator[Any]:
        types = {name: pa.float64() if name in floats else pa.string() for name in names}
        try:
            yield from text.open_csv(
                pa.input_stream(str(path), compression="detect"),
                text.ReadOptions(
                    use_threads=False,
                    block_size=block_bytes,
                    column_names=names,
                    skip_rows=n_blank,
                    skip_rows_after_names=int(named),
                ),
                text.ParseOptions(delimiter=delimiter, newlines_in_values=True),
                text.ConvertOptions(
                    column_types=types,
                    null_values=sorted(MISSING),
                    strings_can_be_null=True,
                    include_columns=columns,
                ),
            )
        except ValueError as error:
            raise _explained(error, label, names, n_blank) from None

    words = columns_of_words(records[named:])
    numeric = [name for j, name in enumerate(names) if j not in words]
    return Table(label, kind, names, numeric, read, None if records[named:] else 0, named)


def _explained(error: ValueError, label: str, names: Sequence[str], n_blank: int) -> ValueError:
    """Error that names the column and the value, where a cell is wrong."""
    found = CELL_ERROR.search(str(error))
    if found is None:
        return error
    column, row, value = found.groups()
    where = "" if row is None else f" in line {int(row) + n_blank}"
    return DataError(
        f"{label}: column {names[int(column)]!r} has {one_line(value, 60)!r}{where}, which is "
        "not a number; correct it, or leave the column out with columns="
    )


def is_number(cell: str) -> bool:
    """Whether a cell is a number."""
    try:
        float(cell)
    except ValueError:
        return False
    return not is_missing(cell)


def is_missing(cell: str) -> bool:
    """Whether a cell has no value."""
    return cell.strip() in MISSING


def columns_of_words(records: Records) -> set[int]:
    """Numbers of columns with a cell that is neither a number nor missing."""
    cells = (cell for record in records for cell in enumerate(record))
    return {j for j, cell in cells if not is_number(cell) and not is_missing(cell)}


def has_header(first: Sequence[str], rest: Records) -> bool:
    """Whether the first record names the columns.

    It does where a column of numbers begins with a word, or where no cell is a number.
    """
    words, below = columns_of_words([first]), columns_of_words(rest)
    filled = {j for record in rest for j, cell in enumerate(record) if not is_missing(cell)}
    return len(words) == len(first) or not (words & filled) <= below


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


def take_look(start: bytes, label: str, delimiter: str | None) -> tuple[int, str, list[list[str]]]:
    """Empty lines before the first record, delimiter and first records of some text.

    Examples
    --------
    >>> take_look(b"a;b" + bytes([10]) + b"1;2", "text", None)
    (0, ';', [['a', 'b'], ['1', '2']])
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
    records = filter(None, csv.reader(body, delimiter=delimiter))
    return n_blank, delimiter, list(islice(records, LOOKED_AT_RECORDS + 1))

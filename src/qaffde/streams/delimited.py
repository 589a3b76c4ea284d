"""Text with delimiters: CSV, TSV, and what looks like them."""

import csv
import io
import re
from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from qaffde.streams.arrow import import_pyarrow
from qaffde.streams.table import DataError, Table, clear_errors, made_names, shortened

BLOCK_BYTES = 1 << 22
LOOKED_AT = 1 << 18
"""Bytes that tell delimiter, header and types."""
LOOKED_AT_RECORDS = 200
DELIMITERS = (",", "\t", ";", "|")
MISSING = frozenset(
    ("", ".", "?", "-", "#N/A", "#NA", "-NaN", "-nan", "N/A", "NA", "NULL", "NaN", "None", "n/a")
) | {"nan", "null"}
CELL_ERROR = re.compile(r"In CSV column #(\d+): (?:Row #(\d+): )?.*invalid value '(.*)'", re.S)

Records = Sequence[Sequence[str]]


class DelimitedTable(Table):
    """A table in text, also compressed.

    Parameters
    ----------
    path : Path
    label : str
    delimiter : str, optional
        Found where it is not given.
    header : bool, optional
        Whether the first record has names; found where it is not given.
    """

    kind = "text with delimiters"

    def __init__(
        self, path: Path, label: str, delimiter: str | None = None, *, header: bool | None = None
    ) -> None:
        self.path = path
        with clear_errors(label, self.kind):
            with self._stream() as stream:
                self.look = take_look(stream.read(LOOKED_AT), label, delimiter)
            first, *rest = self.look.records
            self.header = has_header(first, rest) if header is None else header
            body = rest if self.header else self.look.records
            names = made_names(len(first))
            if self.header:
                names = [cell.strip() or made for cell, made in zip(first, names, strict=True)]
            numeric = [all(map(is_number, cells_of(body, j))) for j in range(len(names))]
        size, n_rows = path.stat().st_size, None if body else 0
        super().__init__(label, names, numeric, size, named=self.header, n_rows=n_rows)

    def _stream(self) -> Any:
        return import_pyarrow().input_stream(str(self.path), compression="detect")

    def _read(self, columns: Sequence[int], floats: Collection[int]) -> Iterator[Any]:
        names = [self.names[j] for j in columns]
        try:
            for batch in self._reader(columns, floats):
                yield batch.rename_columns(names)
        except ValueError as error:
            raise self._explained(error) from None

    def _reader(self, columns: Sequence[int], floats: Collection[int]) -> Any:
        pa = import_pyarrow()
        import pyarrow.csv as text

        kinds = [pa.float64() if j in floats else pa.string() for j in range(len(self.names))]
        types = {str(j): kind for j, kind in enumerate(kinds)}
        return text.open_csv(
            self._stream(),
            text.ReadOptions(
                use_threads=False,
                block_size=BLOCK_BYTES,
                column_names=list(types),
                skip_rows=self.look.n_blank,
                skip_rows_after_names=int(self.header),
            ),
            text.ParseOptions(delimiter=self.look.delimiter, newlines_in_values=True),
            text.ConvertOptions(
                column_types=types,
                null_values=sorted(MISSING),
                include_columns=[str(j) for j in columns],
            ),
        )

    def _explained(self, error: ValueError) -> ValueError:
        """Error that names the column and the value, where a cell is wrong."""
        found = CELL_ERROR.search(str(error))
        if found is None:
            return error
        column, row, value = found.groups()
        where = "" if row is None else f" in line {int(row) + self.look.n_blank}"
        return DataError(
            f"{self.label}: column {self.names[int(column)]!r} has {shortened(value, 60)!r}"
            f"{where}, which is not a number; correct it, or leave the column out with columns="
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


def take_look(start: bytes, label: str, delimiter: str | None) -> Look:
    """Delimiter and first records of text that begins with some bytes.

    Examples
    --------
    >>> take_look(b"a;b" + bytes([10]) + b"1;2", "text", None)
    Look(n_blank=0, delimiter=';', records=[['a', 'b'], ['1', '2']])
    """
    if len(start) == LOOKED_AT and b"\n" in start:
        start = start[: start.rindex(b"\n") + 1]
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

"""Text with delimiters: CSV, TSV, and what looks like them."""

import csv
import io
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qaffde.cli.data.table import DataError, Table, clear_errors, import_pyarrow, made_names
from qaffde.files.format import quoted

BLOCK_BYTES = 1 << 22
LOOKED_AT = 1 << 18
"""Bytes that tell delimiter, header and types."""
LOOKED_AT_RECORDS = 200
DELIMITERS = (",", "\t", ";", "|")
MISSING = frozenset(
    ("", ".", "?", "-", "#N/A", "#NA", "-NaN", "-nan", "N/A", "NA", "NULL", "NaN", "None", "n/a")
) | {"nan", "null"}
CELL_ERROR = re.compile(r"In CSV column #(\d+): (?:Row #(\d+): )?.*invalid value '(.*)'", re.S)


@dataclass(frozen=True)
class Look:
    """What the first records say.

    Parameters
    ----------
    n_blank : int
        Empty lines before the first record.
    delimiter : str
    records : list of lists of str
    """

    n_blank: int
    delimiter: str
    records: list[list[str]]

    @property
    def has_header(self) -> bool:
        """Whether the first record names the columns.

        It does where a column of numbers begins with a word, or where no cell is a number.
        """
        first, *rest = self.records
        words = [not is_number(cell) and cell not in MISSING for cell in first]
        columns = range(len(first))
        return any(words[j] and numeric_column(rest, j) for j in columns) or all(words)


def is_number(cell: str) -> bool:
    """Whether a cell is a number."""
    try:
        float(cell)
    except ValueError:
        return False
    return cell.strip() not in MISSING


def numeric_column(records: Sequence[Sequence[str]], column: int) -> bool:
    """Whether a column has numbers, and nothing else but gaps."""
    cells = [record[column].strip() for record in records if column < len(record)]
    found = [is_number(cell) for cell in cells if cell not in MISSING]
    return bool(found) and all(found)


class DelimitedTable(Table):
    """A table in text.

    Parameters
    ----------
    path : Path
    label : str
    delimiter : str, optional
        Found where it is not given.
    header : bool, optional
        Whether the first record has names; found where it is not given.
    """

    def __init__(
        self, path: Path, label: str, delimiter: str | None = None, *, header: bool | None = None
    ) -> None:
        with clear_errors(label, "text with delimiters"):
            self.path = path
            self.look = look = take_look(self._start(), label, delimiter)
            self.header = look.has_header if header is None else header
            first, *rest = look.records
            body = rest if self.header else look.records
            names = made_names(len(first))
            if self.header:
                names = [cell.strip() or made for cell, made in zip(first, names, strict=True)]
            numeric = [numeric_column(body, j) or empty_column(body, j) for j in range(len(names))]
        n_rows = None if body else 0
        size = path.stat().st_size
        super().__init__(label, names, numeric, named=self.header, n_rows=n_rows, n_bytes=size)

    def _start(self) -> bytes:
        with self._stream() as stream:
            start: bytes = stream.read(LOOKED_AT)
        return start

    def _stream(self) -> Any:
        return import_pyarrow().input_stream(str(self.path), compression="detect")

    def read(self, columns: Sequence[int], floats: Collection[int]) -> Iterator[Any]:
        """Record batches of some columns; see :class:`Table`."""
        pa = import_pyarrow()
        import pyarrow.csv as text

        with self._explaining():
            types = {
                str(j): pa.float64() if j in floats else pa.string()
                for j in range(len(self.names))
            }
            reader = text.open_csv(
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
        names = [self.names[j] for j in columns]
        while (batch := self._next(reader)) is not None:
            yield pa.RecordBatch.from_arrays(batch.columns, names=names)

    def _next(self, reader: Any) -> Any:
        with self._explaining():
            return next(reader, None)

    @contextmanager
    def _explaining(self) -> Iterator[None]:
        with clear_errors(self.label, "text with delimiters"):
            try:
                yield
            except ValueError as error:
                raise self._explained(error) from None

    def _explained(self, error: ValueError) -> ValueError:
        """Error that names the column and the value, where a cell is wrong."""
        found = CELL_ERROR.search(str(error))
        if found is None:
            return error
        column, row, value = found.groups()
        where = "" if row is None else f" in line {int(row) + self.look.n_blank}"
        return DataError(
            f"{self.label}: column {self.names[int(column)]!r} has {quoted(value)!r}{where}, "
            "which is no number; mend it, or leave the column out with --columns"
        )


def empty_column(records: Sequence[Sequence[str]], column: int) -> bool:
    """Whether a column has nothing but gaps."""
    return all(record[column].strip() in MISSING for record in records if column < len(record))


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
        raise DataError(f"{label} is no text in UTF-8, nor a format that is known") from None
    if "\0" in text:
        raise DataError(f"{label} is no text: it has a NUL character")
    lines = text.splitlines()
    n_blank = next((k for k, line in enumerate(lines) if line), len(lines))
    if n_blank == len(lines):
        raise DataError(f"{label} is empty")
    delimiter = delimiter or max(DELIMITERS, key=lines[n_blank].count)
    body = io.StringIO("\n".join(lines[n_blank:]), newline="")
    records = []
    try:
        for record in csv.reader(body, delimiter=delimiter):
            if record:
                records.append(record)
            if len(records) > LOOKED_AT_RECORDS:
                break
    except csv.Error as error:
        raise DataError(f"{label} cannot be read as text with delimiters: {error}") from None
    return Look(n_blank, delimiter, records)

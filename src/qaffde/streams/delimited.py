"""Text with delimiters: CSV, TSV, and what looks like them."""

import codecs
import csv
import io
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
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
BLANK, SIGN = "[ \u00a0\u202f]*", "[$€£¥₹₩₽₺₫₴₦₱฿%]"
Records = Sequence[Sequence[str]]
NOT_UTF8 = "is not text in UTF-8, nor a format that is known; say encoding=latin-1, cp1252, ..."
CELL_ERROR = re.compile(r"In CSV column #(\d+): (?:Row #(\d+): )?.*invalid value '(.*)'", re.S)


@dataclass(frozen=True)
class Numerals:
    """How numbers are written: with a point or a comma, and with signs of money and thousands.

    Examples
    --------
    >>> [Numerals(",").reads(cell) for cell in ("€ 1.234,5", "-$1'000", "1.5", "5 %")]
    [True, True, False, True]
    """

    decimal: str = "."

    def __post_init__(self) -> None:
        if self.decimal not in (".", ","):
            raise DataError(f"the decimal sign is . or , and not {self.decimal!r}")

    @cached_property
    def pattern(self) -> str:
        """Regular expression of numbers, for Python and for Arrow."""
        point, other = re.escape(self.decimal), "," if self.decimal == "." else "."
        front = f"(?:[+-]?{BLANK}{SIGN}?|{SIGN}{BLANK}[+-])"
        whole = f"(?:[0-9]{{1,3}}(?:[{other}'’ \u00a0\u202f][0-9]{{3}})+|[0-9]+)"
        number = f"(?:{whole}(?:{point}[0-9]*)?|{point}[0-9]+)"
        return f"^{BLANK}{front}{BLANK}{number}{BLANK}{SIGN}?{BLANK}$"

    def is_plain(self, cell: str) -> bool:
        """Whether a cell is a number without other signs."""
        try:
            float(cell if self.decimal == "." else cell.translate(str.maketrans(".,", ",.")))
        except ValueError:
            return False
        return not is_missing(cell)

    def reads(self, cell: str) -> bool:
        """Whether a cell is a number."""
        return self.is_plain(cell) or re.search(self.pattern, cell) is not None

    def numbers(self, cells: Any, name: str, label: str) -> Any:
        """Column of text in Arrow as floats."""
        import pyarrow.compute as pc

        wrong = cells.filter(pc.invert(pc.match_substring_regex(cells, self.pattern))).drop_null()
        if len(wrong):
            raise _no_number(label, name, wrong[0].as_py())
        digits = pc.replace_substring_regex(cells, f"[^0-9{self.decimal}-]", "")
        return pc.replace_substring(digits, ",", ".").cast("float64")


def open_text(
    path: Path,
    label: str,
    delimiter: str | None = None,
    *,
    header: bool | None = None,
    decimal: str | None = None,
    encoding: str | None = None,
) -> Table:
    """Table in text, also compressed; delimiter and header are found where not given."""
    pa = import_pyarrow()
    import pyarrow.csv as text

    kind, numerals = "text with delimiters", Numerals(decimal or ".")
    try:
        codecs.lookup(encoding or "utf-8")
    except LookupError:
        raise DataError(f"{encoding!r} is no encoding; take utf-8, latin-1, cp1252, ...") from None

    def stream() -> Any:
        source = pa.input_stream(str(path), compression="detect")
        return (
            source if encoding is None else pa.transcoding_input_stream(source, encoding, "utf8")
        )

    with clear_errors(label, kind):
        with stream() as source:
            start = read_lines(source, label)
        n_blank, delimiter, records = take_look(start, label, delimiter)
    block_bytes = max(BLOCK_BYTES, 4 * max(map(len, start.split(b"\n"))))
    first, made = records[0], made_names(len(records[0]))
    named = has_header(first, records[1:], numerals) if header is None else header
    names = [cell.strip() or x for cell, x in zip(first, made, strict=True)] if named else made
    records = records[named:]
    words = columns_of_words(records, numerals)
    cells = [(names[j], cell) for row in records for j, cell in enumerate(row) if j not in words]
    signed = {
        name: cell for name, cell in cells if not (numerals.is_plain(cell) or is_missing(cell))
    }
    if decimal is None:
        _refuse_commas(records, names, label, delimiter)

    def blocks(columns: Sequence[str], floats: Collection[str]) -> Iterator[Any]:
        return text.open_csv(
            stream(),
            text.ReadOptions(
                use_threads=False,
                block_size=block_bytes,
                column_names=names,
                skip_rows=n_blank,
                skip_rows_after_names=int(named),
            ),
            text.ParseOptions(delimiter=delimiter, newlines_in_values=True),
            text.ConvertOptions(
                column_types={n: pa.float64() if n in floats else pa.string() for n in names},
                null_values=sorted(MISSING),
                strings_can_be_null=True,
                include_columns=columns,
                decimal_point=numerals.decimal,
            ),
        )

    def read(columns: Sequence[str], floats: Collection[str], size: int) -> Iterator[Any]:
        n_done = 0
        while True:
            try:
                plain = {*floats} - signed.keys()
                for batch in islice(blocks(columns, plain), n_done, None):
                    own = dict(zip(columns, batch.columns, strict=True))
                    for name in {*floats} & own.keys() & signed.keys():
                        own[name] = numerals.numbers(own[name], name, label)
                    yield pa.RecordBatch.from_pydict(own)
                    n_done += 1
                return
            except DataError:
                raise
            except ValueError as error:
                name, cell = _wrong_cell(error, names)
                if name in signed or not numerals.reads(cell):
                    raise _explained(error, label, names, n_blank) from None
                signed[name] = cell  # the first cell of the column with other signs

    numeric = [name for j, name in enumerate(names) if j not in words]
    return Table(label, kind, names, numeric, read, None if records else 0, named, signed)


def _refuse_commas(records: Records, names: Sequence[str], label: str, delimiter: str) -> None:
    """Reject cells whose comma may be a decimal sign, or one of thousands."""
    by_point, by_comma = (columns_of_words(records, Numerals(sign)) for sign in ".,")
    for row in records:
        for j, cell in enumerate(row):
            is_open = j in by_point or delimiter != ","
            if "," in cell and j not in by_comma and is_open:
                raise DataError(
                    f"{label}: column {names[j]!r} has {one_line(cell, 60)!r}; if its comma is "
                    "the decimal sign, say decimal=, and otherwise decimal=."
                )


def _wrong_cell(error: ValueError, names: Sequence[str]) -> tuple[str, str]:
    """Column and value of a cell that is no number."""
    found = CELL_ERROR.search(str(error))
    return ("", "") if found is None else (names[int(found[1])], found[3])


def _explained(error: ValueError, label: str, names: Sequence[str], n_blank: int) -> ValueError:
    """Error that names the column and the value, where a cell is wrong."""
    found = CELL_ERROR.search(str(error))
    if found is None:
        return DataError(f"{label} {NOT_UTF8}") if "invalid UTF8" in str(error) else error
    column, row, value = found.groups()
    where = "" if row is None else f" in line {int(row) + n_blank}"
    return _no_number(label, names[int(column)], value, where)


def _no_number(label: str, name: str, cell: str, where: str = "") -> DataError:
    """Error of a cell in a column of numbers."""
    comma = " (if its comma is the decimal sign, say decimal=,)" if "," in cell else ""
    return DataError(
        f"{label}: column {name!r} has {one_line(cell, 60)!r}{where}, which is not a number"
        f"{comma}; correct it, or leave the column out with columns="
    )


def is_missing(cell: str) -> bool:
    """Whether a cell has no value."""
    return cell.strip() in MISSING


def columns_of_words(records: Records, numerals: Numerals) -> set[int]:
    """Numbers of columns with a cell that is neither a number nor missing."""
    cells = (cell for record in records for cell in enumerate(record))
    return {j for j, cell in cells if not numerals.reads(cell) and not is_missing(cell)}


def has_header(first: Sequence[str], rest: Records, numerals: Numerals) -> bool:
    """Whether the first record names the columns.

    It does where a column of numbers begins with a word, or where no cell is a number.
    """
    words, below = (columns_of_words(part, numerals) for part in ([first], rest))
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
        raise DataError(f"{label} {NOT_UTF8}") from None
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

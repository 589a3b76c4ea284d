"""Writing tables, batch by batch, into a file that appears in one piece."""

import csv
import io
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy

from qaffde.cli.inputs import STANDARD
from qaffde.cli.output import check_output, usage
from qaffde.streams.files import SUFFIXES, holds_numbers, matrix
from qaffde.streams.table import DataError, import_pyarrow

Sink = Callable[[Any], None]
WRITTEN = (".csv", ".tsv", ".parquet", ".pq", ".arrow", ".feather", ".npy", ".npz")


class NumpyWriter:
    """One array of all rows or, zipped, one for each column; rows wait beside the file."""

    def __init__(self, file: BinaryIO, schema: Any, *, zipped: bool) -> None:
        words = [f.name for f in schema if not (holds_numbers(f.type) or f.type == "bool")]
        if words:
            raise DataError(
                f"arrays hold numbers only, and {', '.join(words)} are none; write CSV, Parquet "
                "or Arrow"
            )
        self.file, self.names, self.zipped = file, schema.names, zipped
        self.rows = tempfile.TemporaryFile(dir=Path(file.name).parent)  # noqa: SIM115 - closed in close

    def write_batch(self, batch: Any) -> None:
        """Add rows."""
        self.rows.write(matrix(batch).tobytes())

    def close(self) -> None:
        """Write the array, or the archive."""
        with self.rows:
            rows = np.memmap(self.rows) if self.rows.tell() else np.empty(0)
            table = rows.view(np.float64).reshape(-1, len(self.names))
            if not self.zipped:
                npy.write_array(self.file, table, allow_pickle=False)
                return
            with zipfile.ZipFile(self.file, "w") as archive:
                for name, column in zip(self.names, table.T, strict=True):
                    with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                        npy.write_array(member, column, allow_pickle=False)


def _writer(file: BinaryIO, kind: str, schema: Any) -> Any:
    """Object with the methods ``write_batch`` and ``close``, as pyarrow's writers have them."""
    pa = import_pyarrow()
    import pyarrow.csv as text
    import pyarrow.parquet as parquet

    match kind:
        case "npy" | "npz":
            return NumpyWriter(file, schema, zipped=kind == "npz")
        case "parquet":
            return parquet.ParquetWriter(file, schema)
        case "arrow":
            return pa.ipc.new_file(file, schema)
    delimiter = "\t" if kind == "tsv" else ","
    header = io.StringIO()  # names quoted only where they need it
    csv.writer(header, delimiter=delimiter, lineterminator="\n").writerow(schema.names)
    file.write(header.getvalue().encode())
    options = text.WriteOptions(include_header=False, delimiter=delimiter)
    return text.CSVWriter(file, schema, write_options=options)


@contextmanager
def open_sink(target: str | None, *inputs: object, json: bool = False) -> Iterator[Sink]:
    """Function that adds record batches to a table; the first one says what its columns are.

    The suffix of `target` says the format; the file appears when it is complete, and replaces none
    of the `inputs`. "-" and None are CSV on standard output, unless `json` goes there.
    """
    if json and target == STANDARD:
        raise usage("--json and -o - would both write to standard output; name a file for rows")
    if json and target is None:
        yield lambda batch: None
        return
    with _open(target or STANDARD, *inputs) as (file, kind):
        writer: Any = None

        def write(batch: Any) -> None:
            nonlocal writer
            writer = writer or _writer(file, kind, batch.schema)
            if batch.num_rows:
                writer.write_batch(batch)

        yield write
        if writer is not None:
            writer.close()


@contextmanager
def _open(target: str, *inputs: object) -> Iterator[tuple[BinaryIO, str]]:
    """File to write, and its format."""
    if target == STANDARD:
        if sys.stdout is None:
            raise DataError("standard output is closed; name a file with -o")
        yield sys.stdout.buffer, "csv"
        sys.stdout.buffer.flush()
        return
    from qaffde.files.format import replacing

    check_output(target, *inputs)
    path = Path(target).resolve()
    if path.suffix.lower() not in WRITTEN:
        raise DataError(f"{target}: the suffix says no format; choose one of {', '.join(WRITTEN)}")
    with replacing(path) as file:
        yield file, SUFFIXES[path.suffix.lower()]

"""Writing tables, batch by batch, into a file that appears in one piece."""

import csv
import io
import os
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy

from qaffde.cli.errors import usage
from qaffde.cli.inputs import STANDARD
from qaffde.files.atomic import replacing
from qaffde.streams.arrow import holds_numbers, import_pyarrow, matrix
from qaffde.streams.files import SUFFIXES
from qaffde.streams.table import DataError

Sink = Callable[[Any], None]
WRITTEN = (".csv", ".tsv", ".parquet", ".pq", ".arrow", ".feather", ".npy", ".npz")


class NumpyWriter:
    """One array of all columns; its header is written again once the rows are counted."""

    def __init__(self, file: Any, schema: Any) -> None:
        words = [f.name for f in schema if not (holds_numbers(f.type) or f.type == "bool")]
        if words:
            raise DataError(
                f"arrays hold numbers only, and {', '.join(words)} are none; write CSV, Parquet "
                "or Arrow"
            )
        self.file, self.names, self.n_rows, self.start = file, schema.names, 0, file.tell()
        self._write_header()

    def _write_header(self) -> None:
        shape = (self.n_rows, len(self.names))
        header = {"descr": "<f8", "fortran_order": False, "shape": shape}
        npy.write_array_header_1_0(self.file, header)

    def write_batch(self, batch: Any) -> None:
        """Add rows."""
        self.file.write(matrix(batch).astype("<f8").tobytes())
        self.n_rows += batch.num_rows

    def close(self) -> None:
        """Write the header again, which has room for any count."""
        self.file.seek(self.start)
        self._write_header()
        self.file.flush()


class ZipWriter(NumpyWriter):
    """One array for each column, by its name, in an archive."""

    def __init__(self, file: BinaryIO, schema: Any) -> None:
        self.archive = file
        super().__init__(tempfile.NamedTemporaryFile(), schema)  # noqa: SIM115 - closed in close

    def close(self) -> None:
        """Put the columns into the archive."""
        super().close()
        with self.file, zipfile.ZipFile(self.archive, "w") as archive:
            table = np.load(self.file.name, mmap_mode="r" if self.n_rows else None)
            for name, column in zip(self.names, table.T, strict=True):
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    npy.write_array(member, np.asarray(column), allow_pickle=False)


def _writer(file: BinaryIO, kind: str, schema: Any) -> Any:
    """Object with the methods ``write_batch`` and ``close``, as pyarrow's writers have them."""
    pa = import_pyarrow()
    import pyarrow.csv as text
    import pyarrow.parquet as parquet

    match kind:
        case "npy":
            return NumpyWriter(file, schema)
        case "npz":
            return ZipWriter(file, schema)
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
def open_sink(target: str, *inputs: object) -> Iterator[Sink]:
    """Function that adds record batches to a table; the first one says what its columns are.

    Parameters
    ----------
    target : str
        File, whose suffix says the format, or "-" for standard output, as CSV. A file appears
        when it is complete.
    *inputs : paths
        Files that it must not replace.
    """
    with _open(target, *inputs) as (file, kind):
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
        yield sys.stdout.buffer, "csv"
        sys.stdout.buffer.flush()
        return
    check_output(target, *inputs)
    path = Path(target).resolve()
    if path.suffix.lower() not in WRITTEN:
        raise DataError(f"{target}: the suffix says no format; choose one of {', '.join(WRITTEN)}")
    with replacing(path) as file:
        yield file, SUFFIXES[path.suffix.lower()]


def check_output(target: object, *inputs: object) -> None:
    """Reject a file that cannot be written, before work is put into what goes there.

    Parameters
    ----------
    target : path
    *inputs : paths
        Files that it must not replace.
    """
    path = Path(str(target)).resolve()
    if str(target) == STANDARD:
        raise usage("this cannot go to standard output; name a file with -o")
    if not path.parent.is_dir():
        raise DataError(f"the folder of {target} does not exist; create it first")
    if path.exists() and not path.is_file():
        raise DataError(f"{target} is not a regular file; name another")
    if not os.access(path.parent, os.W_OK):
        raise DataError(f"{target} cannot be written: no permission for its folder")
    for source in map(str, inputs):
        if path.exists() and os.path.exists(source) and os.path.samefile(path, source):
            raise DataError(f"{target} would replace the input {source}; name another file")

"""Writing tables, batch by batch, into a file that appears in one piece."""

import csv
import io
import os
import stat
import sys
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy

from qaffde.cli.data.formats import STANDARD, format_of
from qaffde.cli.data.table import DataError, import_pyarrow
from qaffde.streams.arrow import holds_numbers, matrix
from qaffde.training.checkpoint import replacing


class Sink(ABC):
    """Writer of record batches of one schema."""

    def __init__(self, file: BinaryIO, schema: Any) -> None:
        self.file, self.schema = file, schema

    @abstractmethod
    def write(self, batch: Any) -> None:
        """Add rows."""

    @abstractmethod
    def close(self) -> None:
        """Finish; the file itself stays open."""


class ArrowSink(Sink):
    """Any writer of pyarrow."""

    def __init__(self, file: BinaryIO, schema: Any, kind: str) -> None:
        super().__init__(file, schema)
        self.writer = _arrow_writer(import_pyarrow(), file, schema, kind)

    def write(self, batch: Any) -> None:
        """Add rows."""
        self.writer.write_batch(batch)

    def close(self) -> None:
        """Finish."""
        self.writer.close()


def _arrow_writer(pa: Any, file: BinaryIO, schema: Any, kind: str) -> Any:
    import pyarrow.csv as text
    import pyarrow.parquet as parquet

    match kind:
        case "parquet":
            return parquet.ParquetWriter(file, schema)
        case "arrow":
            return pa.ipc.new_file(file, schema)
    delimiter = "\t" if kind == "tsv" else ","
    file.write(_header(schema.names, delimiter))
    options = text.WriteOptions(include_header=False, delimiter=delimiter)
    return text.CSVWriter(file, schema, write_options=options)


def _header(names: list[str], delimiter: str) -> bytes:
    """Names in a line, quoted where they need it."""
    line = io.StringIO()
    csv.writer(line, delimiter=delimiter, lineterminator="\n").writerow(names)
    return line.getvalue().encode()


class NumpySink(Sink):
    """One array of all columns; its header is written again once the rows are counted."""

    def __init__(self, file: BinaryIO, schema: Any) -> None:
        super().__init__(file, schema)
        words = [f.name for f in schema if not (holds_numbers(f.type) or f.type == "bool")]
        if words:
            raise DataError(
                f"arrays hold numbers only, and {', '.join(words)} are none; write CSV, Parquet "
                "or Arrow"
            )
        self.n_rows, self.start = 0, file.tell()
        self._write_header()

    def _write_header(self) -> None:
        shape = (self.n_rows, len(self.schema.names))
        npy.write_array_header_1_0(
            self.file, {"descr": "<f8", "fortran_order": False, "shape": shape}
        )

    def write(self, batch: Any) -> None:
        """Add rows."""
        self.file.write(matrix(batch).astype("<f8").tobytes())
        self.n_rows += batch.num_rows

    def close(self) -> None:
        """Write the header again, which has room for any count."""
        self.file.seek(self.start)
        self._write_header()


class ZippedSink(Sink):
    """One array for each column, by its name, in an archive."""

    def __init__(self, file: BinaryIO, schema: Any) -> None:
        super().__init__(file, schema)
        import tempfile

        self.rows = tempfile.NamedTemporaryFile(suffix=".npy")  # noqa: SIM115 - closed in close
        self.inner = NumpySink(self.rows, schema)  # type: ignore[arg-type]

    def write(self, batch: Any) -> None:
        """Add rows."""
        self.inner.write(batch)

    def close(self) -> None:
        """Put the columns into the archive."""
        self.inner.close()
        self.rows.flush()
        with self.rows, zipfile.ZipFile(self.file, "w") as archive:
            table = np.load(self.rows.name, mmap_mode="r" if self.inner.n_rows else None)
            for name, column in zip(self.schema.names, table.T, strict=True):
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    npy.write_array(member, np.asarray(column), allow_pickle=False)


class Output:
    """Where batches go; the first one says what the columns are."""

    def __init__(self, file: BinaryIO, kind: str) -> None:
        self.file, self.kind = file, kind
        self.sink: Sink | None = None

    def write(self, batch: Any) -> None:
        """Add rows, perhaps none."""
        if self.sink is None:
            self.sink = self._sink(batch.schema)
        if batch.num_rows:
            self.sink.write(batch)

    def _sink(self, schema: Any) -> Sink:
        match self.kind:
            case "npy":
                return NumpySink(self.file, schema)
            case "npz":
                return ZippedSink(self.file, schema)
        return ArrowSink(self.file, schema, self.kind)

    def close(self) -> None:
        """Finish."""
        if self.sink is not None:
            self.sink.close()


@contextmanager
def open_sink(target: str) -> Iterator[Output]:
    """Output by its suffix; "-" is standard output, as CSV.

    A file appears, or replaces another, when all of it has been written.
    """
    if target == STANDARD:
        output = Output(sys.stdout.buffer, "csv")
        yield output
        output.close()
        sys.stdout.buffer.flush()
        return
    check_output(target)
    kind = format_of(Path(target))
    if kind is None or not target.lower().endswith(tuple(_WRITTEN)):
        raise DataError(
            f"{target}: the suffix says no format; choose one of {', '.join(_WRITTEN)}"
        )
    with replacing(Path(target).resolve()) as file:
        output = Output(file, kind)
        yield output
        output.close()


_WRITTEN = (".csv", ".tsv", ".parquet", ".pq", ".arrow", ".feather", ".npy", ".npz")


def check_output(target: str) -> None:
    """Reject a place that cannot be written, before work is put into what goes there."""
    path = Path(target).resolve()
    if not path.parent.is_dir():
        raise DataError(f"the folder of {target} does not exist; create it first")
    if path.exists() and not stat.S_ISREG(path.stat().st_mode):
        raise DataError(f"{target} is no regular file; name another")
    if not os.access(path.parent, os.W_OK):
        raise DataError(f"{target} cannot be written: no permission for its folder")

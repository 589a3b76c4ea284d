"""Parquet, Arrow and Feather, and what else is needed of pyarrow."""

import os
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qaffde.streams.table import Table, clear_errors

BUFFER_BYTES = 1 << 20
"""Of each column; without a limit pyarrow keeps all that it has read of a Parquet file."""


def import_pyarrow() -> Any:
    """The package pyarrow, or an error that says how to install it."""
    try:
        import pyarrow
    except ImportError as error:
        raise ImportError(
            "reading and writing data needs pyarrow, which is not installed; run: pip install "
            "'qaffde[data]'"
        ) from error
    return pyarrow


def holds_numbers(kind: Any) -> bool:
    """Whether a type of Arrow is numeric, or has missing values only."""
    types = import_pyarrow().types
    tests = (types.is_integer, types.is_floating, types.is_decimal, types.is_null)
    return any(test(kind) for test in tests)


def matrix(batch: Any) -> NDArray[np.float64]:
    """Numbers (n, d) of a batch, NaN where they are missing."""
    pa = import_pyarrow()
    columns = [column.cast(pa.float64(), safe=False) for column in batch.columns]
    arrays = [column.to_numpy(zero_copy_only=False) for column in columns]
    return np.stack(arrays, axis=1) if arrays else np.empty((batch.num_rows, 0))


def is_dataset(source: object) -> bool:
    """Whether something is a data set of pyarrow, without importing that."""
    return "pyarrow._dataset" in {kind.__module__ for kind in type(source).__mro__}


class DatasetTable(Table):
    """A Parquet file, a folder of them, or any data set of pyarrow.

    Only the columns that are asked for are read.
    """

    kind = "Parquet"

    def __init__(self, source: Any, label: str) -> None:
        with clear_errors(label, self.kind):
            self.dataset = source if is_dataset(source) else _open_parquet(source)
            schema, n_rows = self.dataset.schema, self.dataset.count_rows()
            numeric = [holds_numbers(kind) for kind in schema.types]
        super().__init__(label, schema.names, numeric, n_rows=n_rows)

    def _read(self, columns: Sequence[int], floats: Collection[int]) -> Iterator[Any]:
        import pyarrow.dataset as ds

        options: dict[str, Any] = {"batch_size": self.batch_rows, "use_threads": False}
        format = getattr(self.dataset, "format", None)
        if isinstance(format, ds.ParquetFileFormat):
            options["fragment_scan_options"] = ds.ParquetFragmentScanOptions(
                use_buffered_stream=True, buffer_size=BUFFER_BYTES, pre_buffer=False
            )
        readahead = {"batch_readahead": 1, "fragment_readahead": 1}
        names = [self.names[j] for j in columns]
        return iter(self.dataset.to_batches(columns=names, **options, **readahead))


def _open_parquet(path: str | os.PathLike[str]) -> Any:
    import_pyarrow()
    import pyarrow.dataset as ds

    partitioning = "hive" if os.path.isdir(path) else None
    return ds.dataset(os.fspath(path), format="parquet", partitioning=partitioning)


class ArrowTable(Table):
    """A table in Arrow's own formats: a file (Feather) or a stream."""

    kind = "Arrow"

    def __init__(self, path: Path, label: str) -> None:
        self.path = path
        with clear_errors(label, self.kind):
            schema = self._reader().schema
            numeric = [holds_numbers(kind) for kind in schema.types]
        super().__init__(label, schema.names, numeric, path.stat().st_size)

    def _reader(self) -> Any:
        pa = import_pyarrow()
        with self.path.open("rb") as file:
            is_file = file.read(6) == b"ARROW1"
        source = pa.memory_map(str(self.path))
        return pa.ipc.open_file(source) if is_file else pa.ipc.open_stream(source)

    def _read(self, columns: Sequence[int], floats: Collection[int]) -> Iterator[Any]:
        reader, names = self._reader(), [self.names[j] for j in columns]
        if hasattr(reader, "num_record_batches"):
            reader = map(reader.get_batch, range(reader.num_record_batches))
        return (batch.select(names) for batch in reader)

"""Parquet, Arrow and Feather."""

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from qaffde.cli.data.table import (
    BATCH_ROWS,
    Table,
    as_floats,
    clear_errors,
    import_pyarrow,
    sliced,
)
from qaffde.streams.arrow import BUFFER_BYTES, holds_numbers


class ParquetTable(Table):
    """A table in a Parquet file; only the columns that are asked for are read."""

    def __init__(self, path: Path, label: str) -> None:
        self.path = path
        with clear_errors(label, "Parquet"), self._open() as file:
            schema, n_rows = file.schema_arrow, file.metadata.num_rows
            names, numeric = schema.names, [holds_numbers(kind) for kind in schema.types]
        size = 8 * n_rows * len(names)
        super().__init__(label, names, numeric, named=True, n_rows=n_rows, n_bytes=size)

    def _open(self) -> Any:
        import_pyarrow()
        import pyarrow.parquet as parquet

        return parquet.ParquetFile(str(self.path), pre_buffer=False, buffer_size=BUFFER_BYTES)

    def read(self, columns: Sequence[int], floats: Collection[int]) -> Iterator[Any]:
        """Record batches of some columns; see :class:`Table`."""
        names = [self.names[j] for j in columns]
        with self._open() as file:
            batches = file.iter_batches(BATCH_ROWS, columns=names, use_threads=False)
            while (batch := self._next(batches)) is not None:
                yield as_floats(batch.select(names), columns, floats)

    def _next(self, batches: Iterator[Any]) -> Any:
        with clear_errors(self.label, "Parquet"):
            batch = next(batches, None)
            if batch is not None:
                batch.validate(full=True)
            return batch


class ArrowTable(Table):
    """A table in Arrow's own formats: a file (Feather) or a stream."""

    def __init__(self, path: Path, label: str) -> None:
        self.path = path
        with clear_errors(label, "Arrow"):
            with path.open("rb") as file:
                self.is_file = file.read(6) == b"ARROW1"
            reader = self._reader()
            names, numeric = reader.schema.names, [holds_numbers(t) for t in reader.schema.types]
        size = path.stat().st_size
        super().__init__(label, names, numeric, named=True, n_rows=None, n_bytes=size)

    def _reader(self) -> Any:
        pa = import_pyarrow()
        source = pa.memory_map(str(self.path))
        return pa.ipc.open_file(source) if self.is_file else pa.ipc.open_stream(source)

    def _batches(self) -> Iterator[Any]:
        reader = self._reader()
        if not self.is_file:
            yield from reader
            return
        for number in range(reader.num_record_batches):
            yield reader.get_batch(number)

    def read(self, columns: Sequence[int], floats: Collection[int]) -> Iterator[Any]:
        """Record batches of some columns; see :class:`Table`."""
        names, batches = [self.names[j] for j in columns], self._batches()
        while (parts := self._next(batches, names, columns, floats)) is not None:
            yield from parts

    def _next(
        self,
        batches: Iterator[Any],
        names: list[str],
        columns: Sequence[int],
        floats: Collection[int],
    ) -> list[Any] | None:
        with clear_errors(self.label, "Arrow"):
            batch = next(batches, None)
            if batch is None:
                return None
            batch.validate(full=True)
            return [as_floats(part, columns, floats) for part in sliced(batch.select(names))]

"""Files of every format as tables, by their names or by how they begin."""

import mmap
import os
import shutil
import tempfile
import warnings
import zipfile
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from qaffde.streams.delimited import open_text
from qaffde.streams.table import DataError, Table, clear_errors, import_pyarrow, made_names

SUFFIXES = {f".{kind}": kind for kind in ("csv", "tsv", "parquet", "arrow", "npy", "npz")}
SUFFIXES |= {".tab": "tsv", ".pq": "parquet"}
SUFFIXES |= dict.fromkeys((".arrows", ".feather", ".ipc"), "arrow")
COMPRESSED = (".gz", ".bz2", ".zst", ".lz4")
MAGIC = {
    b"PAR1": "parquet",
    b"ARROW1": "arrow",
    b"\xff\xff\xff\xff": "arrow",
    b"\x93NUMPY": "npy",
    b"PK\x03\x04": "npz",
}


def open_table(source: str | os.PathLike[str], *, label: str | None = None, **text: Any) -> Table:
    """Table of a file: CSV, TSV, Parquet (also a folder), Arrow, Feather, NPY or NPZ.

    `label` is what messages call it. Of `text`: `header`, whether it begins with names, is found
    if None; `decimal` is "." or ","; `encoding` is utf-8 by default.
    """
    import_pyarrow()
    path, label = Path(source), label or os.fspath(source)
    if not path.exists():
        raise FileNotFoundError(f"{label} does not exist")
    kind = "parquet" if path.is_dir() else format_of(path) or _sniffed(path)
    if kind not in READERS:
        return open_text(path, label, "\t" if kind == "tsv" else None, **text)
    for name in (name for name, value in text.items() if value is not None):
        raise DataError(f"{label} is not text, so {name} does not apply")
    return READERS[kind](path, label)


def format_of(path: Path) -> str | None:
    """Format that a name says, text also compressed.

    Examples
    --------
    >>> format_of(Path("rows.csv.gz")), format_of(Path("rows.pq")), format_of(Path("rows"))
    ('csv', 'parquet', None)
    """
    name = Path(path.name.lower())
    if name.suffix in COMPRESSED:
        inner = SUFFIXES.get(name.with_suffix("").suffix)
        return inner if inner in ("csv", "tsv") else None
    return SUFFIXES.get(name.suffix)


def _sniffed(path: Path) -> str:
    with path.open("rb") as file:
        start = file.read(8)
    return next((kind for magic, kind in MAGIC.items() if start.startswith(magic)), "text")


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


def open_dataset(source: Any, label: str) -> Table:
    """Table of a Parquet file, a folder of them, or any data set of pyarrow.

    Only the columns that are asked for are read.
    """
    import_pyarrow()
    import pyarrow.dataset as ds

    with clear_errors(label, "Parquet"):
        if not is_dataset(source):
            partitioning = "hive" if os.path.isdir(source) else None
            source = ds.dataset(os.fspath(source), format="parquet", partitioning=partitioning)
        names, n_rows = source.schema.names, source.count_rows()
        numeric = [field.name for field in source.schema if holds_numbers(field.type)]
    options = {"use_threads": False, "batch_readahead": 1, "fragment_readahead": 1}
    if isinstance(getattr(source, "format", None), ds.ParquetFileFormat):
        # Without a limit for each column pyarrow keeps all that it has read of a Parquet file.
        options["fragment_scan_options"] = ds.ParquetFragmentScanOptions(
            use_buffered_stream=True, buffer_size=1 << 20, pre_buffer=False
        )

    def read(columns: Sequence[str], floats: Collection[str], size: int) -> Iterator[Any]:
        return iter(source.to_batches(columns=columns, batch_size=size, **options))

    return Table(label, "Parquet", names, numeric, read, n_rows)


def open_arrow(path: Path, label: str) -> Table:
    """Table in Arrow's own formats: a file (Feather) or a stream."""
    pa = import_pyarrow()

    def reader() -> Any:
        with path.open("rb") as file:
            is_file = file.read(6) == b"ARROW1"
        source = pa.memory_map(str(path))
        return pa.ipc.open_file(source) if is_file else pa.ipc.open_stream(source)

    def read(columns: Sequence[str], floats: Collection[str], size: int) -> Iterator[Any]:
        batches = reader()
        if hasattr(batches, "num_record_batches"):
            batches = map(batches.get_batch, range(batches.num_record_batches))
        return (batch.select(columns) for batch in batches)

    with clear_errors(label, "Arrow"):
        schema = reader().schema
        numeric = [field.name for field in schema if holds_numbers(field.type)]
    return Table(label, "Arrow", schema.names, numeric, read)


def array_table(label: str, arrays: dict[str, NDArray[Any]], *, named: bool = True) -> Table:
    """Table of columns that are arrays, usually on the disk."""

    def read(columns: Sequence[str], floats: Collection[str], size: int) -> Iterator[Any]:
        for parts in blocks_of([arrays[name] for name in columns], size):
            kinds = [float if n in floats else arrays[n].dtype.newbyteorder("=") for n in columns]
            cells = [part.astype(kind) for part, kind in zip(parts, kinds, strict=True)]
            yield import_pyarrow().RecordBatch.from_pydict(dict(zip(columns, cells, strict=True)))

    numeric = [name for name, array in arrays.items() if array.dtype.kind in "fiu"]
    n_rows = len(next(iter(arrays.values()), ()))
    return Table(label, "NumPy", list(arrays), numeric, read, n_rows, named)


def _map_of(array: NDArray[Any]) -> Any:
    """The memory map that an array is a view of; None for an array in memory."""
    base: Any = array
    while isinstance(base, np.ndarray) and not isinstance(base, np.memmap):
        base = base.base
    return base if isinstance(getattr(base, "_mmap", None), mmap.mmap) else None


def release_pages(array: NDArray[Any]) -> None:
    """Give back the pages of a file that is mapped, unless they hold changes of their own."""
    base = _map_of(array)
    if base is not None and base.mode != "c" and hasattr(mmap, "MADV_DONTNEED"):
        base._mmap.madvise(mmap.MADV_DONTNEED)


def blocks_of(arrays: Sequence[NDArray[Any]], size: int) -> Iterator[list[NDArray[Any]]]:
    """Blocks of equally long arrays, of which no page of a file that is mapped is kept.

    A file that was cut since then is rejected: reading beyond its end would kill the process.
    """
    for base in map(_map_of, arrays):
        if base is not None and base._mmap.size() < base.offset + base.nbytes:
            raise DataError(f"{base.filename} became shorter while it was read")
    for start in range(0, len(arrays[0]), size):
        yield [array[start : start + size] for array in arrays]
        for array in arrays:
            release_pages(array)


def open_npy(path: Path, label: str) -> Table:
    """Table of one array of one or two dimensions, or of records."""
    return _table_of(_mapped(path, label), label)


def open_npz(path: Path, label: str) -> Table:
    """Table of the one array of two dimensions, or of equally long columns.

    Members are unpacked onto the disk, so that they need not fit into memory.
    """
    arrays = {}
    with clear_errors(label, "NPZ"), zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        if len(members) > 10_000:
            raise DataError(f"{label} has {len(members)} arrays, which is too many")
        for member in members:
            arrays[member.filename.removesuffix(".npy")] = _unpacked(archive, member, label)
    if len(arrays) == 1:
        return _table_of(next(iter(arrays.values())), label)
    if any(array.ndim != 1 for array in arrays.values()):
        shapes = ", ".join(f"{name} {array.shape}" for name, array in arrays.items())
        raise DataError(
            f"{label} must have one array, or one for each column, but it has {shapes}"
        )
    if len({len(array) for array in arrays.values()}) > 1:
        raise DataError(f"{label}: its arrays differ in length, so they are not columns")
    return array_table(label, arrays)


def _unpacked(archive: zipfile.ZipFile, member: zipfile.ZipInfo, label: str) -> NDArray[Any]:
    """Array in a file that goes away together with it."""
    with archive.open(member) as source, tempfile.NamedTemporaryFile() as copy:
        shutil.copyfileobj(source, copy)
        copy.flush()
        return _mapped(Path(copy.name), label)


def _mapped(path: Path, label: str) -> NDArray[Any]:
    with clear_errors(label, "NPY"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy's of headers that Python 2 wrote
        array = npy.open_memmap(path, mode="r")
    if array.ndim not in (1, 2):
        raise DataError(
            f"{label} has {array.ndim} dimensions; a table is an array of shape (rows, columns)"
        )
    if not array.size:
        raise DataError(f"{label} has no rows")
    return array


def _table_of(array: NDArray[Any], label: str) -> Table:
    if array.dtype.names:
        names = list(array.dtype.names)
        if array.ndim != 1 or any(array[name].ndim != 1 for name in names):
            raise DataError(f"{label} has records within rows; give it one number a field")
        return array_table(label, {name: array[name] for name in names})
    columns = array.T if array.ndim == 2 else [array]
    arrays = dict(zip(made_names(len(columns)), columns, strict=True))
    return array_table(label, arrays, named=False)


READERS = {"parquet": open_dataset, "arrow": open_arrow, "npy": open_npy, "npz": open_npz}

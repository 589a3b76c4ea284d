"""Arrays of NumPy: NPY, and NPZ with one table or one array for each column."""

import mmap
import shutil
import tempfile
import tokenize
import warnings
import zipfile
import zlib
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from qaffde.streams.arrow import import_pyarrow
from qaffde.streams.table import DataError, Table, clear_errors, made_names, shortened

MAX_MEMBERS = 10_000
HEADER_ERRORS = (SyntaxError, tokenize.TokenError, RecursionError, EOFError, OverflowError)
ZIP_ERRORS = (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError)


class ArrayTable(Table):
    """Columns that are arrays, usually on the disk."""

    kind = "NumPy"

    def __init__(
        self, label: str, columns: list[NDArray[Any]], names: list[str], *, named: bool = True
    ) -> None:
        self.columns = columns
        numeric = [column.dtype.kind in "fiu" for column in columns]
        n_rows = len(columns[0]) if columns else 0
        super().__init__(label, names, numeric, named=named, n_rows=n_rows)

    def _read(self, columns: Sequence[int], floats: Collection[int]) -> Iterator[Any]:
        pa = import_pyarrow()
        names = [self.names[j] for j in columns]
        for start in range(0, self.n_rows or 0, self.batch_rows):
            parts = [self._part(j, start, as_float=j in floats) for j in columns]
            yield pa.RecordBatch.from_arrays([pa.array(part) for part in parts], names=names)
            for j in columns:
                release_pages(self.columns[j])

    def _part(self, column: int, start: int, *, as_float: bool) -> NDArray[Any]:
        part = self.columns[column][start : start + self.batch_rows]
        return part.astype(np.float64 if as_float else part.dtype.newbyteorder("="))


def release_pages(array: NDArray[Any]) -> None:
    """Give back the pages of a file that is mapped, unless they hold changes of their own."""
    base: Any = array
    while isinstance(base, np.ndarray) and not isinstance(base, np.memmap):
        base = base.base
    mapped = getattr(base, "_mmap", None)
    if isinstance(mapped, mmap.mmap) and base.mode != "c" and hasattr(mmap, "MADV_DONTNEED"):
        mapped.madvise(mmap.MADV_DONTNEED)


def open_npy(path: Path, label: str) -> Table:
    """Table of one array of one or two dimensions, or of records."""
    return _table_of(_mapped(path, label), label)


def open_npz(path: Path, label: str) -> Table:
    """Table of the one array of two dimensions, or of equally long columns.

    Members are unpacked onto the disk, so that they need not fit into memory.
    """
    arrays = {}
    with clear_errors(label, "NPZ"):
        try:
            with zipfile.ZipFile(path) as archive:
                members = archive.infolist()
                if len(members) > MAX_MEMBERS:
                    raise DataError(f"{label} has {len(members)} arrays, which is too many")
                for member in members:
                    name = member.filename.removesuffix(".npy")
                    arrays[name] = _unpacked(archive, member, label)
        except ZIP_ERRORS as error:
            raise DataError(f"{label} cannot be read as NPZ: {shortened(error)}") from None
    if len(arrays) == 1:
        return _table_of(next(iter(arrays.values())), label)
    if any(array.ndim != 1 for array in arrays.values()):
        shapes = ", ".join(f"{name} {array.shape}" for name, array in arrays.items())
        raise DataError(
            f"{label} must have one array, or one for each column, but it has {shapes}"
        )
    if len({len(array) for array in arrays.values()}) > 1:
        raise DataError(f"{label}: its arrays differ in length, so they are not columns")
    return ArrayTable(label, list(arrays.values()), list(arrays))


def _unpacked(archive: zipfile.ZipFile, member: zipfile.ZipInfo, label: str) -> NDArray[Any]:
    """Array in a file that goes away together with it."""
    with archive.open(member) as source, tempfile.NamedTemporaryFile() as copy:
        shutil.copyfileobj(source, copy)
        copy.flush()
        return _mapped(Path(copy.name), label)


def _mapped(path: Path, label: str) -> NDArray[Any]:
    with clear_errors(label, "NPY"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy's of headers that Python 2 wrote
        try:
            array = npy.open_memmap(path, mode="r")
        except HEADER_ERRORS as error:
            raise DataError(f"{label} cannot be read as NPY: {shortened(error)}") from None
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
        return ArrayTable(label, [array[name] for name in names], names)
    table = array if array.ndim == 2 else array[:, None]
    return ArrayTable(label, list(table.T), made_names(table.shape[1]), named=False)

"""Arrays of NumPy: NPY, and NPZ with one table or one array for each column."""

import shutil
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

from qaffde.cli.data.table import (
    BATCH_ROWS,
    DataError,
    Table,
    clear_errors,
    import_pyarrow,
    made_names,
    shortened,
)

MAX_MEMBERS = 10_000
HEADER_ERRORS = (SyntaxError, tokenize.TokenError, RecursionError, EOFError, OverflowError)


class ArrayTable(Table):
    """Columns that are arrays, usually on the disk."""

    def __init__(
        self, label: str, columns: list[NDArray[Any]], names: list[str], *, named: bool
    ) -> None:
        self.columns = columns
        numeric = [column.dtype.kind in "fiu" for column in columns]
        n_rows = len(columns[0]) if columns else 0
        size = 8 * n_rows * len(columns)
        super().__init__(label, names, numeric, named=named, n_rows=n_rows, n_bytes=size)

    def read(self, columns: Sequence[int], floats: Collection[int]) -> Iterator[Any]:
        """Record batches of some columns; see :class:`Table`."""
        pa = import_pyarrow()
        names = [self.names[j] for j in columns]
        for start in range(0, self.n_rows or 0, BATCH_ROWS):
            with clear_errors(self.label, "NumPy"):
                parts = [self._part(j, start, as_float=j in floats) for j in columns]
                batch = pa.RecordBatch.from_arrays([pa.array(p) for p in parts], names=names)
            yield batch

    def _part(self, column: int, start: int, *, as_float: bool) -> NDArray[Any]:
        part = self.columns[column][start : start + BATCH_ROWS]
        native = part.astype(part.dtype.newbyteorder("="))
        return native.astype(np.float64) if as_float else native


def open_npy(path: Path, label: str) -> Table:
    """Table of one array of one or two dimensions, or of records."""
    return _table_of(_mapped(path, label), label)


def open_npz(path: Path, label: str, folder: Path) -> Table:
    """Table of the one array of two dimensions, or of equally long columns.

    Members are unpacked into `folder`, so that they need not fit into memory.
    """
    arrays = {}
    with clear_errors(label, "NPZ"):
        try:
            with zipfile.ZipFile(path) as archive:
                members = archive.infolist()
                if len(members) > MAX_MEMBERS:
                    raise DataError(f"{label} has {len(members)} arrays, which is too many")
                for number, member in enumerate(members):
                    name = member.filename.removesuffix(".npy")
                    arrays[name] = _unpacked(archive, member, folder / f"{number}.npy", label)
        except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError) as e:
            raise DataError(f"{label} cannot be read as NPZ: {shortened(e)}") from None
    if len(arrays) == 1:
        return _table_of(next(iter(arrays.values())), label)
    if any(array.ndim != 1 for array in arrays.values()):
        shapes = ", ".join(f"{name} {array.shape}" for name, array in arrays.items())
        raise DataError(
            f"{label} must have one array, or one for each column, but it has {shapes}"
        )
    if len({len(array) for array in arrays.values()}) > 1:
        raise DataError(f"{label}: its arrays differ in length, so they are no columns")
    return ArrayTable(label, list(arrays.values()), list(arrays), named=True)


def _unpacked(
    archive: zipfile.ZipFile, member: zipfile.ZipInfo, path: Path, label: str
) -> NDArray[Any]:
    with archive.open(member) as source, path.open("wb") as copy:
        shutil.copyfileobj(source, copy)
    return _mapped(path, label)


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
        return ArrayTable(label, [array[name] for name in names], names, named=True)
    table = array if array.ndim == 2 else array[:, None]
    return ArrayTable(label, list(table.T), made_names(table.shape[1]), named=False)

"""Which reader a file needs, by its name or by how it begins."""

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from qaffde.cli.data.arrays import open_npy, open_npz
from qaffde.cli.data.columnar import ArrowTable, ParquetTable
from qaffde.cli.data.delimited import DelimitedTable
from qaffde.cli.data.table import DataError, Table, import_pyarrow

STANDARD = "-"
SUFFIXES = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".npy": "npy",
    ".npz": "npz",
}
COMPRESSED = (".gz", ".bz2", ".zst", ".lz4")
MAGIC = {
    b"PAR1": "parquet",
    b"ARROW1": "arrow",
    b"\xff\xff\xff\xff": "arrow",
    b"\x93NUMPY": "npy",
    b"PK\x03\x04": "npz",
}


@contextmanager
def open_table(source: str, *, header: bool | None = None) -> Iterator[Table]:
    """Table of a file, or of standard input where the source is "-".

    Parameters
    ----------
    source : str
    header : bool, optional
        Whether text has names in its first record; found where it is not given.
    """
    import_pyarrow()
    with tempfile.TemporaryDirectory(prefix="qaffde-") as scratch:
        if source == STANDARD:
            path, label = _spooled(Path(scratch)), "standard input"
        else:
            path, label = Path(source), source
        yield _table(path, label, Path(scratch), header=header)


def _spooled(folder: Path) -> Path:
    """Standard input on the disk: it is read more than once."""
    path = folder / "input"
    with path.open("wb") as copy:
        shutil.copyfileobj(sys.stdin.buffer, copy)
    return path


def _table(path: Path, label: str, folder: Path, *, header: bool | None) -> Table:
    if path.is_dir():
        raise DataError(f"{label} is a folder; name a file")
    if not path.exists():
        raise DataError(f"{label} does not exist")
    kind = format_of(path) or _sniffed(path)
    if header is not None and kind not in ("csv", "tsv", "text"):
        raise DataError(f"{label} is no text: --header and --no-header do not apply")
    match kind:
        case "parquet":
            return ParquetTable(path, label)
        case "arrow":
            return ArrowTable(path, label)
        case "npy":
            return open_npy(path, label)
        case "npz":
            return open_npz(path, label, folder)
    return DelimitedTable(path, label, "\t" if kind == "tsv" else None, header=header)


def format_of(path: Path) -> str | None:
    """Format that a name says, text also compressed.

    Examples
    --------
    >>> format_of(Path("rows.csv.gz")), format_of(Path("rows.pq")), format_of(Path("rows"))
    ('csv', 'parquet', None)
    """
    name = path.name.lower()
    kind = SUFFIXES.get(Path(name).suffix)
    if kind is None and Path(name).suffix in COMPRESSED:
        inner = SUFFIXES.get(Path(name).with_suffix("").suffix)
        return inner if inner in ("csv", "tsv") else None
    return kind


def _sniffed(path: Path) -> str:
    with path.open("rb") as file:
        start = file.read(8)
    return next((kind for magic, kind in MAGIC.items() if start.startswith(magic)), "text")

"""Which reader a file needs, by its name or by how it begins."""

import os
from pathlib import Path

from qaffde.streams.arrays import open_npy, open_npz
from qaffde.streams.arrow import ArrowTable, DatasetTable, import_pyarrow
from qaffde.streams.delimited import DelimitedTable
from qaffde.streams.table import DataError, Table

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
READERS = {"parquet": DatasetTable, "arrow": ArrowTable, "npy": open_npy, "npz": open_npz}


def open_table(
    source: str | os.PathLike[str], *, label: str | None = None, header: bool | None = None
) -> Table:
    """Table of a file: CSV, TSV, Parquet (also a folder), Arrow, Feather, NPY or NPZ.

    Parameters
    ----------
    source : path
    label : str, optional
        What messages call it; its path by default.
    header : bool, optional
        Whether text has names in its first record; found where it is not given.
    """
    import_pyarrow()
    path, label = Path(source), label or os.fspath(source)
    if not path.exists():
        raise FileNotFoundError(f"{label} does not exist")
    kind = "parquet" if path.is_dir() else format_of(path) or _sniffed(path)
    if kind not in READERS:
        return DelimitedTable(path, label, "\t" if kind == "tsv" else None, header=header)
    if header is not None:
        raise DataError(f"{label} is not text, so header does not apply")
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

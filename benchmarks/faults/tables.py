"""Damaged data files, as the command line reads them.

Small tables in every format are damaged as disks, networks and editors do it: bytes flipped,
cut off, repeated or moved, sizes and footers replaced, cells of text exchanged for hostile ones.
Each input is read as `qaffde fit` and `qaffde score` read it: rows or a one-line error.
"""

import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.random import Generator

from benchmarks.faults.files import cut, flip, flip_header, splice
from qaffde.cli.output import MENDABLE, message_of
from qaffde.cli.sinks import open_sink
from qaffde.streams.chunked import TableChunks, pick_columns
from qaffde.streams.files import open_table
from qaffde.streams.table import import_pyarrow

SUFFIXES = (".csv", ".tsv", ".parquet", ".arrow", ".npy", ".npz")
CELLS = (
    *("", "nan", "inf", "-inf", "1e999", "-0", "0x10", "1_000", "1,5", "١٢", "NULL", "a\nb"),
    *(
        '"',
        "'",
        '"a',
        '""',
        ",",
        "\t",
        ";",
        "\0",
        "\r",
        "\r\n",
        "\ufeff",
        "é",
        "=cmd()",
        "[",
        "\\",
    ),
    *("9" * 400, "x" * 5000, "," * 300, "\n" * 50),
)
NUMPY_HEADERS = (
    "{'descr': '|O', 'fortran_order': False, 'shape': (3, 3)}",
    "{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999999, 9)}",
    "{'descr': '<f8', 'fortran_order': True, 'shape': (-1, 3)}",
    "{'descr': [('a', '<f8'), ('b', '|O')], 'fortran_order': False, 'shape': (3,)}",
    "{'descr': '<f8', 'fortran_order': False, 'shape': ()}",
    "{'descr': '<U9', 'fortran_order': False, 'shape': (2, 2)}",
    "__import__('os').system('true')",
    "(" * 3000,
)


def flip_end(content: bytes, rng: Generator) -> bytes:
    """Other bytes among the last hundreds, where footers stand."""
    return content[:-400] + flip(content[-400:], rng)


def lie_about_size(content: bytes, rng: Generator) -> bytes:
    """A number of four or eight bytes replaced by a hostile one."""
    size = int(rng.choice([4, 8]))
    value = (0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1)[rng.integers(6)] % 256**size
    place = int(rng.integers(max(1, len(content) - size)))
    return content[:place] + value.to_bytes(size, "little") + content[place + size :]


def forge_cells(content: bytes, rng: Generator) -> bytes:
    """Pieces of hostile text in a few places."""
    for _ in range(rng.integers(1, 5)):
        place = int(rng.integers(len(content) + 1))
        piece = CELLS[rng.integers(len(CELLS))].encode()
        content = content[:place] + piece + content[place + int(rng.integers(4)) :]
    return content


def forge_header(content: bytes, rng: Generator) -> bytes:
    """An array with a hostile header before its numbers."""
    header = NUMPY_HEADERS[rng.integers(len(NUMPY_HEADERS))].encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + content[-100:]


Mutation = Callable[[bytes, Generator], bytes]
MUTATIONS: dict[str, Mutation] = {
    "flip": flip,
    "flip header": flip_header,
    "flip end": flip_end,
    "cut": cut,
    "splice": splice,
    "size": lie_about_size,
    "forged cells": forge_cells,
    "forged header": forge_header,
}
FINE = {"rows", "refused"}


def make_files(folder: Path) -> list[Path]:
    """A small table in every format, with text, gaps and whole numbers."""
    pa = import_pyarrow()
    rng = np.random.default_rng(0)
    numbers = {"x": rng.normal(size=40), "y": rng.normal(size=40)}
    columns = {name: pa.array(values) for name, values in numbers.items()}
    columns["n"] = pa.array([None, *range(39)])
    words = columns | {"word": pa.array([f"w{k}, {k}" for k in range(40)])}
    paths = []
    for suffix in SUFFIXES:
        paths.append(folder / f"table{suffix}")
        chosen = columns if suffix.startswith(".np") else words
        with open_sink(str(paths[-1])) as write:
            write(pa.RecordBatch.from_pydict(chosen))
    paths.append(folder / "stream.arrows")
    batch = pa.RecordBatch.from_pydict(words)
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(str(paths[-1]), batch.schema, options=options) as writer:
        writer.write_batch(batch)
    paths.append(folder / "packed.csv.gz")
    with pa.output_stream(str(paths[-1]), compression="gzip") as packed:
        packed.write((folder / "table.csv").read_bytes())
    return paths


def mutate(files: list[Path], rng: Generator) -> tuple[str, bytes]:
    """Name and mutated content of one of the files."""
    path = files[rng.integers(len(files))]
    name = list(MUTATIONS)[rng.integers(len(MUTATIONS))]
    return path.name, MUTATIONS[name](path.read_bytes(), rng)


def outcome(path: Path) -> str:
    """What reading a file gives: "rows", "refused", or whatever should not have happened."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            table = open_table(path)
            numeric = [str(j) for j, name in enumerate(table.names) if name in table.numeric]
            rows = TableChunks(table, *pick_columns(table, numeric or None), missing="drop")
            for batch in rows.batches(*table.names):
                assert np.isfinite(batch.rows).all()
                batch.table.to_pylist()
    except MENDABLE as error:
        message = message_of(error)
        fine = "\n" not in message and len(message) < 1000 and message.isprintable()
        return "refused" if fine else f"unclear message: {message!r}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "rows"


def start(folder: Path) -> Callable[[Generator], str]:
    """Tables in every format, and the attempt that mutates and reads one."""
    (folder / "whole").mkdir()
    files = make_files(folder / "whole")

    def attempt(rng: Generator) -> str:
        name, content = mutate(files, rng)
        path = folder / name
        path.write_bytes(content)
        return outcome(path)

    return attempt

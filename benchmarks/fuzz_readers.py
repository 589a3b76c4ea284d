"""Feed damaged data files to the command line's readers: rows or one-line errors must come out.

    python -m benchmarks.fuzz_readers [--inputs N] [--seed N] [--json FILE]

Small tables in every format are damaged as disks, networks and editors do it: bytes flipped,
cut off, repeated or moved, sizes and footers replaced, cells of text exchanged for hostile ones.
Each input is read as `qaffde fit` and `qaffde score` read it, in a child process: a crash, a hang,
an exception that is no one-line error, unpickling or starting a process all count as failures.
"""

import argparse
import json
import multiprocessing
import resource
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import Generator

from benchmarks.fuzz_files import SECONDS, WATCHED, cut, flip, flip_header, splice
from qaffde.cli.errors import MENDABLE, message_of
from qaffde.cli.sinks import open_sink
from qaffde.streams.arrow import import_pyarrow
from qaffde.streams.files import open_table
from qaffde.streams.selection import TableChunks, pick_columns

MEMORY = 4 << 30
"""Address space beyond what a child begins with: more for a table of a few rows is a bomb."""
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


def mutate(files: list[Path], number: int, seed: int) -> tuple[str, str, bytes]:
    """Input of a number: its mutation, its file's name and its content."""
    rng = np.random.default_rng([seed, number])
    path = files[rng.integers(len(files))]
    name = list(MUTATIONS)[rng.integers(len(MUTATIONS))]
    return name, path.name, MUTATIONS[name](path.read_bytes(), rng)


def outcome(path: Path) -> str:
    """What reading a file gives: "rows", "refused", or whatever should not have happened."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            table = open_table(path)
            numeric = [str(j) for j, is_one in enumerate(table.numeric) if is_one]
            rows = TableChunks(table, *pick_columns(table, numeric or None), missing="drop")
            for batch in rows.batches(*range(len(table.names))):
                assert np.isfinite(batch.rows).all()
                batch.table.to_pylist()
    except MENDABLE as error:
        message = message_of(error)
        fine = "\n" not in message and len(message) < 1000 and message.isprintable()
        return "refused" if fine else f"unclear message: {message!r}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "rows"


def run(files: list[Path], n_inputs: int, seed: int = 0) -> dict[str, Any]:
    """Counts of outcomes, the slowest input, the growth of memory, and events seen."""
    counts: Counter[str] = Counter()
    summary: dict[str, Any] = {"slowest_seconds": 0.0, "memory_growth_mb": 0.0, "events": 0}
    first = 0
    while first < n_inputs:
        parent, child = multiprocessing.Pipe(duplex=False)
        worker = multiprocessing.get_context("fork").Process(
            target=_work, args=(files, first, n_inputs, seed, child)
        )
        worker.start()
        child.close()
        first = _collect(parent, first, counts, summary)
        worker.join()
        if first < n_inputs:
            counts[f"crashed: input {first}, exit code {worker.exitcode}"] += 1
            first += 1
    return (
        {"inputs": n_inputs, "files": len(files), "seed": seed}
        | summary
        | {"outcomes": dict(sorted(counts.items()))}
    )


def _collect(parent: Connection, first: int, counts: Counter[str], summary: dict[str, Any]) -> int:
    """Add up what a child reports until it ends; the number of the input it did not finish."""
    while True:
        try:
            what, seconds, megabytes, events = parent.recv()
        except EOFError:
            return first
        counts[what] += 1
        summary["slowest_seconds"] = max(summary["slowest_seconds"], round(seconds, 3))
        summary["memory_growth_mb"] = max(summary["memory_growth_mb"], round(megabytes, 1))
        summary["events"] += events
        first += 1


def _work(files: list[Path], first: int, end: int, seed: int, results: Connection) -> None:
    events: list[str] = []
    sys.addaudithook(lambda event, _: events.append(event) if event.startswith(WATCHED) else None)
    before = _megabytes()
    resource.setrlimit(resource.RLIMIT_AS, (_address_space() + MEMORY, resource.RLIM_INFINITY))
    with tempfile.TemporaryDirectory() as folder:
        for number in range(first, end):
            name, file, content = mutate(files, number, seed)
            path = Path(folder) / file
            path.write_bytes(content)
            start, seen = time.perf_counter(), len(events)
            signal.alarm(SECONDS)
            what = outcome(path)
            signal.alarm(0)
            seconds = time.perf_counter() - start
            kind = "".join(Path(file).suffixes)[1:]
            found = what if what in FINE else f"{what} (input {number})"
            said = f"{kind}, {name}: {found}"
            results.send((said, seconds, _megabytes() - before, len(events) - seen))
    results.close()


def _megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _address_space() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def is_fine(result: dict[str, Any]) -> bool:
    """Whether every input gave rows or a one-line error, and nothing was run."""
    kinds = {what.split(": ", 1)[1] for what in result["outcomes"]}
    return kinds <= FINE and not result["events"]


def main(arguments: list[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--inputs", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="file to write the counts to")
    options = parser.parse_args(arguments)

    with tempfile.TemporaryDirectory() as folder:
        result = run(make_files(Path(folder)), options.inputs, options.seed)
    print(json.dumps(result, indent=2))
    if options.json is not None:
        options.json.write_text(json.dumps(result, indent=2) + "\n")
    if not is_fine(result):
        sys.exit("some inputs got through, see above")


if __name__ == "__main__":
    main()

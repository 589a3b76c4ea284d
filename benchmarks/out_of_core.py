"""Rows that do not fit into memory: seconds, rows a second, and memory beyond the interpreter's.

    python -m benchmarks.out_of_core run [--rows N …] [--columns d] [--features D] [--source S …]
        [--given] [--out FILE]
    python -m benchmarks.out_of_core report [--results FILE]

Rows lie in a file of NumPy that is mapped, in Parquet files, or come from a generator that draws
them and can be read once. Each measurement runs in a process of its own; what the process held
once its libraries were imported is subtracted from the peak, and from the resident set after 1,
10, 50 and 100 % of the rows. Bandwidth, base measure and features are chosen in the time that is
printed or, with ``--given``, are numbers; a generator's are chosen by its first 100 000 rows.
``run`` appends to the rows of results, ``report`` writes all of them into the page.
"""

import resource
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.commands import run_or_report
from experiments.rows import ROOT, Row, markdown_table, provenance
from qaffde import QAFFDE, Real
from qaffde.streams import chunks
from qaffde.streams.chunked import print_progress

ROWS = ROOT / "benchmarks/results/out_of_core.jsonl"
PAGE = ROOT / "docs/cost.md"
LENGTHS = (100_000, 1_000_000, 10_000_000)
N_FEATURES = 1000
CHUNK = 100_000
TEST_ROWS = 10_000
SHARES = (0.01, 0.1, 0.5, 1.0)
"""Of the rows, after which the resident set is read."""
TARGET_ROWS, TARGET_MIB = 100_000_000, 1024.0
GIVEN = {"bandwidth": 0.15, "columns": Real(-8.0, 6.0)}


def draw(n: int, d: int, seed: int) -> NDArray[np.float64]:
    """Rows of two Gaussians, one of them narrow."""
    rng = np.random.default_rng(seed)
    narrow = rng.random((n, 1)) < 0.5
    return np.where(narrow, 1.0, -1.0) + rng.normal(size=(n, d)) * np.where(narrow, 0.3, 1.0)


def parts(n: int, d: int) -> Iterator[NDArray[np.float64]]:
    """The same chunks in every call."""
    for number, start in enumerate(range(0, n, CHUNK)):
        yield draw(min(CHUNK, n - start), d, number)


def mapped(n: int, d: int, folder: Path) -> Any:
    """Array in a file."""
    path = folder / "rows.npy"
    array = np.lib.format.open_memmap(path, mode="w+", dtype=np.float64, shape=(n, d))
    for start, part in zip(range(0, n, CHUNK), parts(n, d), strict=True):
        array[start : start + CHUNK] = part
    array.flush()
    return path


def parquet(n: int, d: int, folder: Path) -> Any:
    """Folder of Parquet files of a million rows or fewer."""
    import pyarrow as pa
    from pyarrow.parquet import ParquetWriter

    names = [f"x{k}" for k in range(d)]
    schema, writer = pa.schema([(name, pa.float64()) for name in names]), None
    for number, part in enumerate(parts(n, d)):
        if number % 10 == 0:
            if writer is not None:
                writer.close()
            writer = ParquetWriter(folder / f"{number:06d}.parquet", schema)
        assert writer is not None
        writer.write_table(pa.table(list(part.T), schema=schema))
    if writer is not None:
        writer.close()
    return folder


SOURCES: dict[str, Callable[[int, int, Path], Any]] = {
    "memmap": mapped,
    "parquet": parquet,
    "generator": lambda n, d, folder: None,
}


def run(options: Namespace) -> Iterator[Row]:
    """One row for each source and length; files are written and measured in fresh processes."""
    d, parameters = options.columns, {"n_features": options.features}
    parameters |= GIVEN if options.given else {}
    for source, n in product(options.source, options.rows):
        with tempfile.TemporaryDirectory(dir=options.folder) as scratch:
            data = _fresh(SOURCES[source], n, d, Path(scratch)) if source != "generator" else None
            yield _fresh(measure, source, n, d, data, parameters)


def _fresh(function: Callable[..., Any], *args: Any) -> Any:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        return process.submit(function, *args).result()


class Watch:
    """Progress that prints, and reads the resident set after some shares of the rows.

    Parameters
    ----------
    n : int
        Rows in all.
    """

    def __init__(self, n: int) -> None:
        self.n, self.marks = n, list[Row]()
        self.show, self.before, self.start = print_progress(), resident(), time.perf_counter()

    @property
    def seconds(self) -> float:
        """Since the start."""
        return time.perf_counter() - self.start

    def __call__(self, what: str, done: int, total: int | None) -> None:
        """Hear of rows that are done."""
        self.show(what, done, self.n)
        while what == "adding up" and self._due(done):
            self.marks.append(
                {
                    "share": SHARES[len(self.marks)],
                    "rows": done,
                    "seconds": round(self.seconds, 2),
                    "growth_mib": round(resident() - self.before, 1),
                }
            )

    def _due(self, done: int) -> bool:
        return len(self.marks) < len(SHARES) and done >= SHARES[len(self.marks)] * self.n


def measure(source: str, n: int, d: int, data: Any, parameters: dict[str, Any]) -> Row:
    """Fit the rows of one source, and score some others."""
    rows: Any = parts(n, d)
    if source == "memmap":
        rows = np.load(data, mmap_mode="r")
    elif source == "parquet":
        rows = data
    watch = Watch(n)
    model = QAFFDE(**parameters, random_state=0).fit(chunks(rows, progress=watch))
    seconds, grown = watch.seconds, peak_memory() - watch.before
    test: Any = draw(TEST_ROWS, d, 10**6)
    if source == "parquet":
        import pandas as pd

        test = pd.DataFrame(test, columns=model.feature_names_in_)
    return {
        "source": source,
        "n": n,
        "d": d,
        "data_mib": round(8 * n * d / 2**20, 1),
        "disk_mib": round(disk_bytes(data) / 2**20, 1),
        "n_features": model.n_fourier_features_,
        "frame": "given" if "columns" in parameters else "chosen",
        "base_measure": model.base_measure_,
        "seconds": round(seconds, 2),
        "rows_per_second": round(n / seconds),
        "interpreter_mib": round(watch.before, 1),
        "peak_growth_mib": round(grown, 1),
        "marks": watch.marks,
        "mean_log_density": model.score(test),
        **provenance(),
    }


def resident() -> float:
    """Resident set of this process now, in MiB."""
    import psutil

    return float(psutil.Process().memory_info().rss / 2**20)


def peak_memory() -> float:
    """Largest resident set of this process so far, in MiB.

    What ``getrusage`` says begins, on Linux, with that of the process that started this one.
    """
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 2**10
    unit = 2**20 if sys.platform == "darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def disk_bytes(data: Path | None) -> int:
    """Bytes of a file, or of the files in a folder."""
    if data is None:
        return 0
    files = data.iterdir() if data.is_dir() else [data]
    return sum(file.stat().st_size for file in files)


def table(rows: list[Row]) -> str:
    """All measurements in Markdown."""
    head = ["source", "rows", "columns", "frame", "features", "data MiB", "s", "rows/s"]
    marks = [f"{share:.0%}" for share in SHARES]
    return markdown_table([*head, *marks, "peak", "mean log p"], [_line(row) for row in rows])


def _line(row: Row) -> list[str]:
    return [
        row["source"],
        f"{row['n']:,}",
        str(row["d"]),
        row["frame"],
        str(row["n_features"]),
        f"{row['data_mib']:,.0f}",
        f"{row['seconds']:.1f}",
        f"{row['rows_per_second']:,}",
        *(f"{mark['growth_mib']:.0f}" for mark in row["marks"]),
        f"{row['peak_growth_mib']:.0f}",
        f"{row['mean_log_density']:.4f}",
    ]


def verdict(rows: list[Row]) -> str:
    """Peak memory of the longest stream beside its target."""
    longest = max(rows, key=lambda row: row["n"])
    n, peak = longest["n"], max(row["peak_growth_mib"] for row in rows if row["n"] == longest["n"])
    if n < TARGET_ROWS:
        wanted = f"{TARGET_ROWS:,} rows are wanted"
    else:
        wanted = f"{TARGET_MIB:.0f} wanted: {'met' if peak < TARGET_MIB else 'MISSED'}"
    return (
        f"{n:,} × {longest['d']} rows: at most {peak:.0f} MiB above the interpreter's "
        f"{longest['interpreter_mib']:.0f}; {wanted}"
    )


def body(rows: list[Row]) -> str:
    """Table and verdict."""
    return f"{table(rows)}\n\n{verdict(rows)}."


OPTIONS = {
    "rows": {"nargs": "+", "type": int, "default": list(LENGTHS), "metavar": "N"},
    "columns": {"type": int, "default": 2, "metavar": "d"},
    "features": {"type": int, "default": N_FEATURES, "metavar": "D"},
    "source": {"nargs": "+", "choices": SOURCES, "default": ["memmap"], "metavar": "S"},
    "given": {"action": "store_true", "help": "give bandwidth and ends of the columns"},
    "folder": {"type": Path, "default": None, "help": "where the data are written"},
}


def main(arguments: list[str] | None = None) -> None:
    """Run the command line."""
    run_or_report(__doc__, ROWS, PAGE, run, body, arguments, OPTIONS, keep=True)


if __name__ == "__main__":
    main()

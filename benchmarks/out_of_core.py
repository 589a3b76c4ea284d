"""Rows that do not fit into memory: seconds, rows a second, and memory beyond the interpreter's.

    python -m benchmarks.out_of_core [--rows N …] [--columns d] [--features D] [--source S …]

Rows lie in a file of NumPy that is mapped, in Parquet files, or come from a generator that draws
them. Each measurement runs in a process of its own, since the peak of the resident set never
falls; what the process held once its libraries were imported is subtracted. Nothing is tuned:
bandwidth, base measure and features are chosen in the time that is printed. Rows of results are
appended, and the table shows them all.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.streaming import peak_memory
from experiments import ROOT
from qaffde import QAFFDE
from qaffde.experiments.rows import Row, append_row, markdown_table, provenance, read_rows
from qaffde.streams import chunks

ROWS = ROOT / "benchmarks/results/out_of_core.jsonl"
LENGTHS = (100_000, 1_000_000, 10_000_000)
CHUNK = 100_000
TEST_ROWS = 10_000


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


def run(
    lengths: Iterable[int],
    d: int,
    sources: Iterable[str],
    folder: Path | None,
    n_features: int | str = "auto",
) -> Iterator[Row]:
    """One row for each source and length; files are written and measured in fresh processes."""
    for source, n in product(sources, lengths):
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            data = _fresh(SOURCES[source], n, d, Path(scratch)) if source != "generator" else None
            yield _fresh(measure, source, n, d, data, n_features)


def _fresh(function: Callable[..., Any], *args: Any) -> Any:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        return process.submit(function, *args).result()


def measure(source: str, n: int, d: int, data: Any, n_features: int | str) -> Row:
    """Fit the rows of one source, and score some others."""
    rows: Any = parts(n, d)
    if source == "memmap":
        rows = np.load(data, mmap_mode="r")
    elif source == "parquet":
        rows = data
    before, start = peak_memory(), time.perf_counter()
    model = QAFFDE(n_features, random_state=0).fit(chunks(rows, progress=True))
    seconds, grown = time.perf_counter() - start, peak_memory() - before
    test: Any = draw(TEST_ROWS, d, 10**6)
    if source == "parquet":
        import pandas as pd

        test = pd.DataFrame(test, columns=model.feature_names_in_)
    return {
        "source": source,
        "n": n,
        "d": d,
        "data_mib": round(8 * n * d / 2**20, 1),
        "n_features": model.n_fourier_features_,
        "base_measure": model.base_measure_,
        "seconds": round(seconds, 2),
        "rows_per_second": round(n / seconds),
        "interpreter_mib": round(before, 1),
        "peak_growth_mib": round(grown, 1),
        "mean_log_density": model.score(test),
        **provenance(),
    }


def table(rows: list[Row]) -> str:
    """All measurements in Markdown."""
    head = [
        "source",
        "rows",
        "columns",
        "features",
        "data MiB",
        "s",
        "rows/s",
        "peak MiB",
        "mean log p",
    ]
    lines = [
        [
            row["source"],
            f"{row['n']:,}",
            str(row["d"]),
            str(row["n_features"]),
            f"{row['data_mib']:,.0f}",
            f"{row['seconds']:.1f}",
            f"{row['rows_per_second']:,}",
            f"{row['peak_growth_mib']:.0f}",
            f"{row['mean_log_density']:.4f}",
        ]
        for row in rows
    ]
    return markdown_table(head, lines)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", nargs="+", type=int, default=list(LENGTHS), metavar="N")
    parser.add_argument("--columns", type=int, default=2, metavar="d")
    parser.add_argument("--features", type=int, metavar="D", help="Fourier features")
    parser.add_argument("--source", nargs="+", choices=SOURCES, default=["memmap"], metavar="S")
    parser.add_argument("--folder", type=Path, default=None, help="where the data are written")
    parser.add_argument("--out", type=Path, default=ROWS, help="file of the rows")
    options = parser.parse_args(arguments)
    sources, folder = options.source, options.folder
    for row in run(options.rows, options.columns, sources, folder, options.features or "auto"):
        append_row(row, options.out)
    print(table(read_rows(options.out)))


if __name__ == "__main__":
    main()

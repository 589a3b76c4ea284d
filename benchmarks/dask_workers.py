"""Fit on Dask with one and with more workers, each a process of one thread.

    python -m benchmarks.dask_workers [--rows N] [--workers W …] [--repetitions R] [--out FILE]

Every worker draws the partitions that it adds up, so that no data move but density matrices. The
frame is given by numbers, and what is timed is the pass over all rows and the reading on the
client. Numbers of workers take turns, so that whatever else the machine does falls on all of
them; the medians are compared, and the densities must be the same.
"""

import argparse
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments import ROOT
from qaffde import QAFFDE
from qaffde.distributed import fit
from qaffde.experiments.rows import Row, append_row, markdown_table, provenance, read_rows

ROWS = ROOT / "benchmarks/results/dask_workers.jsonl"
TARGET = 1.6
"""How many times as fast two workers are to be as one."""
PARTITION = 25_000


def partition(number: int, n: int) -> NDArray[np.float64]:
    """Rows of one partition, always the same."""
    return np.random.default_rng(number).normal(size=(n, 2))


def collection(n: int) -> Any:
    """Dask array of `n` rows whose partitions are drawn where they are needed."""
    import dask
    import dask.array as da

    sizes = [min(PARTITION, n - start) for start in range(0, n, PARTITION)]
    parts = [dask.delayed(partition)(number, size) for number, size in enumerate(sizes)]
    return da.concatenate(
        [da.from_delayed(p, (size, 2), float) for p, size in zip(parts, sizes, strict=True)]
    )


def run(n: int, workers: Sequence[int], repetitions: int, n_features: int = 1000) -> Iterator[Row]:
    """One row for each number of workers."""
    seconds: dict[int, list[float]] = {count: [] for count in workers}
    scores = {}
    for _ in range(repetitions):
        for count in workers:
            model, taken = timed(n, count, n_features)
            seconds[count].append(taken)
            scores[count] = model.score_samples(partition(10**6, 1000))
    for count in workers:
        yield {
            "workers": count,
            "n": n,
            "n_features": n_features,
            "repetitions": repetitions,
            "seconds": round(median(seconds[count]), 3),
            "speedup": round(median(seconds[workers[0]]) / median(seconds[count]), 3),
            "max_difference": float(np.abs(scores[count] - scores[workers[0]]).max()),
            **provenance(),
        }


def timed(n: int, count: int, n_features: int) -> tuple[QAFFDE, float]:
    """Fit on a new cluster whose workers have imported everything."""
    from distributed import Client, LocalCluster

    cluster = LocalCluster(
        n_workers=count, threads_per_worker=1, processes=True, dashboard_address=None
    )
    with cluster, Client(cluster) as client:
        client.wait_for_workers(count)
        fit(_model(n_features), collection(2 * count * PARTITION), client=client)
        start = time.perf_counter()
        model = fit(_model(n_features), collection(n), client=client)
        return model, time.perf_counter() - start


def _model(n_features: int) -> QAFFDE:
    return QAFFDE(n_features, 0.2, bounds=(-10, 10), rank=100, random_state=0)


def table(rows: list[Row]) -> str:
    """All measurements in Markdown."""
    head = ["workers", "rows", "features", "s", "times as fast", "max |Δ log p|"]
    lines = [
        [
            str(row["workers"]),
            f"{row['n']:,}",
            str(row["n_features"]),
            f"{row['seconds']:.2f}",
            f"{row['speedup']:.2f}",
            f"{row['max_difference']:.1e}",
        ]
        for row in rows
    ]
    return markdown_table(head, lines)


def verdict(rows: list[Row]) -> str:
    """The last ratio of two workers to one, beside its target."""
    ratio = [row["speedup"] for row in rows if row["workers"] == 2][-1:]
    return f"two workers: {ratio[0]:.2f} times as fast as one, {TARGET} wanted" if ratio else ""


def main(arguments: list[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000, metavar="N")
    parser.add_argument("--features", type=int, default=1000, metavar="D")
    parser.add_argument("--workers", nargs="+", type=int, default=[1, 2], metavar="W")
    parser.add_argument("--repetitions", type=int, default=3, metavar="R")
    parser.add_argument("--out", type=Path, default=ROWS, help="file of the rows")
    options = parser.parse_args(arguments)
    for row in run(options.rows, options.workers, options.repetitions, options.features):
        append_row(row, options.out)
    rows = read_rows(options.out)
    print(table(rows), verdict(rows), sep="\n\n")


if __name__ == "__main__":
    main()

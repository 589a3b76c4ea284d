"""Fit on Dask with one and with more workers, each a process of one thread.

    python -m benchmarks.dask_workers run [--rows N] [--columns d] [--features D] [--out FILE]
    python -m benchmarks.dask_workers report [--results FILE]

Every worker draws the partitions that it adds up, so that no data move but density matrices. The
plan is given by numbers, and what is timed is all of a fit to a ``DaskSource``: the pass over
the rows, the tree that adds up, and the reading on the client, which no number of workers
shortens. Numbers of workers take turns, so that whatever else the machine does falls on all of
them; the medians are compared, and the densities must be the same.
"""

import time
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.commands import run_or_report
from benchmarks.out_of_core import peak_memory
from experiments.rows import ROOT, Row, markdown_table, provenance
from qaffde import QAFFDE, Real
from qaffde.distributed import DaskSource

ROWS = ROOT / "benchmarks/results/dask_workers.jsonl"
PAGE = ROOT / "docs/cost.md"
TARGET = 1.6
"""How many times as fast two workers are to be as one."""
PARTITION = 25_000
TEST_ROWS, TEST_SEED = 1000, 10**6


@dataclass(frozen=True)
class Sizes:
    """How much is fitted.

    Parameters
    ----------
    n, d, n_features : int
        Rows, columns, and features. Of more than two columns, whose features have no lattice, the
        matrix product is nearly all of the work.
    """

    n: int = 2_000_000
    d: int = 8
    n_features: int = 1000

    def model(self) -> QAFFDE:
        """Model whose plan is given by numbers, so that there is one pass."""
        return QAFFDE(self.n_features, 0.5, columns=Real(-10, 10), rank=100, random_state=0)


@dataclass(frozen=True, eq=False)
class Timed:
    """A fit, the seconds that it took, and what its workers were.

    Parameters
    ----------
    model : QAFFDE
    seconds : float
    worker_threads : int
        Of linear algebra, in each worker.
    worker_peak_mib : float
        Largest resident set of any worker.
    """

    model: QAFFDE
    seconds: float
    worker_threads: int
    worker_peak_mib: float


def partition(number: int, n: int, d: int) -> NDArray[np.float64]:
    """Rows of one partition, always the same."""
    return np.random.default_rng(number).normal(size=(n, d))


def collection(n: int, d: int) -> Any:
    """Dask array of `n` rows whose partitions are drawn where they are needed."""
    import dask
    import dask.array as da

    sizes = [min(PARTITION, n - start) for start in range(0, n, PARTITION)]
    parts = [dask.delayed(partition)(number, size, d) for number, size in enumerate(sizes)]
    return da.concatenate(
        [da.from_delayed(p, (size, d), float) for p, size in zip(parts, sizes, strict=True)]
    )


def run(options: Namespace) -> Iterator[Row]:
    """One row for each number of workers."""
    sizes = Sizes(options.rows, options.columns, options.features)
    workers, repetitions = options.workers, options.repetitions
    taken: dict[int, list[Timed]] = {count: [] for count in workers}
    for repetition in range(repetitions):
        for count in workers:
            taken[count].append(timed(sizes, count))
            print(
                f"round {repetition + 1} of {repetitions}, {count} worker(s): "
                f"{taken[count][-1].seconds:.2f} s",
                flush=True,
            )
    test = partition(TEST_SEED, TEST_ROWS, sizes.d)
    scores = {count: fits[-1].model.score_samples(test) for count, fits in taken.items()}
    seconds = {count: [round(fit.seconds, 3) for fit in fits] for count, fits in taken.items()}
    for count, fits in taken.items():
        yield {
            "workers": count,
            "worker_threads": fits[-1].worker_threads,
            "worker_peak_mib": round(max(fit.worker_peak_mib for fit in fits), 1),
            "n": sizes.n,
            "d": sizes.d,
            "n_features": fits[-1].model.n_fourier_features_,
            "partition_rows": PARTITION,
            "seconds": median(seconds[count]),
            "every_seconds": seconds[count],
            "speedup": round(median(seconds[workers[0]]) / median(seconds[count]), 3),
            "max_difference": float(np.abs(scores[count] - scores[workers[0]]).max()),
            **provenance(),
        }


def timed(sizes: Sizes, count: int) -> Timed:
    """Fit on a new cluster whose workers have imported everything."""
    from distributed import Client, LocalCluster

    cluster = LocalCluster(
        n_workers=count, threads_per_worker=1, processes=True, dashboard_address=":0"
    )
    with cluster, Client(cluster) as client:
        client.wait_for_workers(count)
        sizes.model().fit(DaskSource(collection(2 * count * PARTITION, sizes.d), client=client))
        start = time.perf_counter()
        model = sizes.model().fit(DaskSource(collection(sizes.n, sizes.d), client=client))
        seconds = time.perf_counter() - start
        threads = max(client.run(torch.get_num_threads).values())
        return Timed(model, seconds, threads, max(client.run(peak_memory).values()))


def table(rows: list[Row]) -> str:
    """All measurements in Markdown."""
    head = ["workers", "rows", "columns", "features", "s", "rows/s", "times as fast"]
    lines = [
        [
            str(row["workers"]),
            f"{row['n']:,}",
            str(row["d"]),
            str(row["n_features"]),
            f"{row['seconds']:.2f}",
            f"{row['n'] / row['seconds']:,.0f}",
            f"{row['speedup']:.2f}",
            f"{row['max_difference']:.1e}",
            f"{row['worker_peak_mib']:.0f}",
        ]
        for row in rows
    ]
    return markdown_table([*head, "largest Δ log p", "worker's peak MiB"], lines)


def verdict(rows: list[Row]) -> str:
    """The ratio of two workers to one, beside its target."""
    ratio = [row["speedup"] for row in rows if row["workers"] == 2]
    if not ratio:
        return "no row has two workers"
    met = "met" if ratio[-1] >= TARGET else "MISSED"
    return f"two workers: {ratio[-1]:.2f} times as fast as one, {TARGET} wanted: {met}"


def body(rows: list[Row]) -> str:
    """Table and verdict."""
    return f"{table(rows)}\n\n{verdict(rows)}."


OPTIONS = {
    "rows": {"type": int, "default": Sizes.n, "metavar": "N"},
    "columns": {"type": int, "default": Sizes.d, "metavar": "d"},
    "features": {"type": int, "default": Sizes.n_features, "metavar": "D"},
    "workers": {"nargs": "+", "type": int, "default": [1, 2], "metavar": "W"},
    "repetitions": {"type": int, "default": 5, "metavar": "R"},
}


def main(arguments: list[str] | None = None) -> None:
    """Run the command line."""
    run_or_report(__doc__, ROWS, PAGE, run, body, arguments, OPTIONS)


if __name__ == "__main__":
    main()

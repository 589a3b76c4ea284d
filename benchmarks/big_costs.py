"""What a row, a density matrix and a task cost: the slopes behind :mod:`benchmarks.big_plan`.

Every cost is the difference of two sizes over the difference of their lengths, in processor
seconds of one thread, so that what a call costs whatever its size falls out. What is timed are the
very tasks that ``qaffde.distributed`` gives to its workers.
"""

import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from pickle import dumps
from statistics import median
from typing import Any

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from benchmarks.out_of_core import disk_bytes, parquet, resident
from experiments.rows import Row, provenance
from qaffde import QAFFDE, Real
from qaffde import functional as QF
from qaffde.distributed.partitions import FAN_IN, on_part, total, tree
from qaffde.parameters import DOUBLE
from qaffde.selection import ModelSpec
from qaffde.selection.policy import SAMPLE_ROWS
from qaffde.selection.summary import summarize_part
from qaffde.streams import chunks

LENGTHS = {2: (100_000, 400_000), 8: (20_000, 80_000)}
"""Two numbers of rows, for each number of columns."""
FEATURES = (256, 1000, 2000)
PARTITIONS = (200, 800)
PARQUET_ROWS = (200_000, 1_000_000)
REPETITIONS = 3


def run() -> Iterator[Row]:
    """Rows of all costs."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            for row in _costs():
                yield {**row, **provenance()}
    finally:
        torch.set_num_threads(threads)


def _costs() -> Iterator[Row]:
    yield {"what": "interpreter", "mib": round(resident(), 1)}
    yield tasks()
    for d in LENGTHS:
        yield parquet_rows(d)
        yield look(d)
        for n_features in FEATURES:
            yield from density_matrix(d, n_features)


def density_matrix(d: int, n_features: int) -> Iterator[Row]:
    """The pass over rows, the sum of two of its results, and the reading of the last."""
    model = QAFFDE(n_features, 0.5, columns=Real(-10, 10), rank=100, random_state=0)
    model.fit(_draw(1000, d))
    plan, task = model.plan_, partial(model.plan_.sums, DOUBLE)
    given = {
        "d": d,
        "n_features": n_features,
        "frequencies": ModelSpec().frequency_kind(d),
    }
    cost = slope(lambda n: (_draw(n, d),), lambda X: on_part(task, X, None, 0, names=None), d)
    yield {"what": "pass", **given, **cost, **work(plan.features.W, d)}
    part = on_part(task, _draw(1000, d), None, 0, names=None)
    seconds = median(_seconds(lambda: part + part) for _ in range(REPETITIONS))
    yield {"what": "add", **given, "seconds": seconds, "bytes": len(dumps(part))}
    yield {"what": "read", **given, "seconds": _seconds(lambda: plan.read(part))}


def work(W: torch.Tensor, d: int) -> Row:
    """Floating-point operations and cosines of one row in the pass.

    Features on a lattice cost the products of their waves, any others a symmetric rank-one update.
    """
    lattice, D = QF.Lattice.of(W), len(W)
    if lattice is None:
        return {"flops": D * (D + 1) + 2 * d * D, "cosines": D}
    first, second = lattice.n_waves
    return {"flops": 2 * first * second + 2 * d * (first + second), "cosines": first + second}


def look(d: int) -> Row:
    """The first pass of an untuned fit."""
    task = partial(summarize_part, seed=0, max_rows=SAMPLE_ROWS)
    cost = slope(lambda n: (_draw(n, d),), lambda X: on_part(task, X, None, 0, names=None), d)
    return {"what": "look", "d": d, **cost}


def parquet_rows(d: int) -> Row:
    """Reading and decoding of Parquet files in the cache of the operating system."""

    def read(folder: Path) -> None:
        for _ in chunks(folder).read():
            pass

    with tempfile.TemporaryDirectory() as scratch:
        folders = {}
        for n in PARQUET_ROWS:
            folders[n] = Path(scratch) / str(n)
            folders[n].mkdir()
            parquet(n, d, folders[n])
        size = disk_bytes(folders[PARQUET_ROWS[1]]) / PARQUET_ROWS[1]
        cost = slope(lambda n: (folders[n],), read, d, PARQUET_ROWS)
    return {"what": "parquet", "d": d, **cost, "bytes": round(size, 2)}


def tasks() -> Row:
    """What Dask does for one partition of a sum, besides the work in it: wall seconds."""
    from dask import delayed
    from distributed import Client, LocalCluster

    with (
        LocalCluster(1, threads_per_worker=1, processes=False, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):

        def add_up(n: int) -> None:
            root = tree([delayed(float)(number) for number in range(n)], delayed(total))
            assert client.compute(root).result() == n * (n - 1) / 2

        cost = slope(lambda n: (n,), add_up, 1, PARTITIONS, time.perf_counter)
    return {"what": "task", "fan_in": FAN_IN, **cost}


def slope(
    make: Callable[[int], tuple[Any, ...]],
    call: Callable[..., Any],
    d: int,
    lengths: tuple[int, int] | None = None,
    clock: Callable[[], float] = time.process_time,
) -> Row:
    """Seconds that one more row costs, from medians at two lengths that take turns."""
    lengths = lengths or LENGTHS[d]
    arguments = {n: make(n) for n in lengths}
    call(*arguments[lengths[0]])
    taken: dict[int, list[float]] = {n: [] for n in lengths}
    for _ in range(REPETITIONS):
        for n in lengths:
            taken[n].append(_seconds(lambda n=n: call(*arguments[n]), clock))  # type: ignore[misc]
    seconds = [median(taken[n]) for n in lengths]
    return {
        "lengths": list(lengths),
        "seconds": [round(s, 6) for s in seconds],
        "slope": max(seconds[1] - seconds[0], 0.0) / (lengths[1] - lengths[0]),
    }


def _seconds(call: Callable[[], Any], clock: Callable[[], float] = time.process_time) -> float:
    start = clock()
    call()
    return clock() - start


def _draw(n: int, d: int) -> Any:
    return np.random.default_rng(0).normal(size=(n, d))

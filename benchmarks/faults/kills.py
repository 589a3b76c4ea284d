"""Processes killed at random moments: nothing that was there is lost, and work goes on."""

import logging
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import Generator

from benchmarks.faults.attempts import Attempt, in_child
from qaffde import (
    QAFFDE,
    QAFFDESGD,
    QAFFDETensorTrain,
    Real,
    TensorTrainConfig,
    TrainingConfig,
    load,
)
from qaffde.training.checkpoint import Checkpoint

X = np.random.default_rng(0).normal(size=(1200, 2))
SAME = "nothing lost"
CLOSED = {"n_features": 200, "bandwidth": 0.4, "base_measure": "gaussian", "random_state": 0}


def timed(work: Callable[[], object]) -> float:
    """Seconds that work takes undisturbed."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def start_save(folder: Path) -> Attempt:
    """Two models take turns on one path."""
    models = [QAFFDE(**CLOSED).fit(X[:n]) for n in (600, 1200)]
    wholes, path = [m.sums_.weight for m in models], folder / "model"
    models[0].save(path)

    def work() -> str:
        while True:
            for model in models:
                model.save(path)

    def attempt(rng: Generator) -> str:
        in_child(work, rng.uniform(0, 0.1))
        found = load(path).sums_.weight
        for left in folder.glob(".*.tmp"):
            left.unlink()
        return SAME if found in wholes else f"weight {found}"

    return attempt


def start_fit(folder: Path) -> Attempt:
    """A trained fit with checkpoints, begun again after a kill."""
    Checkpoint.due = property(lambda self: True)  # type: ignore[assignment,method-assign] # not every half minute
    path = folder / "fit.ckpt"

    def trained() -> QAFFDESGD:
        training = TrainingConfig(solver="adam", max_steps=30, checkpoint=path)
        return QAFFDESGD(
            n_features=16,
            bandwidth=0.5,
            base_measure="gaussian",
            ridge=0.01,
            training=training,
            random_state=0,
        ).fit(X[:200])

    def train() -> QAFFDETensorTrain:
        training = TensorTrainConfig(max_steps=30, bond=4, n_functions=5, checkpoint=path)
        gaps = np.where(np.arange(400).reshape(200, 2) % 7, X[:200], np.nan)
        return QAFFDETensorTrain(training=training, random_state=0).fit(gaps)

    fits: tuple[Callable[[], Any], ...] = (trained, train)
    undisturbed = [fitted().score_samples(X) for fitted in fits]
    seconds = [timed(fitted) for fitted in fits]

    def attempt(rng: Generator) -> str:
        k = int(rng.integers(len(fits)))
        in_child(lambda: str(fits[k]()), rng.uniform(0, seconds[k]))
        scores = fits[k]().score_samples(X)
        left = [item.name for item in folder.iterdir() if not item.name.endswith(".tmp")]
        _empty(folder)
        if left:
            return f"left {left}"
        return SAME if np.array_equal(scores, undisturbed[k]) else "another fit"

    return attempt


def start_partial_fit(folder: Path) -> Attempt:
    """A stream that is saved after every chunk, and goes on after the last one."""
    path, size = folder / "model", 100
    chunks = X.reshape(-1, size, 2)

    def go_on() -> str:
        model = load(path) if path.exists() else QAFFDE(**CLOSED)
        done = round(model.sums_.weight) // size if path.exists() else 0
        for chunk in chunks[done:]:
            model.partial_fit(chunk).save(path)
        return ""

    seconds = timed(go_on)
    undisturbed = load(path).sums_.rho

    def attempt(rng: Generator) -> str:
        _empty(folder)
        in_child(go_on, rng.uniform(0, seconds))
        go_on()
        return SAME if load(path).sums_.rho.equal(undisturbed) else "another density matrix"

    return attempt


def start_command(folder: Path) -> Attempt:
    """``qaffde fit`` over an old model."""
    from qaffde.cli.app import app

    data, path = folder / "rows.csv", folder / "model.qaffde"
    np.savetxt(data, X, delimiter=",", header="a,b", comments="")
    content = data.read_bytes()
    arguments = ["fit", str(data), "-o", str(path), "--features", "60", "--bandwidth", "0.4"]

    def work() -> str:
        app(arguments, standalone_mode=False)
        return ""

    QAFFDE(**CLOSED).fit(X[:300]).save(path)
    old = path.read_bytes()
    seconds = timed(lambda: in_child(work))

    def attempt(rng: Generator) -> str:
        path.write_bytes(old)
        in_child(work, rng.uniform(0, 1.2 * seconds))
        weight = load(path).sums_.weight
        intact = data.read_bytes() == content
        return SAME if intact and weight in (300, len(X)) else f"weight {weight}, data {intact}"

    return attempt


def start_experiment(folder: Path) -> Attempt:
    """An experiment of a few rows, run again after a kill."""
    from experiments.rows import read_rows
    from experiments.runner import Files, run_cells
    from tests.experiments.tiny import tiny_cells, tiny_config, without_timings

    config = replace(tiny_config(), methods=("gmm",))

    def run(name: str) -> str:
        files = Files(folder / name, "planar-quick")
        files.folder.mkdir(exist_ok=True)
        run_cells(tiny_cells(files, config=config), files)
        return ""

    def rows(name: str) -> list[dict[str, object]]:
        return without_timings(read_rows(folder / name / "planar-quick.jsonl"))

    seconds = timed(lambda: in_child(lambda: run("undisturbed")))
    undisturbed = rows("undisturbed")

    def attempt(rng: Generator) -> str:
        in_child(lambda: run("killed"), rng.uniform(0, seconds))
        said = in_child(lambda: run("killed"))
        found = rows("killed")
        shutil.rmtree(folder / "killed")
        return SAME if not said and found == undisturbed else f"{len(found)} rows {said}"

    return attempt


def start_dask(folder: Path) -> Attempt:
    """A worker of a cluster, while it sums up rows."""
    import dask.array as da
    from distributed import Client, LocalCluster

    from qaffde.distributed import DaskSource

    cluster = LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        processes=True,
        dashboard_address=":0",
        silence_logs=logging.CRITICAL,
    )
    client = Client(cluster)
    for part in (client, cluster):
        Finalize(part, part.close, exitpriority=100)
    rows = np.random.default_rng(1).normal(size=(60_000, 3))
    table = da.from_array(rows, chunks=(5_000, 3))

    def fitted() -> QAFFDE:
        model = QAFFDE(400, 0.5, columns=Real(-9, 9), rank=50, random_state=0)
        return model.fit(DaskSource(table, client=client))

    undisturbed = fitted().score_samples(X_WIDE)
    seconds = timed(fitted)

    def attempt(rng: Generator) -> str:
        client.wait_for_workers(2)
        victim = int(rng.choice(list(client.run(os.getpid).values())))
        timer = threading.Timer(rng.uniform(0, seconds), _kill, [victim])
        timer.start()
        scores = fitted().score_samples(X_WIDE)
        timer.join()
        close = np.allclose(scores, undisturbed, rtol=0, atol=1e-9)
        return SAME if close else "another fit"

    return attempt


X_WIDE = np.random.default_rng(2).normal(size=(50, 3))


def _kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def _empty(folder: Path) -> None:
    for item in folder.iterdir():
        item.unlink()

"""Full disks and little memory: an error that says so, and everything as it was."""

import ctypes
import os
import resource
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import Generator

from benchmarks.faults.attempts import Attempt, in_child, limit_memory
from qaffde import QAFFDE, QAFFDESGD, TrainingConfig, load
from qaffde.training.checkpoint import Checkpoint

M_MMAP_THRESHOLD = -3
X = np.random.default_rng(0).normal(size=(1000, 2))


def start_disk(folder: Path) -> Attempt:
    """Writers that may write only so many bytes, each over an old file."""
    import onnx  # noqa: F401 (not in every child anew)
    import pyarrow.csv
    import pyarrow.parquet  # noqa: F401

    model = QAFFDE(n_features=40, bandwidth=0.4, base_measure="gaussian").fit(X[:300])
    source = folder / "source.qaffde"
    model.save(source)
    np.save(folder / "rows.npy", X)
    writers: dict[str, Callable[[Path], object]] = {
        "model": model.save,
        "model.onnx": model.to_onnx,
        "checkpoint": lambda path: Checkpoint(path).save({"x": model.sums_.rho}, {}),
        **{f"scored{s}": _scorer(folder, source) for s in (".csv", ".parquet", ".npz", ".arrow")},
    }
    sizes = {}
    for name, write in writers.items():
        assert in_child(lambda write=write, name=name: _said(write, folder / name)) == "written"
        sizes[name] = (folder / name).stat().st_size

    def attempt(rng: Generator) -> str:
        name = str(rng.choice(list(writers)))
        path, before = folder / name, sorted(os.listdir(folder))
        old = path.read_bytes()

        def work() -> str:
            limit = int(rng.integers(sizes[name]))
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
            return _said(writers[name], path)

        said = in_child(work)
        if path.read_bytes() != old or sorted(os.listdir(folder)) != before:
            return f"{name}: {said}, but something changed"
        return said if said == "refused" else f"{name}: {said}"

    return attempt


def _scorer(folder: Path, source: Path) -> Callable[[Path], object]:
    from qaffde.cli.app import app

    def score(path: Path) -> object:
        arguments = ["score", str(source), str(folder / "rows.npy"), "-o", str(path)]
        return app(arguments, standalone_mode=False)

    return score


def _said(write: Callable[[Path], object], path: Path) -> str:
    """Whether a writer wrote; a command fails by its exit code, a checkpoint by a warning."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            code = write(path)
    except (OSError, RuntimeWarning):
        return "refused"
    return "refused" if code == 1 else "written"


MEMORY_WORKS = [
    *("fit", "partial_fit", "score_samples", "sample", "marginal", "covariance", "load", "save"),
    *("train", "plane"),
]


def start_memory(folder: Path) -> Attempt:
    """Fits and answers with 0.3 to 100 megabytes."""
    attempt, names = memory_attempts(folder), MEMORY_WORKS
    return lambda rng: attempt(str(rng.choice(names)), int(10 ** rng.uniform(5.5, 8)))


def memory_attempts(folder: Path) -> Callable[[str, int], str]:
    """What comes of a work, by name, with so many bytes; the model is as it was.

    What the allocator keeps of memory that was freed would serve them without reaching a limit:
    here larger pieces are mapped one by one, and given back at once.
    """
    ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, 1 << 14)
    wide = np.random.default_rng(1).normal(size=(20_000, 4))
    model = QAFFDE(n_features=600, bandwidth=0.5, base_measure="gaussian").fit(wide[:1000])
    trained = QAFFDESGD(
        n_features=60,
        base_measure="gaussian",
        bandwidth=0.5,
        ridge=0.01,
        training=TrainingConfig(max_iter=3),
    ).fit(wide[:1000])
    model.save(folder / "model")
    plane = model.marginal([0, 1])
    works: dict[str, Callable[[], Any]] = {
        "fit": lambda: model.fit(wide),
        "partial_fit": lambda: model.partial_fit(wide),
        "score_samples": lambda: model.score_samples(wide),
        "sample": lambda: model.sample(5_000, random_state=0),
        "marginal": lambda: model.marginal([0]).cdf(wide[:, :1]),
        "covariance": model.covariance,
        "load": lambda: load(folder / "model"),
        "save": lambda: model.save(folder / "saved"),
        "train": lambda: trained.fit(wide),
        "plane": lambda: plane.score_samples(wide[:, :2]),
    }
    rows = wide[:20]
    before = model.score_samples(rows), trained.score_samples(rows)

    assert list(works) == MEMORY_WORKS

    def attempt(name: str, limit: int) -> str:
        def work() -> str:
            said = _with_memory(works[name], limit)
            after = model.score_samples(rows), trained.score_samples(rows)
            if said == "refused" and not all(map(np.array_equal, before, after)):
                return "changed"
            return said

        said = in_child(work)
        return said if said in ("answered", "refused") else f"{name} in {limit:,} bytes: {said}"

    return attempt


def _with_memory(work: Callable[[], Any], n_bytes: int) -> str:
    soft = resource.getrlimit(resource.RLIMIT_DATA)
    limit_memory(n_bytes)
    try:
        work()
    except MemoryError as error:
        return "refused" if str(error).strip() else "MemoryError without a message"
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, soft)
    return "answered"

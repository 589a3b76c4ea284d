"""Estimators as they were at an earlier revision: files from git, processes of their own."""

import os
import shutil
import subprocess
import sys
import tarfile
from io import BytesIO
from pathlib import Path
from tempfile import mkdtemp
from weakref import finalize

import numpy as np
from numpy.typing import NDArray

from experiments.rows import ROOT

BEFORE_MAPS = "c441c22"
"""The last one without maps of columns, kinds and gaps."""
CODE = """
import pickle, sys, time
import numpy as np, torch, qaffde
torch.set_num_threads(1)
task, name, seed = sys.argv[1:]
if task == "fit":
    X, start = np.load("X.npy"), time.process_time()
    model = getattr(qaffde, name)(random_state=int(seed)).fit(X)
    print(time.process_time() - start)
    pickle.dump(model, open("model", "wb"))
else:
    np.save("scores.npy", pickle.load(open("model", "rb")).score_samples(np.load("X.npy")))
"""
Array = NDArray[np.float64]


class EarlierEstimator:
    """An untuned estimator of `qaffde` at :data:`BEFORE_MAPS`."""

    def __init__(self, name: str, random_state: int) -> None:
        self.name, self.random_state = name, random_state

    def fit(self, X: Array) -> "EarlierEstimator":
        """Fit in a process of its own, whose seconds for this are kept."""
        self._folder = Path(mkdtemp())
        finalize(self, shutil.rmtree, self._folder)
        archive = subprocess.run(
            ["git", "-C", str(ROOT), "archive", BEFORE_MAPS, "src"],
            capture_output=True,
            check=True,
        )
        with tarfile.open(fileobj=BytesIO(archive.stdout)) as files:
            files.extractall(self._folder, filter="data")
        self.fit_cpu_seconds_ = float(self._run("fit", X))
        return self

    def score_samples(self, X: Array) -> Array:
        """Log-densities of shape (n,)."""
        self._run("score", X)
        scores: Array = np.load(self._folder / "scores.npy")
        return scores

    def _run(self, task: str, X: Array) -> str:
        """Output of a task on rows."""
        folder = self._folder
        np.save(folder / "X.npy", X)
        command = [sys.executable, "-c", CODE, task, self.name, str(self.random_state)]
        own = {**os.environ, "PYTHONPATH": str(folder / "src")}
        done = subprocess.run(command, cwd=folder, env=own, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(done.stderr.splitlines()[-1])
        return done.stdout

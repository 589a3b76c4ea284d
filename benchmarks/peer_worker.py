"""One measurement of the comparison of kernel density estimates, in a process of its own.

So the peak of memory is that of one method, a library that crashes takes nothing with it, and a
fit that takes too long is ended by a signal, whatever code it is in.
"""

import math
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.out_of_core import peak_memory
from benchmarks.peer_data import Array, Cell
from benchmarks.peer_methods import METHODS, Fitted
from experiments.rows import Row, provenance

FEW, STEP = 10, 10
WARM_ROWS = 500
MIN_REPETITIONS, MAX_REPETITIONS, MIN_SECONDS = 5, 50, 1.0
PATIENCE = 4
"""A scoring is ended by force after so many limits: it was to take less than one."""
STATUS = Path("/proc/self/status")


@dataclass(frozen=True)
class Limits:
    """What one measurement may take.

    Parameters
    ----------
    fit, score : float
        Seconds. What would score longer scores fewer queries and is scaled up.
    memory : float
        GiB of address space beyond the libraries and the data.
    """

    fit: float = 300.0
    score: float = 60.0
    memory: float = 16.0


def measure(method: str, cell: Cell, folder: Path, limits: Limits, model: Path | None) -> Row:
    """Row of one method; a method that fails has a reason in place of figures."""
    row: Row = {
        "method": method,
        "n": cell.n,
        "d": cell.d,
        "seed": cell.seed,
        "bandwidth": cell.bandwidth,
        "limits": vars(limits),
        "package": _package(METHODS[method].package),
    }
    columns = METHODS[method].columns
    if columns is not None and cell.d not in columns:
        return row | {"reason": f"for {columns[0]} columns only"} | provenance()
    found, code = in_fresh_process(_work, method, cell, folder, limits, model)
    row |= found
    if code > 0:
        raise RuntimeError(f"the process of {method} broke (code {code}); its error is above")
    if code < 0:
        row["reason"] = _cause(-code, limits, fitted="fit_seconds" in row)
    return row | provenance()


def in_fresh_process(function: Callable[..., None], *arguments: Any) -> tuple[Row, int]:
    """What a function sends, merged, and the exit code of the process that it ran in."""
    context = get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=function, args=(theirs, *arguments))
    process.start()
    theirs.close()
    found: Row = {}
    try:
        while True:
            found |= ours.recv()
    except EOFError:
        process.join()
    return found, process.exitcode or 0


def _work(
    results: Connection, name: str, cell: Cell, folder: Path, limits: Limits, model: Path | None
) -> None:
    os.dup2(2, 1)  # some libraries greet on standard output
    try:
        for found in _measurements(name, cell, folder, limits, model):
            results.send(found)
    except (Exception, MemoryError) as error:
        lines = str(error).strip().splitlines() or [""]
        results.send({"reason": f"{type(error).__name__}: {lines[0]}"})


def _measurements(name: str, cell: Cell, folder: Path, limits: Limits, model: Path | None) -> Any:
    """Parts of a row, as soon as they are known."""
    method = METHODS[name]
    for module in method.modules:
        import_module(module)
    X, Q = (cell.load(folder, what) for what in ("rows", "queries"))
    memory = Memory(limits.memory)
    _alarm(limits.fit)
    method.fit(X[:WARM_ROWS], cell.bandwidth).score_samples(Q[:FEW])
    _alarm(limits.fit)
    fitted, wall, busy = timed(partial(method.fit, X, cell.bandwidth))
    yield {"fit_seconds": wall, "fit_cpu_seconds": busy, "fit_peak_mib": memory.grown()}
    _alarm(PATIENCE * limits.score)
    _, seconds, _ = timed(partial(fitted.score_samples, Q[:FEW]))
    yield {"first_score_seconds": seconds}
    scores, found = time_scoring(fitted, Q, limits.score)
    yield found | {"peak_mib": memory.grown()}
    _alarm(0)
    if method.kind != "bare":
        yield judge(scores, cell.load(folder, "exact"), cell.load(folder, "truth"))
    if model is not None and hasattr(fitted, "save"):
        fitted.save(model)


def timed(call: Callable[[], Any]) -> tuple[Any, float, float]:
    """What a call returns, and its wall and processor seconds."""
    start, busy = time.perf_counter(), time.process_time()
    result = call()
    return result, time.perf_counter() - start, time.process_time() - busy


def time_scoring(fitted: Fitted, Q: Array, limit: float) -> tuple[Array, Row]:
    """Log-densities of as many queries as the limit allows, and the seconds that all would take.

    Ever more queries are scored while the next step is likely to stay within the limit. What
    the last step adds tells how time grows with queries: in proportion, or by less where a tree
    of them is built or something is done once. Quick ones are repeated, and the median counts.
    """
    n, power, before = min(FEW, len(Q)), 1.0, math.inf
    while True:
        scores, wall, busy = timed(partial(fitted.score_samples, Q[:n]))
        if wall > before:
            power = min(1.0, math.log(wall / before, STEP))
        more = min(STEP * n, len(Q))
        if n == len(Q) or wall * (more / n) ** power > limit:
            break
        n, before = more, wall
    walls, cpus = [wall], [busy]
    while _worth_repeating(walls):
        _, wall, busy = timed(partial(fitted.score_samples, Q[:n]))
        walls.append(wall)
        cpus.append(busy)
    scale = (len(Q) / n) ** power
    return scores, {
        "n_queries": len(Q),
        "n_scored": n,
        "extrapolated": n < len(Q),
        "power": power,
        "score_seconds": scale * median(walls),
        "score_cpu_seconds": scale * median(cpus),
        "repetitions": len(walls),
    }


def judge(scores: Array, exact: Array, truth: Array) -> Row:
    """Errors of the density relative to the exact estimate, and mean log-likelihoods beside it."""
    n = min(len(scores), len(exact))
    error = np.abs(np.expm1(scores[:n] - exact[:n]))
    mean = float(scores[:n].mean())
    return {
        "n_judged": n,
        "median_error": float(np.median(error)),
        "p95_error": float(np.quantile(error, 0.95)),
        "mean_log_density": mean if np.isfinite(mean) else None,
        "exact_mean_log_density": float(exact[:n].mean()),
        "true_mean_log_density": float(truth[:n].mean()),
    }


class Memory:
    """Growth of the resident set from now on, and a limit to that of the address space.

    Linux can forget the peak of what came before; elsewhere an earlier peak hides a lower one.

    Parameters
    ----------
    limit : float
        GiB.
    """

    def __init__(self, limit: float) -> None:
        if STATUS.exists():
            Path("/proc/self/clear_refs").write_text("5")
            self.before = _status("VmRSS")
            space = int((_status("VmSize") + 1024 * limit) * 2**20)
            resource.setrlimit(resource.RLIMIT_AS, (space, resource.RLIM_INFINITY))
        else:
            self.before = peak_memory()

    def grown(self) -> float:
        """Peak since, in MiB."""
        return round(peak_memory() - self.before, 1)


def _status(name: str) -> float:
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(f"{name}:"))
    return int(line.split()[1]) / 1024


def _worth_repeating(walls: list[float]) -> bool:
    few = len(walls) < MIN_REPETITIONS and sum(walls) < PATIENCE * MIN_SECONDS
    return few or (len(walls) < MAX_REPETITIONS and sum(walls) < MIN_SECONDS)


def _alarm(seconds: float) -> None:
    """End this process after so many seconds; never, if zero."""
    if sys.platform != "win32":
        signal.setitimer(signal.ITIMER_REAL, seconds)


def _cause(number: int, limits: Limits, *, fitted: bool) -> str:
    if number != signal.SIGALRM:
        return f"process ended by {signal.Signals(number).name}"
    if fitted:
        return f"scoring a few took over {PATIENCE * limits.score:g} s"
    return f"fit took over {limits.fit:g} s"


def _package(name: str) -> str:
    try:
        return f"{name} {version(name)}"
    except PackageNotFoundError:
        return f"{name}, not installed"

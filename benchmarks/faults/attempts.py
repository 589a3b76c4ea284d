"""Attempts of one kind, in a child process, and what came of them."""

import os
import re
import resource
import signal
import sys
import tempfile
import time
import traceback
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, Pipe
from pathlib import Path

import numpy as np
import torch
from numpy.random import Generator
from threadpoolctl import threadpool_limits

from experiments.rows import Row, provenance

MEMORY = 6 << 30
"""Bytes beyond what a child begins with: more for a small input is a bomb."""
PATIENCE = 20
"""Seconds on the clock for each of the processor's: the machine may be busy."""
WATCHED = ("os.system", "os.exec", "os.posix_spawn", "subprocess.Popen", "pickle.find_class")

Attempt = Callable[[Generator], str]


@dataclass(frozen=True)
class Kind:
    """One kind of fault.

    Parameters
    ----------
    name : str
    start : callable
        Prepares in a folder, and gives the attempt: of a random generator, what came of it.
    fine : collection of str
        Outcomes that hold.
    share : float
        Of the budget.
    is_kill : bool
        Whether it is a share of the kills, not of the inputs.
    watched : bool
        Whether an attempt may neither unpickle nor start a process.
    seconds : int
        More processor time for one attempt, or PATIENCE times as much on the clock, is a hang, and
        ends the child.
    """

    name: str
    start: Callable[[Path], Attempt]
    fine: frozenset[str]
    share: float
    is_kill: bool = False
    watched: bool = False
    seconds: int = 20


def tried(kind: Kind, n: int, seed: int = 0, begin: int = 0) -> Row:
    """Make n attempts, numbered from `begin`; a child that crashes is replaced, and counted."""
    counts: Counter[str] = Counter()
    slowest, start, end = 0.0, time.perf_counter(), begin + n
    while sum(counts.values()) < n:
        first = before = begin + sum(counts.values())
        ours, its = Pipe(duplex=False)
        child = get_context("fork").Process(target=_work, args=(kind, first, end, seed, its))
        child.start()
        its.close()
        while (said := _received(ours)) is not None:
            counts[said[0]] += 1
            slowest = max(slowest, said[1])
            before += 1
        child.join()
        if before < end:
            counts[f"crashed with exit code {child.exitcode}, attempt {before}"] += 1
        if before == first and child.exitcode == 1:
            raise SystemExit(f"{kind.name} cannot start")
    held = sum(count for what, count in counts.items() if what in kind.fine)
    return {
        "kind": kind.name,
        "begin": begin,
        "tried": n,
        "held": held,
        "outcomes": dict(sorted(counts.items())),
        "slowest_seconds": round(slowest, 2),
        "seconds": round(time.perf_counter() - start, 1),
        "seed": seed,
        **provenance(),
    }


def in_child(work: Callable[[], str], seconds: float | None = None) -> str:
    """What work answers in a child process; "killed" if that was killed after some seconds."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        _be_child(work, writing)
    os.close(writing)
    if seconds is not None:
        time.sleep(seconds)
        os.kill(pid, signal.SIGKILL)
    with os.fdopen(reading) as answer:
        said = answer.read()
    status = os.waitpid(pid, 0)[1]
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return "killed" if number == signal.SIGKILL else f"crashed by signal {number}"
    return said


def private_memory() -> int:
    """Bytes that this process may write to and shares with none."""
    found = re.search(r"VmData:\s*(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return 1024 * int(found[1])


def limit_memory(n_bytes: int) -> None:
    """Let the process have so many bytes more; beyond them, memory runs out.

    Not ``RLIMIT_AS``: the allocator has address space in reserve, 64 MB for each thread there was.
    """
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    resource.setrlimit(resource.RLIMIT_DATA, (private_memory() + n_bytes, hard))


def _be_child(work: Callable[[], str], writing: int) -> None:
    """Do the work, say what came of it and end; nothing else is printed."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)
    try:
        said = work()
    except BaseException as error:
        said = f"{type(error).__name__}: {error}"
    os.write(writing, said.encode())
    os._exit(0)


def _received(ours: Connection) -> tuple[str, float] | None:
    try:
        return ours.recv()
    except EOFError:
        return None


def _work(kind: Kind, first: int, end: int, seed: int, results: Connection) -> None:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder, threadpool_limits(1):
        attempt = kind.start(Path(folder))
        limit_memory(MEMORY)
        events: list[str] = []
        if kind.watched:
            sys.addaudithook(lambda e, _: events.append(e) if e.startswith(WATCHED) else None)
        for number in range(first, end):
            rng = np.random.default_rng([seed, zlib.crc32(kind.name.encode()), number])
            begin = time.perf_counter()
            signal.setitimer(signal.ITIMER_PROF, kind.seconds)
            signal.alarm(PATIENCE * kind.seconds)
            what = _outcome(attempt, rng)
            signal.alarm(0)
            signal.setitimer(signal.ITIMER_PROF, 0)
            if events:
                what = f"{what}, with {events.pop()}"
                events.clear()
            if what not in kind.fine:
                what = f"{what} (attempt {number})"
            results.send((what, time.perf_counter() - begin))
    results.close()


def _outcome(attempt: Attempt, rng: Generator) -> str:
    try:
        return attempt(rng)
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(place.filename).name}:{place.lineno}"
        return f"{type(error).__name__} at {where}: {' '.join(str(error).split())[:200]}"

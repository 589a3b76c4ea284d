"""Memory of a process that works for long: random moves in the explorer, and threads.

    python -m benchmarks.soak run [--minutes M] [--share S] [--only KIND] [--out FILE]
    python -m benchmarks.soak report [--results FILE]

Each kind of work runs in a process of its own, all at once. Resident memory is read every few
seconds, and each reading is a row; the slope is that of a straight line, in MB a minute, once
the first fifth is over.
"""

import gc
import resource
import tempfile
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.random import Generator

from benchmarks.commands import run_and_report
from benchmarks.explorer import ask, rows, serving
from experiments.pages import fill
from experiments.rows import ROOT, Row, append_row, markdown_table, provenance, read_rows
from qaffde import QAFFDE, QAFFDEClassifier, load
from qaffde.explore import Explorer

ROWS = ROOT / "benchmarks/results/soak.jsonl"
PAGE = ROOT / "docs/faults.md"
WARM_UP = 0.2
"""Share of the time before the slope is measured."""
TARGET = 1.0
"""MB a minute that memory may grow by."""
N_THREADS = 4
Step = Callable[[Generator], object]


@contextmanager
def explorer_moves() -> Iterator[Step]:
    """Random columns, conditions and boxes, each asked for over HTTP."""
    model = QAFFDE(n_features=200, bandwidth=0.5, base_measure=3, random_state=0)
    explorer = Explorer(model.fit(rows(5, 2000)))
    low, high = explorer.view

    def step(rng: Generator) -> object:
        shown, others = np.split(rng.permutation(5), [rng.integers(1, 3)])
        given = others[: rng.integers(len(others) + 1)]
        box = [sorted(rng.uniform(low[c], high[c], 2)) for c in shown]
        values = {str(c): rng.uniform(low[c], high[c]) for c in given}
        state = {"shown": shown.tolist(), "given": values, "box": box, "samples": 300}
        answer = ask(connection, {**state, "draft": bool(rng.integers(2))})
        connection.close()  # the server would, where this process sleeps for a minute
        return answer

    with serving(explorer) as connection:
        yield step


@contextmanager
def fit_save_load() -> Iterator[Step]:
    """Threads that fit, save, load, score and derive, all on the same few paths."""
    X = rows(3, 600)

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        path = Path(folder) / f"model{seed % 3}"
        n = int(rng.integers(100, 600))
        if rng.random() < 0.2:
            QAFFDEClassifier(n_features=40, bandwidth=0.5).fit(X[:n], X[:n, 0] > 0).save(path)
        else:
            size, base = int(rng.integers(20, 120)), ("box", "gaussian", 2)[rng.integers(3)]
            QAFFDE(n_features=size, bandwidth=0.5, base_measure=base).fit(X[:n]).save(path)
        model = load(path)
        if isinstance(model, QAFFDE):
            model.partial_fit(X[:50]).score_samples(X)
            model.marginal([0]).cdf(X[:50, :1])
            model.condition({1: 0.1}).sample(20, random_state=0)

    def step(rng: Generator) -> object:
        return list(pool.map(work, rng.integers(2**31, size=N_THREADS).tolist()))

    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(N_THREADS) as pool:
        yield step


KINDS = {
    "random moves in the explorer": explorer_moves,
    "fit, save and load in threads": fit_save_load,
}


def measure(kind: str, minutes: float, every: float, share: float) -> Iterator[Row]:
    """Work for some minutes, with that share of a processor, and read the memory now and then."""
    torch.set_num_threads(1)
    rng, n_steps = np.random.default_rng(0), 0
    with KINDS[kind]() as step:
        start, busy, due = time.monotonic(), time.process_time(), every
        while (now := time.monotonic() - start) < 60 * minutes:
            step(rng)
            n_steps += 1
            time.sleep(max((time.process_time() - busy) / share - now, 0))
            if now >= due:
                due += every
                seen = {"minute": round(now / 60, 3), "mb": round(resident_mb(), 1)}
                yield {"kind": kind, "steps": n_steps, "share": share, **seen, **provenance()}


def late(found: Sequence[Row]) -> list[Row]:
    """Readings after the warm-up."""
    return [row for row in found if row["minute"] >= WARM_UP * found[-1]["minute"]]


def slope(found: Sequence[Row]) -> float:
    """MB a minute of readings, after the warm-up."""
    pairs = np.array([(row["minute"], row["mb"]) for row in late(found)])
    return float(np.polyfit(*pairs.T, 1)[0])


def resident_mb() -> float:
    """Resident memory, garbage collected."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def table(rows: Sequence[Row]) -> str:
    """Slopes in Markdown."""
    lines = []
    for kind in KINDS:
        if found := [row for row in rows if row["kind"] == kind]:
            after, last = late(found), found[-1]
            ends = [f"{after[0]['mb']:.0f}", f"{last['mb']:.0f}", f"{slope(found):.2f}"]
            lines.append([kind, f"{last['minute']:.0f}", f"{last['steps']:,}", *ends])
    head = ["work", "minutes", "steps", "MB after warm-up", "MB at the end", "MB a minute"]
    return markdown_table(head, lines)


def report(rows: Sequence[Row], page: Path = PAGE) -> None:
    """Write the table between the markers of the page."""
    share = f"Each kind had at most {rows[0]['share']:.0%} of a processor."
    text = f"At most {TARGET:g} MB a minute is wanted. {share}"
    fill(page, "soak", f"{table(rows)}\n\n{text}")


def main(arguments: list[str] | None = None) -> None:
    """Run the command line."""
    options = _parser().parse_args(arguments)
    if options.command == "report":
        report(read_rows(options.results), options.page)
        return
    options.out.unlink(missing_ok=True)
    children: list[Any] = [
        get_context("fork").Process(target=_work, args=(kind, options)) for kind in options.only
    ]
    for child in children:
        child.start()
    for child in children:
        child.join()
    print(table(read_rows(options.out)))


def _work(kind: str, options: Namespace) -> None:
    for row in measure(kind, options.minutes, options.every, options.share):
        append_row(row, options.out)


def _parser() -> ArgumentParser:
    commands = run_and_report(__doc__, ROWS, PAGE)
    add = commands.run.add_argument
    add("--minutes", type=float, default=60.0, help="of each kind of work")
    add("--every", type=float, default=30.0, help="seconds between readings")
    add("--only", nargs="+", choices=KINDS, default=list(KINDS), metavar="KIND")
    add("--share", type=float, default=1.0, help="of a processor, for each kind of work")
    return commands.parser


if __name__ == "__main__":
    main()

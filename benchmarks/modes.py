"""Modes of fitted planar densities beside those of the true densities.

    python -m benchmarks.modes run [--rows N] [--out FILE]
    python -m benchmarks.modes report [--results FILE] [--page FILE]

True modes come from a fine grid by union-find alone, with the same least prominence and mass. On
the ridges of potential_2 to potential_4 the truth is flat: there the place of a mode means little,
and what counts is the true log-density there.
"""

import time
from argparse import Namespace
from collections.abc import Iterable, Iterator
from inspect import signature
from typing import Any

import numpy as np

from benchmarks.commands import run_or_report
from experiments.rows import ROOT, Row, markdown_table, provenance
from experiments.targets import PLANAR, Target, get_target
from qaffde import QAFFDE

RESULTS = ROOT / "benchmarks/results/modes.jsonl"
PAGE = ROOT / "docs/drift.md"
N_CELLS, DEPTH = 601, 14.0
"""Of the grid along each axis, and nats below the top that it is looked at."""
DEFAULTS = {k: p.default for k, p in signature(QAFFDE.modes).parameters.items()}


def true_modes(target: Target, n: int = N_CELLS) -> list[tuple[float, ...]]:
    """Places of the modes of a density, their log-densities and masses."""
    drawn = target.sample(20_000, 1)
    low = np.maximum(drawn.min(0) - 0.3, target.support[:, 0] + 1e-9)
    high = np.minimum(drawn.max(0) + 0.3, target.support[:, 1] - 1e-9)
    axes = [np.linspace(*ends, n) for ends in zip(low, high, strict=True)]
    points = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, 2)
    log_p = target.log_prob(points)
    p = np.exp(log_p) / np.exp(log_p).sum()
    root, held = np.full(n * n, -1), p.copy()
    least = DEFAULTS["prominence"], DEFAULTS["mass"]
    kept = []

    def top(k: int) -> int:
        while root[k] != k:
            root[k] = root[root[k]]
            k = root[k]
        return k

    order = np.argsort(-log_p)
    for k in order[log_p[order] > log_p[order[0]] - DEPTH].tolist():
        row, column = divmod(k, n)
        around = [
            (row + i) * n + column + j
            for i in (-1, 0, 1)
            for j in (-1, 0, 1)
            if (i or j) and 0 <= row + i < n and 0 <= column + j < n
        ]
        peaks = sorted({top(m) for m in around if root[m] >= 0}, key=lambda m: -log_p[m])
        root[k] = peaks[0] if peaks else k
        if peaks:
            held[peaks[0]] += p[k]
        for peak in peaks[1:]:
            if log_p[peak] - log_p[k] >= least[0] and held[peak] >= least[1]:
                kept.append(peak)
            else:
                held[peaks[0]] += held[peak]
            root[peak] = peaks[0]
    kept.append(int(order[0]))
    return [(*points[k].tolist(), float(log_p[k])) for k in sorted(kept, key=lambda k: -log_p[k])]


def run(n_rows: int) -> Iterator[Row]:
    """One row for each planar set."""
    for name in PLANAR:
        target = get_target(name)
        model = QAFFDE(random_state=0).fit(target.sample(n_rows, 0))
        start = time.process_time()
        found = model.modes(random_state=0)
        seconds = time.process_time() - start
        row = {"set": name, "rows": n_rows, "seconds": seconds, "found": found.points.tolist()}
        row |= {"true_log_density": target.log_prob(found.points).tolist()}
        yield {**row, "mass": found.mass.tolist(), "true": true_modes(target), **provenance()}


def body(rows: list[Row]) -> str:
    """Numbers of modes, and how far below the true modes the found ones are."""
    head = ["set", "true modes", "found", "farthest from a true one", "nats below it", "s"]
    return markdown_table(head, map(_line, rows))


def _line(row: Row) -> list[str]:
    true, found = np.array(row["true"]), np.array(row["found"])
    apart = np.linalg.norm(found[:, None] - true[:, :2], axis=2)
    below = true[apart.argmin(1), 2] - np.array(row["true_log_density"])
    numbers = str(len(true)), str(len(found))
    return [
        row["set"],
        *numbers,
        f"{apart.min(1).max():.2f}",
        f"{below.max():.3f}",
        f"{row['seconds']:.1f}",
    ]


def main(arguments: list[str] | None = None) -> None:
    """Run the command line."""

    def measured(options: Namespace) -> Iterable[Row]:
        return run(options.rows)

    options: Any = {"rows": {"type": int, "default": 100_000}}
    run_or_report(__doc__, RESULTS, PAGE, measured, body, arguments, options)


if __name__ == "__main__":
    main()

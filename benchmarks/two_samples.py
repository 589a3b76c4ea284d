"""Two samples: p-values without drift, power beside an MMD permutation test, and what both cost.

    python -m benchmarks.two_samples run [--trials N] [--out FILE]
    python -m benchmarks.two_samples report [--results FILE] [--page FILE]

The reference is the quadratic maximum mean discrepancy with a Gaussian kernel of the median
distance (Gretton et al., 2012), as in hyppo's ``MMD``, with permutations as matrix products. All
n² kernel values of 100,000 rows do not fit into memory: its time there is extrapolated by n² from
the largest size that was measured.
"""

import time
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy import stats

from benchmarks.commands import run_or_report
from experiments.rows import ROOT, Row, markdown_table, provenance
from qaffde import QAFFDEDriftDetector

RESULTS = ROOT / "benchmarks/results/two_samples.jsonl"
PAGE = ROOT / "docs/drift.md"
N_ROWS, N_COLUMNS, LEVEL, PERMUTATIONS = 250, 5, 0.05, 199
SIZES, MMD_SIZES, TIMED_COLUMNS = (1_000, 10_000, 100_000), (500, 1_000, 2_000, 4_000), 10


def normal(rng: np.random.Generator, n: int) -> Any:
    """Independent normal columns."""
    return rng.normal(size=(n, N_COLUMNS))


def shifted(rng: np.random.Generator, n: int) -> Any:
    """One mean is 0.3."""
    return normal(rng, n) + 0.3 * np.eye(N_COLUMNS)[0]


def wider(rng: np.random.Generator, n: int) -> Any:
    """One deviation is 1.4."""
    return normal(rng, n) * (1 + 0.4 * np.eye(N_COLUMNS)[0])


def correlated(rng: np.random.Generator, n: int) -> Any:
    """Two columns have a correlation of 0.4."""
    x = normal(rng, n)
    x[:, 1] = 0.4 * x[:, 0] + np.sqrt(1 - 0.4**2) * x[:, 1]
    return x


def bimodal(rng: np.random.Generator, n: int) -> Any:
    """One column has two modes, with the same mean and variance."""
    x = normal(rng, n)
    x[:, 0] = 0.85 * rng.choice([-1, 1], size=n) + np.sqrt(1 - 0.85**2) * x[:, 0]
    return x


def heavy(rng: np.random.Generator, n: int) -> Any:
    """All columns have the tails of Student's t with three degrees, and variance one."""
    return rng.standard_t(3, size=(n, N_COLUMNS)) / np.sqrt(3)


ALTERNATIVES = (shifted, wider, correlated, bimodal, heavy)


def table(rng: np.random.Generator, n: int) -> Any:
    """A number with gaps, whole numbers and labels."""
    x = rng.normal(size=n)
    x[rng.random(n) < 0.1] = np.nan
    words = rng.choice(["a", "b", "c"], size=n, p=[0.6, 0.3, 0.1])
    return pd.DataFrame({"x": x, "k": rng.poisson(2, size=n), "word": words})


NULLS: dict[str, tuple[Callable[[np.random.Generator, int], Any], int, int]] = {
    "five normal columns": (normal, 250, 250),
    "mixed table with gaps": (table, 250, 250),
    "groups of five rows": (normal, 10_000, 1_000),
}
"""Samplers, reference rows and new rows."""


def p_value(first: Any, second: Any, seed: int) -> float:
    """P-value of the detector."""
    detector = QAFFDEDriftDetector(n_permutations=PERMUTATIONS, random_state=seed)
    return detector.fit(first).update(second).p_value_


def mmd_p_value(first: Any, second: Any, seed: int, n: int = PERMUTATIONS) -> float:
    """P-value of the maximum mean discrepancy, with n permutations."""
    x = torch.tensor(np.concatenate([first, second])).float()
    distance = torch.cdist(x, x)
    scale = distance[distance > 0][:1_000_000].median()
    K = (-0.5 * (distance / scale).square()).exp()
    generator = torch.Generator().manual_seed(seed)
    order = torch.rand(n, len(x), generator=generator).argsort(1)
    labels = torch.cat([torch.arange(len(x))[None] < len(first), order < len(first)])
    signs = torch.where(labels, 1 / len(first), -1 / len(second))
    found = ((signs @ K) * signs).sum(1)
    return float((found >= found[0] - 1e-9).double().mean())


METHODS = {"QAFFDEDriftDetector": p_value, "MMD": mmd_p_value}


def null_rows(trials: int) -> Iterator[Row]:
    """One row for each p-value without drift."""
    for name, (draw, n, m) in NULLS.items():
        for seed in range(trials):
            rng = np.random.default_rng(seed)
            p = p_value(draw(rng, n), draw(rng, m), seed)
            yield {"what": "null", "case": name, "seed": seed, "p_value": p}


def power_rows(trials: int) -> Iterator[Row]:
    """One row for each alternative, method and seed."""
    for other in ALTERNATIVES:
        for seed in range(trials):
            rng = np.random.default_rng(10_000 + seed)
            pair = normal(rng, N_ROWS), other(rng, N_ROWS)
            for name, method in METHODS.items():
                case = {"what": "power", "case": other.__name__, "method": name, "seed": seed}
                yield {**case, "p_value": method(*pair, seed)}


def time_rows() -> Iterator[Row]:
    """Processor time of one test of n and n rows."""
    for name, sizes in (("QAFFDEDriftDetector", SIZES), ("MMD", MMD_SIZES)):
        for n in sizes:
            rng = np.random.default_rng(n)
            pair = rng.normal(size=(2, n, TIMED_COLUMNS))
            times = []
            for _ in range(3):
                start = time.process_time()
                METHODS[name](*pair, 0)
                times.append(time.process_time() - start)
            yield {"what": "time", "method": name, "n": n, "seconds": min(times)}


def run(trials: int) -> Iterator[Row]:
    """All rows, on one thread."""
    torch.set_num_threads(1)
    origin = provenance()
    for row in (*null_rows(0), *time_rows()):
        yield {**row, **origin}
    for part in (null_rows(trials), power_rows(max(trials * 2 // 5, 1))):
        for row in part:
            yield {**row, **origin}


def body(rows: list[Row]) -> str:
    """Tables of the page."""
    return "\n\n".join([nulls(rows), powers(rows), times(rows)])


def nulls(rows: list[Row]) -> str:
    """Uniformity of p-values without drift."""
    lines = []
    for case, (_, n, m) in NULLS.items():
        p = np.array([r["p_value"] for r in rows if r["what"] == "null" and r["case"] == case])
        spread = p - np.random.default_rng(0).random(len(p)) / (PERMUTATIONS + 1)
        ks = stats.kstest(spread, "uniform")  # a permutation p-value is discrete
        shares = [f"{(p <= level).mean():.3f}" for level in (0.01, 0.05, 0.1)]
        size = f"{n:,} and {m:,}"
        lines.append([case, size, str(len(p)), f"{ks.statistic:.3f}", f"{ks.pvalue:.2f}", *shares])
    head = ["no drift", "rows", "trials", "KS distance", "its p-value", "p ≤ 0.01", "0.05", "0.1"]
    return markdown_table(head, lines)


def powers(rows: list[Row]) -> str:
    """Power at one level."""
    lines = []
    for other in ALTERNATIVES:
        found = [r for r in rows if r["what"] == "power" and r["case"] == other.__name__]
        p = {
            name: np.array([r["p_value"] for r in found if r["method"] == name])
            for name in METHODS
        }
        shares = [f"{(p[name] <= LEVEL).mean():.2f}" for name in METHODS]
        lines.append([str(other.__doc__).rstrip("."), *shares])
    return markdown_table([f"power at level {LEVEL}", *METHODS], lines)


def times(rows: list[Row]) -> str:
    """Processor times, and the ratio at the largest size."""
    found = [r for r in rows if r["what"] == "time"]
    own = {r["n"]: r["seconds"] for r in found if r["method"] != "MMD"}
    other = {r["n"]: r["seconds"] for r in found if r["method"] == "MMD"}
    lines = [
        [f"{n:,}", _seconds(own.get(n)), _seconds(other.get(n))] for n in sorted({*own, *other})
    ]
    last, most = max(own), max(other)
    guess = other[most] * (last / most) ** 2
    text = (
        f"At {last:,} rows the reference would need {guess:,.0f} s, by n² from {most:,}: "
        f"{guess / own[last]:,.0f} times as long, and {4 * (2 * last) ** 2 / 1e9:,.0f} GB."
    )
    return f"{markdown_table(['rows of each', *(f'{m}, s' for m in METHODS)], lines)}\n\n{text}"


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def main(arguments: list[str] | None = None) -> None:
    """Run the command line."""

    def measured(options: Namespace) -> Iterable[Row]:
        return run(options.trials)

    options: Any = {"trials": {"type": int, "default": 500, "help": "without drift"}}
    run_or_report(__doc__, RESULTS, PAGE, measured, body, arguments, options)


if __name__ == "__main__":
    main()

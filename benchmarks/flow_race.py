"""Race QAFFDE-SGD against a neural spline flow that has many times its time.

    python -m benchmarks.flow_race run [--sets NAME …] [--factor F] [--n ROWS] [--out FILE]
    python -m benchmarks.flow_race report [--results FILE]

Both train with defaults on the same rows, one after the other in one process, and are judged on
the same held-out rows. The flow gets as many steps as fit into F times the time, so that its
learning rate falls to the end. Time is processor time. Rows are appended as they are measured, and
those that are there are not measured again.
"""

import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.commands import run_or_report
from experiments.rows import ROOT, Row, markdown_table, provenance, read_rows
from experiments.targets import PLANAR, get_target
from qaffde import QAFFDESGD
from qaffde.baselines import NSF

ROWS = ROOT / "benchmarks/results/flow_race.jsonl"
PAGE = ROOT / "docs/comparisons.md"
N_HELD_OUT = 50_000
TRIAL_SHARE, TRIAL_STEPS = 0.05, 1_000_000
MARGIN = 1.25
"""More steps than a trial says, so that the flow's time is hardly ever short of its due."""

Array = NDArray[np.float64]


def race(train: Array, held_out: Array, factor: float, seed: int, **parameters: Any) -> Row:
    """Held-out mean log-likelihood and seconds of both, and the standard error of the difference.

    `parameters` are those of QAFFDE-SGD.
    """
    ours = QAFFDESGD(random_state=seed, **parameters)
    seconds = _seconds(lambda: ours.fit(train))
    steps = steps_within(factor * seconds, train, seed)
    flow = spline_flow(steps, seed)
    flow_seconds = _seconds(lambda: flow.fit(train))
    scores = ours.score_samples(held_out), flow.score_samples(held_out)
    gain = scores[0] - scores[1]
    return {
        "factor": factor,
        "standard_error": float(gain.std(ddof=1) / len(gain) ** 0.5),
        "qaffde_sgd": {"log_likelihood": float(scores[0].mean()), "seconds": round(seconds, 3)},
        "nsf": {
            "log_likelihood": float(scores[1].mean()),
            "seconds": round(flow_seconds, 3),
            "steps": steps,
        },
    }


def spline_flow(steps: int, seed: int, time_limit: float | None = None) -> NSF:
    """Flow that takes all of its steps, unless time is over."""
    training = replace(NSF.default_training, max_steps=steps, patience=None)
    return NSF(training=training, time_limit=time_limit, random_state=seed)


def steps_within(seconds: float, train: Array, seed: int) -> int:
    """Steps of the flow that take at least some seconds, from a trial of a part of them."""
    spline_flow(1, seed).fit(train)  # imports, on nobody's clock
    limit = TRIAL_SHARE * seconds
    trial = spline_flow(TRIAL_STEPS, seed, limit)
    spent = _seconds(lambda: trial.fit(train))
    return max(1, int(MARGIN * seconds * trial.history_.steps[-1] / spent))


def run(options: Namespace) -> Iterator[Row]:
    """Rows of every set that the file does not have yet."""
    factor, n, seed, found = options.factor, options.n, options.seed, read_rows(options.out)
    done = {(row["set"], row["seed"], row["factor"], row["n_train"]) for row in found}
    for name in options.sets:
        if (name, seed, factor, n) in done:
            continue
        target = get_target(name)
        train, held_out = target.sample(n, 2 * seed), target.sample(N_HELD_OUT, 2 * seed + 1)
        entropy = -float(target.log_prob(held_out).mean())
        row = {"set": name, "seed": seed, "n_train": n, "entropy": entropy}
        yield row | race(train, held_out, factor, seed) | provenance()


def table(rows: list[Row]) -> str:
    """One line for each race."""
    head = ["set", "QAFFDE-SGD: excess", "seconds", "NSF: excess", "seconds", "times", "better"]
    return markdown_table(head, [_line(row) for row in rows])


def _line(row: Row) -> list[str]:
    ours, flow = row["qaffde_sgd"], row["nsf"]
    excess = [-row["entropy"] - side["log_likelihood"] for side in (ours, flow)]
    return [
        row["set"],
        f"{excess[0]:.5f}",
        f"{ours['seconds']:.0f}",
        f"{excess[1]:.5f}",
        f"{flow['seconds']:.0f}",
        f"{flow['seconds'] / ours['seconds']:.1f}",
        "QAFFDE-SGD" if excess[0] <= excess[1] else "NSF",
    ]


def body(rows: list[Row]) -> str:
    """The table, and who was better."""
    wins, first = sum(_line(row)[-1] == "QAFFDE-SGD" for row in rows), rows[0]
    text = (
        f"{first['n_train']:,} rows, {first['threads']} thread(s); the flow has as many steps as "
        f"fit into {first['factor']:g} times the processor time of QAFFDE-SGD, which has the "
        f"better held-out likelihood on {wins} of {len(rows)} sets. Rows of {first['date'][:10]}."
    )
    return f"{table(rows)}\n\n{text}"


OPTIONS = {
    "sets": {"nargs": "+", "choices": PLANAR, "default": PLANAR, "metavar": "NAME"},
    "factor": {"type": float, "default": 10.0},
    "n": {"type": int, "default": 100_000},
    "seed": {"type": int, "default": 20},
}


def main(arguments: list[str] | None = None) -> None:
    """Run the command line."""
    run_or_report(__doc__, ROWS, PAGE, run, body, arguments, OPTIONS, keep=True)


def _seconds(call: Callable[[], Any]) -> float:
    """Processor seconds, which a neighbour on the machine does not stretch."""
    start = time.process_time()
    call()
    return time.process_time() - start


if __name__ == "__main__":
    main()

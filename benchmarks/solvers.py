"""Race the solvers of the convex problem: whose likelihood is best after how many seconds.

    python -m benchmarks.solvers run [--n ROWS] [--seconds S] [--out FILE]
    python -m benchmarks.solvers report [--results FILE]

Every solver starts from the same state, on the same coordinates, and has the same time. ``report``
writes the table into docs/comparisons.md.
"""

from argparse import Namespace
from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from benchmarks.commands import run_or_report
from experiments.rows import ROOT, Row, markdown_table, provenance
from experiments.targets import get_target
from qaffde.nn import FourierFeatures
from qaffde.selection import SelectionPolicy
from qaffde.selection.base_measure import fit_box
from qaffde.training import History, negative_log_likelihood, train
from qaffde.training.likelihood import SOLVERS, Whitening, whiten
from qaffde.training.run import Run

ROWS = ROOT / "benchmarks/results/solvers.jsonl"
PAGE = ROOT / "docs/comparisons.md"
PROBLEMS = {"potential_1": 0.35, "potential_3": 0.3, "swiss_roll": 0.3}
"""Sets, and bandwidths in the units of the data."""
RIDGES = (1e-3, 1e-6)
RANK = 16
GAPS = (1e-2, 1e-3, 1e-4)
"""Nats between a training likelihood and the best that any solver reached."""
ENDLESS = 10**6
REMOVED = "The two fixed-point iterations in these rows are no longer part of the package."


def run(options: Namespace) -> Iterator[Row]:
    """Rows of every problem, ridge and solver."""
    n, seconds = options.n, options.seconds
    for name, h in PROBLEMS.items():
        for ridge in RIDGES:
            space, X = problem(name, h, ridge, n)
            E = space.coordinates(X)
            for solver in SOLVERS:
                history = race(solver, space, X, E, seconds)
                yield {
                    "set": name,
                    "bandwidth": h,
                    "ridge": ridge,
                    "n": n,
                    "n_coordinates": E.shape[1],
                    "rank": RANK,
                    "solver": solver,
                    "seconds": [round(value, 3) for value in history.seconds],
                    "loss": [round(value, 7) for value in history.valid_loss],
                    **provenance(),
                }


def problem(name: str, h: float, ridge: float, n: int) -> tuple[Whitening, Tensor]:
    """Whitened features on the box of n rows of a set."""
    X = torch.tensor(get_target(name).sample(n, random_state=0))
    policy = SelectionPolicy()
    measure = fit_box(X, room_rows=policy.room_rows)
    bandwidth = torch.full((2,), h, dtype=X.dtype)
    generator = torch.Generator().manual_seed(0)
    period = measure.upper - measure.lower + policy.lattice_margin * bandwidth
    features = FourierFeatures.draw("lattice", 1000, bandwidth, period, generator)
    return whiten(features, measure, ridge, 1e-7), X


def race(solver: str, space: Whitening, X: Tensor, E: Tensor, seconds: float) -> History:
    """Run a solver against the clock; its validation loss is that of all training rows.

    The evaluations are on the clock too: the same for all, and few for those with small steps.
    """
    weight = torch.ones(len(E))
    state, chosen = space.start(X, weight, RANK), SOLVERS[solver]
    every = 20 if solver == "adam" else 1
    config = chosen.config(ENDLESS, len(E), Run(seconds), eval_every=every)
    if solver == "adam":  # whose rate must fall within its time
        config = replace(config, max_steps=1500)
    rows = (E, weight)
    return train(
        state,
        negative_log_likelihood,
        rows,
        rows,
        config,
        torch.Generator().manual_seed(0),
        make_optimizer=chosen.make_optimizer,
    )


def table(rows: list[Row]) -> str:
    """Seconds until a likelihood is within each gap of the best, for every problem and solver."""
    solvers = list(dict.fromkeys(row["solver"] for row in rows))
    head = ["set", "ridge", "n", *solvers]
    problems = {(row["set"], row["ridge"]): row for row in rows}
    lines = []
    for (name, ridge), any_row in problems.items():
        of = {row["solver"]: row for row in rows if (row["set"], row["ridge"]) == (name, ridge)}
        best = min(min(row["loss"]) for row in of.values())
        cells = [_times(of[solver], best) if solver in of else "" for solver in solvers]
        lines.append([name, f"{ridge:g}", str(any_row["n_coordinates"]), *cells])
    return markdown_table(head, lines)


def _times(row: Row, best: float) -> str:
    return " / ".join(_time_to(row, best + gap) for gap in GAPS)


def _time_to(row: Row, loss: float) -> str:
    reached = (t for t, value in zip(row["seconds"], row["loss"], strict=True) if value <= loss)
    first = next(reached, None)
    return "–" if first is None else f"{first:.1f}"


def body(rows: list[Row]) -> str:
    """The table, and what it is of."""
    removed = "" if {row["solver"] for row in rows} <= set(SOLVERS) else f" {REMOVED}"
    text = (
        f"Seconds until the mean training log-likelihood is within {', '.join(map(str, GAPS))} "
        'nats of the best that any solver reached ("–": not in its time); '
        f"{rows[0]['n']:,} rows, rank {RANK}, {rows[0]['threads']} thread(s), n coordinates."
    )
    return f"{table(rows)}\n\n{text}{removed}"


def main(arguments: list[str] | None = None) -> None:
    """Run the command line."""
    seconds = {"type": float, "default": 15.0, "help": "for each solver"}
    options = {"n": {"type": int, "default": 50_000}, "seconds": seconds}
    run_or_report(__doc__, ROWS, PAGE, run, body, arguments, options)


if __name__ == "__main__":
    main()

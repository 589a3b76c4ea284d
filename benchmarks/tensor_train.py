"""Likelihood of tensor trains and chains on POWER, and what the calculus of trains costs.

    python -m benchmarks.tensor_train run [--rows N …] [--estimator NAME …] [--time-limit S …]
        [--tables NAME …] [--skip-costs] [--out FILE]
    python -m benchmarks.tensor_train report [--results FILE]

POWER lies in the folder of tables ($QAFFDE_DATA or ~/.cache/qaffde). A fit is untuned and sees
training rows only; the test rows are scored once, when it is done. Seconds, and limits of them,
are processor time. Tables are measured by methods of ``python -m experiments run tables``; the
report shows them with the ten of that experiment.
"""

import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.mixture import GaussianMixture

from benchmarks.commands import run_and_report
from experiments.headline import power_rows
from experiments.real import LABELS, OURS, Comparison, TableCell
from experiments.rows import ROOT, Row, append_row, markdown_table, provenance, read_rows
from qaffde import QAFFDEAutoregressive, QAFFDETensorTrain, TensorTrainConfig
from qaffde.baselines import MAF, NSF
from qaffde.nn import ColumnBasis, TensorTrain, WaveBasis

ROWS = ROOT / "benchmarks/results/tensor_train.jsonl"
PAGE = ROOT / "docs/tensor_train.md"
TABLES = Path(os.environ.get("QAFFDE_DATA", "~/.cache/qaffde")).expanduser()
TRAIN, CHAIN = "QAFFDETensorTrain", "QAFFDEAutoregressive"
HALF = f"{TRAIN}(bond=32)"
TRAINS: dict[str, Any] = {TRAIN: "auto", HALF: 32}
CHAINS = {CHAIN: 20, "chain of mixtures": 1}
"""Functions of each conditional density: with one it is a mixture of Gaussians."""
MIXTURE = "Gaussian mixture"
FLOWS: dict[str, Any] = {"NSF": NSF, "MAF": MAF}
ESTIMATORS = (*TRAINS, *CHAINS, *FLOWS, MIXTURE)
COLUMNS, BOND, FUNCTIONS = (5, 10, 20, 40), 32, 32
ALL_ROWS = 1_659_917
TEN_TABLES = ROOT / "experiments/results/tables-standard.jsonl"
BESIDE = {**dict.fromkeys((*OURS, "gmm_bic")), "nsf": 120}
"""Methods on tables, with the seconds of a flow."""
Array = NDArray[np.float64]
COMB = 0.001 / 1.057
"""Width of the gaps between the values of POWER's first column, in standard deviations."""


class TimedMixture:
    """Mixture of Gaussians whose number is doubled while held-out rows gain and time is left."""

    def __init__(self, seconds: float, seed: int) -> None:
        self.seconds, self.seed = seconds, seed

    def fit(self, X: Array) -> None:
        """Fit to standardized rows, of which a tenth is held out to choose by."""
        start, size, self.best = time.process_time(), 1, -math.inf
        self.location, self.scale = X.mean(0), X.std(0)
        Z = self._standard(X)[np.random.default_rng(self.seed).permutation(len(X))]
        held_out, rows = Z[: len(Z) // 10], Z[len(Z) // 10 :]
        while True:
            model = GaussianMixture(size, reg_covar=1e-7, random_state=self.seed).fit(rows)
            spent, score = time.process_time() - start, model.score(held_out)
            if score <= self.best or spent > self.seconds:
                break
            self.model, self.best, size = model, score, 2 * size

    def score(self, X: Array) -> float:
        """Mean log-likelihood of rows."""
        return float(self.model.score(self._standard(X)) - np.log(self.scale).sum())

    def _standard(self, X: Array) -> Array:
        return (X - self.location) / self.scale


def make_model(estimator: str, n: int, seconds: float | None, seed: int) -> Any:
    """Untuned estimator; flows have steps for all of their time, over which their rate falls."""
    common: Any = {"time_limit": seconds, "random_state": seed, "verbose": True}
    if estimator in TRAINS:
        name = f".{n}.{TRAINS[estimator]}.checkpoint"
        checkpoint = TensorTrainConfig(checkpoint=ROWS.with_suffix(name))
        return QAFFDETensorTrain(bond=TRAINS[estimator], training=checkpoint, **common)
    if estimator in CHAINS:
        return QAFFDEAutoregressive(n_functions=CHAINS[estimator], **common)
    if seconds is None:
        raise ValueError(f"{estimator} needs a --time-limit")
    if estimator == MIXTURE:
        return TimedMixture(seconds, seed)
    usual = FLOWS[estimator].default_training
    steps = round(usual.max_steps * max(1, seconds / 60))
    return FLOWS[estimator](training=replace(usual, max_steps=steps, patience=None), **common)


def power(n: int, estimator: str = TRAIN, time_limit: float | None = None, seed: int = 0) -> Row:
    """Mean log-likelihood of the test rows after an untuned fit to n training rows."""
    train = np.load(TABLES / "power/train.npy", mmap_mode="r")
    chosen = np.sort(np.random.default_rng(seed).permutation(len(train))[:n])
    X = train[chosen].astype(np.float64)
    model = make_model(estimator, n, time_limit, seed)
    clocks = dict.fromkeys(("monotonic", "perf_counter"), time.process_time)
    with patch.multiple(time, **clocks):  # limits are of processor time
        seconds = _seconds(lambda: model.fit(X))
    test = np.load(TABLES / "power/test.npy").astype(np.float64)
    filled = test.copy()
    filled[::2, 0] += COMB
    found = {
        "task": "power",
        "estimator": estimator,
        "n_train": len(X),
        "seed": seed,
        "time_limit": time_limit,
        "log_likelihood": model.score(test),
        "gaps_filled": model.score(filled),
        "seconds": round(seconds, 1),
    }
    if estimator == MIXTURE:
        return found | {"n_components": model.model.n_components}
    history = model.history_
    share = seconds / history.steps[-1]
    return found | {
        "steps": history.steps[-1],
        "stopped_by": history.stopped_by,
        "curve": [
            (round(share * step), round(loss, 4))
            for step, loss in zip(history.steps, history.valid_loss, strict=True)
        ],
    }


def random_train(
    bases: Sequence[ColumnBasis],
    bond: int,
    *,
    rank: int = 1,
    noise: float = 0.5,
    places: Sequence[int] | None = None,
    generator: torch.Generator,
) -> TensorTrain:
    """Independent parts, and noise that falls with a function's frequency."""

    def normal(*shape: int) -> torch.Tensor:
        return noise * torch.randn(shape, generator=generator, dtype=torch.float64)

    bonds = [1, *[bond] * len(bases)]
    mixers = [normal(a, b) / math.sqrt(b) + torch.eye(a, b) for a, b in pairwise(bonds)]
    loadings = [normal(bond, basis.n_functions) / (1 + basis.roughness).sqrt() for basis in bases]
    for V in loadings:
        V[:, 0] += 1
    return TensorTrain(mixers, loadings, bases, places, end=1 + normal(bond, rank)).normalized()


def costs(d: int, repetitions: int = 5) -> Row:
    """Milliseconds of operations on a random train of d columns, the least of some repetitions."""
    generator = torch.Generator().manual_seed(0)
    bases = [WaveBasis(FUNCTIONS)] * d
    train = random_train(bases, BOND, rank=8, generator=generator)
    x = train.sample(20, generator).repeat(500, 1)
    some, box = list(range(d // 4, d - d // 4)), torch.tensor([[-1.0, 1.0]]).double()

    def least(work: Callable[[], Any]) -> float:
        return 1000 * min(_seconds(work) for _ in range(repetitions))

    return {
        "task": "costs",
        "d": d,
        "bond": BOND,
        "n_functions": FUNCTIONS,
        "score_us": 1000 * least(lambda: train.log_prob(x)) / len(x),
        "marginal_ms": least(lambda: train.marginal(some)),
        "condition_ms": least(lambda: train.condition(some, x[0, some])),
        "box_ms": least(lambda: train.probability([box] * d)),
        "draw_us": 1000 * least(lambda: train.sample(1000, generator)) / 1000,
    }


def run(
    sizes: Sequence[int],
    path: Path,
    *,
    estimators: Sequence[str] = (TRAIN,),
    time_limits: Sequence[float | None] = (None,),
    tables: Sequence[str] = (),
    with_costs: bool = True,
) -> None:
    """Append the rows that the file does not have yet."""
    names = "task", "n_train", "estimator", "time_limit", "d"
    done = {tuple(row.get(name) for name in names) for row in read_rows(path)}
    done |= {(row.get("set"), row.get("method")) for row in read_rows(path)}
    for cell in table_cells(tables, path.parent):
        if (cell.set, cell.method) not in done:
            row = {"task": "table", "set": cell.set, "method": cell.method, **cell.notes()}
            append_row(row | cell.measured() | provenance(), path)
    for d in COLUMNS if with_costs else ():
        if ("costs", None, None, None, d) not in done:
            append_row(costs(d) | provenance(), path)
    for n, estimator, time_limit in product(sizes, estimators, time_limits):
        if ("power", n, estimator, time_limit, None) not in done:
            append_row(power(n, estimator, time_limit) | provenance(), path)
            print(read_rows(path)[-1], flush=True)


def table_cells(names: Sequence[str], scratch: Path) -> Iterator[TableCell]:
    """Methods on tables."""
    for name, (method, limit) in product(names, BESIDE.items()):
        yield TableCell("standard", name, method, 0, 100_000, limit or 0, scratch)


def report(rows: list[Row], page: Path = PAGE) -> None:
    """Write the page."""
    found = [row for row in rows if row["task"] == "costs"]
    ends = [min(found, key=lambda row: row["d"]), max(found, key=lambda row: row["d"])]
    slope = np.log(ends[1]["score_us"] / ends[0]["score_us"]) / np.log(ends[1]["d"] / ends[0]["d"])
    page.write_text(
        f"""\
# Tensor trains and chains

{{class}}`~qaffde.QAFFDETensorTrain` is the density matrix of many columns: the Born rule of a
matrix-product state. Each column is mapped to its normal scores and has K orthonormal functions e
of its own; the amplitude is a product of matrices, one for each column,

$$
p(x) = \\lVert S A_1(x_1) A_2(x_2) \\cdots A_d(x_d) E \\rVert^2 \\prod_t m_t(x_t), \\qquad
A_t(x) = W_t \\operatorname{{diag}}(V_t e_t(x))
$$

with the columns' own densities $m_t$. Matrices $\\rho$ carry all integrals from column to column,
$\\rho \\leftarrow (W^\\top \\rho W) \\circ O$, where O is $vv^\\top$ with $v = V e(x)$ for a
column at a value, $VV^\\top$ for one that is integrated out, and $V G V^\\top$ for one in an
interval, whose Gram matrix G is closed. So the mass is one exactly, and marginals, conditionals,
boxes, distribution functions and draws are exact, at a cost that is linear in the columns.

- **Functions.** Cosines in a variable that gives half of its resolution by mass and half by the
  root of the density, so that rare values can be told apart. A circle has its Fourier basis,
  codes have functions that are orthonormal under their masses. All kinds of columns, and gaps,
  are those of data frames.
- **Training.** Maximum likelihood by Adam, less a penalty λ Σ ∫‖∂Ψ‖² on the roughness of the
  amplitude (Good and Gaskins, 1971), which is exact too. It starts at independent columns, and
  they are the result if nothing better is found on held-out rows. The order of the columns is a
  path through the pairs of largest mutual information.
- **Several amplitudes.** E has r = 8 columns. With one, Ψ is zero on whole surfaces and training
  near them is erratic.
{_bond_item(rows)}\
- **A shared W.** Cores of a plain train are K free matrices for each column; here they are W
  diag(V^k). K does not enter any contraction, and for the same time the bond is larger.

## POWER

Mean log-likelihood of the 204,928 test rows, in nats, after an untuned fit on one thread. The
first column moves in steps of twice the width of its noise; "steps filled" is the likelihood of
the test rows with half of them moved into the gaps, which a model that had learned the gaps would
not forgive.

{_power_table(rows)}

Published, with all rows and hours on a GPU: MAF 0.24 to 0.45, tensor trains (TTDE) 0.46, MDMA
0.57, squared circuits 0.62, neural spline flows 0.66.

At equal processor time, with 100,000 rows; in brackets the seconds of fits that ended on their own
before, or took longer, and the number of Gaussians. Flows (zuko) are those of `qaffde.baselines`,
and their rate falls over all of their time; a chain of mixtures is
`QAFFDEAutoregressive(n_functions=1)`; mixtures are doubled while held-out rows gain and time is
left.

{_race_table(rows)}

## Costs

A random train with bond {BOND} and {FUNCTIONS} functions, one thread. A marginal keeps the middle
half of the columns, a condition gives it. From {ends[0]["d"]} to {ends[1]["d"]} columns, the time
of scoring grows with the power {slope:.2f} of their number.

{_cost_table(found)}

## Chains

{{class}}`~qaffde.QAFFDEAutoregressive` is the product of the densities of each column given those
before it. One masked residual network gives the conditional densities of
{{class}}`~qaffde.QAFFDERegressor`, each a Born density on a base of Gaussians, on columns mapped
to normal scores; codes have masses, circles waves, and the line beside an atom is not there at
the atom. Log-densities and draws are exact, and so are marginals of the first columns and
conditionals given them, in an `order` of your choice; the rest is refused
([tutorial](auto_examples/plot_chain)). Training takes twelve passes over many rows unless held-out
rows gain no more before; a time limit ends it well too, as its rate falls with the time.

## Likelihood over columns

Mean log-likelihood of test rows of tables, in nats, the best in bold: those of
[ten tables](comparisons.md#ten-real-tables), which have up to 21 columns.
{_columns_table(rows)}

## Where it ends

Columns that are nearly linear functions of each other need large bonds: correlations along the
chain are cheap, those between distant columns and very strong ones are not. There the base
measure of {{class}}`~qaffde.QAFFDESGD`, a mixture of Gaussians, is better, as the tables above
show: take the train where rows are a hundred thousand and more and dependence is curved, QAFFDE
where columns are nearly linear functions of each other, and {{func}}`qaffde.fit`, which tries
both on held-out rows, where you do not know. Trains and chains see a sample of a million rows of
a larger source of chunks. There is no update with new rows.

Rows of {rows[0]["date"][:10]}. Rebuild with
`python -m benchmarks.tensor_train run`, then `report`.
""",
        encoding="utf-8",
    )


def _power_table(rows: list[Row]) -> str:
    head = ["training rows", "estimator", "log-likelihood", "steps filled", "processor seconds"]
    return markdown_table(
        [*head, "limit", "steps"],
        [
            [
                f"{row['n_train']:,}",
                f"`{row['estimator']}`",
                f"{row['log_likelihood']:.3f}",
                f"{row['gaps_filled']:.3f}",
                f"{row['seconds']:.0f}",
                f"{row['time_limit']:.0f} s" if row["time_limit"] else "none",
                f"{row['steps']:,}",
            ]
            for row in power_rows(rows)
        ],
    )


def _bond_item(rows: list[Row], after: tuple[int, ...] = (2, 5, 10)) -> str:
    """Held-out log-likelihood after some seconds at half the bond and at all of it."""
    found = {row.get("estimator"): row.get("curve") for row in rows if row.get("time_limit") == 30}
    if not {TRAIN, HALF} <= found.keys():
        return ""
    best = {
        name: [f"{-min(loss for at, loss in found[name] if at <= s):.3f}" for s in after]
        for name in (TRAIN, HALF)
    }
    seconds = ", ".join(map(str, after))
    return (
        "- **Bonds do not grow.** At half the bond steps are shorter, but the likelihood of held-"
        f"out rows\n  does not rise faster: after {seconds} s on POWER (100,000 rows) it is "
        f"{', '.join(best[HALF])},\n  and {', '.join(best[TRAIN])} at the whole bond (in units of "
        "normal scores).\n"
    )


def _race_table(rows: list[Row]) -> str:
    """Log-likelihood by estimator and seconds."""
    raced = {
        (row["estimator"], row["time_limit"]): row
        for row in rows
        if row["task"] == "power" and row["n_train"] < ALL_ROWS and row["time_limit"] is not None
    }
    limits = sorted({limit for _, limit in raced})

    def cell(row: Row | None) -> str:
        if row is None:
            return ""
        notes = [f"{row['n_components']} Gaussians"] if "n_components" in row else []
        near = 0.9 < row["seconds"] / row["time_limit"] < 1.1
        notes += [] if near else [f"{row['seconds']:.0f} s"]
        return f"{row['log_likelihood']:.3f}" + (f" ({', '.join(notes)})" if notes else "")

    def row_of(name: str, limit: float) -> Row | None:
        """Row with this limit, or one with less that ended before its own."""
        own = [row for row in raced.values() if row["estimator"] == name]
        ended = [row for row in own if row["seconds"] < 0.9 * row["time_limit"] <= limit]
        return raced.get((name, limit), ended[-1] if ended else None)

    names = [name for name in ESTIMATORS if any(name == found for found, _ in raced)]
    lines = [[name, *(cell(row_of(name, limit)) for limit in limits)] for name in names]
    return markdown_table(["estimator", *(f"{limit:.0f} s" for limit in limits)], lines)


def _columns_table(rows: list[Row]) -> str:
    """On how many tables the train is ahead of the others, and a table in the order of columns."""
    measured = [row for row in rows if row["task"] == "table"] + read_rows(TEN_TABLES)
    results = Comparison(measured, ())
    size = {row["set"]: (row["n_columns"], row["n_train"]) for row in measured}
    ahead, lines = dict.fromkeys(BESIDE, 0), []
    for name in sorted(size, key=lambda name: size[name]):
        found = {m: results.figure(name, m, limit) for m, limit in BESIDE.items()}
        score = {m: row["log_likelihood"] for m, row in found.items() if row}
        for m in score:
            ahead[m] += score.get("tensor_train", -math.inf) > score[m]
        best = max(score.values())
        texts = {m: f"**{v:.3f}**" if v == best else f"{v:.3f}" for m, v in score.items()}
        cells = [texts.get(m, "–") for m in BESIDE]
        lines.append([f"{size[name][0]}", name, f"{size[name][1]:,}", *cells])
    heads = [LABELS[m] + (f", {limit} s" if limit else "") for m, limit in BESIDE.items()]
    others = ", ".join(
        f"of {head} on {ahead[m]}"
        for m, head in zip(BESIDE, heads, strict=True)
        if m != "tensor_train"
    )
    table = markdown_table(["columns", "table", "rows", *heads], lines)
    return f"Of {len(size)}, the train is ahead {others}.\n\n{table}"


def _cost_table(rows: list[Row]) -> str:
    head = ["columns", "score, µs a row", "marginal, ms", "condition, ms", "box, ms", "draw, µs"]
    names = "score_us", "marginal_ms", "condition_ms", "box_ms", "draw_us"
    return markdown_table(
        head, [[str(row["d"]), *(f"{row[name]:.1f}" for name in names)] for row in rows]
    )


def _seconds(work: Callable[[], Any]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def main(arguments: list[str] | None = None) -> None:
    """Run the command line."""
    commands = run_and_report(__doc__, ROWS, PAGE)
    commands.run.add_argument("--rows", type=int, nargs="*", default=[100_000, ALL_ROWS])
    commands.run.add_argument("--estimator", nargs="+", choices=ESTIMATORS, default=[TRAIN])
    commands.run.add_argument("--time-limit", type=float, nargs="+", default=[None])
    commands.run.add_argument("--tables", nargs="*", default=[])
    commands.run.add_argument("--skip-costs", action="store_true")
    options = commands.parser.parse_args(arguments)
    if options.command == "run":
        torch.set_num_threads(1)
        run(
            options.rows,
            options.out,
            estimators=options.estimator,
            time_limits=options.time_limit,
            tables=options.tables,
            with_costs=not options.skip_costs,
        )
    else:
        report(read_rows(options.results), options.page)


if __name__ == "__main__":
    main()

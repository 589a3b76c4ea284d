"""The baselines with their default settings on the planar densities.

    python -m experiments.baselines run [--methods NAME …] [--sets NAME …] [--seeds N …]
    python -m experiments.baselines report [--rows FILE]

``run`` fits and scores every method, set and seed and appends one row each to a JSON-lines file;
what is there already is not run again. ``report`` rebuilds the tables in docs/baselines.md,
between their markers, from the rows alone.
"""

import argparse
import time
from collections.abc import Callable, Iterable
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Any

import zuko

from experiments.pages import fill
from experiments.results import paper_figures
from experiments.rows import ROOT, Row, append_row, markdown_table, provenance, read_rows
from qaffde.baselines import BASELINES, get_baseline
from qaffde.baselines.base import TrainedEstimator
from qaffde.estimators.base import DensityEstimator
from qaffde.metrics import density_metrics
from qaffde.targets import PLANAR, get_target

ROWS = ROOT / "experiments/results/baselines.jsonl"
PAGE = ROOT / "docs/baselines.md"

METHODS = ("maf", "nsf", "made", "planar", "realnvp", "iaf", "gmm", "roundtrip")
UNCHANGED = ("arc", "bimodal_l", "binomial", "potential_1", "star_eight", "swiss_roll")
"""Sets whose definition is the paper's."""
SETS = (*UNCHANGED, "potential_4")

Key = tuple[str, str, int, int, int]


def run(
    methods: Iterable[str],
    sets: Iterable[str],
    seeds: Iterable[int],
    n_train: int,
    n_test: int,
    path: Path,
) -> None:
    """Append the row of every method, set and seed that the file does not have yet."""
    done = {_key(row) for row in read_rows(path)}
    for seed, method, name in product(seeds, methods, sets):
        if (method, name, seed, n_train, n_test) in done:
            print(f"{method} on {name}, seed {seed}: already there", flush=True)
            continue
        row = measure(method, name, seed, n_train, n_test)
        append_row(row, path)
        print(_summary(row), flush=True)


def measure(method: str, name: str, seed: int, n_train: int, n_test: int) -> Row:
    """Row of one fit. Test points and truth are first touched when the fit is over."""
    target, train_seed, test_seed = get_target(name), 2 * seed, 2 * seed + 1
    train = target.sample(n_train, random_state=train_seed)
    model = get_baseline(method, random_state=seed)
    _, fit_seconds = _timed(lambda: model.fit(train))
    test = target.sample(n_test, random_state=test_seed)
    log_p, score_seconds = _timed(lambda: model.score_samples(test))
    origin = provenance()
    origin["versions"]["zuko"] = zuko.__version__
    return {
        "method": method,
        "set": name,
        "seed": seed,
        "n_train": n_train,
        "n_test": n_test,
        "train_seed": train_seed,
        "test_seed": test_seed,
        "parameters": model.get_params(),
        "training": _training(model),
        "metrics": density_metrics(target.log_prob(test), log_p),
        "fit_cpu_seconds": round(fit_seconds, 2),
        "score_cpu_seconds": round(score_seconds, 3),
        **origin,
    }


def report(rows: list[Row], page: Path = PAGE) -> None:
    """Write the tables between the markers of the page."""
    fill(page, "baselines", tables(rows))


def tables(rows: list[Row]) -> str:
    """Spearman beside the paper's, excess beside the targets, and cost: methods by sets."""
    sizes = {(row["n_train"], row["n_test"]) for row in rows}
    if len(sizes) != 1:
        raise ValueError(f"one table needs rows of one size, got {sorted(sizes) or 'no rows'}")
    figures = paper_figures()
    cells = {
        "Spearman correlation; in brackets the paper's, bold where it is reached": _spearman,
        "Excess negative log-likelihood in nats; in brackets the target, bold where it is "
        "reached": _excess,
        "Processor seconds of a fit": _cost,
    }
    parts = [f"{title}:\n\n{_matrix(rows, cell, figures)}" for title, cell in cells.items()]
    return "\n\n".join(parts)


Cell = Callable[[list[Row], dict[str, Any]], str]


def _matrix(rows: list[Row], cell: Cell, figures: dict[str, Any]) -> str:
    methods = [m for m in BASELINES if any(row["method"] == m for row in rows)]
    sets = [s for s in PLANAR if any(row["set"] == s for row in rows)]
    lines = []
    for name in sets:
        of_set = [[r for r in rows if (r["method"], r["set"]) == (m, name)] for m in methods]
        lines.append([name, *(cell(of, figures) if of else "" for of in of_set)])
    return markdown_table(["set", *methods], lines)


def _spearman(rows: list[Row], figures: dict[str, Any]) -> str:
    value = _mean(rows, "spearman")
    of_method = figures["planar"]["spearman"].get(rows[0]["method"], {})
    paper = of_method.get(rows[0]["set"]) if rows[0]["set"] in UNCHANGED else None
    return _beside(f"{value:.4f}", paper, reached=paper is not None and value >= paper)


def _excess(rows: list[Row], figures: dict[str, Any]) -> str:
    value = _mean(rows, "excess_nll")
    target = (
        figures["target"]["baselines"]["excess_nll"].get(rows[0]["method"], {}).get(rows[0]["set"])
    )
    return _beside(f"{value:.4f}", target, reached=target is not None and value <= target)


def _cost(rows: list[Row], figures: dict[str, Any]) -> str:
    return f"{mean(row['fit_cpu_seconds'] for row in rows):.0f}"


def _beside(text: str, figure: float | None, *, reached: bool) -> str:
    shown = f"**{text}**" if reached else text
    return shown if figure is None else f"{shown} ({figure})"


def _mean(rows: list[Row], metric: str) -> float:
    return mean(row["metrics"][metric] for row in rows)


def _training(model: DensityEstimator) -> Row | None:
    """How training went; None for what is not trained in steps."""
    if not isinstance(model, TrainedEstimator):
        return None
    history = model.history_
    return {
        "steps": history.steps[-1],
        "stopped_by": history.stopped_by,
        "n_recoveries": history.n_recoveries,
        "best_valid_loss": min(history.valid_loss),
    }


def _timed(call: Callable[[], Any]) -> tuple[Any, float]:
    """Result and processor seconds, which a busy machine changes less than seconds."""
    start = time.process_time()
    result = call()
    return result, time.process_time() - start


def _key(row: Row) -> Key:
    return row["method"], row["set"], row["seed"], row["n_train"], row["n_test"]


def _summary(row: Row) -> str:
    metrics = row["metrics"]
    return (
        f"{row['method']} on {row['set']}, seed {row['seed']}: "
        f"Spearman {metrics['spearman']:.4f}, MAE {metrics['mean_absolute_error']:.5f}, "
        f"excess {metrics['excess_nll']:.4f}, fit {row['fit_cpu_seconds']:.0f} s"
    )


def main(arguments: list[str] | None = None) -> None:
    """Run the command line."""
    options = _parser().parse_args(arguments)
    if options.command == "run":
        sizes = options.n_train, options.n_test
        run(options.methods, options.sets, options.seeds, *sizes, options.out)
    else:
        report(read_rows(options.rows))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("run", help="fit, score and append rows")
    choices: dict[str, Any] = {"nargs": "+", "metavar": "NAME"}
    command.add_argument("--methods", choices=tuple(BASELINES), default=METHODS, **choices)
    command.add_argument("--sets", choices=PLANAR, default=SETS, **choices)
    command.add_argument("--seeds", nargs="+", type=int, default=[0], metavar="N")
    command.add_argument("--n-train", type=int, default=100_000)
    command.add_argument("--n-test", type=int, default=50_000)
    command.add_argument("--out", type=Path, default=ROWS, help="file of the rows")
    command = commands.add_parser("report", help="rebuild the tables from the rows")
    command.add_argument("--rows", type=Path, default=ROWS, help="file of the rows")
    return parser


if __name__ == "__main__":
    main()

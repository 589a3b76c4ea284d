"""Untuned QAFFDE-SGD on the nine planar densities and on random mixtures of 1 to 10 columns.

    python -m experiments.likelihood run [--sets NAME …] [--seeds N …] [--out FILE]
    python -m experiments.likelihood report [--rows FILE]

Sets are planar names, or mixtures such as ``random_gmm(5, 0.2)``: columns and scale. ``run``
appends one row for each set, seed and variant; what is there already is not run again. ``report``
rebuilds docs/likelihood.md from the rows alone.
"""

import argparse
import re
from collections.abc import Callable, Iterable
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
from sklearn.mixture import GaussianMixture

from experiments.planar import bold, short_revision, timed
from experiments.results import paper_figures
from experiments.rows import ROOT, Row, append_row, markdown_table, provenance, read_rows
from qaffde import QAFFDESGD
from qaffde.baselines import get_baseline
from qaffde.metrics import density_metrics
from qaffde.targets import PLANAR, RandomGMM, Target, get_target

ROWS = ROOT / "experiments/results/likelihood.jsonl"
PAGE = ROOT / "docs/likelihood.md"
PLANAR_SIZE, MIXTURE_SIZE = (100_000, 50_000), (40_000, 10_000)
MIXTURES = [f"random_gmm({d}, {s})" for s in (1.0, 0.2) for d in range(1, 11)]
GAUSSIAN_BASE: dict[str, Any] = {
    "base_measure": "gaussian",
    "learn_features": True,
    "n_features": 2000,
    "rank": 64,
    "max_steps": 1500,
    "learning_rate": 0.03,
    "time_limit": None,
}


def em_from_truth(target: RandomGMM, seed: int) -> GaussianMixture:
    """Expectation–maximisation that begins at the true mixture, which nobody knows."""
    return GaussianMixture(
        len(target.means),
        weights_init=np.full(len(target.means), 1 / len(target.means)),
        means_init=target.means,
        precisions_init=np.linalg.inv(target.covariances),
        random_state=seed,
    )


VARIANTS: dict[str, Callable[[Any, int], Any]] = {
    "default": lambda target, seed: QAFFDESGD(random_state=seed),
    "gaussian": lambda target, seed: QAFFDESGD(random_state=seed, **GAUSSIAN_BASE),
    "kde": lambda target, seed: get_baseline("kde", random_state=seed),
    "gmm": lambda target, seed: get_baseline(
        "gmm", n_components=len(target.means), random_state=seed
    ),
    "em_from_truth": em_from_truth,
}
"""Estimators of a target and a seed; all but the first are for mixtures, the last three to see
what can be reached."""
RESOLVED = ("bandwidth", "ridge", "base_measure", "rank", "n_fourier_features")
METRICS = {"Spearman": "spearman", "MAE": "mean_absolute_error", "excess NLL": "excess_nll"}
AT_LEAST = {"spearman"}


def run(
    sets: Iterable[str], seeds: Iterable[int], variants: Iterable[str], path: Path, n: int | None
) -> None:
    """Append the row of every set, seed and variant that the file does not have yet."""
    done = {(row["set"], row["seed"], row["variant"]) for row in read_rows(path)}
    for seed, name, variant in product(seeds, sets, variants):
        if (name, seed, variant) in done:
            print(f"{name}, seed {seed}, {variant}: already there", flush=True)
            continue
        row = measure(name, seed, variant, n)
        append_row(row, path)
        print(_summary(row), flush=True)


def measure(name: str, seed: int, variant: str, n: int | None = None) -> Row:
    """Row of one fit. Test points and truth are first touched when the fit is over."""
    target, (n_train, n_test) = find_target(name)
    train_seed, test_seed = 2 * seed, 2 * seed + 1
    train = target.sample(n or n_train, random_state=train_seed)
    model = VARIANTS[variant](target, seed)
    _, fit_seconds = timed(lambda: model.fit(train))
    test = target.sample(n or n_test, random_state=test_seed)
    log_p, score_seconds = timed(lambda: model.score_samples(test))
    return {
        "set": name,
        "seed": seed,
        "method": type(model).__name__,
        "variant": variant,
        "n_train": len(train),
        "n_test": len(test),
        "train_seed": train_seed,
        "test_seed": test_seed,
        "parameters": _plain(model.get_params()),
        "resolved": _plain({name: getattr(model, f"{name}_", None) for name in RESOLVED}),
        "metrics": density_metrics(target.log_prob(test), log_p),
        "fit_seconds": round(fit_seconds, 3),
        "score_seconds": round(score_seconds, 3),
        **provenance(),
    }


def find_target(name: str) -> tuple[Target, tuple[int, int]]:
    """Target of a name, and its numbers of training and test points."""
    if name in PLANAR:
        return get_target(name), PLANAR_SIZE
    match = re.fullmatch(r"random_gmm\((\d+), ([\d.]+)\)", name)
    if match is None:
        raise ValueError(f"{name!r} is no planar set and not of the form 'random_gmm(5, 0.2)'")
    return RandomGMM(int(match[1]), float(match[2])), MIXTURE_SIZE


def planar_table(rows: list[Row]) -> str:
    """One line for each planar set: means over seeds beside the targets, bold where reached."""
    targets = paper_figures()["target"]["likelihood"]
    head = ["set"]
    for title in METRICS:
        head += [title, "target"]
    lines = []
    for name, of in _by_set(rows, PLANAR).items():
        line = [name]
        for metric in METRICS.values():
            value, target = _mean(of, metric), targets[metric][name]
            good = value >= target if metric in AT_LEAST else value <= target
            line += [bold(_figure(metric, value), reached=good), f"{target:g}"]
        lines.append([*line, _bases(of), f"{mean(row['fit_seconds'] for row in of):.0f}"])
    return markdown_table([*head, "base", "fit s"], lines)


def mixture_table(rows: list[Row]) -> str:
    """One line for each random mixture and variant."""
    head = ["set", "variant", "Spearman", "excess NLL", "base", "fit s"]
    lines = [
        [
            name,
            variant,
            _figure("spearman", _mean(of, "spearman")),
            _figure("excess_nll", _mean(of, "excess_nll")),
            _bases(of),
            f"{mean(row['fit_seconds'] for row in of):.0f}",
        ]
        for variant in VARIANTS
        for name, of in _by_set([r for r in rows if r["variant"] == variant], MIXTURES).items()
    ]
    return markdown_table(head, lines)


def report(rows: list[Row], page: Path = PAGE) -> None:
    """Write the page."""
    page.write_text(_page(rows), encoding="utf-8")


def main(arguments: list[str] | None = None) -> None:
    """Run the command line."""
    options = _parser().parse_args(arguments)
    if options.command == "run":
        run(options.sets, options.seeds, options.variants, options.out, options.n)
    else:
        report(read_rows(options.rows))
        print(PAGE.read_text(encoding="utf-8"))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("run", help="fit, score and append rows")
    command.add_argument("--sets", nargs="+", default=[*PLANAR, *MIXTURES], metavar="NAME")
    command.add_argument("--seeds", nargs="+", type=int, default=[10, 11, 12], metavar="N")
    command.add_argument("--variants", nargs="+", choices=VARIANTS, default=["default"])
    command.add_argument("--n", type=int, help="training and test points, for a try")
    command.add_argument("--out", type=Path, default=ROWS, help="file of the rows")
    command = commands.add_parser("report", help="rebuild the page from the rows")
    command.add_argument("--rows", type=Path, default=ROWS, help="file of the rows")
    return parser


def _plain(values: dict[str, Any]) -> Row:
    """What JSON can hold of some values; a matrix of numbers is left out."""
    arrays = {k: np.asarray(v) for k, v in values.items() if isinstance(v, np.ndarray)}
    lists = {k: array.tolist() for k, array in arrays.items() if array.ndim == 1}
    return {k: v for k, v in values.items() if k not in arrays} | lists


def _by_set(rows: list[Row], names: Iterable[str]) -> dict[str, list[Row]]:
    of_set = {name: [row for row in rows if row["set"] == name] for name in names}
    return {name: of for name, of in of_set.items() if of}


def _mean(rows: list[Row], metric: str) -> float:
    return mean(row["metrics"][metric] for row in rows)


def _figure(metric: str, value: float) -> str:
    return f"{value:.4f}" if metric == "spearman" else f"{value:.5f}"


def _bases(rows: list[Row]) -> str:
    return ", ".join(sorted({row["resolved"]["base_measure"] or "" for row in rows}))


def _summary(row: Row) -> str:
    figures = ", ".join(
        f"{title} {_figure(metric, row['metrics'][metric])}" for title, metric in METRICS.items()
    )
    return (
        f"{row['set']}, seed {row['seed']}, {row['variant']}: {figures}, "
        f"{_bases([row])}, fit {row['fit_seconds']:.0f} s"
    )


def _page(rows: list[Row]) -> str:
    seeds = sorted({row["seed"] for row in rows})
    return f"""\
# Maximum likelihood

`QAFFDESGD()` as it comes: base measure, bandwidth and ridge are chosen by held-out likelihood on
the training points alone. Means over seeds ({", ".join(map(str, seeds))}); excess NLL in nats over
the true entropy. The way of choosing was developed while looking at seeds 0, 10 and 11; on 13 a
fault was seen and mended (folds shared a mixture that had seen their rows). The base averaged over
a posterior, and the variant "gaussian", were developed on seed 12 of the random mixtures. Later,
the choice between box and mixture was left to more rows, and a mixture may stay bare in few
columns too: that was tried on other draws of four planar sets before it was measured here. Since
then a mixture averaged over its posterior is a rival of features in one and two columns, too, if
20 seconds of the search are left, and one Gaussian of one column is bent by wide features; the
planar rows are older.

## Planar densities, {PLANAR_SIZE[0]:,} training and {PLANAR_SIZE[1]:,} test points

{planar_table(rows)}

Bold where the target of this project is reached. Fits are limited to 60 s by default; times are on
the threads that the rows name.

## Random mixtures, {MIXTURE_SIZE[0]:,} training and {MIXTURE_SIZE[1]:,} test points

`random_gmm(d, s)`: 10·d Gaussians of standard deviation s in d columns. The variant "gaussian" is
`QAFFDESGD({", ".join(f"{k}={v!r}" for k, v in GAUSSIAN_BASE.items())})`.

Three others stand beside ours: the exact KDE (`kde`), a mixture of as many Gaussians as the truth
has (`gmm`) and, to see what the points tell at best, that mixture begun at the truth, which
nobody knows (`em_from_truth`). A mixture of thin and overlapping Gaussians is hard to find, even
for itself. From three columns on the base measure of ours is a mixture averaged over draws from
its posterior, found by a Gibbs chain from many starts. Where held-out rows see nothing to gain by
Born's rule on top of a mixture, it is left bare (one constant feature).

{mixture_table(rows)}

## Every run

{markdown_table(RUN_HEAD, [_run_line(row) for row in rows])}

Rebuild this page from the rows with `python -m experiments.likelihood report`; measure again with
`python -m experiments.likelihood run`.
"""


RUN_HEAD = ["set", "variant", "seed", *METRICS, "bandwidth", "ridge", "threads", "revision"]


def _run_line(row: Row) -> list[str]:
    metrics, resolved = row["metrics"], row["resolved"]
    error = f" ± {metrics['excess_nll_standard_error']:.5f}"
    figures = [_figure(metric, metrics[metric]) for metric in METRICS.values()]
    figures[-1] += error
    return [
        row["set"],
        row["variant"],
        str(row["seed"]),
        *figures,
        ", ".join(f"{h:.3g}" for h in resolved["bandwidth"] or ())[:30],
        f"{resolved['ridge']:.2g}" if resolved["ridge"] is not None else "",
        str(row["threads"]),
        short_revision(row["revision"]),
    ]


if __name__ == "__main__":
    main()

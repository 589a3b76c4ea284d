"""The paper's Tables 1 and 2: untuned QAFFDE on the nine planar densities.

    python -m experiments.planar run [--sets NAME …] [--seeds N …] [--out FILE]
    python -m experiments.planar report [--rows FILE]

``run`` fits and scores every set and seed and appends one row each to a JSON-lines file; what is
there already is not run again. ``report`` rebuilds the tables in README.md and docs/planar.md
from the rows alone.
"""

import argparse
import time
from collections.abc import Callable, Iterable
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Any

from experiments.pages import markers
from experiments.results import paper_figures
from experiments.rows import ROOT, Row, append_row, markdown_table, provenance, read_rows
from qaffde import QAFFDE
from qaffde.metrics import density_metrics
from qaffde.targets import PLANAR, get_target

ROWS = ROOT / "experiments/results/planar.jsonl"
README = ROOT / "README.md"
PAGE = ROOT / "docs/planar.md"
BEGIN, END = markers("planar")

N_FEATURES = 1000
NOTE = """\
Means over seeds; bold where the paper's QAFFDE and, for Spearman, the target are both reached.
The paper's `potential_2` to `potential_4` are samples of another density, its `swiss_roll` has
another normaliser and its `binomial` was tested on the training seed: compare those with care.
The rules that choose bandwidth and base were developed while looking at seed 0; seeds from 10 on
were not looked at before. Fit times are from one thread of a machine busy with other work."""


def run(sets: Iterable[str], seeds: Iterable[int], n_train: int, n_test: int, path: Path) -> None:
    """Append the row of every set and seed that the file does not have yet."""
    done = {_key(row) for row in read_rows(path)}
    for seed, name in product(seeds, sets):
        if (name, seed, n_train, n_test) in done:
            print(f"{name}, seed {seed}: already there", flush=True)
            continue
        row = measure(name, seed, n_train, n_test)
        append_row(row, path)
        print(_summary(row), flush=True)


def measure(name: str, seed: int, n_train: int, n_test: int) -> Row:
    """Row of one fit. Test points and truth are first touched when the fit is over."""
    target, train_seed, test_seed = get_target(name), 2 * seed, 2 * seed + 1
    train = target.sample(n_train, random_state=train_seed)
    model = QAFFDE(n_features=N_FEATURES, random_state=seed)
    _, fit_seconds = timed(lambda: model.fit(train))
    test = target.sample(n_test, random_state=test_seed)
    log_p, score_seconds = timed(lambda: model.score_samples(test))
    return {
        "set": name,
        "seed": seed,
        "method": "QAFFDE",
        "n_train": n_train,
        "n_test": n_test,
        "train_seed": train_seed,
        "test_seed": test_seed,
        "parameters": model.get_params(),
        "resolved": {
            "bandwidth": model.bandwidth_.tolist(),
            "base_measure": model.base_measure_,
            "rank": model.rank_,
            "n_fourier_features": model.n_fourier_features_,
        },
        "metrics": density_metrics(target.log_prob(test), log_p),
        "fit_seconds": round(fit_seconds, 3),
        "score_seconds": round(score_seconds, 3),
        **provenance(),
    }


def report(rows: list[Row], readme: Path = README, page: Path = PAGE) -> None:
    """Write the table into both files; in `readme` between its two markers."""
    table = summary_table(rows)
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(_page(rows, table), encoding="utf-8")
    text = readme.read_text(encoding="utf-8")
    if BEGIN in text and END in text:
        before, after = text.split(BEGIN)[0], text.split(END)[1]
        block = f"{before}{BEGIN}\n{table}\n\n{NOTE}\n{END}{after}"
        readme.write_text(block, encoding="utf-8")
    else:
        print(f"{readme} has no {BEGIN} … {END}: only {page} was written")


def summary_table(rows: list[Row]) -> str:
    """One line for each set: means over its seeds beside the paper's figures and the targets."""
    figures = paper_figures()
    head = ["set", "Spearman", "target", "paper", "MAE", "paper", "excess NLL", "base", "fit s"]
    return markdown_table(head, [_line(name, of, figures) for name, of in _by_set(rows).items()])


def main(arguments: list[str] | None = None) -> None:
    """Run the command line."""
    options = _parser().parse_args(arguments)
    if options.command == "run":
        run(options.sets, options.seeds, options.n_train, options.n_test, options.out)
    else:
        rows = read_rows(options.rows)
        report(rows)
        print(summary_table(rows))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("run", help="fit, score and append rows")
    command.add_argument("--sets", nargs="+", choices=PLANAR, default=PLANAR, metavar="NAME")
    command.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2], metavar="N")
    command.add_argument("--n-train", type=int, default=100_000)
    command.add_argument("--n-test", type=int, default=50_000)
    command.add_argument("--out", type=Path, default=ROWS, help="file of the rows")
    command = commands.add_parser("report", help="rebuild the tables from the rows")
    command.add_argument("--rows", type=Path, default=ROWS, help="file of the rows")
    return parser


def _key(row: Row) -> tuple[str, int, int, int]:
    return row["set"], row["seed"], row["n_train"], row["n_test"]


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    """What a call returns, and its seconds."""
    start = time.perf_counter()
    result = call()
    return result, time.perf_counter() - start


def _summary(row: Row) -> str:
    metrics, resolved = row["metrics"], row["resolved"]
    return (
        f"{row['set']}, seed {row['seed']}: Spearman {metrics['spearman']:.4f}, "
        f"MAE {metrics['mean_absolute_error']:.5f}, excess {metrics['excess_nll']:.4f}, "
        f"{resolved['base_measure']}, rank {resolved['rank']}, fit {row['fit_seconds']:.0f} s"
    )


def _by_set(rows: list[Row]) -> dict[str, list[Row]]:
    """Rows of each set in the order of their seeds, whatever the order of the file."""
    sizes = {(row["n_train"], row["n_test"]) for row in rows}
    if len(sizes) != 1:
        raise ValueError(f"one table needs rows of one size, got {sorted(sizes) or 'no rows'}")
    ordered = sorted(rows, key=lambda row: row["seed"])
    of_set = {name: [row for row in ordered if row["set"] == name] for name in PLANAR}
    return {name: of for name, of in of_set.items() if of}


def _line(name: str, rows: list[Row], figures: dict[str, Any]) -> list[str]:
    rho, error = _mean(rows, "spearman"), _mean(rows, "mean_absolute_error")
    target = figures["target"]["planar"]["spearman"][name]
    paper, paper_error = (
        figures["planar"][metric]["qaffde"][name] for metric in ("spearman", "mean_absolute_error")
    )
    return [
        name,
        bold(f"{rho:.4f}", reached=rho >= target and rho > paper),
        f"{target:.4f}",
        f"{paper:.4f}",
        bold(f"{error:.5f}", reached=error < paper_error),
        f"{paper_error:.4f}",
        f"{_mean(rows, 'excess_nll'):.4f}",
        ", ".join(sorted({row["resolved"]["base_measure"] for row in rows})),
        f"{mean(row['fit_seconds'] for row in rows):.0f}",
    ]


def _mean(rows: list[Row], metric: str) -> float:
    return mean(row["metrics"][metric] for row in rows)


def bold(text: str, *, reached: bool) -> str:
    """Text in bold where a figure is reached."""
    return f"**{text}**" if reached else text


def _page(rows: list[Row], table: str) -> str:
    n_train, n_test = rows[0]["n_train"], rows[0]["n_test"]
    head = ["set", "seed", "Spearman", "MAE", "excess NLL", "bandwidth", "D", "rank", "revision"]
    runs = markdown_table(head, [_run_line(row) for of in _by_set(rows).values() for row in of])
    return f"""\
# Planar densities

`QAFFDE(n_features={N_FEATURES})`, untuned: bandwidth, rank and base measure come from the
{n_train:,} training points alone. Figures are over {n_test:,} fresh test points.

{table}

{NOTE}

## Every run

{runs}

Excess NLL in nats, ± one standard error over the test points. Rebuild both tables from the rows
with `python -m experiments.planar report`; measure again with `python -m experiments.planar run`.
"""


def _run_line(row: Row) -> list[str]:
    metrics, resolved = row["metrics"], row["resolved"]
    return [
        row["set"],
        str(row["seed"]),
        f"{metrics['spearman']:.4f}",
        f"{metrics['mean_absolute_error']:.5f}",
        f"{metrics['excess_nll']:.4f} ± {metrics['excess_nll_standard_error']:.4f}",
        ", ".join(f"{h:.3g}" for h in resolved["bandwidth"]),
        str(resolved["n_fourier_features"]),
        str(resolved["rank"]),
        short_revision(row["revision"]),
    ]


def short_revision(revision: str | None) -> str:
    """First letters of a commit, and whether the library differed from it."""
    commit, *changed = (revision or "unknown").split("-")
    return "-".join([commit[:7], *changed])


if __name__ == "__main__":
    main()

"""Headline figures of the README, each from result rows and with the page that has them all."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from experiments import outliers, real, regression
from experiments.config import (
    DensityConfig,
    OutliersConfig,
    RegressionConfig,
    TablesConfig,
    load_config,
)
from experiments.registry import find_files
from experiments.results import OURS, Results
from experiments.rows import ROOT, Row, markdown_table, read_rows

TRAIN_ROWS = ROOT / "benchmarks/results/tensor_train.jsonl"
ON_POWER = ("QAFFDETensorTrain", "QAFFDEAutoregressive")
DIGITS = 3
"""Decimals of a nat that a lead must show in."""


def headline(folder: Path | None = None, train_rows: Path = TRAIN_ROWS) -> str:
    """Table of the headline figures for which there are rows of the standard budget."""
    of_folder = partial(_rows, folder)
    lines = [*_tables(of_folder), *_power(read_rows(train_rows))]
    lines += [*_regression(of_folder), *_outliers(of_folder), *_planar(of_folder)]
    return markdown_table(["on", "figure", "all of them"], lines)


def _rows(folder: Path | None, name: str) -> list[Row]:
    rows = read_rows(find_files(name, "standard", folder).rows)
    return list({row["id"]: row for row in rows}.values())


def _tables(rows_of: Callable[[str], list[Row]]) -> list[list[str]]:
    config = load_config("tables", TablesConfig)
    rows = [row for row in rows_of("tables") if row["set"] in config.sets]
    results = real.Comparison(rows, config.sets)
    ours = {name: results.figure(name, "qaffde") for name in results.sets}
    known = {name: figure for name, figure in ours.items() if figure}
    if not known:
        return []
    mixtures = [(f, results.figure(name, "gmm_bic")) for name, f in known.items()]
    flows = [(f, results.flow_beside(name, f)) for name, f in known.items()]
    seconds = sorted(figure["fit_cpu_seconds"] for figure in known.values())
    text = (
        f"`QAFFDE()` has a higher likelihood on test rows than the Gaussian mixture that BIC "
        f"chooses on {_won(mixtures)}, and than a spline flow with {real.TIMES} times its time on "
        f"{_won(flows)}; its fits take {seconds[0]:.1f} to {seconds[-1]:.0f} s"
    )
    return [["ten real tables", text, "[tables](docs/tables_tables.md)"]]


def _won(pairs: list[tuple[Row, Row | None]]) -> str:
    """How often the first of two figures has the higher likelihood."""
    leads = [ours["log_likelihood"] - other["log_likelihood"] for ours, other in pairs if other]
    return f"{sum(round(lead, DIGITS) > 0 for lead in leads)} of {len(leads)}"


def power_rows(rows: list[Row]) -> list[Row]:
    """Last rows of ours on POWER, by the number of training rows."""
    own = [row for row in rows if row["task"] == "power" and row["estimator"] in ON_POWER]
    latest = {(row["n_train"], row["estimator"]): row for row in own}
    return sorted(latest.values(), key=lambda row: row["n_train"])


def _power(rows: list[Row]) -> list[list[str]]:
    found = power_rows(rows)
    figures = {
        name: ", ".join(
            f"{row['log_likelihood']:+.2f} nats from {row['n_train']:,} rows in "
            f"{row['seconds']:.0f} s"
            for row in found
            if row["estimator"] == name
        )
        for name in dict.fromkeys(row["estimator"] for row in found)
    }
    page = "[trains and chains](docs/tensor_train.md)"
    return [["POWER", f"`{name}()`: {text}", page] for name, text in figures.items()]


def _regression(rows_of: Callable[[str], list[Row]]) -> list[list[str]]:
    config = load_config("regression", RegressionConfig)
    results = regression.Comparison(rows_of("regression"), config)
    found = {name: results.mean(name, "qaffde", "nll") for name in config.sets}
    known = {name: value for name, value in found.items() if value is not None}
    if not known:
        return []
    ahead = sum(value <= results.best_published(name)[0] for name, value in known.items())
    text = (
        "`QAFFDERegressor()` has a negative log-likelihood at least as low as the lowest of "
        f"{len(config.published)} published methods on {ahead} of {len(known)}"
    )
    return [["UCI regression sets", text, "[regressions](docs/tables_regression.md)"]]


def _outliers(rows_of: Callable[[str], list[Row]]) -> list[list[str]]:
    config, rows = load_config("outliers", OutliersConfig), rows_of("outliers")
    both = [outliers.Comparison(rows, config, protocol) for protocol in outliers.PROTOCOLS]
    if not all("qaffde" in results.own for results in both):
        return []
    ours = outliers.METHODS["qaffde"][0]
    parts = [
        f"{r.protocol} {r.mean(ours):.1f} (best published, {r.best_published}: "
        f"{r.mean(r.best_published):.1f})"
        for r in both
    ]
    text = f"`{ours}()` has a mean ROC AUC of {', '.join(parts)}"
    return [[f"{len(config.sets)} sets of outliers", text, "[outliers](docs/tables_outliers.md)"]]


def _planar(rows_of: Callable[[str], list[Row]]) -> list[list[str]]:
    sets = load_config("planar", DensityConfig).sets
    results = Results(rows_of("planar"), [], sets)
    others = [method for method in results.methods if method not in OURS]
    lines = []
    for name in results.sets:
        ours = results.untuned.figure(name, "qaffde_sgd", "excess_nll")
        rivals = [results.figure(name, method, "excess_nll") for method in others]
        best = min((rival.value for rival in rivals if rival), default=None)
        if ours and best is not None:
            lines.append((ours.value, best))
    if not lines:
        return []
    ahead = sum(ours < best for ours, best in lines)
    text = (
        "`QAFFDESGD()`, untuned, has less excess over the entropy of the true density than the "
        f"best of {len(others)} tuned methods on {ahead} of {len(lines)}"
    )
    return [["planar densities", text, "[planar](docs/tables_planar.md)"]]

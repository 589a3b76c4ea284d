"""Outlier detectors side by side: ROC AUC on scikit-learn's own data sets and on generated ones.

    python -m benchmarks.anomaly run [--sets NAME …] [--seeds N …] [--out FILE]
    python -m benchmarks.anomaly report [--results FILE]

Half of the inliers and a few outliers are the training rows, without labels; the other half and
all other outliers are the test rows. ``run`` appends one row for each set, seed and method; what
is there already is not run again. ``report`` rebuilds the table in docs/anomaly.md.
"""

import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from itertools import product
from statistics import mean
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from sklearn.datasets import (
    load_breast_cancer,
    load_digits,
    load_iris,
    load_wine,
    make_blobs,
    make_moons,
)
from sklearn.ensemble import IsolationForest
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KernelDensity, LocalOutlierFactor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.commands import run_or_report
from experiments.rows import ROOT, Row, markdown_table, provenance, read_rows
from qaffde import QAFFDEOutlierDetector

ROWS = ROOT / "benchmarks/results/anomaly.jsonl"
PAGE = ROOT / "docs/anomaly.md"
CONTAMINATION = 0.05
SEEDS = range(20, 25)

Array = NDArray[np.float64]
Labelled = tuple[Array, Array]
"""Inliers and outliers."""


def _classes(load: Callable[..., Any], inside: tuple[int, ...]) -> Callable[[Generator], Labelled]:
    """Some classes are inliers, all others outliers."""

    def rows(_: Generator) -> Labelled:
        X, y = load(return_X_y=True)
        within = np.isin(y, inside)
        return X[within], X[~within]

    return rows


def _in_noise(draw: Callable[[int], Array]) -> Callable[[Generator], Labelled]:
    """Generated inliers, and outliers uniform on a box half as wide again."""

    def rows(rng: Generator) -> Labelled:
        X = draw(int(rng.integers(2**31)))
        centre, half = (X.max(0) + X.min(0)) / 2, (X.max(0) - X.min(0)) / 2
        return X, centre + 1.5 * half * rng.uniform(-1, 1, size=(len(X) // 4, X.shape[1]))

    return rows


def _correlated(seed: int, n: int = 1000, d: int = 8) -> Array:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)) @ rng.normal(size=(d, d))


SETS: dict[str, Callable[[Generator], Labelled]] = {
    "breast cancer, benign": _classes(load_breast_cancer, (1,)),
    "wine, 0 and 1": _classes(load_wine, (0, 1)),
    "iris, 0 and 1": _classes(load_iris, (0, 1)),
    "digits, 0": _classes(load_digits, (0,)),
    "digits, 8": _classes(load_digits, (8,)),
    "moons": _in_noise(lambda seed: make_moons(1000, noise=0.1, random_state=seed)[0]),
    "blobs": _in_noise(lambda seed: make_blobs(1000, centers=4, random_state=seed)[0]),
    "correlated Gaussian": _in_noise(_correlated),
}

METHODS: dict[str, Callable[[int], Any]] = {
    "QAFFDE": lambda seed: QAFFDEOutlierDetector(random_state=seed),
    "isolation forest": lambda seed: IsolationForest(random_state=seed),
    "LOF": lambda _: LocalOutlierFactor(novelty=True),
    "KDE": lambda _: GridSearchCV(KernelDensity(), {"bandwidth": np.geomspace(0.05, 5, 25)}, cv=5),
}


def run(options: Namespace) -> Iterator[Row]:
    """Rows that the file does not have yet."""
    done = {(row["set"], row["seed"], row["method"]) for row in read_rows(options.out)}
    for name, seed, method in product(options.sets, options.seeds, METHODS):
        if (name, seed, method) not in done:
            row = measure(name, seed, method)
            print(f"{name}, seed {seed}, {method}: {row['roc_auc']:.4f}", flush=True)
            yield row


def measure(name: str, seed: int, method: str) -> Row:
    """ROC AUC of one method on the test rows of one seed."""
    train, test, is_outlier = split(name, seed)
    model = make_pipeline(StandardScaler(), METHODS[method](seed))
    start = time.perf_counter()
    model.fit(train)
    fit_seconds = time.perf_counter() - start
    return {
        "set": name,
        "seed": seed,
        "method": method,
        "n_train": len(train),
        "n_test": len(test),
        "columns": train.shape[1],
        "roc_auc": float(roc_auc_score(is_outlier, -_scores(model, test))),
        "fit_seconds": round(fit_seconds, 3),
        **provenance(),
    }


def split(name: str, seed: int) -> tuple[Array, Array, NDArray[np.bool_]]:
    """Training rows, test rows, and which of the latter are outliers."""
    rng = np.random.default_rng(seed)
    inliers, outliers = (rng.permutation(rows) for rows in SETS[name](rng))
    half = len(inliers) // 2
    few = round(half * CONTAMINATION / (1 - CONTAMINATION))
    test = np.concatenate([inliers[half:], outliers[few:]])
    train = rng.permutation(np.concatenate([inliers[:half], outliers[:few]]))
    columns = informative_columns(train)
    is_outlier = np.arange(len(test)) >= len(inliers) - half
    return train[:, columns], test[:, columns], is_outlier


def informative_columns(X: Array) -> list[int]:
    """Columns that are neither constant nor a copy of one before: pixels in a corner are."""
    columns: list[int] = []
    for column in np.flatnonzero(np.ptp(X, axis=0)):
        r = [np.corrcoef(X[:, column], X[:, other])[0, 1] for other in columns]
        if not np.isclose(np.abs(r), 1, rtol=0, atol=1e-9).any():
            columns.append(int(column))
    return columns


def _scores(model: Any, X: Array) -> Array:
    """Log-densities, or what else falls where outliers are; a search names none of them so."""
    detector = model[-1]
    if isinstance(detector, GridSearchCV):
        return detector.best_estimator_.score_samples(model[:-1].transform(X))
    return model.score_samples(X)


def table(rows: list[Row]) -> str:
    """Mean ROC AUC of each set and method; the best of each set in bold."""
    head = ["set", "rows", "columns", *METHODS, "QAFFDE fit s"]
    named = {name: [row for row in rows if row["set"] == name] for name in SETS}
    return markdown_table(head, [_line(name, of) for name, of in named.items() if of])


def _line(name: str, rows: list[Row]) -> list[str]:
    of = {method: [row for row in rows if row["method"] == method] for method in METHODS}
    auc = {method: f"{mean(row['roc_auc'] for row in of[method]):.3f}" for method in METHODS}
    best = max(auc.values())
    cells = [f"**{value}**" if value == best else value for value in auc.values()]
    seconds = mean(row["fit_seconds"] for row in of["QAFFDE"])
    return [name, str(rows[0]["n_train"]), str(rows[0]["columns"]), *cells, f"{seconds:.1f}"]


def main(arguments: list[str] | None = None) -> None:
    """Run the command line."""
    sets = {"nargs": "+", "choices": SETS, "default": list(SETS), "metavar": "NAME"}
    seeds = {"nargs": "+", "type": int, "default": list(SEEDS), "metavar": "N"}
    options = {"sets": sets, "seeds": seeds}
    run_or_report(__doc__, ROWS, PAGE, run, table, arguments, options, keep=True)


if __name__ == "__main__":
    main()

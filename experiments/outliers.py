"""Comparison of outlier detectors on ADBench's sets, beside published figures.

One-class: half of the inliers are the training rows, the other half and all outliers are scored.
Contaminated: all rows are the training rows, without labels, and are scored. Sets of more rows
than `max_rows` are a random part of them, another for each seed. Every method has its defaults
and standardized columns. "growth" is one-class with so many training rows, to see what a score
costs.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from statistics import mean
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import friedmanchisquare, rankdata, studentized_range
from sklearn.metrics import average_precision_score, roc_auc_score
from sklearn.neighbors import KernelDensity
from sklearn.preprocessing import StandardScaler

from experiments.cells import SingleRow
from experiments.config import OutliersConfig
from experiments.figures import new_figure, styled
from experiments.markup import Section, sortable_table
from experiments.real_sets import TABLES
from experiments.rows import Row, markdown_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Array = NDArray[np.float64]
PROTOCOLS = {"one-class": "one-class", "contaminated": "contaminated"}
GROWTH = "growth"
N_SCORED = 2000
"""Rows that are scored to measure what a score costs."""
LEVEL = 0.05
"""Of the critical difference."""


def _pyod(module: str, name: str) -> Callable[[int], Any]:
    """A detector of PyOD, imported when it is made."""

    def make(seed: int) -> Any:
        kind = getattr(import_module(f"pyod.models.{module}"), name)
        seeded = {"random_state": seed} if module == "iforest" else {}
        return kind(**seeded)

    return make


def _ours(seed: int) -> Any:
    from qaffde.pyod import PyODDetector

    return PyODDetector(random_state=seed)


class ScottKDE:
    """scikit-learn's estimate with PyOD's names; its own rows are scored only if asked for."""

    def fit(self, X: Array) -> "ScottKDE":
        """Keep the rows."""
        self.rows = X
        self.model = KernelDensity(bandwidth="scott").fit(X)
        return self

    def decision_function(self, X: Array) -> Array:
        """Negative log-densities (n,)."""
        return -self.model.score_samples(X)

    @property
    def decision_scores_(self) -> Array:
        """Those of the training rows."""
        return self.decision_function(self.rows)


METHODS: dict[str, tuple[str, Callable[[int], Any]]] = {
    "qaffde": ("QAFFDEOutlierDetector", _ours),
    "kde": ("KDE, Scott", lambda seed: ScottKDE()),
    "knn": ("KNN", _pyod("knn", "KNN")),
    "lof": ("LOF", _pyod("lof", "LOF")),
    "iforest": ("IForest", _pyod("iforest", "IForest")),
    "ecod": ("ECOD", _pyod("ecod", "ECOD")),
    "copod": ("COPOD", _pyod("copod", "COPOD")),
}
"""Names for people, and detectors with PyOD's interface; its LOF calls scikit-learn's."""


@dataclass(frozen=True)
class OutlierCell(SingleRow):
    """One method on one set; `n_rows` are the most of the set or, for growth, to train on."""

    protocol: str
    n_rows: int
    experiment = "outliers"

    @property
    def label(self) -> str:
        """Name for people."""
        return f"{self.method} on {self.set}, {self.protocol}, seed {self.seed}"

    def extent(self) -> tuple[Any, ...]:
        """Protocol and rows."""
        return self.protocol, self.n_rows

    def notes(self) -> Row:
        """The same."""
        return {"protocol": self.protocol, "limit": self.n_rows}

    def measured(self) -> Row:
        """Area under the curve, and seconds."""
        X, y = read_set(self.set)
        train, test, is_outlier = split(X, y, self.protocol, self.n_rows, self.seed)
        scaler = StandardScaler().fit(train)
        train, test = scaler.transform(train), scaler.transform(test)
        model = METHODS[self.method][1](self.seed)
        start = time.process_time()
        model.fit(train)
        fitted = time.process_time()
        own = self.protocol == "contaminated"
        scores = model.decision_scores_ if own else model.decision_function(test)
        scored = time.process_time()
        return {
            "status": "complete",
            "n_train": len(train),
            "n_test": len(test),
            "n_columns": train.shape[1],
            "metrics": {
                "roc_auc": float(roc_auc_score(is_outlier, scores)),
                "average_precision": float(average_precision_score(is_outlier, scores)),
            },
            "fit_cpu_seconds": round(fitted - start, 3),
            "score_cpu_seconds": None if own else round(scored - fitted, 4),
        }


def read_set(name: str) -> tuple[Array, NDArray[np.bool_]]:
    """Rows of a set of ADBench, and which are outliers."""
    folder = TABLES / "adbench"
    found = [path for path in folder.glob("*.npz") if path.stem.partition("_")[2].lower() == name]
    if not found:
        raise FileNotFoundError(f"{folder} has no set {name}; put ADBench's NUMBER_NAME.npz there")
    with np.load(found[0]) as parts:
        return parts["X"].astype(float), parts["y"] == 1


def split(
    X: Array, y: NDArray[np.bool_], protocol: str, n_rows: int, seed: int
) -> tuple[Array, Array, NDArray[np.bool_]]:
    """Training rows, rows to score, and which of these are outliers."""
    order = np.random.default_rng(seed).permutation(len(X))
    if protocol == GROWTH:
        inliers, outliers = order[~y[order]], order[y[order]]
        few = round(N_SCORED * len(outliers) / len(X))
        test = np.concatenate([inliers[n_rows:][: N_SCORED - few], outliers[:few]])
        return X[inliers[:n_rows]], X[test], y[test]
    order = order[:n_rows]
    if protocol == "contaminated":
        return X[order], X[order], y[order]
    inliers = order[~y[order]]
    half = len(inliers) // 2
    test = np.concatenate([inliers[half:], order[y[order]]])
    return X[inliers[:half]], X[test], y[test]


def outlier_cells(
    config: OutliersConfig,
    budget_name: str,
    *,
    sets: tuple[str, ...] | None = None,
    methods: tuple[str, ...] | None = None,
    seeds: tuple[int, ...] | None = None,
) -> list[OutlierCell]:
    """Cells of the experiment, seed by seed, then those of growth."""
    known = {"set": config.sets, "method": config.methods}
    for kind, names in {"set": sets, "method": methods}.items():
        for name in names or ():
            if name not in known[kind]:
                raise ValueError(
                    f"outliers has no {kind} {name!r}; it has {', '.join(known[kind])}"
                )
    budget = config.budgets[budget_name]
    chosen = [method for method in config.methods if methods is None or method in methods]
    cells = [
        OutlierCell(budget_name, name, method, seed, protocol, budget.max_rows)
        for seed in seeds or budget.seeds
        for method in chosen
        for protocol in PROTOCOLS
        for name in sets or config.sets
    ]
    return cells + [
        OutlierCell(budget_name, config.growth_set, method, budget.seeds[0], GROWTH, n)
        for n in budget.growth
        for method in chosen
        if method in config.growth_methods and (sets is None or config.growth_set in sets)
    ]


@dataclass(frozen=True)
class Comparison:
    """Rows of the experiment and published figures, for one protocol."""

    rows: Sequence[Row]
    config: OutliersConfig
    protocol: str

    @cached_property
    def measured(self) -> dict[tuple[str, str, int], float]:
        """ROC AUC in percent, by method, set and seed."""
        return {
            (row["method"], row["set"], row["seed"]): 100 * row["metrics"]["roc_auc"]
            for row in self.rows
            if row["protocol"] == self.protocol and row["status"] == "complete"
        }

    @cached_property
    def seeds(self) -> list[int]:
        """Seeds with which ours is measured on all sets."""
        seeds = sorted({seed for _, _, seed in self.measured})
        return [
            s for s in seeds if all(("qaffde", n, s) in self.measured for n in self.config.sets)
        ]

    @cached_property
    def own(self) -> dict[str, dict[str, float]]:
        """Means over these seeds, by method and set, of methods that have all of them."""
        keys = [(name, seed) for name in self.config.sets for seed in self.seeds]
        whole = [m for m in METHODS if keys and all((m, *key) in self.measured for key in keys)]
        return {
            method: {
                name: mean(self.measured[method, name, seed] for seed in self.seeds)
                for name in self.config.sets
            }
            for method in whole
        }

    @cached_property
    def published(self) -> dict[str, dict[str, float]]:
        """Published figures, by method and set."""
        table = self.config.published[self.protocol]
        return {m: dict(zip(self.config.sets, row, strict=True)) for m, row in table.items()}

    @cached_property
    def all(self) -> dict[str, dict[str, float]]:
        """Figures of those run here, then of the published ones."""
        ours = {
            METHODS[m][0] + ("" if m == "qaffde" else " (here)"): v for m, v in self.own.items()
        }
        return ours | self.published

    def mean(self, method: str) -> float:
        """Mean over sets."""
        return mean(self.all[method].values())

    @cached_property
    def ranks(self) -> dict[str, float]:
        """Mean ranks, 1 being the best."""
        figures = np.array([list(values.values()) for values in self.all.values()])
        ranks = rankdata(-figures.round(4), axis=0).mean(1)
        return dict(zip(self.all, ranks.tolist(), strict=True))

    @property
    def critical_difference(self) -> float:
        """Difference of mean ranks that Nemenyi's test takes for chance at most."""
        k, n = len(self.all), len(self.config.sets)
        quantile = studentized_range.ppf(1 - LEVEL, k, np.inf) / np.sqrt(2)
        return float(quantile * np.sqrt(k * (k + 1) / (6 * n)))

    @property
    def friedman(self) -> float:
        """Chance that all methods are alike, by Friedman's test."""
        return float(friedmanchisquare(*(list(v.values()) for v in self.all.values())).pvalue)

    @property
    def best_published(self) -> str:
        """Published method of the highest mean."""
        return max(self.published, key=self.mean)


@styled
def ranks_figure(results: Comparison) -> "Figure":
    """Mean ranks of all methods, and those that are within the critical difference of ours."""
    ranks = dict(sorted(results.ranks.items(), key=lambda item: -item[1]))
    ours = METHODS["qaffde"][0]
    figure = new_figure((6.5, 0.19 * len(ranks) + 0.8))
    ax = figure.subplots()
    for place, (method, rank) in enumerate(ranks.items()):
        ax.plot(rank, place, "o", color="C0" if method == ours else "0.6", markersize=4)
    reach = results.critical_difference
    ax.axvspan(ranks[ours] - reach, ranks[ours] + reach, color="C0", alpha=0.12)
    ax.set_xlim(min(ranks.values()) - 1, max(ranks.values()) + 1)
    ax.set_yticks(range(len(ranks)), ranks, fontsize=7)
    ax.set_xlabel(f"mean rank over {len(results.config.sets)} sets, {results.protocol}")
    return figure


def summary_table(rows: Sequence[Row], config: OutliersConfig) -> str:
    """Mean ROC AUC and mean rank of what runs here, and of the best published methods."""
    both = [Comparison(rows, config, protocol) for protocol in PROTOCOLS]
    names = [*dict.fromkeys(name for results in both for name in results.all)]
    shown = [m for m in names if any(m not in r.published or m in _best(r) for r in both)]
    order = sorted(shown, key=lambda m: -max(r.mean(m) for r in both if m in r.all))
    heads = [f"{what}, {p}" for p in PROTOCOLS for what in ("mean ROC AUC", "mean rank")]
    lines = [[name, *(cell for r in both for cell in _two(r, name))] for name in order]
    return markdown_table(["method", *heads], lines)


def _best(results: Comparison, n: int = 5) -> list[str]:
    return sorted(results.published, key=lambda m: -results.mean(m))[:n]


def _two(results: Comparison, method: str) -> list[str]:
    if method not in results.all:
        return ["–", "–"]
    return [f"{results.mean(method):.1f}", f"{results.ranks[method]:.1f}"]


def _sets_table(results: Comparison) -> str:
    best = results.best_published
    columns = [name for name in results.all if name not in results.published] + [best]
    lines = [
        [name, *(f"{results.all[column][name]:.1f}" for column in columns)]
        for name in results.config.sets
    ]
    return markdown_table(["set", *columns[:-1], f"{best} (published)"], lines)


def growth_table(rows: Sequence[Row]) -> str:
    """What a score costs, against the number of training rows."""
    own = [row for row in rows if row["protocol"] == GROWTH and row["status"] == "complete"]
    sizes = sorted({row["n_train"] for row in own})
    by = {(row["method"], row["n_train"]): row for row in own}
    methods = [method for method in METHODS if any((method, n) in by for n in sizes)]

    def cells(method: str, n: int) -> list[str]:
        if (method, n) not in by:
            return ["–", "–"]
        row = by[method, n]
        micro = 1e6 * row["score_cpu_seconds"] / row["n_test"]
        return [f"{micro:,.0f}", f"{100 * row['metrics']['roc_auc']:.1f}"]

    heads = [h for n in sizes for h in (f"µs a row, n = {n:,}", "ROC AUC")]
    lines = [[METHODS[m][0], *(cell for n in sizes for cell in cells(m, n))] for m in methods]
    return markdown_table(["method", *heads], lines)


def outliers_page(rows: Sequence[Row], config: OutliersConfig, rebuild: str) -> str:
    """Page with means, ranks, every set, and what a score costs."""
    both = [Comparison(rows, config, protocol) for protocol in PROTOCOLS]
    seeds = len(both[0].seeds)
    revisions = sorted({(row["revision"] or "unknown")[:7] for row in rows})
    limit = max((row["limit"] for row in rows if row["protocol"] != GROWTH), default=0)
    parts = [
        f"# {config.title}",
        f"ROC AUC in percent, means over {len(config.sets)} sets and {seeds} "
        f"seed{'s' * (seeds > 1)}, and the mean rank among {len(both[0].all)} methods: "
        f"{len(both[0].own)} run here and {len(both[0].published)} with figures published by "
        "Livernoche et al. (2024), of which "
        "the best five of each protocol are shown. One-class: half of the inliers are the "
        "training rows; the other half and all outliers are scored. Contaminated: all rows are "
        f"training rows, and scored. Sets of more than {limit:,} rows are a random {limit:,} of "
        "them for each seed; the published figures are of other splits and, for the large sets, "
        "of more rows. All methods have one setting for all sets.",
        summary_table(rows, config),
        config.honesty,
    ]
    for results in both:
        parts += [
            f"## {results.protocol.capitalize()}: ranks\n\n"
            f"Friedman's test gives all methods alike a probability of {results.friedman:.1e}. "
            "Mean ranks within the critical difference of Nemenyi's test, "
            f"{results.critical_difference:.1f}, of ours (shaded) may differ from it by chance.",
            f"![Mean ranks](figures/outliers_{results.protocol}.png)",
            f"## {results.protocol.capitalize()}: every set",
            _sets_table(results),
        ]
    parts += [
        f"## What a score costs\n\nProcessor time to score one row, one thread, after a fit to n "
        f"inliers of {config.growth_set}; ROC AUC over {N_SCORED:,} rows.",
        growth_table(rows),
        f"Rows of revisions {', '.join(revisions)}.",
        rebuild,
    ]
    return "\n\n".join(parts)


def outliers_section(rows: Sequence[Row], config: OutliersConfig) -> Section:
    """Means and ranks for the HTML page."""
    both = [Comparison(rows, config, protocol) for protocol in PROTOCOLS]
    names = [*dict.fromkeys(name for results in both for name in results.all)]
    lines = [
        "<tr>"
        + "".join(f"<td>{c}</td>" for c in (n, *_two(both[0], n), *_two(both[1], n)))
        + "</tr>"
        for n in names
    ]
    heads = [f"{what}, {p}" for p in PROTOCOLS for what in ("mean ROC AUC", "mean rank")]
    body = "<p>ROC AUC in percent, and ranks among all methods.</p>"
    return Section("outliers", config.title, body + sortable_table(["method", *heads], lines))

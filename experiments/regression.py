"""Comparison of regressions that predict distributions, on the standard splits of UCI's sets.

Nothing is tuned on test rows: ours is untuned, others stop by held-out rows of the training part.
An integer target has probabilities; all others have densities in the units of y.
"""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import mean, stdev
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
)

from experiments.cells import SingleRow
from experiments.config import RegressionConfig
from experiments.markup import Section, sortable_table
from experiments.real_sets import TABLES
from experiments.rows import Row, markdown_table
from qaffde import QAFFDERegressor

Array = NDArray[np.float64]

LEVELS = (np.arange(50) + 0.5) / 50
"""Of the quantiles that the continuous ranked probability score is a mean over."""
COVERAGE = 0.9
N_TREES, PATIENCE, VALID_SHARE = 2000, 50, 0.1
"""Most trees of boosting, and those without a gain on held-out rows after which it stops."""


class Predictor(Protocol):
    """A fitted regression."""

    def fit(self, X: Array, y: Array) -> Any:
        """Fit to rows (n, d) and y (n,)."""

    def log_likelihood(self, X: Array, y: Array) -> Array | None:
        """Log-densities, or logarithms of probabilities, (n,); None of quantiles alone."""

    def predict_quantile(self, X: Array, q: Array) -> Array:
        """Quantiles (n, k)."""


class NaturalBoosting:
    """NGBoost with a normal distribution, stopped by held-out rows."""

    def __init__(self, random_state: int) -> None:
        from ngboost import NGBRegressor

        self.model = NGBRegressor(
            n_estimators=N_TREES,
            random_state=random_state,
            verbose=False,
            validation_fraction=VALID_SHARE,
            early_stopping_rounds=PATIENCE,
        )

    def fit(self, X: Array, y: Array) -> None:
        """Fit with the held-out rows that the estimator takes."""
        self.model.fit(X, y)

    def log_likelihood(self, X: Array, y: Array) -> Array:
        """Log-densities (n,)."""
        return np.asarray(self.model.pred_dist(X).logpdf(y))

    def predict_quantile(self, X: Array, q: Array) -> Array:
        """Quantiles (n, k)."""
        found = self.model.pred_dist(X)
        return np.stack([found.ppf(level) for level in q], 1)


class QuantileBoosting:
    """scikit-learn's gradient boosting, once for each level; it has no density."""

    def __init__(self, random_state: int) -> None:
        self.make = partial(
            HistGradientBoostingRegressor,
            loss="quantile",
            max_iter=N_TREES,
            early_stopping=True,
            n_iter_no_change=PATIENCE // 5,
            random_state=random_state,
        )

    def fit(self, X: Array, y: Array) -> None:
        """Fit nine levels and both ends of the interval."""
        ends = (1 - COVERAGE) / 2
        self.levels = np.concatenate([[ends], np.linspace(0.1, 0.9, 9), [1 - ends]])
        self.models = [self.make(quantile=level).fit(X, y) for level in self.levels]

    def log_likelihood(self, X: Array, y: Array) -> None:
        """None: there is no density."""

    def predict_quantile(self, X: Array, q: Array) -> Array:
        """Quantiles (n, k), linear between the levels."""
        known = np.sort(np.stack([model.predict(X) for model in self.models], 1), axis=1)
        return np.stack([np.interp(q, self.levels, row) for row in known])


class Classes:
    """A classifier of the integers that were seen; the others share 1/(n + 1)."""

    def __init__(self, make: Callable[..., Any], random_state: int) -> None:
        self.model = make(random_state=random_state)

    def fit(self, X: Array, y: Array) -> None:
        """Fit the classes."""
        self.model.fit(X, y)
        self.values = np.arange(y.min() - 1, y.max() + 2)
        self.unseen = 1 / (len(y) + 1)

    def masses(self, X: Array) -> Array:
        """Probabilities (n, k) of the values."""
        found = np.full((len(X), len(self.values)), self.unseen / len(self.values))
        seen = np.isin(self.values, self.model.classes_)
        found[:, seen] += (1 - self.unseen) * self.model.predict_proba(X)
        return found

    def log_likelihood(self, X: Array, y: Array) -> Array:
        """Logarithms of the probabilities (n,)."""
        place = np.searchsorted(self.values, y).clip(0, len(self.values) - 1)
        return np.log(self.masses(X)[np.arange(len(y)), place])

    def predict_quantile(self, X: Array, q: Array) -> Array:
        """Quantiles (n, k)."""
        below = self.masses(X).cumsum(1)[:, None] < np.asarray(q)[:, None] - 1e-12
        return self.values[below.sum(2).clip(max=len(self.values) - 1)]


METHODS: dict[str, tuple[str, Callable[..., Predictor]]] = {
    "qaffde": ("QAFFDERegressor", QAFFDERegressor),
    "mdn": ("mixture density networks", partial(QAFFDERegressor, n_functions=1)),
    "ngboost": ("NGBoost, run here", NaturalBoosting),
    "quantile_boosting": ("quantile boosting", QuantileBoosting),
    "boosting_classes": ("boosting, classes", partial(Classes, HistGradientBoostingClassifier)),
    "forest_classes": ("random forest, classes", partial(Classes, RandomForestClassifier)),
}
"""Names for people and what makes each; the mixture density networks are an ensemble like ours,
without waves."""


@dataclass(frozen=True)
class RegressionCell(SingleRow):
    """One method on one split, whose number is the seed."""

    is_integer: bool
    experiment = "regression"

    def measured(self) -> Row:
        """Likelihood, scores of quantiles, error of the medians."""
        X, y, test = read_split(self.set, self.seed)
        ours = self.is_integer and self.method == "qaffde"
        kind = {"target": "integer"} if ours else {}
        model = METHODS[self.method][1](random_state=self.seed, **kind)
        start = time.process_time()
        model.fit(X[~test], y[~test])
        seconds = time.process_time() - start
        log_p = model.log_likelihood(X[test], y[test])
        return {
            "status": "complete",
            "n_train": int((~test).sum()),
            "n_columns": X.shape[1],
            "metrics": {
                "nll": None if log_p is None else -float(log_p.mean()),
                **quantile_scores(model, X[test], y[test]),
            },
            "fit_cpu_seconds": round(seconds, 2),
        }


def read_split(name: str, number: int) -> tuple[Array, Array, NDArray[np.bool_]]:
    """Rows, y, and which rows are for testing, of a standard split."""
    with np.load(TABLES / f"uci_regression/{name}.npz") as parts:
        return parts["X"].astype(float), parts["y"].astype(float), parts["test"][number]


def n_splits(name: str) -> int:
    """Standard splits of a set."""
    return 5 if name.startswith("protein") else 20


def quantile_scores(model: Predictor, X: Array, y: Array) -> Row:
    """Continuous ranked probability score, share in the central interval, error of the median."""
    ends = np.array([(1 - COVERAGE) / 2, (1 + COVERAGE) / 2])
    found = model.predict_quantile(X, np.concatenate([LEVELS, ends, [0.5]]))
    away = y[:, None] - found[:, : len(LEVELS)]
    low, high, middle = found[:, len(LEVELS) :].T
    return {
        "crps": float(2 * np.maximum(LEVELS * away, (LEVELS - 1) * away).mean()),
        "coverage": float(((low <= y) & (y <= high)).mean()),
        "absolute_error": float(np.abs(y - middle).mean()),
    }


def regression_cells(
    config: RegressionConfig,
    budget_name: str,
    *,
    sets: tuple[str, ...] | None = None,
    methods: tuple[str, ...] | None = None,
    seeds: tuple[int, ...] | None = None,
) -> list[RegressionCell]:
    """Cells of the experiment, split by split."""
    for kind, asked, known in (
        ("set", sets, (*config.sets, *config.integer_sets)),
        ("method", methods, tuple(METHODS)),
    ):
        for name in asked or ():
            if name not in known:
                raise ValueError(f"regression has no {kind} {name!r}; it has {', '.join(known)}")
    most = config.budgets[budget_name].n_splits
    return [
        RegressionCell(budget_name, name, method, split, name in config.integer_sets)
        for split in seeds or range(most)
        for name in (*config.sets, *config.integer_sets)
        if (sets is None or name in sets) and split < n_splits(name)
        for method in (config.integer_methods if name in config.integer_sets else config.methods)
        if methods is None or method in methods
    ]


@dataclass(frozen=True)
class Comparison:
    """Rows of the experiment, by set and method."""

    rows: Sequence[Row]
    config: RegressionConfig

    def values(self, name: str, method: str, metric: str) -> list[float]:
        """A metric on all splits; nothing until the method has as many as any other."""
        own = [r for r in self.rows if r["set"] == name and r["status"] == "complete"]
        n_splits = Counter(row["method"] for row in own)
        if n_splits[method] < max(n_splits.values(), default=0):
            return []
        found = [row["metrics"][metric] for row in own if row["method"] == method]
        return [value for value in found if value is not None]

    def cell(self, name: str, method: str, metric: str, digits: int = 3) -> str:
        """Mean over splits ± its standard error."""
        found = self.values(name, method, metric)
        if not found:
            return "–"
        error = stdev(found) / len(found) ** 0.5 if len(found) > 1 else 0.0
        return f"{mean(found):.{digits}f} ± {error:.{digits}f}"

    def mean(self, name: str, method: str, metric: str) -> float | None:
        """Mean over splits; None where nothing was measured."""
        found = self.values(name, method, metric)
        return mean(found) if found else None

    def methods(self, names: Sequence[str]) -> list[str]:
        """Methods that have rows of some sets."""
        have = {row["method"] for row in self.rows if row["set"] in names}
        return [method for method in METHODS if method in have]

    def published(self, name: str) -> dict[str, float]:
        """Published figures of a set."""
        place = self.config.sets.index(name)
        return {who: figures[place] for who, figures in self.config.published.items()}

    def best_published(self, name: str) -> tuple[float, str]:
        """Lowest published figure of a set, and whose it is."""
        return min((figure, who) for who, figure in self.published(name).items())

    def seconds(self, name: str, method: str) -> str:
        """Mean processor seconds of a fit."""
        own = [row for row in self.rows if (row["set"], row["method"]) == (name, method)]
        found = [row["fit_cpu_seconds"] for row in own if row["status"] == "complete"]
        return f"{mean(found):.1f}" if found else "–"


def _table(results: Comparison, names: Sequence[str], cell: Callable[[str, str], str]) -> str:
    methods = results.methods(names)
    lines = [[name, *(cell(name, method) for method in methods)] for name in names]
    return markdown_table(["set", *(METHODS[method][0] for method in methods)], lines)


def regression_page(rows: Sequence[Row], config: RegressionConfig, rebuild: str) -> str:
    """Page with likelihoods, published figures, scores of quantiles and seconds."""
    results = Comparison(rows, config)
    names = [name for name in config.sets if any(row["set"] == name for row in rows)]
    integers = [name for name in config.integer_sets if any(row["set"] == name for row in rows)]
    splits = {name: len(results.values(name, "qaffde", "nll")) for name in (*names, *integers)}
    revisions = sorted({(row["revision"] or "unknown")[:7] for row in rows})
    return "\n\n".join(
        [
            f"# {config.title}",
            "Negative log-likelihood of test rows in the units of y, lower is better: means over "
            "standard splits ± the standard error of the mean. All methods are untuned; those "
            "that are trained in steps stop by held-out training rows. The mixture density "
            "networks are the same ensemble as ours with one function, which leaves the mixture.",
            markdown_table(
                ["set", "splits", *(METHODS[m][0] for m in results.methods(names)), "published"],
                [
                    [
                        name,
                        str(splits[name]),
                        *(results.cell(name, m, "nll") for m in results.methods(names)),
                        "{:.2f} {}".format(*results.best_published(name)),
                    ]
                    for name in names
                ],
            ),
            "The last column is the best of these published figures (Matsubara, 2024, Table 1):",
            markdown_table(
                ["set", *config.published],
                [
                    [name, *map("{:.2f}".format, results.published(name).values())]
                    for name in names
                ],
            ),
            "## Continuous ranked probability score\n\nLower is better.",
            _table(results, names, lambda n, m: results.cell(n, m, "crps", 4)),
            "## Share of y in central intervals of 90 %",
            _table(results, names, lambda n, m: results.cell(n, m, "coverage")),
            "## An integer target\n\nThe score of a wine is a whole number: negative logarithm of "
            "its probability, beside classifiers.",
            _table(results, integers, lambda n, m: results.cell(n, m, "nll")),
            "## Seconds\n\nProcessor seconds of a fit, one thread.",
            _table(results, [*names, *integers], results.seconds),
            f"Rows of revisions {', '.join(revisions)}.",
            rebuild,
        ]
    )


def regression_section(rows: Sequence[Row], config: RegressionConfig) -> Section:
    """The table of likelihoods for the HTML page."""
    results = Comparison(rows, config)
    names = [name for name in config.sets if any(row["set"] == name for row in rows)]
    methods = results.methods(names)
    cells = {name: [results.cell(name, method, "nll") for method in methods] for name in names}
    lines = [
        f"<tr><td>{name}</td>{''.join(f'<td>{cell}</td>' for cell in own)}</tr>"
        for name, own in cells.items()
    ]
    heads = ["set", *(METHODS[method][0] for method in methods)]
    body = "<p>Negative log-likelihood of test rows; lower is better.</p>"
    return Section("regression", config.title, body + sortable_table(heads, lines))

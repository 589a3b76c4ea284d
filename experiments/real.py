"""Comparison of densities on real tables, by the likelihood of test rows.

Every method gets the same training rows and divides them as it likes; test rows are scored once.
Ours, mixtures and the kernel density are fitted untuned. Flows train on standardized columns until
a number of processor seconds, or until held-out rows stop gaining; a longer budget goes on where
the shorter one ended.
"""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import torch
import zuko
from numpy.typing import NDArray
from sklearn.mixture import GaussianMixture
from torch import Tensor, nn

from experiments.cells import SingleRow
from experiments.config import TablesConfig
from experiments.earlier import BEFORE_MAPS, EarlierEstimator
from experiments.markup import Section, sortable_table
from experiments.real_sets import split_table
from experiments.rows import Row, markdown_table
from qaffde import QAFFDE, QAFFDESGD, QAFFDETensorTrain
from qaffde.baselines import GMM, KDE

Array = NDArray[np.float64]
Scores = Callable[[Array], Array]
"""Log-densities of rows."""

VALID_SHARE, BATCH, LEARNING_RATE = 0.1, 256, 1e-3
EVALUATION_STEPS, PATIENCE, LEAST_RATE = 20, 15, LEARNING_RATE / 64
"""A flow is judged after as many steps or an epoch, whichever is longer; its rate is halved after
that many judgements without a gain, and it ends below the least rate."""
TIMES = 10
"""A flow has at least this many times the seconds of the method that it is compared with."""
OURS = ("qaffde", "qaffde_sgd", "tensor_train")
BEFORE = {"qaffde": "qaffde_before", "qaffde_sgd": "qaffde_sgd_before"}


class BicMixture:
    """scikit-learn's mixture of standardized columns; BIC chooses 1, 2, 4, … components."""

    def __init__(self, random_state: int) -> None:
        self.random_state = random_state

    def fit(self, X: Array) -> "BicMixture":
        """Double the components for as long as BIC falls."""
        self.location_, self.scale_ = X.mean(0), X.std(0)
        Z, size, best = self._standard(X), 1, np.inf
        while size <= len(Z) // 2:
            model = GaussianMixture(size, random_state=self.random_state).fit(Z)
            if (bic := model.bic(Z)) >= best:
                break
            self.model_, self.n_components_, best, size = model, size, bic, 2 * size
        return self

    def score_samples(self, X: Array) -> Array:
        """Log-densities of shape (n,)."""
        scores: Array = self.model_.score_samples(self._standard(X)) - np.log(self.scale_).sum()
        return scores

    def _standard(self, X: Array) -> Array:
        return (X - self.location_) / self.scale_


LABELS = {
    "qaffde": "QAFFDE",
    "qaffde_sgd": "QAFFDE-SGD",
    "tensor_train": "tensor train",
    "qaffde_before": "QAFFDE before",
    "qaffde_sgd_before": "QAFFDE-SGD before",
    "gmm_bic": "GMM, BIC",
    "gmm": "GMM, held-out",
    "kde": "KDE",
    "nsf": "NSF",
    "maf": "MAF",
}
ESTIMATORS: dict[str, Callable[..., Any]] = {
    "qaffde": QAFFDE,
    "qaffde_sgd": QAFFDESGD,
    "tensor_train": QAFFDETensorTrain,
    "qaffde_before": partial(EarlierEstimator, "QAFFDE"),
    "qaffde_sgd_before": partial(EarlierEstimator, "QAFFDESGD"),
    "gmm_bic": BicMixture,
    "gmm": GMM,
    "kde": KDE,
}
FLOWS: dict[str, Callable[[int], nn.Module]] = {
    "nsf": lambda d: zuko.flows.NSF(d, transforms=5, hidden_features=[128, 128]),
    "maf": lambda d: zuko.flows.MAF(d, transforms=5, hidden_features=[128, 128]),
}
FITTED = ("base_measure", "n_fourier_features", "bond", "n_components", "bandwidth")


@dataclass(frozen=True)
class TableCell(SingleRow):
    """One method on one table; `seconds` are the processor time of a flow, else 0."""

    max_train: int
    seconds: int
    scratch: Path
    experiment = "tables"

    @property
    def label(self) -> str:
        """Name for people."""
        limit = f", {self.seconds} s" if self.seconds else ""
        return f"{self.method}{limit} on {self.set}"

    def extent(self) -> tuple[Any, ...]:
        """Most rows to train on, and seconds."""
        return self.max_train, self.seconds

    def notes(self) -> Row:
        """The limit of a flow."""
        return {"limit": self.seconds or None}

    def measured(self) -> Row:
        """Log-likelihood of the test rows."""
        train, test = split_table(self.set, self.seed, self.max_train)
        fit = self._flow if self.seconds else self._estimator
        scores, found = fit(train)
        start = time.process_time()
        log_p = scores(test)
        error = log_p.std(ddof=1) / np.sqrt(len(log_p))
        return {
            "status": "complete",
            "n_train": len(train),
            "n_test": len(test),
            "n_columns": train.shape[1],
            "metrics": {"log_likelihood": float(log_p.mean()), "standard_error": float(error)},
            "score_cpu_seconds": round(time.process_time() - start, 3),
            **found,
        }

    def _estimator(self, train: Array) -> tuple[Scores, Row]:
        start = time.process_time()
        model = ESTIMATORS[self.method](random_state=self.seed).fit(train)
        spent = getattr(model, "fit_cpu_seconds_", time.process_time() - start)
        found: Row = {"fit_cpu_seconds": round(spent, 2)}
        chosen = {name: getattr(model, f"{name}_", None) for name in FITTED}
        fitted = {k: np.asarray(v).tolist() for k, v in chosen.items() if v is not None}
        return model.score_samples, found | {"fitted": fitted}

    def _flow(self, train: Array) -> tuple[Scores, Row]:
        file = self.scratch / f"{self.set}-{self.method}-{self.seed}-{self.max_train}.pt"
        flow = TrainedFlow(FLOWS[self.method], train, self.seed)
        if file.exists():
            flow.restore(torch.load(file, weights_only=True))
        flow.train_until(self.seconds)
        file.parent.mkdir(parents=True, exist_ok=True)
        torch.save(flow.state(), file)
        found = {"fit_cpu_seconds": round(flow.spent, 2), "steps": flow.step}
        return flow.score, found | {"ended": flow.rate < LEAST_RATE}


class TrainedFlow:
    """A flow of zuko on standardized columns, trained in turns.

    Parameters
    ----------
    make : callable
        Flow of a number of columns.
    X : ndarray of shape (n, d)
    seed : int
    """

    def __init__(self, make: Callable[[int], nn.Module], X: Array, seed: int) -> None:
        self.location, self.scale = X.mean(0), X.std(0)
        Z = self._standard(X)[np.random.default_rng(seed).permutation(len(X))]
        n_valid = max(1, round(VALID_SHARE * len(Z)))
        self.valid, self.rows = Z[:n_valid], Z[n_valid:]
        self.generator = torch.Generator().manual_seed(seed)
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.flow = make(X.shape[1])
        self.optimizer = torch.optim.Adam(self.flow.parameters(), lr=LEARNING_RATE)
        self.step, self.stale, self.spent, self.rate = 0, 0, 0.0, LEARNING_RATE
        self.best_loss, self.best = np.inf, deepcopy(self.flow.state_dict())

    def train_until(self, seconds: float) -> None:
        """Take steps until so many processor seconds were spent in all, or the flow has ended."""
        start = time.process_time() - self.spent
        while self.rate >= LEAST_RATE and self.spent < seconds:
            self.take_step()
            self.spent = time.process_time() - start

    def take_step(self) -> None:
        """One step of Adam, and a judgement if it is time."""
        chosen = torch.randint(len(self.rows), (BATCH,), generator=self.generator)
        self.optimizer.zero_grad()
        loss = -self.flow().log_prob(self.rows[chosen]).mean()
        loss.backward()
        nn.utils.clip_grad_norm_(self.flow.parameters(), 5.0)
        self.optimizer.step()
        self.step += 1
        if self.step % max(EVALUATION_STEPS, len(self.rows) // BATCH) == 0:
            self._judge()

    def score(self, X: Array) -> Array:
        """Log-densities by the network that was best on held-out rows."""
        best = deepcopy(self.flow)
        best.load_state_dict(self.best)
        scores = self._log_prob(best, self._standard(X)).double().numpy()
        return np.asarray(scores - np.log(self.scale).sum())

    def state(self) -> dict[str, Any]:
        """All that a later turn needs."""
        names = ("step", "stale", "spent", "rate", "best_loss", "best")
        return {name: getattr(self, name) for name in names} | {
            "flow": self.flow.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "generator": self.generator.get_state(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a state."""
        self.flow.load_state_dict(state.pop("flow"))
        self.optimizer.load_state_dict(state.pop("optimizer"))
        self.generator.set_state(state.pop("generator"))
        for name, value in state.items():
            setattr(self, name, value)

    def _judge(self) -> None:
        loss = -float(self._log_prob(self.flow, self.valid).mean())
        if loss < self.best_loss:
            self.best_loss, self.best, self.stale = loss, deepcopy(self.flow.state_dict()), 0
            return
        self.stale += 1
        if self.stale >= PATIENCE:
            self.rate, self.stale = self.rate / 2, 0
            for group in self.optimizer.param_groups:
                group["lr"] = self.rate

    @staticmethod
    @torch.no_grad()
    def _log_prob(flow: nn.Module, Z: Tensor) -> Tensor:
        return torch.cat([flow().log_prob(part) for part in Z.split(8192)])

    def _standard(self, X: Array) -> Tensor:
        return torch.from_numpy((X - self.location) / self.scale).float()


def table_cells(
    config: TablesConfig,
    budget_name: str,
    scratch: Path,
    *,
    sets: tuple[str, ...] | None = None,
    methods: tuple[str, ...] | None = None,
    seeds: tuple[int, ...] | None = None,
) -> list[TableCell]:
    """Cells of the experiment, short ones first: estimators, then flows by their seconds."""
    budget = config.budgets[budget_name]
    known = {"set": (*config.sets, *config.optional_sets), "method": config.methods}
    for kind, names in {"set": sets, "method": methods}.items():
        for name in names or ():
            if name not in known[kind]:
                have = ", ".join(known[kind])
                raise ValueError(f"tables has no {kind} {name!r}; it has {have}")
    chosen = methods or config.methods
    return [
        TableCell(budget_name, name, method, seed, budget.max_train, seconds, scratch)
        for seconds in (0, *budget.seconds)
        for seed in seeds or budget.seeds
        for name in sets or config.sets
        for method in chosen
        if (method in FLOWS) == bool(seconds)
    ]


@dataclass(frozen=True)
class Comparison:
    """Rows of the experiment: means over seeds by table, method and seconds."""

    rows: Sequence[Row]
    sets: Sequence[str]

    def figure(self, name: str, method: str, limit: int | None = None) -> Row | None:
        """Mean log-likelihood, standard error and seconds; None where nothing was measured."""
        own = [
            row
            for row in self.rows
            if (row["set"], row["method"], row["limit"]) == (name, method, limit)
            and row["status"] == "complete"
        ]
        if not own:
            return None
        keys = ("log_likelihood", "standard_error")
        found = {key: mean(row["metrics"][key] for row in own) for key in keys}
        return own[0] | found | {"fit_cpu_seconds": mean(row["fit_cpu_seconds"] for row in own)}

    @property
    def columns(self) -> list[tuple[str, int | None]]:
        """Methods, flows with their seconds, that have rows."""
        found = {(row["method"], row["limit"]) for row in self.rows}
        return sorted(found, key=lambda key: (list(LABELS).index(key[0]), key[1] or 0))

    def best_of_ours(self, name: str) -> Row | None:
        """Figure of ours with the highest likelihood on test rows."""
        found = [figure for m in OURS if (figure := self.figure(name, m)) is not None]
        return max(found, key=lambda figure: figure["log_likelihood"], default=None)

    def flow_beside(self, name: str, figure: Row, method: str = "nsf") -> Row | None:
        """Row of a flow that had `TIMES` times the seconds of a figure, or had ended before."""
        limits = sorted({row["limit"] for row in self.rows if row["method"] == method})
        for limit in limits:
            flow = self.figure(name, method, limit)
            if flow and (flow["ended"] or limit >= TIMES * figure["fit_cpu_seconds"]):
                return flow
        return None


def tables_page(rows: Sequence[Row], config: TablesConfig, rebuild: str) -> str:
    """Page with the likelihoods, the seconds and the comparisons."""
    results = Comparison(rows, (*config.sets, *config.optional_sets))
    names = [name for name in results.sets if any(row["set"] == name for row in rows)]
    heads = [_head(*column) for column in results.columns]
    return "\n\n".join(
        [
            f"# {config.title}",
            "Mean log-likelihood of test rows, in nats, of untuned fits on one thread; higher is "
            "better, ± one standard error over test rows. Tables were named before any fit, with "
            "rules that leave no ties to gain from (`experiments/configs/tables.toml`, "
            "`experiments/real_sets.py`). Every method gets the same training rows. Flows (zuko, "
            "five transformations, networks of two layers of 128 units, standardized columns) "
            "train for the processor seconds in the head of their column, or end earlier when "
            "held-out rows stop gaining.",
            markdown_table(
                ["table", "rows × columns", *heads],
                [[name, _size(results, name), *_cells(results, name)] for name in names],
            ),
            "## Seconds\n\nProcessor seconds of the fit.",
            markdown_table(
                ["table", *heads],
                [[name, *_seconds(results, name)] for name in names],
            ),
            "## Ours beside others\n\nNats by which each of ours is above the mixture that BIC "
            f"chooses, above a spline flow with at least {TIMES} times its seconds (or one "
            "that ended on its own before), and above itself before there were maps of columns "
            f"(revision {BEFORE_MAPS}, untuned, `experiments/earlier.py`); in brackets, one "
            "standard error of ours.",
            markdown_table(
                [
                    "table",
                    *(f"{LABELS[m]} − {other}" for other in ("BIC", "NSF") for m in OURS),
                    *(f"{LABELS[m]} − before" for m in BEFORE),
                ],
                [[name, *_gains(results, name)] for name in names],
            ),
            f"Rows by method and revision: {_origin(rows)}.",
            rebuild,
        ]
    )


def _origin(rows: Sequence[Row]) -> str:
    """Revisions of the rows, with their methods and numbers of tables."""
    counts = Counter(((row["revision"] or "unknown")[:7], row["method"]) for row in rows)
    parts = [f"{label} {count} from {revision}" for (revision, label), count in counts.items()]
    return ", ".join(parts)


def tables_section(rows: Sequence[Row], config: TablesConfig) -> Section:
    """The table of likelihoods for the HTML page."""
    results = Comparison(rows, (*config.sets, *config.optional_sets))
    lines = [
        f"<tr><td>{name}</td>{''.join(f'<td>{cell}</td>' for cell in _cells(results, name))}</tr>"
        for name in results.sets
        if any(row["set"] == name for row in rows)
    ]
    heads = ["table", *(_head(*column) for column in results.columns)]
    body = "<p>Mean log-likelihood of test rows, in nats; higher is better.</p>"
    return Section("tables", config.title, body + sortable_table(heads, lines))


def _head(method: str, limit: int | None) -> str:
    return LABELS[method] + (f", {limit} s" if limit else "")


def _size(results: Comparison, name: str) -> str:
    row = next(row for row in results.rows if row["set"] == name and row["status"] == "complete")
    return f"{row['n_train']:,} × {row['n_columns']}"


def _cells(results: Comparison, name: str) -> list[str]:
    found = [results.figure(name, *column) for column in results.columns]
    return [f"{f['log_likelihood']:.3f} ± {f['standard_error']:.3f}" if f else "–" for f in found]


def _seconds(results: Comparison, name: str) -> list[str]:
    found = [results.figure(name, *column) for column in results.columns]
    return [f"{f['fit_cpu_seconds']:.1f}" if f else "–" for f in found]


def _gains(results: Comparison, name: str) -> list[str]:
    def gain(figure: Row | None, other: Row | None) -> str:
        if figure is None or other is None:
            return "–"
        ahead = figure["log_likelihood"] - other["log_likelihood"]
        return f"{ahead:+.3f} ({figure['standard_error']:.3f})"

    figures = [results.figure(name, method) for method in OURS]
    bic = results.figure(name, "gmm_bic")
    flows = [results.flow_beside(name, figure) if figure else None for figure in figures]
    return [
        *(gain(f, bic) for f in figures),
        *(gain(f, flow) for f, flow in zip(figures, flows, strict=True)),
        *(gain(results.figure(name, m), results.figure(name, BEFORE[m])) for m in BEFORE),
    ]

"""The work of one cell: trials that choose parameters, and the trainings that follow."""

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import BaseEstimator

from experiments.attempts import Times, attempt
from experiments.cells import Ledger, Measured
from experiments.config import DensityBudget
from experiments.methods import Method, Parameters, Reference, find_method
from experiments.metrics import density_metrics
from experiments.models.flat import flat_parameters
from experiments.pictures import TRUTH, picture, picture_box, truth_picture
from experiments.rows import Row
from experiments.search import Search, import_optuna
from experiments.sets import Draws, find_target
from qaffde.baselines.base import TrainedEstimator

if TYPE_CHECKING:
    from experiments.density import DensityCell

LIKELIHOOD_METRICS = ("excess_nll", "excess_nll_standard_error")
PLANE = 2

Choose = Callable[[Any], tuple[Parameters, Row]]
"""Parameters for some training rows, and what a row says of how they were chosen."""


class CellRun:
    """The work of one cell.

    Parameters
    ----------
    cell : DensityCell
    ledger : Ledger
        Rows that are there, and locks on the others.
    """

    def __init__(self, cell: "DensityCell", ledger: Ledger) -> None:
        self.cell, self.ledger, self.budget = cell, ledger, cell.budget
        self.method: Method = find_method(cell.method)
        self.target = find_target(cell.set)

    def measure(self) -> Iterator[Measured]:
        """Measure what is not done."""
        if self.cell.is_untuned:
            yield from self._all("untuned", lambda rows: ({}, {"sampled": {}}))
            return
        trials: list[Row] = []
        search: Search | None = None
        for k in range(self.budget.trials):
            with self.ledger.claim(self.cell.identity(self.cell.seeds[0], "trial", k)) as known:
                row = known
                if row is None:
                    search = search or self._search()
                    search.remember(trials)
                    row = self._trial(search, k, trials)
                    yield Measured(row)
            trials.append(row)
        yield from self._all("final", lambda rows: self._choose(rows, trials))

    def _all(self, stage: str, choose: Choose) -> Iterator[Measured]:
        """Trainings of all seeds that are not done."""
        for seed in self.cell.seeds:
            with self.ledger.claim(self.cell.identity(seed, stage)) as known:
                if known is None:
                    yield self._training(seed, stage, choose)

    def _search(self) -> Search:
        cell = self.cell
        first = cell.identity(cell.seeds[0], "trial", 0)
        name = f"{cell.experiment}-{cell.budget_name}/{cell.set}/{cell.method}/{first}"
        return Search(name, self.method.spaces, self.budget, cell.storage)

    def _trial(self, search: Search, index: int, before: list[Row]) -> Row:
        seed = self.cell.seeds[0]
        draws = self._draws(seed)
        trial = search.ask(index)
        held_out: list[float] = []
        row = self._row(seed, "trial", index) | {
            "sampled": dict(trial.params),
            "n_train": self.budget.n_search,
            "validation": None,
            "held_out": held_out,
        }

        def work() -> Row:
            rows = draws.train[: self.budget.n_search]
            sampled = self.method.resolve(dict(trial.params), self._reference(rows, before))
            parameters = self._steps(self.budget.search_steps) | self._own("search") | sampled
            model = self.method.make(
                **(parameters | dict(self.method.judged_as)), random_state=seed
            )
            if isinstance(model, TrainedEstimator) and self.budget.pruner != "none":
                model._listener = search.listener(trial, held_out)
            times = Times()
            times.fit(lambda: model.fit(rows))
            log_p = times.score(lambda: model.score_samples(draws.valid))
            return {
                "validation": _finite_mean(log_p),
                "n_valid": len(draws.valid),
                **self._fitted(model),
                **times.record(),
            }

        row = attempt(row, _unless_pruned(work))
        search.tell(trial, row)
        return row

    def _choose(self, rows: Any, trials: list[Row]) -> tuple[Parameters, Row]:
        """Parameters of the best trial for these rows, and what a row says of it."""
        best = _best(trials, self.budget.least_lead)
        growth = self.budget.n_train / self.budget.n_search
        reference = self._reference(rows, trials, growth)
        sampled = self.method.resolve(dict(best["sampled"]), reference)
        parameters = self._steps(self.budget.final_steps) | self._own("final") | sampled
        said = {
            "chosen_trial": best["trial"],
            "sampled": best["sampled"],
            "validation": best["validation"],
        }
        return parameters, said

    def _training(self, seed: int, stage: str, choose: Choose) -> Measured:
        row = self._row(seed, stage, None) | {"n_train": self.budget.n_train}
        pictures: list[Row] = []
        is_drawn = stage == "final" and seed == self.cell.seeds[0] and self.target.n_dims == PLANE

        def work() -> Row:
            draws = self._draws(seed)
            parameters, said = choose(draws.train)
            model = self.method.make(**parameters, random_state=seed)
            times = Times()
            times.fit(lambda: model.fit(draws.train))
            log_p = times.score(lambda: model.score_samples(draws.test))
            log_p_true = self.target.log_prob(draws.test)
            if is_drawn:
                pictures.extend(self._pictures(row["id"], model, draws, log_p))
            return {
                **said,
                "n_test": len(draws.test),
                "metrics": self._metrics(log_p_true, log_p),
                **self._fitted(model),
                **times.record(),
            }

        return Measured(attempt(row, work), tuple(pictures))

    def _draws(self, seed: int) -> Draws:
        untuned = self.cell.is_untuned
        most = max(self.budget.n_train, 0 if untuned else self.budget.n_search)
        return Draws(self.target, seed, most, self.cell.n_valid, self.budget.n_test)

    def _row(self, seed: int, stage: str, trial: int | None) -> Row:
        cell = self.cell
        return {
            "id": cell.identity(seed, stage, trial),
            "experiment": cell.experiment,
            "budget": cell.budget_name,
            "set": cell.set,
            "method": cell.method,
            "seed": seed,
            "stage": stage,
            "trial": trial,
            "status": "complete",
            "error": None,
            "config": _plain(replace(self.budget, methods={}, sets=None)),
        }

    def _reference(self, rows: Any, trials: list[Row], growth: float = 1.0) -> Reference:
        fits = [t["resolved"] for t in trials if t["trial"] == 0 and "resolved" in t]
        default: Row = fits[0] if fits else {}
        return Reference(rows.std(0), default, growth)

    def _steps(self, steps: int) -> Parameters:
        is_trained = isinstance(self.method.make(), TrainedEstimator)
        return {"max_steps": steps} if is_trained else {}

    def _own(self, stage: str) -> Parameters:
        return dict(getattr(self.cell.own, stage))

    def _fitted(self, model: BaseEstimator) -> Row:
        """Parameters that were given, those that were chosen, and how training went."""
        resolved = {name: _value(getattr(model, f"{name}_")) for name in self.method.attributes}
        fitted = {"parameters": _plain_parameters(model), "resolved": resolved}
        if isinstance(model, TrainedEstimator):
            history = model.history_
            fitted["training"] = {
                "steps": history.steps[-1],
                "stopped_by": history.stopped_by,
                "n_recoveries": history.n_recoveries,
            }
        return fitted

    def _metrics(self, log_p_true: Any, log_p: Any) -> Row:
        metrics: Row = dict(density_metrics(log_p_true, log_p))
        if not self.method.has_likelihood:
            metrics |= dict.fromkeys(LIKELIHOOD_METRICS)
        return metrics

    def _pictures(
        self, identity: str, model: BaseEstimator, draws: Draws, log_p: Any
    ) -> list[Row]:
        place = {"experiment": self.cell.experiment, "set": self.cell.set, "seed": draws.seed}
        own = picture(model.score_samples, picture_box(draws.test), log_p)
        truth = truth_picture(self.target, draws.test)
        return [
            {"id": f"{TRUTH}-{self.cell.set}-{draws.seed}", **place, "method": TRUTH, **truth},
            {"id": identity, **place, "method": self.cell.method, **own},
        ]


def _unless_pruned(work: Callable[[], Row]) -> Callable[[], Row]:
    """The work, to which being pruned is a result."""

    def attempted() -> Row:
        try:
            return work()
        except import_optuna().TrialPruned:
            return {"status": "pruned"}

    return attempted


def chosen(trials: list[Row], least_lead: float) -> tuple[int, Parameters] | None:
    """Number and parameters of the trial that is trained on all rows; None where all failed."""
    if not any(trial["status"] == "complete" for trial in trials):
        return None
    best = _best(trials, least_lead)
    return best["trial"], best["sampled"]


def _best(trials: list[Row], least_lead: float = 0.0) -> Row:
    """The complete trial of the highest likelihood on validation rows, its lead being enough.

    The defaults are trial 0. What is ahead of them by less than validation rows can tell is no
    better, and was chosen among many: then they stay.
    """
    complete = [trial for trial in trials if trial["status"] == "complete"]
    if not complete:
        errors = sorted({t["error"]["type"] for t in trials if t["error"]})
        raise RuntimeError(f"no trial succeeded ({', '.join(errors)}): see their rows")
    best = max(complete, key=lambda trial: (trial["validation"], -trial["trial"]))
    default = next((trial for trial in complete if trial["trial"] == 0), best)
    return best if best["validation"] >= default["validation"] + least_lead else default


def _finite_mean(log_p: Any) -> float:
    value = float(np.mean(log_p))
    if not math.isfinite(value):
        raise ArithmeticError(f"the likelihood of the validation rows is {value}")
    return value


def _value(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value


def _plain(budget: DensityBudget) -> Row:
    return {name: value for name, value in asdict(budget).items() if value not in (None, {})}


def _plain_parameters(model: BaseEstimator) -> Row:
    is_trained = isinstance(model, TrainedEstimator)
    given = flat_parameters(model) if is_trained else model.get_params()
    return {name: _value(value) for name, value in given.items()}

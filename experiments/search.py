"""Random search as in the paper, by Optuna.

Rows are what counts: a study is filled from the rows that are there and serves the pruner, the
sampler and whoever looks at its storage. What trial k of a study draws depends on the study's name
and on k (and, for TPE, on the trials before it), so that a search that was interrupted goes on as
if it had not been.
"""

import hashlib
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from experiments.config import DensityBudget
from experiments.rows import Row
from experiments.spaces import Range, Space
from qaffde.training import History

if TYPE_CHECKING:
    import optuna

SQLITE_SECONDS = 60
ATTEMPTS, RETRY_SECONDS = 5, 0.2


def import_optuna() -> Any:
    """The package Optuna, quiet, or an error that says how to install it."""
    try:
        import optuna
    except ImportError as error:
        raise ImportError(
            "experiments need Optuna, which is not installed; run: pip install 'qaffde[search]'"
        ) from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def open_storage(url: str) -> "optuna.storages.BaseStorage":
    """Storage of a URL; a SQLite file waits for other processes."""
    storages = import_optuna().storages
    if not url.startswith("sqlite"):
        return storages.get_storage(url)
    patience = {"connect_args": {"timeout": SQLITE_SECONDS}}
    for _ in range(ATTEMPTS - 1):
        with suppress(_sqlalchemy_error()):  # another process made the same tables just now
            return storages.RDBStorage(url, engine_kwargs=patience)
        time.sleep(RETRY_SECONDS)
    return storages.RDBStorage(url, engine_kwargs=patience)


def _sqlalchemy_error() -> type[Exception]:
    from sqlalchemy.exc import SQLAlchemyError  # comes with Optuna

    return SQLAlchemyError


class Search:
    """Trials of one method on one set.

    Parameters
    ----------
    name : str
        Of the study.
    spaces : sequence of dict of {str: Range or Choice}
        Of the trials in turn; the last is that of all that follow.
    budget : DensityBudget
    storage : str
        URL of Optuna's storage.
    """

    def __init__(
        self, name: str, spaces: Sequence[Space], budget: DensityBudget, storage: str
    ) -> None:
        self.name, self.budget = name, budget
        self.optuna = import_optuna()
        self.distributions = [
            {key: self._distribution(part) for key, part in space.items()} for space in spaces
        ]
        self.study: optuna.Study = self.optuna.create_study(
            storage=open_storage(storage),
            study_name=name,
            direction="maximize",
            pruner=self._pruner(),
            load_if_exists=True,
        )

    def remember(self, rows: Iterable[Row]) -> None:
        """Add the trials of rows that the study does not have."""
        known = {trial.user_attrs.get("index") for trial in self.study.get_trials(deepcopy=False)}
        for row in rows:
            if row["trial"] not in known:
                self.study.add_trial(self._frozen(row))

    def ask(self, index: int) -> "optuna.Trial":
        """Trial of a number."""
        self.study.sampler = self._sampler(index)
        trial = self.study.ask(self._space(index))
        trial.set_user_attr("index", index)
        return trial

    def tell(self, trial: "optuna.Trial", row: Row) -> None:
        """Close a trial as its row says."""
        states = self.optuna.trial.TrialState
        if row["status"] == "complete":
            self.study.tell(trial, row["validation"])
        else:
            self.study.tell(trial, state=states.PRUNED if _is_pruned(row) else states.FAIL)

    def listener(self, trial: "optuna.Trial", reported: list[float]) -> Any:
        """What the training loop calls: it notes held-out likelihoods and prunes."""

        def listen(history: History) -> None:
            reported.append(-history.valid_loss[-1])
            trial.report(reported[-1], len(reported))
            if not history.stopped_by and trial.should_prune():
                raise self.optuna.TrialPruned

        return listen

    def _space(self, index: int) -> "dict[str, optuna.distributions.BaseDistribution]":
        return self.distributions[min(index, len(self.distributions) - 1)]

    def _sampler(self, index: int) -> "optuna.samplers.BaseSampler":
        samplers, seed = self.optuna.samplers, stable_number(self.name, index)
        if self.budget.sampler == "tpe":
            return samplers.TPESampler(seed=seed, n_startup_trials=self.budget.startup_trials)
        return samplers.RandomSampler(seed=seed)

    def _pruner(self) -> "optuna.pruners.BasePruner":
        if self.budget.pruner == "none":
            return self.optuna.pruners.NopPruner()
        return self.optuna.pruners.MedianPruner(
            n_startup_trials=self.budget.startup_trials,
            n_warmup_steps=self.budget.warmup_evaluations,
        )

    def _distribution(self, part: Any) -> "optuna.distributions.BaseDistribution":
        kinds = self.optuna.distributions
        if not isinstance(part, Range):
            return kinds.CategoricalDistribution(part.values)
        whole = isinstance(part.low, int) and isinstance(part.high, int)
        kind = kinds.IntDistribution if whole else kinds.FloatDistribution
        return kind(part.low, part.high, log=part.log)

    def _frozen(self, row: Row) -> "optuna.trial.FrozenTrial":
        states = self.optuna.trial.TrialState
        state = {"complete": states.COMPLETE, "pruned": states.PRUNED}
        return self.optuna.trial.create_trial(
            state=state.get(row["status"], states.FAIL),
            value=row["validation"],
            params=row["sampled"],
            distributions={key: self._space(row["trial"])[key] for key in row["sampled"]},
            user_attrs={"index": row["trial"]},
            intermediate_values=dict(enumerate(row["held_out"], 1)),
        )


def _is_pruned(row: Row) -> bool:
    return row["status"] == "pruned"


def stable_number(*parts: object) -> int:
    """A number of 32 bits that is the same in every process.

    Examples
    --------
    >>> stable_number("arc", 1) == stable_number("arc", 1) != stable_number("arc", 2)
    True
    """
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:4], "big")

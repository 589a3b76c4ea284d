"""Comparisons of densities: the planar sets and the random mixtures.

A cell is one method on one set. Its trials choose parameters by the likelihood of validation
rows; the best is then trained anew for every seed, and only then the test rows and the true
density are looked at. An untuned cell has no trials: the method is trained as it comes.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from experiments.cells import Cell, Ledger, Measured, identity
from experiments.config import DensityBudget, DensityConfig, MethodBudget
from experiments.methods import Parameters, check_parameters, find_method
from experiments.rows import Row
from experiments.sets import find_target
from experiments.spaces import Range, Space
from experiments.trials import CellRun, chosen

UNUSED = {"seeds", "sets", "methods", "least_lead"}
UNUSED_IN_TRIALS = {"trials", "final_steps", "n_test"}
"""Settings that do not change what a row holds, or only through what has a place of its own."""
VARIANTS = ("tuned", "untuned")
"""Parameters by trials, or the defaults."""


@dataclass(frozen=True)
class DensityCell(Cell):
    """One method on one set: its trials, and the trainings that follow.

    An untuned cell trains the defaults, once for each seed, and nothing else.

    Parameters
    ----------
    experiment, budget_name : str
    set, method : str
    budget : DensityBudget
    storage : str
        URL of Optuna's storage.
    variant : {"tuned", "untuned"}
    """

    experiment: str
    budget_name: str
    set: str
    method: str
    budget: DensityBudget
    storage: str = ""
    variant: str = "tuned"

    @property
    def label(self) -> str:
        """Name for people."""
        return f"{self.method} on {self.set}" + (", untuned" if self.is_untuned else "")

    @property
    def is_untuned(self) -> bool:
        """Whether the defaults are trained, without trials."""
        return self.variant == "untuned"

    @property
    def own(self) -> MethodBudget:
        """What the budget has for this method alone."""
        return self.budget.methods.get(self.method, MethodBudget())

    @property
    def seeds(self) -> tuple[int, ...]:
        """Of the final trainings; the first is that of the trials."""
        return self.own.seeds or self.budget.seeds

    @property
    def n_valid(self) -> int:
        """Rows that judge a trial."""
        return self.own.n_valid or self.budget.n_valid

    def tasks(self) -> list[str]:
        """Identities of all rows of this cell."""
        if self.is_untuned:
            return [self.identity(seed, "untuned") for seed in self.seeds]
        trials = [self.identity(self.seeds[0], "trial", k) for k in range(self.budget.trials)]
        return trials + [self.identity(seed, "final") for seed in self.seeds]

    def identity(self, seed: int, stage: str, trial: int | None = None) -> str:
        """Short name of a row: of all that decides what it will hold, but the machine."""
        place = [self.experiment, self.budget_name, self.set, self.method, seed, stage, trial]
        if stage == "untuned":
            return identity(place, {"n_train": self.budget.n_train, "n_test": self.budget.n_test})
        unused = UNUSED | UNUSED_IN_TRIALS if stage == "trial" else UNUSED
        settings = {k: v for k, v in vars(self.budget).items() if k not in unused}
        own: Row = {"search": dict(self.own.search), "n_valid": self.n_valid}
        if stage == "final":
            own |= {"final": dict(self.own.final), "search_seed": self.seeds[0]}
        method = find_method(self.method)
        is_fixed = trial in range(1, len(method.also) + 1)  # and depends on no other setting
        space = method.also[trial - 1] if trial and is_fixed else method.space
        return identity(place, settings, own, _ends(space))

    def kept(self, done: Mapping[str, Row]) -> dict[str, Row]:
        """Rows that are there; trainings of a setting that is no longer chosen do not count."""
        found = super().kept(done)
        if self.is_untuned:
            return found
        trials = [found[task] for task in self.tasks()[: self.budget.trials] if task in found]
        if len(trials) < self.budget.trials:
            return found
        choice = chosen(trials, self.budget.least_lead)
        return {
            task: row
            for task, row in found.items()
            if row["stage"] == "trial" or "chosen_trial" not in row or _choice(row) == choice
        }

    def run(self, ledger: Ledger) -> Iterator[Measured]:
        """Measure what is not done, each row as soon as it is there."""
        return CellRun(self, ledger).measure()


def density_cells(
    experiment: str,
    config: DensityConfig,
    budget_name: str,
    *,
    sets: tuple[str, ...] | None = None,
    methods: tuple[str, ...] | None = None,
    seeds: tuple[int, ...] | None = None,
    storage: str = "",
    variant: str = "tuned",
) -> list[DensityCell]:
    """Cells of an experiment, or of a part of it, checked before anything runs."""
    budget = config.budgets[budget_name]
    for name, own in budget.methods.items():
        where = f"{experiment}.budgets.{budget_name}.methods.{name}"
        check_parameters(name, {**own.search, **own.final}, where)
    if seeds:
        plain = {name: replace(own, seeds=None) for name, own in budget.methods.items()}
        budget = replace(budget, seeds=seeds, methods=plain)
    chosen = methods or config.methods
    for name in chosen:
        find_method(name)
        if name not in (known := (*config.methods, *config.optional_methods)):
            raise ValueError(f"{experiment} has no method {name!r}; it has {', '.join(known)}")
    names = sets or budget.sets or config.sets
    for name in names:
        find_target(name)
    return [
        DensityCell(experiment, budget_name, name, method, budget, storage, variant)
        for name in names
        for method in chosen
    ]


def _choice(row: Row) -> tuple[int, Parameters]:
    """Number and parameters of the trial that a training follows."""
    return row["chosen_trial"], row["sampled"]


def _ends(space: Space) -> dict[str, list[Any]]:
    """What is drawn from a space, without the reasons that it gives."""
    return {
        name: [part.low, part.high, part.log] if isinstance(part, Range) else list(part.values)
        for name, part in space.items()
    }

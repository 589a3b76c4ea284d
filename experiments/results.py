"""Rows of one experiment and budget, as tables and figures ask for them."""

import math
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any

from experiments.methods import METHODS
from experiments.pictures import TRUTH
from experiments.rows import Row

METRICS = {
    "spearman": "Spearman",
    "mean_absolute_error": "MAE",
    "excess_nll": "excess NLL",
}
HIGHER_IS_BETTER = {"spearman"}
SECONDS = {"fit_cpu_seconds": "training s", "score_cpu_seconds": "scoring s"}
"""Of the processor, one thread: what else the machine did does not count."""
OURS = tuple(name for name, method in METHODS.items() if method.kind == "ours")


def paper_figures() -> dict[str, Any]:
    """Published figures and targets, each with its source."""
    text = Path(__file__).with_name("paper.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


@dataclass(frozen=True)
class Figure:
    """A number over seeds.

    Parameters
    ----------
    value : float
        Mean over seeds.
    spread : float or None
        Standard deviation over seeds, of more than one.
    error : float or None
        Standard error over test rows, where it is known: the mean over seeds.
    rows : tuple of Row
    """

    value: float
    spread: float | None
    error: float | None
    rows: tuple[Row, ...]

    @property
    def uncertainty(self) -> float:
        """Standard error of the value: over test rows or over seeds, the larger that is known."""
        over_seeds = (self.spread or 0.0) / math.sqrt(len(self.rows))
        return max(over_seeds, self.error or 0.0)


@dataclass(frozen=True)
class Results:
    """Rows and pictures of a comparison of densities.

    Parameters
    ----------
    rows, pictures : list of Row
        As they stand in the files; of two rows in one place the later counts.
    sets_in_order : tuple of str
    stage : {"final", "untuned"}
        Trainings that figures are of: those that follow trials, or those of the defaults.
    """

    rows: list[Row]
    pictures: list[Row]
    sets_in_order: tuple[str, ...]
    stage: str = "final"

    @cached_property
    def current(self) -> list[Row]:
        """Rows that count, in the order of sets, methods, seeds and trials."""
        last = {_place(row): row for row in self.rows}
        return sorted(last.values(), key=self._order)

    @cached_property
    def finals(self) -> dict[tuple[str, str], list[Row]]:
        """Complete rows of the stage by set and method, a row for each seed."""
        found: dict[tuple[str, str], list[Row]] = {}
        for row in self.current:
            if row["stage"] == self.stage and row["status"] == "complete":
                found.setdefault((row["set"], row["method"]), []).append(row)
        return found

    @property
    def untuned(self) -> "Results":
        """The same rows, but figures are of the defaults."""
        return replace(self, stage="untuned")

    @property
    def sets(self) -> list[str]:
        """Sets that have a final row: those of the configuration first."""
        found = {name for name, _ in self.finals}
        known = [name for name in self.sets_in_order if name in found]
        return known + sorted(found - set(known))

    @property
    def methods(self) -> list[str]:
        """Methods that have a final row."""
        return [name for name in METHODS if any(m == name for _, m in self.finals)]

    @property
    def trials(self) -> list[Row]:
        """Rows of trials."""
        return [row for row in self.current if row["stage"] == "trial"]

    @property
    def failures(self) -> list[Row]:
        """Rows of what went wrong."""
        return [row for row in self.current if row["status"] == "failed"]

    def figure(self, name: str, method: str, metric: str) -> Figure | None:
        """A metric, or seconds, of a method on a set; None where there is none."""
        rows = self.finals.get((name, method), [])
        values = [v for row in rows if (v := _number(row, metric)) is not None]
        if not values:
            return None
        errors = [e for row in rows if (e := _number(row, f"{metric}_standard_error")) is not None]
        spread = stdev(values) if len(values) > 1 else None
        return Figure(mean(values), spread, mean(errors) if errors else None, tuple(rows))

    def seconds(self, method: str, key: str) -> float:
        """Median over sets of the mean over seeds, which some sets have more of than others."""
        figures = (self.figure(name, method, key) for name in self.sets)
        return median(figure.value for figure in figures if figure is not None)

    def total_seconds(self, method: str) -> float:
        """What all rows of a method took: trainings of the stage, and the trials before them."""
        stages = {self.stage, "trial"} if self.stage == "final" else {self.stage}
        rows = (row for row in self.current if row["method"] == method)
        return sum(row["seconds"] for row in rows if row["stage"] in stages)

    def best(self, name: str, metric: str, methods: Iterable[str]) -> str | None:
        """Method of the best mean on a set."""
        found = {m: f.value for m in methods if (f := self.figure(name, m, metric)) is not None}
        if not found:
            return None
        choose = max if metric in HIGHER_IS_BETTER else min
        return choose(found, key=found.__getitem__)

    def picture(self, name: str, method: str) -> Row | None:
        """Picture of a method, or of the truth, on a set."""
        if method == TRUTH:
            of_set = [p for p in self.pictures if (p["set"], p["method"]) == (name, TRUTH)]
            return of_set[-1] if of_set else None
        known = {row["id"] for row in self.finals.get((name, method), [])}
        own = [p for p in self.pictures if p["id"] in known]
        return own[-1] if own else None

    def _order(self, row: Row) -> tuple[Any, ...]:
        known = self.sets_in_order
        place = known.index(row["set"]) if row["set"] in known else len(known)
        stage = ("trial", "final", "untuned").index(row["stage"])
        return (
            place,
            row["set"],
            list(METHODS).index(row["method"]),
            stage,
            row["seed"],
            row["trial"] or 0,
        )


def _place(row: Row) -> tuple[Any, ...]:
    return row["set"], row["method"], row["seed"], row["stage"], row["trial"]


def _number(row: Row, metric: str) -> float | None:
    return row[metric] if metric in row else row["metrics"].get(metric)

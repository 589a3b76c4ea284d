"""Rows of the experiment on images, as tables and figures ask for them."""

from dataclasses import dataclass
from functools import cached_property
from statistics import mean, stdev

import numpy as np
from numpy.typing import NDArray

from experiments.images.methods import IMAGE_METHODS
from experiments.results import Figure
from experiments.rows import Row

LEAST_SHARE = 1e-3
"""Of the test images, in a bin whose accuracy is drawn: that of two or three images is chance."""


@dataclass(frozen=True)
class ImageResults:
    """Rows and pictures of a budget; of two rows in one place the later counts."""

    rows: list[Row]
    pictures: list[Row]
    sets_in_order: tuple[str, ...]

    @cached_property
    def current(self) -> list[Row]:
        """Rows that count, in the order of sets, methods and seeds."""
        last = {(row["set"], row["method"], row["seed"]): row for row in self.rows}
        methods = list(IMAGE_METHODS)
        names = [*self.sets_in_order, *sorted({row["set"] for row in self.rows})]
        return sorted(
            last.values(),
            key=lambda row: (
                names.index(row["set"]),
                methods.index(row["method"]),
                row["seed"],
            ),
        )

    @cached_property
    def complete(self) -> dict[tuple[str, str], list[Row]]:
        """Complete rows by set and method, one for each seed."""
        found: dict[tuple[str, str], list[Row]] = {}
        for row in self.current:
            if row["status"] == "complete":
                found.setdefault((row["set"], row["method"]), []).append(row)
        return found

    @property
    def failures(self) -> list[Row]:
        """Rows of what went wrong."""
        return [row for row in self.current if row["status"] == "failed"]

    @property
    def sets(self) -> list[str]:
        """Sets that have a complete row, in order."""
        return list(dict.fromkeys(name for name, _ in self.complete))

    def methods(self, name: str | None = None) -> list[str]:
        """Methods that have a complete row, of a set or of any."""
        found = {m for s, m in self.complete if name in (None, s)}
        return [method for method in IMAGE_METHODS if method in found]

    def figure(self, name: str, method: str, metric: str) -> Figure | None:
        """A metric, or seconds, of a method on a set; None where there is none."""
        rows = self.complete.get((name, method), [])
        if not rows:
            return None
        values = [row[metric] if metric in row else row["metrics"][metric] for row in rows]
        errors = [row["metrics"].get(f"{metric}_standard_error") for row in rows]
        known = [error for error in errors if error is not None]
        spread = stdev(values) if len(values) > 1 else None
        return Figure(mean(values), spread, mean(known) if known else None, tuple(rows))

    def separation(self, name: str, method: str) -> dict[str, dict[str, float]]:
        """Mean AUC over seeds, by kind of foreign image and by score."""
        rows = [row["out_of_distribution"] for row in self.complete.get((name, method), [])]
        kinds = list(dict.fromkeys(kind for found in rows for kind in found))
        return {
            kind: {
                score: mean(found[kind][score] for found in rows if kind in found)
                for score in ("density", "confidence")
            }
            for kind in kinds
        }

    def confusion(self, name: str, method: str) -> NDArray[np.float64]:
        """Shares of predicted classes (columns) of each true class (lines), over all seeds."""
        counts = np.sum([row["confusion"] for row in self.complete[name, method]], axis=0)
        return counts / np.maximum(counts.sum(1, keepdims=True), 1)

    def reliability(self, name: str, method: str) -> list[list[float]]:
        """Number, confidence and accuracy of the bins of the first seed, but for tiny ones."""
        bins: list[list[float]] = self.complete[name, method][0]["reliability"]
        least = LEAST_SHARE * sum(n for n, *_ in bins)
        return [found for found in bins if found[0] >= least]

    def picture(self, name: str, method: str) -> Row | None:
        """Most and least likely images of a method on a set."""
        known = {row["id"] for row in self.complete.get((name, method), [])}
        own = [picture for picture in self.pictures if picture["id"] in known]
        return own[-1] if own else None

"""Classification of MNIST and CIFAR-10 by one density per class: the paper's fourth experiment.

A cell is one method on one set, a row one seed. Recipes come from training images alone; the test
images are looked at when the training is over.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from experiments.attempts import Times, attempt
from experiments.cells import Cell, Ledger, Measured, identity
from experiments.images.config import ImageBudget, ImageConfig, ImageMethodBudget
from experiments.images.methods import ImageMethod, check_recipe, find_image_method
from experiments.images.metrics import (
    confusion,
    extremes,
    label_metrics,
    reliability,
    separation,
)
from experiments.images.pictures import pack_images
from experiments.images.sets import IMAGE_SETS, load_images, outsiders
from experiments.rows import Row

EXPERIMENT = "images"


@dataclass(frozen=True)
class Parts:
    """Images of a set that a row of some seed is about."""

    X: Any
    y: Any
    X_test: Any
    y_test: Any
    places: Any
    """Numbers of the test images in the whole set."""

    @classmethod
    def of(cls, name: str, budget: ImageBudget, seed: int) -> "Parts":
        """All images, or as many as the budget has, drawn with the seed."""
        data, rng = load_images(name), np.random.default_rng(seed)
        chosen = rng.permutation(len(data.y_train))[: budget.n_train]
        places = np.sort(rng.permutation(len(data.y_test))[: budget.n_test])
        X, y = data.X_train[chosen], data.y_train[chosen]
        return cls(X, y, data.X_test[places], data.y_test[places], places)


@dataclass(frozen=True)
class ImageCell(Cell):
    """One method on one set.

    Parameters
    ----------
    budget_name : str
    set, method : str
    budget : ImageBudget
    recipe : dict
        Parameters of the method.
    scratch : Path, optional
        Folder of checkpoints: what was interrupted goes on from its own.
    """

    budget_name: str
    set: str
    method: str
    budget: ImageBudget
    recipe: Mapping[str, Any]
    scratch: Path | None = None

    @property
    def label(self) -> str:
        """Name for people."""
        return f"{self.method} on {self.set}"

    @property
    def seeds(self) -> tuple[int, ...]:
        """A row for each of them."""
        own = self.budget.methods.get(self.method, ImageMethodBudget())
        return own.seeds or self.budget.seeds

    def tasks(self) -> list[str]:
        """Identities of all its rows."""
        return [self.identity(seed) for seed in self.seeds]

    def identity(self, seed: int) -> str:
        """Short name of a row."""
        place = [EXPERIMENT, self.budget_name, self.set, self.method, seed]
        return identity(place, self._sizes(), dict(self.recipe))

    def run(self, ledger: Ledger) -> Iterator[Measured]:
        """Measure what is not done, each row as soon as it is there."""
        for seed in self.seeds:
            with ledger.claim(self.identity(seed)) as known:
                if known is None:
                    yield self._measure(seed)

    def _measure(self, seed: int) -> Measured:
        pictures: list[Row] = []
        row = self._row(seed)

        def work() -> Row:
            parts = Parts.of(self.set, self.budget, seed)
            method, data = find_image_method(self.method), load_images(self.set)
            checkpoint = self._checkpoint(method, row["id"])
            own = {} if checkpoint is None else {"checkpoint": checkpoint}
            times = Times(None if checkpoint is None else method.peek(checkpoint))
            model = method.make(dict(self.recipe) | own, data.image_shape, seed)
            times.fit(lambda: model.fit(parts.X, parts.y))
            log_density = times.score(lambda: model.log_density(parts.X_test))
            found = measured(model, parts, log_density)
            found["out_of_distribution"] = self._foreign(model, parts, log_density, seed)
            if seed == self.seeds[0]:
                pictures.append({"id": row["id"], **self._picture(found, seed)})
            sizes = {"n_train": len(parts.y), "n_test": len(parts.y_test)}
            names = {"class_names": data.class_names}
            return sizes | names | found | fitted(model, method) | times.record()

        return Measured(attempt(row, work), tuple(pictures))

    def _checkpoint(self, method: ImageMethod, name: str) -> Path | None:
        if self.scratch is None or not method.is_trained:
            return None
        self.scratch.mkdir(parents=True, exist_ok=True)
        return self.scratch / f"{name}.checkpoint"

    def _foreign(self, model: Any, parts: Parts, log_density: Any, seed: int) -> Row:
        n, log_prior = self.budget.n_outside, np.log(model.class_prior_)
        own = parts.X_test[:n]
        return {
            kind: separation(log_density[: len(own)], model.log_density(X), log_prior)
            for kind, X in outsiders(self.set, own, seed).items()
        }

    def _picture(self, found: Row, seed: int) -> Row:
        data = load_images(self.set)
        shown = np.array([found["most_likely"], found["least_likely"]])  # (2, C, n)
        place = {"experiment": EXPERIMENT, "set": self.set, "seed": seed, "method": self.method}
        return place | pack_images(data.X_test[shown], data.image_shape)

    def _row(self, seed: int) -> Row:
        return {
            "id": self.identity(seed),
            "experiment": EXPERIMENT,
            "budget": self.budget_name,
            "set": self.set,
            "method": self.method,
            "seed": seed,
            "stage": "final",
            "trial": None,
            "status": "complete",
            "error": None,
            "config": self._sizes(),
            "parameters": dict(self.recipe),
        }

    def _sizes(self) -> Row:
        b = self.budget
        return {"n_train": b.n_train, "n_test": b.n_test, "n_outside": b.n_outside}


def measured(model: Any, parts: Parts, log_density: Any) -> Row:
    """What a row says of labels and of densities."""
    with np.errstate(divide="ignore"):
        joint = log_density + np.log(model.class_prior_)
    log_proba = joint - np.logaddexp.reduce(joint, axis=1, keepdims=True)
    codes = np.searchsorted(model.classes_, parts.y_test)
    most, least = (
        [parts.places[rows].tolist() for rows in found] for found in extremes(log_density, codes)
    )
    return {
        "metrics": label_metrics(log_proba, codes),
        "reliability": reliability(log_proba, codes),
        "confusion": confusion(log_proba, codes),
        "most_likely": most,
        "least_likely": least,
    }


def fitted(model: Any, method: ImageMethod) -> Row:
    """Parameters of the estimator, those that it chose, and how training went."""
    history = getattr(model, "history_", None)
    histories = history if isinstance(history, list) else [history]
    return {
        "resolved": {name: _value(getattr(model, f"{name}_")) for name in method.attributes},
        "training": [
            {"steps": h.steps[-1], "stopped_by": h.stopped_by, "n_recoveries": h.n_recoveries}
            for h in histories
            if h is not None
        ],
    }


def image_cells(
    config: ImageConfig,
    budget_name: str,
    *,
    sets: tuple[str, ...] | None = None,
    methods: tuple[str, ...] | None = None,
    seeds: tuple[int, ...] | None = None,
    scratch: Path | None = None,
) -> list[ImageCell]:
    """Cells of the experiment, or of a part of it, checked before anything runs."""
    budget = config.budgets[budget_name]
    if seeds:
        plain = {name: replace(own, seeds=None) for name, own in budget.methods.items()}
        budget = replace(budget, seeds=seeds, methods=plain)
    for name in sets or ():
        if name not in IMAGE_SETS:
            raise ValueError(f"unknown set {name!r}; choose one of {', '.join(IMAGE_SETS)}")
    cells = []
    for name in sets or config.sets:
        for method in methods or config.methods:
            find_image_method(method)
            recipe = config.parameters(method, name, budget)
            check_recipe(method, recipe, f"{EXPERIMENT}.recipes.{method}.{name}")
            cells.append(ImageCell(budget_name, name, method, budget, recipe, scratch))
    return cells


def _value(value: Any) -> Any:
    """A number, or one for all where an array holds but one."""
    if not isinstance(value, np.ndarray):
        return value
    return float(value[0]) if (value == value[0]).all() else value.tolist()

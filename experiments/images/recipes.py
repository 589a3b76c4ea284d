"""Recipes of the experiment on images, judged by training images alone.

A method is trained on all training images but 5000, drawn once, which then judge it. The recipe
is that of the configuration, with what is given in its place; an interrupted training goes on
from its checkpoint. Test images take no part in any of this.
"""

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.attempts import Times, attempt
from experiments.cells import identity
from experiments.config import load_config
from experiments.images.cells import Parts, fitted, measured
from experiments.images.config import ImageConfig
from experiments.images.methods import IMAGE_METHODS, check_recipe, find_image_method
from experiments.images.sets import IMAGE_SETS, load_images
from experiments.rows import RESULTS, Row, append_row, markdown_table, read_rows

ROWS = RESULTS / "recipes.jsonl"

N_JUDGES, LEAST_SHARE = 5000, 5
"""Training images that judge, but at most one in so many of a small set."""
DRAW = 2026
"""Seed that they are drawn with, whatever the seed of a training is."""


def judged_parts(name: str) -> Parts:
    """Training images to fit, and others in place of the test images."""
    data = load_images(name)
    order = np.random.default_rng(DRAW).permutation(len(data.y_train))
    judges, rest = np.split(order, [min(N_JUDGES, len(order) // LEAST_SHARE)])
    X, y = data.X_train, data.y_train
    return Parts(X[rest], y[rest], X[judges], y[judges], judges)


def run(
    name: str, method: str, given: Mapping[str, Any], seed: int = 0, path: Path = ROWS
) -> Row | None:
    """Append the row of one recipe; None where the file has it already."""
    if name not in IMAGE_SETS:
        raise ValueError(f"unknown set {name!r}; choose one of {', '.join(IMAGE_SETS)}")
    recipe = recipe_of(method, name) | dict(given)
    check_recipe(method, recipe, f"{method} on {name}")
    place = {"set": name, "method": method, "seed": seed, "recipe": recipe}
    row_id = identity([name, method, seed], {"judges": [N_JUDGES, DRAW]}, recipe)
    if any(row["id"] == row_id and row["status"] == "complete" for row in read_rows(path)):
        return None
    row = measure({"id": row_id, **place}, path.with_suffix(".unfinished"))
    append_row(row, path)
    return row


def recipe_of(method: str, name: str) -> dict[str, Any]:
    """Recipe that the configuration has."""
    find_image_method(method)
    return dict(load_config("images", ImageConfig).recipes.get(method, {}).get(name, {}))


def measure(row: Row, scratch: Path) -> Row:
    """The row with what the judges say of its recipe."""
    method, name = find_image_method(row["method"]), row["set"]

    def work() -> Row:
        parts, own = judged_parts(name), {}
        times = Times()
        if method.is_trained:
            scratch.mkdir(parents=True, exist_ok=True)
            checkpoint = scratch / f"{row['id']}.checkpoint"
            times, own = Times(method.peek(checkpoint)), {"checkpoint": checkpoint}
        model = method.make(row["recipe"] | own, load_images(name).image_shape, row["seed"])
        times.fit(lambda: model.fit(parts.X, parts.y))
        log_density = times.score(lambda: model.log_density(parts.X_test))
        found = {"metrics": measured(model, parts, log_density)["metrics"]}
        sizes = {"n_train": len(parts.y), "n_judges": len(parts.y_test)}
        return sizes | found | fitted(model, method) | times.record()

    return attempt(row | {"status": "complete", "error": None}, work)


def table(rows: Sequence[Row]) -> str:
    """A line for each recipe, those of one method and set together, the best first."""
    order = list(IMAGE_METHODS)
    done = [row for row in rows if row["status"] == "complete"]
    if not done:
        return "Nothing has been tried with this command yet."
    done.sort(
        key=lambda r: (r["set"], order.index(r["method"]), -r["metrics"]["accuracy"], r["id"])
    )
    lines = [
        [
            row["set"],
            IMAGE_METHODS[row["method"]].label,
            ", ".join(f"{k} {v}" for k, v in row["recipe"].items()),
            str(row["seed"]),
            f"{row['metrics']['accuracy']:.4f}",
            f"{row['metrics']['nll']:.3f}",
            f"{row['fit_cpu_seconds']:.0f}",
        ]
        for row in done
    ]
    head = ["set", "method", "recipe", "seed", "accuracy", "NLL", "processor s"]
    return markdown_table(head, lines)


def parse_value(text: str) -> tuple[str, Any]:
    """Name and value of ``name=value``, the value as TOML has it.

    Examples
    --------
    >>> parse_value("learning_rate=0.002")
    ('learning_rate', 0.002)
    """
    name, found, value = text.partition("=")
    try:
        return name, tomllib.loads(f"value = {value if found else ''}")["value"]
    except tomllib.TOMLDecodeError:
        raise ValueError(f"{text!r} is not name=value, as in TOML") from None

"""The Markdown page of the experiment on images."""

from collections.abc import Mapping
from statistics import mean
from typing import Any

from experiments.images.methods import IMAGE_METHODS
from experiments.images.results import ImageResults
from experiments.results import Figure, paper_figures
from experiments.rows import Row, markdown_table
from experiments.tables import rebuild

SET_NAMES = {"mnist": "MNIST", "cifar10": "CIFAR-10"}
METRICS = {"nll": "NLL of labels", "calibration_error": "calibration error"}
NOTES = {
    "accuracy": "Share of test images whose label is right: the mean ± the standard deviation "
    "over seeds. The paper's figure and this project's target beside it; bold where both, as far "
    "as there are any, are reached.",
    "labels": "NLL is the mean −log P(y | x) in nats. Calibration error is the mean distance of "
    "confidence and accuracy over fifteen bins of confidence; those of fewer than a thousandth of "
    "the images are not drawn.",
    "foreign": "AUC with which log p(x), of all classes together, tells test images from foreign "
    "ones; in brackets with the largest posterior instead. 0.5 is chance, below it foreign images "
    "are the likelier ones. Densities are those of pixels, but behind an encoder those of codes.",
    "budget": "What each training was given and what it took, on one thread of a machine busy "
    "with other work: means over seeds. Parameters not named are the estimator's defaults.",
}


def images_page(results: ImageResults, title: str, budget: str) -> str:
    """Tables and figures of the experiment."""
    if not results.complete:
        raise ValueError(
            f"images has no complete row of the budget {budget!r}; "
            f"run: python -m experiments run images --budget {budget}"
        )
    parts = [
        f"# {title}",
        preamble(results, budget),
        f"## Accuracy\n\n{NOTES['accuracy']}\n\n{accuracy_table(results)}",
        f"## Labels and confidence\n\n{NOTES['labels']}\n\n{label_table(results)}",
        "![Confidence and accuracy](figures/images_reliability.png)",
        f"## Foreign images\n\n{NOTES['foreign']}\n\n{foreign_table(results)}",
        *_pictures(results),
        f"## Budgets\n\n{NOTES['budget']}\n\n{budget_table(results)}",
        *_failures(results),
        rebuild("images", budget),
    ]
    return "\n\n".join(parts)


def preamble(results: ImageResults, budget: str) -> str:
    """How much was measured, and of what."""
    rows = [row for of in results.complete.values() for row in of]
    sizes = "; ".join(
        f"{shown(name)} {_span(results, name, 'n_train')} training and "
        f"{_span(results, name, 'n_test')} test images"
        for name in results.sets
    )
    return (
        f"Budget `{budget}`: {len(rows)} trainings, {len(results.failures)} failures. {sizes}. "
        "One density per class, the label by Bayes' rule. Recipes come from "
        "training images alone; see [classification](classification.md#images-as-in-the-paper)."
    )


def accuracy_table(results: ImageResults) -> str:
    """Methods by sets: ours, the paper's, the target."""
    head = ["method"]
    for name in results.sets:
        head += [shown(name), "paper", "target"]
    lines = []
    for method in results.methods():
        line = [IMAGE_METHODS[method].label]
        for name in results.sets:
            paper, target = published(name, method)
            figure = results.figure(name, method, "accuracy")
            line += [_accuracy(figure, paper, target), _plain(paper), _plain(target)]
        lines.append(line)
    return markdown_table(head, lines)


def published(name: str, method: str) -> tuple[float | None, float | None]:
    """The paper's accuracy and this project's target; for baselines the paper's is the target."""
    figures = paper_figures()
    paper = _of(figures["images"], method, name)
    target = _of(figures["target"]["images"], method, name)
    if IMAGE_METHODS[method].kind == "baseline":
        target = paper
    return paper, target


def is_reached(figure: Figure, paper: float | None, target: float | None) -> bool:
    """Whether a mean is at or above all that it is compared with, if there is anything."""
    given = [value for value in (paper, target) if value is not None]
    return bool(given) and all(figure.value >= value for value in given)


def label_table(results: ImageResults) -> str:
    """Methods by sets: what is said of labels."""
    head = [
        "method",
        *(f"{shown(n)}, {label}" for n in results.sets for label in METRICS.values()),
    ]
    lines = [
        [
            IMAGE_METHODS[method].label,
            *(number(results.figure(n, method, key), 3) for n in results.sets for key in METRICS),
        ]
        for method in results.methods()
    ]
    return markdown_table(head, lines)


def foreign_kinds(results: ImageResults) -> list[tuple[str, str]]:
    """Sets and the kinds of foreign images that they were set against."""
    found = {
        (name, kind): None
        for name in results.sets
        for method in results.methods(name)
        for kind in results.separation(name, method)
    }
    return list(found)


def foreign_table(results: ImageResults) -> str:
    """Methods by kinds of foreign images: AUC."""
    kinds = foreign_kinds(results)
    lines = []
    for method in results.methods():
        line = [IMAGE_METHODS[method].label]
        for name, kind in kinds:
            found = results.separation(name, method).get(kind)
            line.append(f"{found['density']:.3f} ({found['confidence']:.3f})" if found else "")
        lines.append(line)
    head = [f"{shown(name)} against {kind}" for name, kind in kinds]
    return markdown_table(["method", *head], lines)


def budget_table(results: ImageResults) -> str:
    """Seeds, steps, minutes and the recipe of every method on every set."""
    lines = []
    for (name, method), rows in results.complete.items():
        lines.append(
            [
                IMAGE_METHODS[method].label,
                shown(name),
                str(len(rows)),
                _steps(rows),
                *(f"{mean(row[key] for row in rows) / 60:.1f}" for key in MINUTES),
                recipe(rows[0]["parameters"]),
            ]
        )
    head = ["method", "set", "seeds", "steps", *MINUTES.values(), "recipe"]
    return markdown_table(head, lines)


MINUTES = {
    "fit_seconds": "training min",
    "fit_cpu_seconds": "processor min",
    "score_seconds": "scoring min",
}


def recipe(parameters: Mapping[str, Any]) -> str:
    """Parameters in one line.

    Examples
    --------
    >>> recipe({"n_features": 2000, "training": "gradient"})
    'n_features 2000, training gradient'
    """
    return ", ".join(f"{key} {value}" for key, value in parameters.items()) or "defaults"


def shown(name: str) -> str:
    """Name of a set for people."""
    return SET_NAMES.get(name, name)


def number(figure: Figure | None, digits: int) -> str:
    """A mean, ± its standard deviation over seeds where there are several."""
    if figure is None:
        return ""
    doubt = "" if figure.spread is None else f" ± {figure.spread:.{digits}f}"
    return f"{figure.value:.{digits}f}{doubt}"


def _accuracy(figure: Figure | None, paper: float | None, target: float | None) -> str:
    text = number(figure, 4)
    return f"**{text}**" if figure is not None and is_reached(figure, paper, target) else text


def _of(table: Mapping[str, Any], method: str, name: str) -> float | None:
    value: float | None = table["accuracy"].get(method, {}).get(name)
    return value


def _plain(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _steps(rows: list[Row]) -> str:
    steps = [part["steps"] for row in rows for part in row["training"]]
    return f"{mean(steps):.0f}" if steps else "closed form"


def _span(results: ImageResults, name: str, key: str) -> str:
    values = sorted(
        {row[key] for (n, _), of in results.complete.items() if n == name for row in of}
    )
    return " to ".join(f"{value:,}" for value in dict.fromkeys((values[0], values[-1])))


def _pictures(results: ImageResults) -> list[str]:
    """Links to the figures of each set."""
    parts = []
    for name in results.sets:
        parts.append(
            f"## {shown(name)}: what is taken for what\n\nEach line is a true class, each column "
            "what was predicted of it, over all seeds.\n\n"
            f"![Confusion matrices](figures/images_confusion_{name}.png)"
        )
        if any(results.picture(name, method) for method in results.methods(name)):
            parts.append(
                f"## {shown(name)}: most and least likely images\n\nOf the test images of each "
                "class, the two of the highest density within it (above) and the two of the "
                "lowest (below), of the first seed.\n\n"
                f"![Most and least likely images](figures/images_likely_{name}.png)"
            )
    return parts


def _failures(results: ImageResults) -> list[str]:
    if not results.failures:
        return []
    lines = [
        [
            IMAGE_METHODS[row["method"]].label,
            shown(row["set"]),
            str(row["seed"]),
            f"{row['error']['type']}: {row['error']['message']}",
        ]
        for row in results.failures
    ]
    return [f"## Failures\n\n{markdown_table(['method', 'set', 'seed', 'error'], lines)}"]

"""Figures of the experiment on images, by matplotlib."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from experiments.figures import new_figure, styled
from experiments.images.methods import IMAGE_METHODS
from experiments.images.pictures import unpack_images
from experiments.images.results import ImageResults
from experiments.images.tables import shown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

N_COLUMNS = 5
GAP = 0.5
"""Brightness between pictures."""


def image_figures(results: ImageResults) -> dict[str, Callable[[], "Figure"]]:
    """What draws each figure, by the name of its file."""
    drawn: dict[str, Callable[[], Figure]] = {
        "images_reliability.png": partial(reliability_figure, results)
    }
    for name in results.sets:
        drawn[f"images_confusion_{name}.png"] = partial(confusion_figure, results, name)
        if any(results.picture(name, method) for method in results.methods(name)):
            drawn[f"images_likely_{name}.png"] = partial(likely_figure, results, name)
    return drawn


@styled
def reliability_figure(results: ImageResults) -> "Figure":
    """Accuracy over confidence, a panel for each set, a line for each method."""
    figure = new_figure((4.4 * len(results.sets) + 2.2, 4.2))
    axes = figure.subplots(1, len(results.sets), squeeze=False)[0]
    for ax, name in zip(axes, results.sets, strict=True):
        ax.plot([0, 1], [0, 1], color="0.7", lw=0.8, zorder=0)
        for method in results.methods(name):
            look = IMAGE_METHODS[method]
            _, confidence, accuracy = zip(*results.reliability(name, method), strict=True)
            style = {"color": look.colour, "marker": look.marker, "ms": 4}
            ours = look.kind == "ours"
            ax.plot(confidence, accuracy, ls="-" if ours else ":", label=look.label, **style)
        ax.set(xlim=(0, 1), ylim=(0, 1), xlabel="confidence", aspect="equal")
        ax.set_title(shown(name), loc="left", weight="bold")
    axes[0].set_ylabel("accuracy")
    entries = {label: h for ax in axes for h, label in zip(*_entries(ax), strict=True)}
    figure.legend(entries.values(), entries.keys(), loc="outside right upper", frameon=False)
    return figure


@styled
def confusion_figure(results: ImageResults, name: str) -> "Figure":
    """Shares of predicted classes, a panel for each method; a root shows what is rare."""
    figure, axes = _panels(results.methods(name), 2.3, 2.3)
    names = results.complete[name, results.methods(name)[0]][0]["class_names"]
    short = [text[:4] for text in names]
    for ax, method in zip(axes, results.methods(name), strict=False):
        ax.imshow(np.sqrt(results.confusion(name, method)), cmap="Blues", vmin=0, vmax=1)
        ax.set_title(IMAGE_METHODS[method].label, fontsize=8)
        ax.set_xticks(range(len(names)), short, fontsize=5, rotation=90)
        ax.set_yticks(range(len(names)), short, fontsize=5)
    return figure


@styled
def likely_figure(results: ImageResults, name: str) -> "Figure":
    """Most and least likely test images of each class, a panel for each method."""
    methods = [m for m in results.methods(name) if results.picture(name, m) is not None]
    figure, axes = _panels(methods, 2.6, 1.4)
    for ax, method in zip(axes, methods, strict=False):
        packed = results.picture(name, method)
        assert packed is not None
        tiles = mosaic(unpack_images(packed))
        ax.imshow(tiles, cmap="gray", vmin=0, vmax=1, interpolation="none")
        ax.set_title(IMAGE_METHODS[method].label, fontsize=8)
        ax.set_axis_off()
    return figure


def mosaic(images: NDArray[np.float64]) -> NDArray[np.float64]:
    """Images (2, C, n, channels, H, W) as one: a column for each class, the most likely above.

    Grey images give (height, width), others (height, width, 3). A pixel stands between
    neighbours, three between the most and the least likely.
    """
    groups = [
        _joined([_joined(list(column), 1) for column in group], 2) for group in images
    ]  # each (channels, height, width)
    whole = _joined(groups, 1, gap=3)
    return whole[0] if len(whole) == 1 else np.moveaxis(whole, 0, 2)


def _joined(parts: Sequence[NDArray[np.float64]], axis: int, gap: int = 1) -> NDArray[np.float64]:
    """Pictures side by side along an axis."""
    size = list(parts[0].shape)
    size[axis] = gap
    strip = np.full(size, GAP)
    spaced = [piece for part in parts for piece in (part, strip)]
    return np.concatenate(spaced[:-1], axis)


def _panels(methods: Sequence[str], width: float, height: float) -> tuple["Figure", Any]:
    """Panels for methods, in lines of five; those that are left over are blank."""
    columns = min(N_COLUMNS, len(methods))
    lines = -(-len(methods) // columns)
    figure = new_figure((width * columns, height * lines))
    axes = figure.subplots(lines, columns, squeeze=False).ravel()
    for ax in axes[len(methods) :]:
        ax.set_axis_off()
    return figure, axes


def _entries(ax: Any) -> Any:
    return ax.get_legend_handles_labels()

"""Figures from rows, by matplotlib: the same rows give the same bytes."""

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from experiments.kernel import CENTRE, GRID, KINDS, SHOWN_FEATURES, errors_of, true_curve
from experiments.methods import METHODS
from experiments.pictures import TRUTH, unpack, unpack_mesh
from experiments.results import Results
from experiments.rows import Row
from experiments.sets import dims_and_scale
from qaffde.plot.style import COLORS, STYLE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PNG: dict[str, Any] = {"dpi": 130, "metadata": {"Software": None}}

Draw = TypeVar("Draw", bound=Callable[..., "Figure"])


def save_figure(figure: "Figure", path: Path) -> Path:
    """Write a figure as PNG; return its path."""
    from matplotlib import rc_context

    path.parent.mkdir(parents=True, exist_ok=True)
    with rc_context(STYLE):
        figure.savefig(path, **PNG)
    _shrink(path)
    return path


def _shrink(path: Path) -> None:
    """Keep the 256 colours that matter: a third of the size."""
    from PIL import Image  # comes with matplotlib

    with Image.open(path) as image:
        small = image.convert("RGB").quantize(256)
    small.save(path, optimize=True)


def styled(draw: Draw) -> Draw:
    """Let a function draw in the style of all figures."""

    @wraps(draw)
    def drawn(*arguments: Any) -> "Figure":
        from matplotlib import rc_context

        with rc_context(STYLE):
            return draw(*arguments)

    return drawn  # type: ignore[return-value]


@styled
def mesh_figure(results: Results) -> "Figure":
    """Sets by methods, the true density first, each panel with its Spearman correlation."""
    figure, axes = _panels(results)
    for ax, name, method in _places(axes, results):
        truth, own = results.picture(name, TRUTH), results.picture(name, method)
        if truth is None or own is None:
            continue
        most = float(np.sqrt(unpack_mesh(truth).max()))
        shown = np.sqrt(unpack_mesh(own))
        ax.imshow(
            shown,
            origin="lower",
            cmap=COLORS,
            vmin=0,
            vmax=most,
            aspect="auto",
            interpolation="none",
        )
        _caption(ax, results, name, method, "white")
    return figure


@styled
def scatter_figure(results: Results) -> "Figure":
    """Sets by methods, true against estimated density at test rows."""
    methods = results.methods
    figure, axes = _panels(results, methods)
    for ax, name, method in _places(axes, results, methods):
        truth, own = results.picture(name, TRUTH), results.picture(name, method)
        if truth is None or own is None:
            continue
        x, y = unpack(truth["pairs"]), unpack(own["pairs"])
        most = 1.08 * float(x.max())
        ax.plot([0, most], [0, most], color="0.6", lw=0.8, zorder=0)
        ax.scatter(x, y, s=1.2, lw=0, color=METHODS[method].colour, alpha=0.5, rasterized=True)
        ax.set(xlim=(0, most), ylim=(0, most))
        _caption(ax, results, name, method, "0.25")
    figure.supxlabel("true density", fontsize=9)
    figure.supylabel("estimated density", fontsize=9)
    return figure


@styled
def dimensions_figure(results: Results) -> "Figure":
    """Spearman and excess over the number of columns, a pair of panels for each scale."""
    scales = sorted({dims_and_scale(name)[1] for name in results.sets}, reverse=True)
    figure = new_figure((5.2 * len(scales) + 1.4, 6.4))
    axes = figure.subplots(2, len(scales), sharex=True, squeeze=False)
    for column, scale in enumerate(scales):
        for row, metric in enumerate(("spearman", "excess_nll")):
            ax = axes[row, column]
            for method in results.methods:
                d, values = curve(results, method, scale, metric)
                look = METHODS[method]
                ours = look.kind == "ours"
                ax.plot(
                    d,
                    values,
                    color=look.colour,
                    marker=look.marker,
                    ms=5 if ours else 4,
                    lw=2.2 if ours else 1.2,
                    ls="-" if look.kind != "classical" else ":",
                    label=look.label,
                    zorder=3 if ours else 2,
                )
            ax.grid(axis="y", color="0.92")
        axes[0, column].set_title(f"s = {scale:g}", loc="left", weight="bold")
        axes[1, column].set_yscale("symlog", linthresh=0.01)
        axes[1, column].set_xlabel("number of columns d")
    axes[0, 0].set_ylabel("Spearman")
    axes[1, 0].set_ylabel("excess NLL, nats")
    ticks = sorted({dims_and_scale(name)[0] for name in results.sets})
    axes[0, 0].set_xticks(ticks)
    figure.legend(
        *axes[0, 0].get_legend_handles_labels(), loc="outside right upper", frameon=False
    )
    return figure


def curve(
    results: Results, method: str, scale: float, metric: str
) -> tuple[list[int], list[float]]:
    """Numbers of columns and the values there."""
    found = {}
    for name in results.sets:
        d, s = dims_and_scale(name)
        figure = results.figure(name, method, metric)
        if s == scale and figure is not None:
            found[d] = figure.value
    ordered = sorted(found)
    return ordered, [found[d] for d in ordered]


@styled
def kernel_figure(rows: Sequence[Row]) -> "Figure":
    """Left the kernel around 2 from few features, right errors as their number grows."""
    figure = new_figure((11, 4.4))
    halves: Any = figure.subfigures(1, 2, wspace=0.04)
    left, right = halves
    shown = {row["kind"]: row for row in rows if "curve" in row}
    _draw_curves(left, [shown[kind] for kind in KINDS if kind in shown])
    errors = {
        kind: {D: [row["mse"] for row in of] for D, of in by_size.items()}
        for kind, by_size in errors_of(rows).items()
    }
    _draw_errors(right.subplots(), errors)
    return figure


def spread_labels(ends: Mapping[str, float], ratio: float = 2.2) -> dict[str, float]:
    """Heights of labels on a log axis, moved up until they do not touch.

    Examples
    --------
    >>> spread_labels({"a": 1.0, "b": 1.1, "c": 1e-3}, ratio=2.0)
    {'c': 0.001, 'a': 1.0, 'b': 2.0}
    """
    heights: dict[str, float] = {}
    for name in sorted(ends, key=ends.__getitem__):
        heights[name] = max([ends[name], *(height * ratio for height in heights.values())])
    return heights


def new_figure(size: tuple[float, float]) -> "Figure":
    """Empty figure of a size in inches, whose parts make room for each other."""
    from matplotlib.figure import Figure

    return Figure(figsize=size, layout="constrained")


def _panels(results: Results, methods: Sequence[str] | None = None) -> tuple["Figure", Any]:
    """Panels of sets by methods; without a list of methods the truth stands before all."""
    names = [TRUTH, *results.methods] if methods is None else list(methods)
    figure = new_figure((1.12 * len(names) + 0.9, 1.12 * len(results.sets) + 0.5))
    axes = figure.subplots(len(results.sets), len(names), squeeze=False)
    for ax in axes.flat:
        ax.set(xticks=[], yticks=[])
        ax.spines[["top", "right"]].set_visible(True)
        for spine in ax.spines.values():
            spine.set_color("0.8")
    for ax, name in zip(axes[0], names, strict=True):
        ax.set_title("true" if name == TRUTH else METHODS[name].label, fontsize=9)
    for ax, name in zip(axes[:, 0], results.sets, strict=True):
        ax.set_ylabel(name, rotation=0, ha="right", va="center", fontsize=9)
    return figure, axes


def _places(axes: Any, results: Results, methods: Sequence[str] | None = None) -> Any:
    names = [TRUTH, *results.methods] if methods is None else list(methods)
    for line, name in zip(axes, results.sets, strict=True):
        for ax, method in zip(line, names, strict=True):
            yield ax, name, method


def _caption(ax: Any, results: Results, name: str, method: str, colour: str) -> None:
    found = results.figure(name, method, "spearman") if method != TRUTH else None
    if found is not None:
        at = {"transform": ax.transAxes, "fontsize": 6.5, "color": colour, "va": "top"}
        ax.text(0.04, 0.96, f"{found.value:.4f}", **at)


def _draw_curves(figure: Any, rows: list[Row]) -> None:
    x = GRID[:, 0].numpy()
    axes = figure.subplots(2, 3, sharex=True, sharey=True)
    for ax in axes.flat[len(rows) :]:
        ax.set_axis_off()
    for ax, row in zip(axes.flat, rows, strict=False):
        colour = KINDS[row["kind"]].colour
        ax.fill_between(x, true_curve(), color="0.85", lw=0)
        ax.axhline(0, color="0.6", lw=0.8)
        ax.plot(x, row["curve"], color=colour, lw=2)
        ax.set_title(row["kind"], color=colour, loc="left", weight="bold", y=0.85, x=0.04)
    ends = (CENTRE - 4, CENTRE + 4)
    axes[0, 0].set(xlim=ends, xticks=range(-2, 7, 2), ylim=(None, 1.25), yticks=(0, 1))
    figure.supxlabel("x", fontsize="medium")
    title = f"k(2, x) from {SHOWN_FEATURES} features; grey, the Gaussian kernel"
    figure.suptitle(title, x=0.05, ha="left", fontsize=11)


def _draw_errors(ax: Any, errors: Mapping[str, Mapping[int, list[float]]]) -> None:
    sizes = sorted({D for by_size in errors.values() for D in by_size})
    n_seeds = max(len(of) for by_size in errors.values() for of in by_size.values())
    for name, by_size in errors.items():
        kind, D, seeds = KINDS[name], list(by_size), list(by_size.values())
        low, high = [*map(min, seeds)], [*map(max, seeds)]
        ax.fill_between(D, low, high, color=kind.colour, alpha=0.15, lw=0)
        ax.plot(D, [*map(mean, seeds)], marker=kind.marker, ms=4, color=kind.colour, lw=2)
    ax.set(xscale="log", yscale="log", xlabel="number of features D", xticks=sizes)
    ax.xaxis.set_major_formatter("{x:.0f}")
    ax.minorticks_off()
    ax.grid(axis="y", color="0.92")
    ax.set_title(
        f"Mean squared error on held-out pairs ({n_seeds} seeds)", loc="left", fontsize=11
    )
    ends = {name: mean(by_size[max(by_size)]) for name, by_size in errors.items()}
    for name, y in spread_labels(ends).items():
        label = {"color": KINDS[name].colour, "weight": "bold", "va": "center"}
        ax.annotate(name, (sizes[-1], y), (8, 0), textcoords="offset points", **label)

"""The paper's Figure 2: how well few Fourier features approximate the Gaussian kernel.

    python -m experiments.kernel_approximation [--out DIR] [--seeds N] [--redraw]

Left, the kernel around 2 and its approximations by a handful of features; right, the mean squared
error over held-out pairs of the data as their number grows. RFF are random cosines with random
phases, AFF are RFF trained by Algorithm 1, and a square marks features whose squared inner product
approximates the kernel. Beside the paper's four stands what this library trains by default:
Algorithm 1 from Sobol frequencies in cosine–sine pairs.

Every (kind, number of features, seed) is one row of a JSON-lines file, and the picture is drawn
from the rows alone.
"""

import argparse
import math
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from torch import Generator, Tensor

from experiments.rows import ROOT, markdown_table, provenance, read_rows, write_rows
from qaffde.nn import FourierFeatures
from qaffde.training import AdaptiveConfig, fit_adaptive_features, pair_kernel, random_pairs

ROWS = ROOT / "experiments/results/kernel_approximation.jsonl"
PICTURE = ROOT / "docs/images/kernel_approximation.png"

CENTRE = 2.0  # of the data, N(2, 1), and of the kernel in the left panel
BANDWIDTH = torch.tensor([0.3], dtype=torch.float64)
N_TRAIN, N_TEST, N_TEST_PAIRS = 2000, 2000, 20_000
N_FEATURES = (4, 8, 16, 32, 64, 128)
SHOWN_FEATURES, SHOWN_SEED = 8, 0  # left panel
GRID = torch.linspace(CENTRE - 4, CENTRE + 4, 161, dtype=torch.float64)[:, None]


@dataclass(frozen=True)
class Kind:
    """One way to approximate the kernel, and how it is drawn."""

    start: str
    squared: bool
    adaptive: bool
    colour: str  # of Okabe and Ito's palette, which colour-blind readers can tell apart
    line: str = "-"


KINDS = {
    "RFF": Kind("random", squared=False, adaptive=False, colour="#E69F00"),
    "RFF²": Kind("random", squared=True, adaptive=False, colour="#D55E00"),
    "AFF": Kind("random", squared=False, adaptive=True, colour="#56B4E9"),
    "AFF²": Kind("random", squared=True, adaptive=True, colour="#0072B2"),
    "AFF², paired": Kind("sobol", squared=True, adaptive=True, colour="#009E73", line="--"),
}
CONFIG = AdaptiveConfig(n_epochs=100, learning_rate=0.02)


def run(
    seeds: Iterable[int],
    n_features: Iterable[int] = N_FEATURES,
    kinds: Iterable[str] = tuple(KINDS),
    config: AdaptiveConfig = CONFIG,
) -> Iterator[dict[str, Any]]:
    """Measure every combination, one row each."""
    for seed, D, kind in product(seeds, n_features, kinds):
        yield measure(kind, D, seed, config)


def measure(kind: str, n_features: int, seed: int, config: AdaptiveConfig) -> dict[str, Any]:
    """Row of one approximation: its error on held-out pairs and, if shown, its curve."""
    generator = torch.Generator().manual_seed(seed)
    train, test = _draw_data(N_TRAIN, generator), _draw_data(N_TEST, generator)
    pairs = random_pairs(test, N_TEST_PAIRS, generator)
    start = time.perf_counter()
    features = _find_features(KINDS[kind], n_features, train, config, generator)
    seconds = time.perf_counter() - start
    error = _approximate(KINDS[kind], features, pairs) - pair_kernel(pairs, BANDWIDTH)
    row = {
        "kind": kind,
        "n_features": n_features,
        "seed": seed,
        "mse": error.square().mean().item(),
        "seconds": round(seconds, 3),
        "bandwidth": BANDWIDTH.item(),
        "n_train": N_TRAIN,
        "training": asdict(config) if KINDS[kind].adaptive else None,
        **provenance(),
    }
    if (n_features, seed) == (SHOWN_FEATURES, SHOWN_SEED):
        row["curve"] = _curve(KINDS[kind], features)
    return row


def errors_of(rows: Iterable[dict[str, Any]]) -> dict[str, dict[int, list[float]]]:
    """Mean squared errors of all seeds, by kind and by number of features."""
    errors: dict[str, dict[int, list[float]]] = {}
    for row in rows:
        errors.setdefault(row["kind"], {}).setdefault(row["n_features"], []).append(row["mse"])
    return errors


def table(rows: Iterable[dict[str, Any]]) -> str:
    """Mean errors in Markdown, a line for each number of features."""
    errors = errors_of(rows)
    lines = [
        [str(D), *(f"{mean(of_kind[D]):.1e}" for of_kind in errors.values())]
        for D in next(iter(errors.values()))
    ]
    return markdown_table(["D", *errors], lines)


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Draw both panels from the rows."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context({"axes.spines.top": False, "axes.spines.right": False}):
        figure = Figure(figsize=(11, 4.4), layout="constrained")
        left, right = figure.subfigures(1, 2, wspace=0.04)
        _draw_curves(left, [row for row in rows if "curve" in row])
        _draw_errors(right.subplots(), errors_of(rows))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=160)


def main() -> None:
    """Run the experiment and draw the figure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, help="folder for rows and picture")
    parser.add_argument("--seeds", type=int, default=5, help="repetitions (default 5)")
    parser.add_argument("--redraw", action="store_true", help="draw from the rows that are there")
    options = parser.parse_args()
    rows, picture = (options.out / path.name if options.out else path for path in (ROWS, PICTURE))
    if not options.redraw:
        write_rows(run(range(options.seeds)), rows)
    draw(read_rows(rows), picture)
    print(table(read_rows(rows)))


def _draw_data(n: int, generator: Generator) -> Tensor:
    return CENTRE + torch.randn(n, 1, generator=generator, dtype=torch.float64)


def _find_features(
    kind: Kind, n_features: int, X: Tensor, config: AdaptiveConfig, generator: Generator
) -> FourierFeatures:
    # Frequencies for h give k(h√2), whose square is k(h): what is not squared needs h/√2.
    h = BANDWIDTH if kind.squared else BANDWIDTH / math.sqrt(2)
    features = FourierFeatures.draw(kind.start, n_features, h, generator=generator)
    if not kind.adaptive:
        return features
    return fit_adaptive_features(
        features, X, BANDWIDTH, squared=kind.squared, config=config, generator=generator
    )


def _approximate(kind: Kind, features: FourierFeatures, pairs: Tensor) -> Tensor:
    inner = (features(pairs[:, 0]) * features(pairs[:, 1])).sum(1)
    return inner.square() if kind.squared else inner


def _curve(kind: Kind, features: FourierFeatures) -> list[float]:
    pairs = torch.stack([torch.full_like(GRID, CENTRE), GRID], dim=1)
    return [round(value, 5) for value in _approximate(kind, features, pairs).tolist()]


def _draw_curves(figure: Any, rows: list[dict[str, Any]]) -> None:
    x = GRID[:, 0].numpy()
    truth = torch.exp(-0.5 * ((GRID - CENTRE) / BANDWIDTH).square())[:, 0].numpy()
    axes = figure.subplots(2, 2, sharex=True, sharey=True)
    for ax, row in zip(axes.flat, rows, strict=False):
        kind = KINDS[row["kind"]]
        ax.fill_between(x, truth, color="0.85", lw=0)
        ax.axhline(0, color="0.6", lw=0.8)
        ax.plot(x, row["curve"], color=kind.colour, lw=2)
        ax.set_title(row["kind"], color=kind.colour, loc="left", weight="bold", y=0.85, x=0.04)
    axes[0, 1].text(2.6, 0.75, "Gaussian\nkernel", color="0.45")
    axes[0, 0].set(xlim=(x[0], x[-1]), xticks=range(-2, 7, 2), ylim=(None, 1.2), yticks=(0, 1))
    figure.supxlabel("x", fontsize="medium")
    figure.suptitle(f"k(2, x) from {SHOWN_FEATURES} features", x=0.05, ha="left", fontsize=11)


def _draw_errors(ax: Any, errors: dict[str, dict[int, list[float]]]) -> None:
    for name, by_size in errors.items():
        kind, D, seeds = KINDS[name], list(by_size), list(by_size.values())
        ax.fill_between(
            D, [*map(min, seeds)], [*map(max, seeds)], color=kind.colour, alpha=0.15, lw=0
        )
        ax.plot(D, [*map(mean, seeds)], kind.line, marker="o", ms=4, color=kind.colour, lw=2)
    ax.set(xscale="log", yscale="log", xlabel="number of features D", xticks=D)
    ax.xaxis.set_major_formatter("{x:.0f}")
    ax.minorticks_off()
    ax.grid(axis="y", color="0.92")
    title = f"Mean squared error on held-out pairs ({len(seeds[0])} seeds)"
    ax.set_title(title, loc="left", fontsize=11)
    ends = {name: mean(by_size[D[-1]]) for name, by_size in errors.items()}
    for name, y in _spread_labels(ends).items():
        label = {"color": KINDS[name].colour, "weight": "bold", "va": "center"}
        ax.annotate(name, (D[-1], y), (8, 0), textcoords="offset points", **label)


def _spread_labels(ends: dict[str, float], ratio: float = 2.2) -> dict[str, float]:
    """Heights of the labels, on a log axis, moved up until they do not touch."""
    heights: dict[str, float] = {}
    for name in sorted(ends, key=ends.__getitem__):
        heights[name] = max([ends[name], *(height * ratio for height in heights.values())])
    return heights


if __name__ == "__main__":
    main()

"""QAFFDE on three planar densities: the truth beside the estimate (the picture of the README).

    python -m examples.pictures.first_density [--n ROWS] [--out FILE]

The estimator is used as it comes. It sees the rows only; the truth is there to compare.
"""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure

from experiments.metrics import excess_nll, spearman
from experiments.targets import get_target
from qaffde import QAFFDE

TARGETS = ("star_eight", "swiss_roll", "potential_3")
SIDE = 200
LINE = "{:<12} {:>6.1f} {:>9} {:>5} {:>9.4f} {:>11.4f}"
PICTURE = Path(__file__).parents[2] / "docs/images/first_density.png"


def grid(view: np.ndarray) -> np.ndarray:
    """Points of a regular grid over a box (2, 2), as rows, x₁ running fastest."""
    axes = np.meshgrid(*(np.linspace(low, high, SIDE) for low, high in view))
    return np.stack([axis.ravel() for axis in axes], axis=1)


def main(argv: Sequence[str] | None = None) -> None:
    """Fit, print one line for each target, and draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=100_000, help="training rows")
    parser.add_argument("--out", type=Path, default=PICTURE)
    options = parser.parse_args(argv)
    options.out.parent.mkdir(parents=True, exist_ok=True)

    figure = Figure(figsize=(9, 6.2), layout="compressed")
    panels = figure.subplots(2, len(TARGETS))
    print(
        f"{'target':<12} {'fit s':>6} {'base':>9} {'rank':>5} {'Spearman':>9} {'excess NLL':>11}"
    )
    for name, column in zip(TARGETS, panels.T, strict=True):
        target = get_target(name)
        X, test = target.sample(options.n, random_state=0), target.sample(10_000, random_state=1)
        start = time.perf_counter()
        model = QAFFDE(random_state=0).fit(X)
        seconds = time.perf_counter() - start
        truth, estimate = target.log_prob(test), model.score_samples(test)
        figures = spearman(truth, estimate), excess_nll(truth, estimate)
        print(LINE.format(name, seconds, model.base_measure_, model.rank_, *figures), flush=True)

        points = grid(np.quantile(X, [0.0002, 0.9998], axis=0).T)
        densities = [np.exp(f(points)) for f in (target.log_prob, model.score_samples)]
        scale = PowerNorm(0.5, vmin=0, vmax=densities[0].max())  # the same for both
        for ax, density in zip(column, densities, strict=True):
            image = density.reshape(SIDE, SIDE)
            ax.imshow(image, origin="lower", aspect="auto", cmap="viridis", norm=scale)
            ax.set(xticks=[], yticks=[], box_aspect=1)
        column[0].set_title(name)
    for ax, label in zip(panels[:, 0], ("truth", "QAFFDE"), strict=True):
        ax.set_ylabel(label, fontsize=12, weight="bold")
    figure.savefig(options.out, dpi=160, bbox_inches="tight")
    print(f"picture: {options.out}")


if __name__ == "__main__":
    main()

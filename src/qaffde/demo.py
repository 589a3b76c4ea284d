"""Fit QAFFDE and QAFFDE-SGD to a benchmark density, beside exact KDE, a flow and the truth.

    python -m qaffde.demo [--target NAME] [--n ROWS] [--out FILE]

Prints a table and draws a picture. Every method gets the same training rows and is judged on the
same test rows; none of them sees the true density.
"""

import argparse
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import GridSearchCV, ShuffleSplit
from sklearn.neighbors import KernelDensity

from qaffde import QAFFDE, QAFFDESGD
from qaffde.metrics import excess_nll, mean_absolute_error, spearman
from qaffde.targets import PLANAR, Target, get_target

Array = NDArray[np.float64]

TEST_ROWS = 10_000
GRID_SIDE, GRID_MARGIN = 128, 8  # cells: in all, and beyond each end of the target's support
SHOWN_ROWS = 4000
SEED = 0
SECONDS = 15.0  # for each method that trains as long as it is given


def fit_qaffde(X: Array) -> Any:
    """QAFFDE as it comes: it chooses bandwidth, features, rank and base measure itself."""
    return QAFFDE(random_state=SEED).fit(X)


def fit_qaffde_sgd(X: Array) -> Any:
    """QAFFDE-SGD as it comes, but that it has less time."""
    return QAFFDESGD(time_limit=SECONDS, random_state=SEED).fit(X)


def fit_flow(X: Array) -> Any:
    """Neural spline flow with as much time."""
    from qaffde.baselines import NSF

    return NSF(time_limit=SECONDS, random_state=SEED).fit(X)


def fit_kde(X: Array) -> Any:
    """Exact kernel density estimate with the bandwidth that a held-out tenth likes best."""
    grid = {"bandwidth": X.std(0).mean() * np.geomspace(0.02, 0.32, 9)}
    held_out = ShuffleSplit(1, test_size=0.1, random_state=SEED)
    return GridSearchCV(KernelDensity(), grid, cv=held_out).fit(X).best_estimator_


METHODS: dict[str, Callable[[Array], Any]] = {
    "QAFFDE": fit_qaffde,
    "QAFFDE-SGD": fit_qaffde_sgd,
    "exact KDE": fit_kde,
    "NSF": fit_flow,
}


@dataclass(frozen=True)
class Result:
    """Result of one method: its line of the table and its panel of the picture."""

    figures: dict[str, str]
    density: Array  # on the grid


def judge(
    log_density: Callable[[Array], Array], target: Target, test: Array, fit_time: str = "-"
) -> Result:
    """Score the test rows, and integrate the density over a box that holds all of it."""
    start = time.perf_counter()
    log_p = log_density(test)
    score_seconds = time.perf_counter() - start
    truth = target.log_prob(test)
    points, cell = midpoints(padded(target.support))
    density = np.exp(log_density(points)).reshape(GRID_SIDE, GRID_SIDE)
    figures = {
        "fit s": fit_time,
        "score s": f"{score_seconds:.2f}",
        "Spearman": f"{spearman(truth, log_p):.4f}",
        "MAE": f"{mean_absolute_error(truth, log_p):.5f}",
        "excess NLL": f"{excess_nll(truth, log_p):.4f}",
        "mass": f"{density.sum() * cell:.4f}",
    }
    return Result(figures, density)


def compare(
    target: Target, n: int, names: Iterable[str], show: Callable[[str], None]
) -> tuple[Array, dict[str, Result]]:
    """Fit methods to `n` rows and judge them and the truth; one that is not installed is left out.

    Parameters
    ----------
    target : Target
    n : int
    names : iterable of str
        Keys of ``METHODS``.
    show : callable
        Called with lines of progress.

    Returns
    -------
    X : ndarray of shape (n, 2)
    results : dict of {str: Result}
        The truth first.
    """
    X = target.sample(n, random_state=SEED)
    test = target.sample(TEST_ROWS, random_state=SEED + 1)
    show(f"{target.name}: {len(X):,} training rows, {len(test):,} test rows")
    results = {"truth": judge(target.log_prob, target, test)}
    for name in names:
        show(f"{name}: fitting ...")
        start = time.perf_counter()
        try:
            model = METHODS[name](X)
        except ImportError as error:
            show(f"{name}: left out: {error}")
            continue
        seconds = f"{time.perf_counter() - start:.1f}"
        show(f"{name}: {seconds} s, scoring ...")
        results[name] = judge(model.score_samples, target, test, seconds)
    return X, results


def table(results: dict[str, Result]) -> str:
    """Aligned text, a line for each method."""
    row = "{:<11} {:>6} {:>8} {:>9} {:>8} {:>11} {:>8}".format
    lines = [row(name, *result.figures.values()) for name, result in results.items()]
    return "\n".join([row("method", *results["truth"].figures), *lines])


def padded(box: Array) -> Array:
    """Box (2, 2) with a margin of whole cells, so that hard edges stay between cells."""
    margin = np.diff(box) * GRID_MARGIN / (GRID_SIDE - 2 * GRID_MARGIN)
    return box + margin * np.array([-1, 1])


def midpoints(box: Array) -> tuple[Array, float]:
    """Centers of the cells of a grid over a box (2, 2), x₁ running fastest; the cells' area."""
    ticks = (np.arange(GRID_SIDE) + 0.5) / GRID_SIDE
    axes = np.meshgrid(*(low + (high - low) * ticks for low, high in box))
    return np.stack([axis.ravel() for axis in axes], axis=1), np.diff(box).prod() / GRID_SIDE**2


def draw(results: dict[str, Result], target: Target, X: Array, path: Path) -> None:
    """Draw truth, data and estimates side by side on one color scale."""
    from matplotlib import colormaps
    from matplotlib.colors import PowerNorm
    from matplotlib.figure import Figure

    colors = colormaps["viridis"]
    scale = PowerNorm(0.5, vmin=0, vmax=results["truth"].density.max())  # faint parts show, too
    style = {"origin": "lower", "interpolation": "bilinear", "cmap": colors, "norm": scale}
    figure = Figure(figsize=(3 * (len(results) + 1), 3.8), layout="compressed")
    axes = figure.subplots(1, len(results) + 1, sharex=True, sharey=True)
    for ax, (name, result) in zip([axes[0], *axes[2:]], results.items(), strict=True):
        image = ax.imshow(result.density, extent=padded(target.support).ravel(), **style)
        scores = "Spearman {Spearman}, excess {excess NLL}".format(**result.figures)
        _caption(ax, name, target.name if name == "truth" else scores)
    axes[1].scatter(*X[:SHOWN_ROWS].T, s=1.5, lw=0, color="white", alpha=0.7)
    axes[1].set_facecolor(colors(0.0))
    _caption(axes[1], "data", f"{min(SHOWN_ROWS, len(X)):,} of {len(X):,} rows")
    view = np.stack([X.min(0), X.max(0)], axis=1)
    axes[0].set(xlim=view[0], ylim=view[1], xticks=[], yticks=[])
    for ax in axes:
        ax.set_aspect("equal")
    figure.colorbar(image, ax=axes, label="density (square-root scale)", shrink=0.9, pad=0.01)
    figure.savefig(path, dpi=160, bbox_inches="tight")


def _caption(ax: Any, name: str, detail: str) -> None:
    ax.set_title(name, loc="left", fontsize=11, weight="bold", pad=18)
    ax.text(0, 1.02, detail, transform=ax.transAxes, fontsize=9, color="0.35")


def main(argv: Sequence[str] | None = None) -> None:
    """Run the demo."""
    parser = argparse.ArgumentParser(prog="python -m qaffde.demo", description=__doc__)
    parser.add_argument("--target", choices=PLANAR, default="swiss_roll")
    parser.add_argument("--n", type=int, default=20_000, help="training rows")
    parser.add_argument("--out", type=Path, default=Path("demo.png"), help="picture to write")
    options = parser.parse_args(argv)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    target = get_target(options.target)
    X, results = compare(target, options.n, METHODS, partial(print, flush=True))
    print(f"\n{table(results)}\n")
    try:
        draw(results, target, X, options.out)
    except ModuleNotFoundError as error:
        print(f"no picture: {error}. Install matplotlib: pip install 'qaffde[plot]'")
    else:
        print(f"picture: {options.out.resolve()}")


if __name__ == "__main__":
    main()

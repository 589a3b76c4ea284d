"""``python -m experiments demo``: a benchmark density, its estimates and a picture.

Every method gets the same training rows and is judged on the same test rows; none of them sees
the true density.
"""

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from typer import Option

from experiments.metrics import density_metrics
from experiments.targets import TARGETS, Target
from qaffde.cli.compare import judge, make_rivals
from qaffde.cli.options import Json, Picture
from qaffde.cli.output import check_output, print_facts, print_table, usage
from qaffde.plot.style import import_pyplot
from qaffde.streams.blocks import Array

TEST_ROWS, SHOWN_ROWS = 10_000, 4000
GRID_SIDE, GRID_MARGIN = 128, 8  # cells: in all, and beyond each end of the target's support
SEED = 0
SECONDS = 6.0  # for each method that trains as long as it is given
COLUMNS = {
    "fit_s": ("fit s", 1),
    "score_s": ("score s", 2),
    "spearman": ("Spearman", 4),
    "mean_absolute_error": ("MAE", 5),
    "excess_nll": ("excess NLL", 4),
    "mass": ("mass", 4),
}


def demo(
    *,
    target: Annotated[str, Option(help=f"One of {', '.join(TARGETS)}.")] = "swiss_roll",
    rows: Annotated[int, Option(min=100, help="Training rows.")] = 10_000,
    methods: Annotated[str, Option(help="Methods, by commas.")] = "qaffde,qaffde-sgd,kde,nsf",
    output: Picture = Path("demo.png"),
    json: Json = False,
) -> None:
    """Fit QAFFDE to a benchmark density beside other methods, and draw them."""
    if target not in TARGETS:
        raise usage(f"unknown target {target!r}; choose one of {', '.join(TARGETS)}")
    check_output(output)
    models, truth = make_rivals(methods, SECONDS, SEED), TARGETS[target]
    X, test = truth.sample(rows, random_state=SEED), truth.sample(TEST_ROWS, random_state=SEED + 1)
    points, cell = midpoints(padded(truth.support))
    log_truth = truth.log_prob(test)
    typer.echo(f"{target}: {len(X):,} training rows, {len(test):,} test rows", err=True)
    densities = {"truth": np.exp(truth.log_prob(points))}
    figures = {
        "truth": {"fit_s": np.nan, "score_s": np.nan, **density_metrics(log_truth, log_truth)}
    }
    for name, model in models.items():
        typer.echo(f"{name}: fitting ...", err=True)
        result, log_p = judge(model, X, test)
        if result["error"]:
            typer.echo(f"{name}: left out: {result['error']}", err=True)
            continue
        densities[name] = np.exp(model.score_samples(points))
        seconds = {"fit_s": result["fit_seconds"], "score_s": result["score_seconds"]}
        figures[name] = seconds | density_metrics(log_truth, log_p)
    for name, density in densities.items():
        figures[name]["mass"] = float(density.sum() * cell)
    draw(densities, figures, truth, X, output)
    if json:
        facts = {"target": target, "rows": rows, "methods": figures, "picture": str(output)}
        print_facts(facts, as_json=True)
        return
    print_table("", COLUMNS, figures)
    typer.echo(f"\npicture: {output}")


def padded(box: Array) -> Array:
    """Box (2, 2) with a margin of whole cells, so that hard edges stay between cells."""
    margin = np.diff(box) * GRID_MARGIN / (GRID_SIDE - 2 * GRID_MARGIN)
    return box + margin * np.array([-1, 1])


def midpoints(box: Array) -> tuple[Array, float]:
    """Centers of the cells of a grid over a box (2, 2), x₁ running fastest; the cells' area."""
    ticks = (np.arange(GRID_SIDE) + 0.5) / GRID_SIDE
    axes = np.meshgrid(*(low + (high - low) * ticks for low, high in box))
    return np.stack([axis.ravel() for axis in axes], axis=1), np.diff(box).prod() / GRID_SIDE**2


def draw(
    densities: dict[str, Array],
    figures: dict[str, dict[str, float]],
    target: Target,
    X: Array,
    path: Path,
) -> None:
    """Draw truth, data and estimates side by side on one color scale."""
    plt = import_pyplot()
    colors = plt.get_cmap("viridis")
    scale = plt.matplotlib.colors.PowerNorm(0.5, vmin=0, vmax=densities["truth"].max())
    style = {"origin": "lower", "interpolation": "bilinear", "cmap": colors, "norm": scale}
    title: dict[str, Any] = {"loc": "left", "fontsize": 9}
    n = len(densities) + 1
    figure = plt.figure(figsize=(3 * n, 3.8), layout="compressed")
    axes = figure.subplots(1, n, sharex=True, sharey=True, subplot_kw={"aspect": "equal"})
    for ax, (name, density) in zip([axes[0], *axes[2:]], densities.items(), strict=True):
        grid, ends = density.reshape(GRID_SIDE, GRID_SIDE), padded(target.support).ravel()
        image = ax.imshow(grid, extent=ends, **style)
        scores = "Spearman {spearman:.4f}, excess {excess_nll:.4f}".format(**figures[name])
        ax.set_title(f"{name}\n{target.name if name == 'truth' else scores}", **title)
    axes[1].scatter(*X[:SHOWN_ROWS].T, s=1.5, lw=0, color="white", alpha=0.7)
    axes[1].set_facecolor(colors(0.0))
    axes[1].set_title(f"data\n{min(SHOWN_ROWS, len(X)):,} of {len(X):,} rows", **title)
    axes[0].set(xlim=(X[:, 0].min(), X[:, 0].max()), ylim=(X[:, 1].min(), X[:, 1].max()))
    axes[0].set(xticks=[], yticks=[])
    figure.colorbar(image, ax=axes, label="density (square-root scale)", shrink=0.9, pad=0.01)
    figure.savefig(path, dpi=160, bbox_inches="tight")
    plt.close(figure)

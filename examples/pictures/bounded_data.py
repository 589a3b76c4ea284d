"""Hard edges: a kernel density estimate bleeds over them, QAFFDE with known ends does not.

    python examples/pictures/bounded_data.py [--n ROWS] [--out FILE]

A column of shares with density 2(1 - x), and potential_2, which ends at x₁ = ±4. Both methods
smooth with the same bandwidth, so that only the edges differ.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from sklearn.neighbors import KernelDensity

from qaffde import QAFFDE, Real

PICTURE = Path(__file__).parents[2] / "docs/images/bounded_data.png"
COLORS = {"QAFFDE": "#0072B2", "KDE": "#D55E00"}  # of Okabe and Ito's palette
LINE = "{:<12} {:<7} {:>9} {:>13.5f}"


def fit_both(X: np.ndarray, h: float, columns: Any) -> dict[str, Any]:
    """QAFFDE inside the ends, and the exact kernel density estimate."""
    qaffde = QAFFDE(bandwidth=h, columns=columns, random_state=0).fit(X)
    return {"QAFFDE": qaffde, "KDE": KernelDensity(bandwidth=h).fit(X)}


def draw_shares(ax: Any, n: int) -> None:
    """One column, known to lie between 0 and 1."""
    X = 1 - np.sqrt(np.random.default_rng(0).random((n, 1)))
    x = np.linspace(-0.25, 1.25, 1501)
    outside = (x < 0) | (x > 1)
    ax.fill_between(x, np.where(outside, 0, 2 * (1 - x)), color="0.87", lw=0, label="truth")
    for name, model in fit_both(X, 0.05, columns=Real(0, 1)).items():
        density = np.exp(model.score_samples(x[:, None]))
        print(LINE.format("shares", name, 0.05, density[outside].sum() * 0.001), flush=True)
        ax.plot(x, density, color=COLORS[name], lw=2, label=name)
    ax.set(xlabel="share", ylabel="density", xlim=(-0.25, 1.25), ylim=(0, 2.3), xticks=(0, 0.5, 1))
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False)


def draw_potential(axes: Sequence[Any], n: int) -> None:
    """Two columns; only the first has known ends."""
    rng = np.random.default_rng(0)
    first = rng.uniform(-4, 4, n)
    X = np.column_stack([first, rng.normal(np.sin(np.pi * first / 2), 0.4)])
    grid = np.meshgrid(np.linspace(-5, 5, 201), np.linspace(-2.5, 2.5, 101))
    points = np.stack(grid, axis=-1)  # (101, 201, 2)
    outside = np.abs(points[..., 0]) > 4
    models = fit_both(X, 0.2, columns=[Real(-4, 4), Real()])
    for ax, (name, model) in zip(axes, models.items(), strict=True):
        density = np.exp(model.score_samples(points.reshape(-1, 2))).reshape(101, 201)
        print(LINE.format("potential_2", name, 0.2, density[outside].sum() * 0.05**2), flush=True)
        ax.imshow(density, extent=(-5, 5, -2.5, 2.5), origin="lower", aspect="auto", vmin=0)
        ax.vlines((-4, 4), -2.5, 2.5, color="white", lw=1, ls="--")
        ax.set_title(name, color=COLORS[name], weight="bold", loc="left")
        ax.set(xlabel="x₁", xticks=(-4, 0, 4), yticks=[])


def main(argv: Sequence[str] | None = None) -> None:
    """Fit, print what lies beyond the edges, and draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=5000, help="training rows")
    parser.add_argument("--out", type=Path, default=PICTURE)
    options = parser.parse_args(argv)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    figure = Figure(figsize=(12, 3.4), layout="constrained")
    line, *images = figure.subplots(1, 3)
    print("data         method  bandwidth  mass outside")
    draw_shares(line, options.n)
    draw_potential(images, options.n)
    figure.savefig(options.out, dpi=160)
    print(f"picture: {options.out}")


if __name__ == "__main__":
    main()

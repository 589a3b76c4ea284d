"""Pictures of a fit rather than of its density: training, spectrum, frequencies."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from qaffde.nn import BornDensity, find_born
from qaffde.plot.cells import Array
from qaffde.plot.panels import Panel, Wishes, numbers_of
from qaffde.plot.style import COLORS, DENSITY, SECOND, caption
from qaffde.streams.names import column_names

WEIGHT = "weight of the feature, of the largest"
SHOWN_VALUES = 1e-12
"""Eigenvalues below this are rounding."""


@dataclass(frozen=True)
class TrainingPanel(Panel):
    """Losses as training went on."""

    histories: Sequence[Any]  # qaffde.training.History, one after the other

    @classmethod
    def of(cls, model: Any, rows: Array | None, wishes: Wishes) -> "TrainingPanel":
        """Losses of a model that was trained."""
        histories = getattr(model, "history_", None)
        if histories is None:
            raise ValueError(
                f"{type(model).__name__} was fitted without training steps; fit a QAFFDESGD or "
                "a flow"
            )
        found = [h for h in np.atleast_1d(np.asarray(histories, dtype=object)) if h.steps]
        if not found:
            raise ValueError("the training came to no evaluation; give it more steps")
        return cls(found)

    def make_axes(self, plt: Any) -> Any:
        """Axes side by side: losses of two solvers are not of one scale."""
        n = len(self.histories)
        return plt.subplots(1, n, figsize=(0.8 + 4.4 * n, 3.6), layout="constrained")[1]

    def draw(self, ax: Any) -> None:
        """Draw the training and, where rows were held out, the validation loss."""
        axes = np.atleast_1d(np.asarray(ax, dtype=object)).ravel()
        if len(axes) != len(self.histories):
            raise ValueError(f"{len(self.histories)} phases of training need as many axes")
        for place, history in zip(axes, self.histories, strict=True):
            losses = {"training rows": history.train_loss, "held-out rows": history.valid_loss}
            for (name, values), color in zip(losses.items(), (DENSITY, SECOND), strict=True):
                if np.isfinite(values).any():
                    look = {"color": color, "lw": 2, "marker": "o", "ms": 3}
                    place.plot(history.steps, values, label=name, **look)
            place.set_xlabel("step")
            place.grid(axis="y", color="0.92")
            place.legend(frameon=False)
            stopped = f", stopped by {history.stopped_by}" if history.stopped_by else ""
            seconds = f" in {history.seconds[-1]:.1f} s" if history.seconds else ""
            caption(place, f"{history.steps[-1]:,} steps{seconds}{stopped}".replace("_", " "))
        axes[0].set_ylabel("loss, nats, in the units of the fit")


@dataclass(frozen=True)
class SpectrumPanel(Panel):
    """Eigenvalues of the density matrix, falling, of sum one."""

    values: Array

    @classmethod
    def of(cls, model: Any, rows: Array | None, wishes: Wishes) -> "SpectrumPanel":
        """Spectrum of a fit's density matrix."""
        values = _born(model).spectrum().numpy()
        return cls(values[values > SHOWN_VALUES])

    def draw(self, ax: Any) -> None:
        """Draw them on a logarithmic scale, with the effective rank."""
        values = self.values
        effective = float(np.exp(-(values * np.log(values)).sum()))
        place = np.arange(1, len(values) + 1)
        ax.axvspan(0.5, effective + 0.5, color=SECOND, alpha=0.12, lw=0)
        ax.plot(place, values, color=DENSITY, lw=1.2, marker="o", ms=3.5)
        ax.set(yscale="log", xlabel="eigenvalue", ylabel="weight of the state")
        ax.set_xlim(0.5, len(values) + 0.5)
        ax.grid(axis="y", color="0.92")
        ranks = f"rank {len(values)}, effective rank {effective:.1f} (shaded)"
        caption(ax, f"{ranks}, purity {float((values**2).sum()):.3f}")


@dataclass(frozen=True)
class FrequenciesPanel(Panel):
    """Frequencies of the features, and how much the density makes of each."""

    W: Array  # (D, d), radians in a unit of each column; d is one or two
    weight: Array  # (D,), squared norms of the columns of L, where the density is m‖Lφ‖²
    names: Sequence[str]
    size = (5.2, 4.3)

    @classmethod
    def of(cls, model: Any, rows: Array | None, wishes: Wishes) -> "FrequenciesPanel":
        """Frequencies of one or two columns."""
        born = _born(model)
        columns = numbers_of(model, wishes.columns)
        if wishes.columns is None:
            columns = columns[:2]
        if len(columns) > 2:
            raise ValueError(f"frequencies are shown of one or two columns, got {len(columns)}")
        with torch.no_grad():
            W = (born.features.W / model.plan_.scale)[:, columns].numpy()
            weight = born.factor.square().sum(0).numpy()
        return cls(W, weight, [column_names(model)[j] for j in columns])

    def draw(self, ax: Any) -> None:
        """Draw frequencies and their mirror images as dots, those of one column as lines."""
        order = np.argsort(self.weight)
        W, weight = self.W[order], self.weight[order] / self.weight.max()
        if W.shape[1] == 1:
            ax.vlines(np.abs(W[:, 0]), 0, weight, color=DENSITY, lw=0.8)
            ax.plot(np.abs(W[:, 0]), weight, "o", color=DENSITY, ms=2.5)
            across = f"frequency, radians in a unit of {self.names[0]}"
            ax.set(xlabel=across, ylabel=WEIGHT, ylim=(0, 1.05), xlim=(0, None))
            return
        both, colors = np.concatenate([-W, W]), np.tile(weight, 2)
        dots = ax.scatter(*both.T, c=colors, cmap=COLORS, vmin=0, vmax=1, s=14, lw=0)
        ax.axhline(0, color="0.85", lw=0.8, zorder=0)
        ax.axvline(0, color="0.85", lw=0.8, zorder=0)
        across, up = (f"radians in a unit of {name}" for name in self.names)
        ax.set(xlabel=across, ylabel=up)
        ax.figure.colorbar(dots, ax=ax, label=WEIGHT, pad=0.02)
        caption(ax, f"{len(W)} features: frequencies and their mirror images")


def _born(model: Any) -> BornDensity:
    try:
        return find_born(model.density_)
    except (AttributeError, TypeError):
        raise ValueError(
            f"{type(model).__name__} has no density matrix of its own; take a fitted QAFFDE or "
            "QAFFDESGD"
        ) from None

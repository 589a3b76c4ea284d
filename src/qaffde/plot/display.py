"""DensityDisplay: pictures of a fitted density, in the manner of scikit-learn's displays."""

from collections.abc import Iterable, Mapping
from typing import Any, Self

from numpy.typing import ArrayLike

from qaffde.boxes import Column
from qaffde.parameters import check_choice
from qaffde.plot.densities import (
    ContourPanel,
    CurvePanel,
    PairsPanel,
    RidgePanel,
    SlicesPanel,
)
from qaffde.plot.panels import Panel, Wishes, numbers_of, rows_of
from qaffde.plot.style import STYLE, import_pyplot

KINDS: dict[str, Any] = {
    "curve": CurvePanel,
    "contours": ContourPanel,
    "pairs": PairsPanel,
    "slices": SlicesPanel,
    "ridges": RidgePanel,
}
"""Kinds of pictures, and the panel of each."""


class DensityDisplay:
    """Picture of a fitted density.

    Make it with :meth:`from_estimator`, which computes and draws; :meth:`plot` draws what was
    computed once more, elsewhere.

    Parameters
    ----------
    panel : Panel
        Computed values.

    Attributes
    ----------
    ax_ : matplotlib Axes, or an array of them for pairs
    figure_ : matplotlib Figure

    Examples
    --------
    >>> import numpy as np
    >>> from qaffde import QAFFDE
    >>> X = np.random.default_rng(0).normal(size=(200, 1))
    >>> model = QAFFDE(n_features=64, bandwidth=0.4, base_measure="gaussian").fit(X)
    >>> display = DensityDisplay.from_estimator(model, X)
    >>> display.ax_.get_ylabel()
    'density'
    >>> display.figure_.savefig("density.png")  # doctest: +SKIP
    """

    ax_: Any
    figure_: Any

    def __init__(self, panel: Panel) -> None:
        self.panel = panel

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: ArrayLike | None = None,
        *,
        kind: str = "auto",
        columns: Iterable[Column] | None = None,
        given: Mapping[Column, Any] | None = None,
        masses: tuple[float, ...] = (0.5, 0.9),
        n_points: int | None = None,
        random_state: int = 0,
        ax: Any = None,
    ) -> Self:
        """Compute and draw.

        Parameters
        ----------
        estimator : fitted density estimator
        X : array-like of shape (n, d), optional
            Data to show beside the density. Without them the view follows draws from it.
        kind : str, default="auto"
            "curve" of one column with its highest-density regions; "contours" of two; "pairs" of
            all marginals; "slices" of one column where others are given; "ridges" of two real
            columns. "auto" is a curve, contours or pairs, by the number of columns.
        columns : iterable of int or str, optional
            What to show; all columns by default. Others are integrated out, exactly.
        given : dict of {int or str: float or array-like}, optional
            For slices, the columns that are given and their values.
        masses : tuple of float, default=(0.5, 0.9)
            Of the highest-density regions.
        n_points : int, optional
            Points of the grid in each direction.
        random_state : int, default=0
            For draws, and for the rows that are shown of very many.
        ax : matplotlib Axes, optional
            Where to draw; a new figure by default. An array of axes for pairs.
        """
        check_choice("kind", kind, ("auto", *KINDS))
        rows = rows_of(X, estimator)
        if kind == "auto":
            kind = natural_kind(len(numbers_of(estimator, columns)))
        columns = None if columns is None else numbers_of(estimator, columns)
        wishes = Wishes(columns, given, masses, n_points, random_state)
        return cls(KINDS[kind].of(estimator, rows, wishes)).plot(ax)

    def plot(self, ax: Any = None) -> Self:
        """Draw into axes, or into a new figure.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            An array of axes for pairs.
        """
        plt = import_pyplot()
        with plt.rc_context(STYLE):
            if ax is None:
                ax = self.panel.make_axes(plt)
            self.panel.draw(ax)
        self.ax_ = ax
        self.figure_ = getattr(ax, "flat", [ax])[0].figure
        return self


def natural_kind(n_columns: int) -> str:
    """Kind of picture for a number of columns."""
    return {1: "curve", 2: "contours"}.get(n_columns, "pairs")

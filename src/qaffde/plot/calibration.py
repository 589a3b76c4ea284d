"""CalibrationDisplay: whether the distributions of a regressor fit what was seen."""

from dataclasses import dataclass
from typing import Any, Self

from numpy.typing import ArrayLike

from qaffde.plot.style import DATA, DENSITY, STYLE, caption, import_pyplot, percent


@dataclass(eq=False)
class CalibrationDisplay:
    """Picture of :meth:`qaffde.QAFFDERegressor.calibration`.

    At the left, the histogram of the distribution functions at the observed y (the probability
    integral transform), flat if all is well; at the right, the share of y inside central intervals
    over the share that they should hold, a diagonal if all is well.

    Parameters
    ----------
    calibration : dict

    Attributes
    ----------
    axes_ : tuple of two matplotlib Axes
    figure_ : matplotlib Figure
    """

    calibration: dict[str, Any]

    @classmethod
    def from_estimator(
        cls, regressor: Any, X: ArrayLike, y: ArrayLike, *, axes: Any = None
    ) -> Self:
        """Compute and draw.

        Parameters
        ----------
        regressor : fitted QAFFDERegressor
        X, y : array-like
            Rows that the fit has not seen, and their outputs.
        axes : pair of matplotlib Axes, optional
            Where to draw; a new figure by default.
        """
        return cls(regressor.calibration(X, y)).plot(axes)

    def plot(self, axes: Any = None) -> Self:
        """Draw into two axes, or into a new figure."""
        plt, found = import_pyplot(), self.calibration
        with plt.rc_context(STYLE):
            if axes is None:
                axes = plt.subplots(1, 2, figsize=(7, 2.9), layout="constrained")[1]
            left, right = axes
            pit, levels = found["pit"], found["levels"]
            n_bins = min(20, max(5, len(pit) // 25))
            left.hist(pit, n_bins, (0, 1), density=True, color=DENSITY, alpha=0.5)
            left.axhline(1, color=DATA, lw=1)
            left.set(xlabel="distribution function at y", ylabel="density")
            caption(left, f"{len(pit):,} rows, mean CRPS {found['crps']:.4g}")
            right.plot([0, 1], [0, 1], color=DATA, lw=1)
            right.plot(levels, found["coverage"], "o-", color=DENSITY, ms=3)
            right.set(xlabel="share that an interval should hold", ylabel="share that it holds")
            inside = found["coverage"][abs(levels - 0.9).argmin()]
            caption(right, f"{percent(round(float(inside), 3))} of y in intervals of 90 %")
        self.axes_, self.figure_ = (left, right), left.figure
        return self

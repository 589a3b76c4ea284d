"""Base measures fitted to data: the box, the Gaussian and the mixture of Gaussians."""

from dataclasses import dataclass
from warnings import catch_warnings, simplefilter

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture
from torch import Generator, Tensor

from qaffde.estimators.totals import Totals
from qaffde.nn import BaseMeasure, BoxMeasure, GaussianMeasure
from qaffde.training.posterior import N_DRAWS, posterior_mixture

ROOM_ROWS = 10
MIXTURE_ROWS = 100_000
"""Rows that expectation–maximisation sees: a base measure is only where the density starts."""
AVERAGE_WORK, MAX_SWEEPS = 25_600, 400
"""Sweeps times components of the chain over a mixture's posterior, and the most sweeps."""
GAUSSIAN_REACH = 3.5
"""Standard deviations within which one Gaussian still has weight."""
RIDGE = 1e-7
"""Variance added to every column, for rows that leave a direction empty."""


@dataclass(frozen=True)
class MeasureSpec:
    """Which base measure to fit.

    Parameters
    ----------
    kind : {"box", "gaussian", "mixture"}
    n_components : int
        Number of Gaussians of a mixture.
    bounds : Tensor of shape (2, d), optional
        Ends of the box; NaN where they come from the data.
    blur : float
        How many kernel bandwidths a mixture is blurred by.
    roomy : bool
        Whether a box leaves room for rows to come, see :func:`fit_box`.
    strength : float, optional
        Of the prior of a mixture that averages draws from its posterior; without it, a mixture is
        the most likely one.
    """

    kind: str
    n_components: int = 1
    bounds: Tensor | None = None
    blur: float = 0.0
    roomy: bool = False
    strength: float | None = None

    @property
    def name(self) -> str:
        """The kind, and "gaussian" for a mixture of one."""
        return "gaussian" if (self.kind, self.n_components) == ("mixture", 1) else self.kind

    def fit(
        self,
        Z: Tensor,
        weight: Tensor,
        h: Tensor,
        generator: Generator,
        start: BaseMeasure | None = None,
        totals: Totals | None = None,
    ) -> BaseMeasure:
        """Fit the measure to weighted rows, for a kernel of bandwidth h.

        Where the rows are a sample, `totals` are those of all rows.
        """
        if self.kind == "box":
            within = None if totals is None else totals.ends
            return fit_box(Z, self.bounds, roomy=self.roomy, within=within)
        if self.name == "gaussian":
            return fit_gaussian(Totals.of(Z, weight) if totals is None else totals)
        if self.strength is None:
            mixture = fit_mixture(Z, weight, self.n_components, generator, start=start)
        else:
            mixture = average_mixture(self, Z, weight, generator, start)
        return blur_measure(mixture, self.blur * h)


def fit_box(
    Z: Tensor,
    bounds: Tensor | None = None,
    *,
    roomy: bool = False,
    within: Tensor | None = None,
) -> BoxMeasure:
    """Tightest box around the rows; finite `bounds` of shape (2, d) replace its ends.

    Ends `within` of shape (2, d), of rows that Z are a sample of, lie inside as well.

    A `roomy` one is larger at each end by the distance of the outermost row from the one some
    rows further in: next to nothing where the density stops at an edge, and about as far as the
    next rows may lie where it fades out.
    """
    ends = torch.stack([Z.amin(0), Z.amax(0)])
    if roomy:
        k = min(ROOM_ROWS, len(Z) - 1)
        inner = torch.stack([Z.kthvalue(k + 1, dim=0)[0], Z.kthvalue(len(Z) - k, dim=0)[0]])
        ends = 2 * ends - inner
    if within is not None:
        ends = torch.stack([ends[0].minimum(within[0]), ends[1].maximum(within[1])])
    if bounds is not None:
        ends = torch.where(bounds.isnan(), ends, bounds)
    return BoxMeasure(*ends)


def fit_gaussian(totals: Totals) -> GaussianMeasure:
    """Gaussian with the rows' mean and covariance, shrunk to its diagonal where rows are few."""
    n, covariance = totals.count, totals.covariance
    d = len(covariance)
    shrinkage = d / (n + d) if n < 10 * d else 0.0
    shrunk = torch.lerp(covariance, covariance.diagonal().diag(), shrinkage)
    shrunk.diagonal().add_(RIDGE)
    return GaussianMeasure(torch.ones(1, dtype=shrunk.dtype), totals.mean[None], shrunk[None])


def fit_mixture(
    Z: Tensor,
    weight: Tensor,
    n_components: int,
    generator: Generator,
    rows: int = MIXTURE_ROWS,
    start: BaseMeasure | None = None,
) -> GaussianMeasure:
    """Mixture of Gaussians by expectation–maximisation on at most `rows` of the rows."""
    sample = Z[draw_rows(weight, rows, generator)].numpy()
    seed = int(torch.randint(2**31 - 1, (), generator=generator))
    model = GaussianMixture(
        n_components, reg_covar=RIDGE, random_state=seed, **_initial(start, n_components)
    )
    with catch_warnings():
        simplefilter("ignore", ConvergenceWarning)  # a rough base is good enough
        model.fit(sample)
    parts = model.weights_, model.means_, model.covariances_
    return GaussianMeasure(*(torch.as_tensor(part) for part in parts))


def average_mixture(
    spec: MeasureSpec,
    Z: Tensor,
    weight: Tensor,
    generator: Generator,
    start: BaseMeasure | None = None,
    work: int = AVERAGE_WORK,
) -> GaussianMeasure:
    """Average of mixtures drawn from their posterior, see :func:`posterior_mixture`."""
    rows = Z[draw_rows(weight, MIXTURE_ROWS, generator)]
    if not isinstance(start, GaussianMeasure) or len(start.weights) != spec.n_components:
        start = None
    return posterior_mixture(
        rows,
        spec.n_components,
        generator,
        strength=spec.strength or 0.0,
        n_sweeps=min(MAX_SWEEPS, N_DRAWS * work // spec.n_components),
        start=start,
    )


def _initial(start: BaseMeasure | None, size: int) -> dict[str, NDArray[np.float64]]:
    """Where scikit-learn begins: the given mixture if it has the right size, or its own guess."""
    if not isinstance(start, GaussianMeasure) or len(start.weights) != size:
        return {}
    return {
        "weights_init": start.weights.numpy(),
        "means_init": start.means.numpy(),
        "precisions_init": torch.linalg.inv(start.covariances).numpy(),
    }


def blur_measure(measure: BaseMeasure, width: Tensor) -> BaseMeasure:
    """Convolve Gaussians with one of standard deviations `width`; leave other measures as is."""
    if not isinstance(measure, GaussianMeasure) or not width.any():
        return measure
    covariances = measure.covariances + width.square().diag()
    return GaussianMeasure(measure.weights, measure.means, covariances)


def draw_rows(weight: Tensor, n: int, generator: Generator) -> Tensor:
    """Indices of at most `n` rows: a subset under equal weights, else a weighted resample.

    Systematic resampling: the number of copies of a row differs from its share by less than one.
    """
    if bool((weight == weight[0]).all()):
        return torch.randperm(len(weight), generator=generator)[:n]
    n = min(n, len(weight))
    ticks = (torch.arange(n) + torch.rand((), generator=generator)) / n
    cumulative = (weight / weight.sum()).cumsum(0)
    return torch.searchsorted(cumulative, ticks.to(weight)).clamp(max=len(weight) - 1)


def n_distinct(Z: Tensor, rows: int = 10_000) -> int:
    """Number of different rows among about `rows` of them, evenly spread."""
    return len(Z[:: -(-len(Z) // rows)].unique(dim=0))


def measure_ends(measure: BaseMeasure, Z: Tensor) -> tuple[Tensor, Tensor]:
    """Lower and upper ends of what the features must tell apart: the box, or the rows.

    One Gaussian reaches further than rows in separate parts, and what repeats there is seen.
    """
    if isinstance(measure, BoxMeasure):
        return measure.lower, measure.upper
    lower, upper = Z.amin(0), Z.amax(0)
    if isinstance(measure, GaussianMeasure) and len(measure.weights) == 1:
        reach = GAUSSIAN_REACH * measure.covariances[0].diagonal().sqrt()
        return lower.minimum(measure.means[0] - reach), upper.maximum(measure.means[0] + reach)
    return lower, upper


def within_scale(measure: GaussianMeasure) -> Tensor:
    """Standard deviation of each column within a component, of shape (d,)."""
    return (measure.weights @ measure.covariances.diagonal(dim1=1, dim2=2)).sqrt()

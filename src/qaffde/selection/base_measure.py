"""Base measures fitted to data: the box, the Gaussian and mixtures of Gaussians."""

from dataclasses import dataclass, replace
from warnings import catch_warnings, simplefilter

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture
from torch import Generator, Tensor

from qaffde.nn import BaseMeasure, BoxMeasure, GaussianMeasure, KernelMeasure
from qaffde.selection.policy import DEFAULT_POLICY, SelectionPolicy
from qaffde.selection.summary import Moments
from qaffde.training.posterior import N_DRAWS, posterior_mixture


@dataclass(frozen=True)
class BaseSpec:
    """Specification of a base measure.

    Parameters
    ----------
    kind : {"box", "gaussian", "mixture", "kernel"}
    n_components : int
        Number of Gaussians of a mixture.
    bounds : Tensor of shape (2, d), optional
        Ends of the box; NaN where they come from the data.
    blur : float
        How many kernel bandwidths a mixture is blurred by.
    roomy : bool
        Whether a box leaves room for rows to come, see :func:`fit_box`.
    strength : float, optional
        Of the prior of a mixture averaged over its posterior; None is the most likely mixture.
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
        policy: SelectionPolicy = DEFAULT_POLICY,
        start: BaseMeasure | None = None,
        moments: Moments | None = None,
    ) -> BaseMeasure:
        """Fit the measure to weighted rows, for a kernel of bandwidth h.

        Where the rows are a sample, `moments` are those of all rows.
        """
        if self.kind == "kernel":
            return KernelMeasure(h)
        if self.kind == "box":
            within = None if moments is None else moments.ends
            room = policy.room_rows if self.roomy else 0
            return fit_box(Z, self.bounds, room_rows=room, within=within)
        if self.name == "gaussian":
            whole = Moments.of(Z, weight) if moments is None else moments
            return fit_gaussian(whole, policy.mixture_ridge)
        if self.strength is None:
            mixture = fit_mixture(Z, weight, self.n_components, generator, policy, start=start)
        else:
            mixture = average_mixture(self, Z, weight, generator, policy, start)
        return blur_measure(mixture, self.blur * h)

    @property
    def sharp(self) -> "BaseSpec":
        """The measure without its blur."""
        return replace(self, blur=0.0)

    def __str__(self) -> str:
        size = f" of {self.n_components}" if self.name == "mixture" else ""
        size += " averaged" if self.strength is not None else ""
        size += f" blurred by {self.blur:.4g}" if self.blur else ""
        return f"{self.name}{size}"


def fit_box(
    Z: Tensor,
    bounds: Tensor | None = None,
    *,
    room_rows: int = 0,
    within: Tensor | None = None,
) -> BoxMeasure:
    """Tightest box around the rows; finite `bounds` of shape (2, d) replace its ends.

    If Z is a sample, `within` of shape (2, d) are the ends of all rows, which lie inside as well.

    With `room_rows` the box is larger at each end by the distance of the outermost row from the
    row that many places further in. That is very little where the density stops at an edge, and
    about as far as new rows may lie where it fades out.
    """
    ends = torch.stack([Z.amin(0), Z.amax(0)])
    if room_rows:
        k = min(room_rows, len(Z) - 1)
        inner = torch.stack([Z.kthvalue(k + 1, dim=0)[0], Z.kthvalue(len(Z) - k, dim=0)[0]])
        ends = 2 * ends - inner
    if within is not None:
        ends = torch.stack([ends[0].minimum(within[0]), ends[1].maximum(within[1])])
    if bounds is not None:
        ends = torch.where(bounds.isnan(), ends, bounds)
    return BoxMeasure(*ends)


def fit_gaussian(moments: Moments, ridge: float) -> GaussianMeasure:
    """Gaussian with the rows' mean and covariance, shrunk to its diagonal where rows are few."""
    n, covariance = moments.count, moments.covariance
    d = len(covariance)
    shrinkage = d / (n + d) if n < 10 * d else 0.0
    shrunk = torch.lerp(covariance, covariance.diagonal().diag(), shrinkage)
    shrunk.diagonal().add_(ridge)
    return GaussianMeasure(torch.ones(1, dtype=shrunk.dtype), moments.mean[None], shrunk[None])


def fit_mixture(
    Z: Tensor,
    weight: Tensor,
    n_components: int,
    generator: Generator,
    policy: SelectionPolicy = DEFAULT_POLICY,
    max_rows: int | None = None,
    start: BaseMeasure | None = None,
) -> GaussianMeasure:
    """Mixture of Gaussians by expectation–maximization on at most `max_rows` of the rows."""
    sample = Z[draw_rows(weight, max_rows or policy.max_mixture_rows, generator)].numpy()
    seed = int(torch.randint(2**31 - 1, (), generator=generator))
    model = GaussianMixture(
        n_components,
        reg_covar=policy.mixture_ridge,
        random_state=seed,
        **_initial(start, n_components),
    )
    with catch_warnings():
        simplefilter("ignore", ConvergenceWarning)  # a rough base is good enough
        model.fit(sample)
    parts = model.weights_, model.means_, model.covariances_
    return GaussianMeasure(*(torch.as_tensor(part) for part in parts))


def average_mixture(
    spec: BaseSpec,
    Z: Tensor,
    weight: Tensor,
    generator: Generator,
    policy: SelectionPolicy = DEFAULT_POLICY,
    start: BaseMeasure | None = None,
    work: int | None = None,
) -> GaussianMeasure:
    """Average of mixtures drawn from their posterior, see :func:`posterior_mixture`."""
    rows = Z[draw_rows(weight, policy.max_mixture_rows, generator)]
    if not isinstance(start, GaussianMeasure) or len(start.weights) != spec.n_components:
        start = None
    return posterior_mixture(
        rows,
        spec.n_components,
        generator,
        strength=spec.strength or 0.0,
        n_sweeps=min(
            policy.max_sweeps, N_DRAWS * (work or policy.averaged_work) // spec.n_components
        ),
        start=start,
    )


def _initial(start: BaseMeasure | None, size: int) -> dict[str, NDArray[np.float64]]:
    """Initial values for scikit-learn: a mixture of the right size, or none."""
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


def measure_ends(measure: BaseMeasure, Z: Tensor, gaussian_reach: float) -> tuple[Tensor, Tensor]:
    """Lower and upper ends of the region that features must resolve: the box, or the rows.

    One Gaussian reaches further than rows in separate parts: `gaussian_reach` deviations.
    """
    if isinstance(measure, BoxMeasure):
        return measure.lower, measure.upper
    lower, upper = Z.amin(0), Z.amax(0)
    if isinstance(measure, GaussianMeasure) and len(measure.weights) == 1:
        reach = gaussian_reach * measure.covariances[0].diagonal().sqrt()
        return lower.minimum(measure.means[0] - reach), upper.maximum(measure.means[0] + reach)
    return lower, upper


def within_scale(measure: GaussianMeasure) -> Tensor:
    """Standard deviation of each column within a component, of shape (d,)."""
    return (measure.weights @ measure.covariances.diagonal(dim1=1, dim2=2)).sqrt()

"""Base measures fitted to data: the box, the Gaussian and mixtures of Gaussians."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor

from qaffde.nn import BaseMeasure, BoxMeasure, GaussianMeasure, KernelMeasure
from qaffde.selection.mixture import Monomials, average, fit_mixture, members
from qaffde.selection.policy import DEFAULT_POLICY, SelectionPolicy
from qaffde.selection.summary import Moments


@dataclass(frozen=True)
class BaseSpec:
    """Specification of a base measure: "box", "gaussian", "mixture" or "kernel".

    `n_components` are those of a mixture, or of each mixture of an average; `n_mixtures`, from
    different starts, are averaged. `bounds` of shape (2, d) are ends of the box, NaN where they
    come from the data; a roomy one leaves room for rows to come, see :func:`fit_box`.
    """

    kind: str
    n_components: int = 1
    bounds: Tensor | None = None
    roomy: bool = False
    n_mixtures: int = 1

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
        deadline: float = math.inf,
    ) -> BaseMeasure:
        """Fit the measure to weighted rows, for a kernel of bandwidth h.

        Where the rows are a sample, `moments` are those of all rows. A mixture begins where
        `start`, fitted to some of the rows, has ended, and is left as it is after the deadline.
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
        share = weight[: policy.max_mixture_rows] / weight.mean()
        rows = Monomials(Z[: policy.max_mixture_rows], share)
        k, m = self.n_components, self.n_mixtures
        options: dict[str, Any] = {"ridge": policy.mixture_ridge, "deadline": deadline}
        begin: list[GaussianMeasure | None] = [None] * m
        if isinstance(start, GaussianMeasure) and len(start.weights) == k * m:
            begin, options["max_iter"] = [*members(start, m)], policy.last_iterations
        fits = [fit_mixture(rows, k, generator, start=one, **options) for one in begin]
        return average(fits) if m > 1 else fits[0]

    def __str__(self) -> str:
        if self.name != "mixture":
            return self.name
        several = f"{self.n_mixtures} × " if self.n_mixtures > 1 else ""
        return f"mixture of {several}{self.n_components}"


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
    """Gaussian with the rows' mean and covariance, shrunk to its diagonal where rows are few.

    Beside one row of 1e9 the others round away: a share of the trace keeps it positive definite.
    """
    n, covariance = moments.count, moments.covariance
    d = len(covariance)
    shrinkage = d / (n + d) if n < 10 * d else 0.0
    shrunk = torch.lerp(covariance, covariance.diagonal().diag(), shrinkage)
    rounding = 100 * torch.finfo(shrunk.dtype).eps * float(shrunk.trace())
    shrunk.diagonal().add_(ridge + rounding)
    return GaussianMeasure(torch.ones(1, dtype=shrunk.dtype), moments.mean[None], shrunk[None])


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
    some = Z[:: -(-len(Z) // rows)]
    direction = torch.rand(Z.shape[1], generator=torch.Generator().manual_seed(0), dtype=Z.dtype)
    on_a_line = len((some @ direction).unique())  # much faster, and at most as many
    return on_a_line if on_a_line == len(some) else len(some.unique(dim=0))


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

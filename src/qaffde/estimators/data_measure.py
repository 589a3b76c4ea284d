"""Base measures fitted to data: the box, the Gaussian and the mixture of Gaussians."""

from dataclasses import dataclass
from warnings import catch_warnings, simplefilter

import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture
from torch import Generator, Tensor

from qaffde.nn import BaseMeasure, BoxMeasure, GaussianMeasure

MIXTURE_ROWS = 100_000
"""Rows that expectation–maximisation sees: a base measure is only where the density starts."""


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
    """

    kind: str
    n_components: int = 1
    bounds: Tensor | None = None

    @property
    def name(self) -> str:
        """The kind, and "gaussian" for a mixture of one."""
        return "gaussian" if (self.kind, self.n_components) == ("mixture", 1) else self.kind

    def fit(self, Z: Tensor, weight: Tensor, generator: Generator) -> BaseMeasure:
        """Fit the measure to weighted rows."""
        if self.kind == "box":
            return fit_box(Z, self.bounds)
        if self.name == "gaussian":
            return fit_gaussian(Z, weight)
        return fit_mixture(Z, weight, self.n_components, generator)


def fit_box(Z: Tensor, bounds: Tensor | None = None) -> BoxMeasure:
    """Tightest box around the rows; finite `bounds` of shape (2, d) replace its ends."""
    ends = torch.stack([Z.amin(0), Z.amax(0)])
    if bounds is not None:
        ends = torch.where(bounds.isnan(), ends, bounds)
    return BoxMeasure(*ends)


def fit_gaussian(Z: Tensor, weight: Tensor) -> GaussianMeasure:
    """Gaussian with the rows' mean and covariance, shrunk to its diagonal by d/(n + d)."""
    share = weight / weight.sum()
    n, d = effective_count(weight), Z.shape[1]
    mean = share @ Z
    covariance = (Z - mean).T @ ((Z - mean) * share[:, None])
    shrunk = torch.lerp(covariance, covariance.diagonal().diag(), d / (n + d))
    return GaussianMeasure(torch.ones(1, dtype=Z.dtype), mean[None], shrunk[None])


def fit_mixture(
    Z: Tensor, weight: Tensor, n_components: int, generator: Generator, rows: int = MIXTURE_ROWS
) -> GaussianMeasure:
    """Mixture of Gaussians by expectation–maximisation on at most `rows` of the rows."""
    sample = Z[draw_rows(weight, rows, generator)].numpy()
    seed = int(torch.randint(2**31 - 1, (), generator=generator))
    model = GaussianMixture(
        n_components, tol=1e-3, max_iter=100, reg_covar=1e-7, random_state=seed
    )
    with catch_warnings():
        simplefilter("ignore", ConvergenceWarning)  # a rough base is good enough
        model.fit(sample)
    parts = model.weights_, model.means_, model.covariances_
    return GaussianMeasure(*(torch.as_tensor(part) for part in parts))


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


def effective_count(weight: Tensor) -> float:
    """Kish's effective sample size (Σw)²/Σw²."""
    return float(weight.sum() ** 2 / weight.square().sum())


def measure_ends(measure: BaseMeasure, Z: Tensor) -> tuple[Tensor, Tensor]:
    """Lower and upper ends of what the features must tell apart: the box, or the rows."""
    if isinstance(measure, BoxMeasure):
        return measure.lower, measure.upper
    return Z.amin(0), Z.amax(0)


def within_scale(measure: GaussianMeasure) -> Tensor:
    """Standard deviation of each column within a component, of shape (d,)."""
    return (measure.weights @ measure.covariances.diagonal(dim1=1, dim2=2)).sqrt()

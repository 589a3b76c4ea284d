"""Classical estimators: the exact kernel density estimate and Gaussian mixtures."""

from dataclasses import dataclass
from typing import Any, Self
from warnings import catch_warnings, simplefilter

import torch
from numpy.typing import ArrayLike
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture
from torch import Generator, Tensor

from qaffde.estimators.base import DensityEstimator, all_or_nothing
from qaffde.nn import Density, GaussianMeasure, KernelMixture, StandardizedDensity
from qaffde.parameters import check_bandwidth, check_count, check_share, generator_from
from qaffde.selection.bandwidth import RULES, draw_rows, held_out_kde, scott, silverman
from qaffde.selection.summary import Moments, units
from qaffde.training import hold_out
from qaffde.training.closed_form import effective_count

MIN_ROWS_PER_COMPONENT = 5


@dataclass(eq=False, repr=False)
class KDE(DensityEstimator):
    r"""Exact Gaussian kernel density estimate (Rosenblatt, 1956; Parzen, 1962).

    .. math:: p(x) = \frac{1}{\sum_i w_i} \sum_i w_i \prod_t n(x_t;\, x_{it},\, h_t)

    Scoring a row costs as many kernels as there are rows: no tree leaves any out.

    Parameters
    ----------
    bandwidth : "auto", "scott", "silverman", float or array of d floats, default="auto"
        Standard deviation of the kernel, in the units of the data. "auto" maximizes the held-out
        likelihood of a sample of the rows, in proportion to the columns' deviations.
    random_state : int, RandomState instance or None, default=None
        Chooses that sample.

    Attributes
    ----------
    bandwidth_ : ndarray of shape (d,)
    density_ : qaffde.nn.StandardizedDensity
    n_features_in_ : int
    """

    bandwidth: Any = "auto"
    random_state: Any = None

    @all_or_nothing
    def fit(self, X: ArrayLike, y: None = None, sample_weight: ArrayLike | None = None) -> Self:
        """Keep the rows of `X`, of shape (n, d), and choose the bandwidth."""
        rows, weight, _ = self._validated(X, sample_weight)
        numbers = check_bandwidth(self.bandwidth, rows.shape[1], RULES)
        location, scale = units(Moments.of(rows, weight), self._names(), numbers)
        h = numbers
        if h is None:
            h = scale * self._factor((rows - location) / scale, weight)
        kernels = KernelMixture.of_rows((rows - location) / h, weight)
        self.density_ = StandardizedDensity(kernels, location, h)
        self.bandwidth_ = h.numpy()
        return self

    def _factor(self, Z: Tensor, weight: Tensor) -> float:
        """Bandwidth in standard deviations."""
        n, d = effective_count(weight), Z.shape[1]
        if self.bandwidth == "scott":
            return scott(n, d)
        if self.bandwidth == "silverman" or len(Z) < 2 * MIN_ROWS_PER_COMPONENT:
            return silverman(n, d)
        return held_out_kde(Z, weight, generator_from(self.random_state))


class MixtureDensity(Density):
    """Mixture of Gaussians that can be drawn from."""

    def __init__(self, measure: GaussianMeasure) -> None:
        super().__init__()
        self.measure = measure

    def log_prob(self, x: Tensor) -> Tensor:
        """Log-density of shape (n,)."""
        return self.measure.log_density(x)

    def sample(self, n: int, generator: Generator) -> Tensor:
        """Draws of shape (n, d)."""
        weights, means = self.measure.weights, self.measure.means
        k = torch.multinomial(weights, n, replacement=True, generator=generator)
        noise = torch.randn(n, means.shape[1], 1, generator=generator, dtype=means.dtype)
        return means[k] + (self.measure.cholesky[k] @ noise)[..., 0]


@dataclass(eq=False, repr=False)
class GMM(DensityEstimator):
    """Mixture of Gaussians with full covariances, by expectation–maximization.

    The fit is that of :class:`sklearn.mixture.GaussianMixture`, on the rows or, under weights, on
    a systematic resample of them.

    Parameters
    ----------
    n_components : int or "auto", default="auto"
        "auto" doubles the number from one for as long as the held-out likelihood rises.
    validation_fraction : float, default=0.2
        Share of the rows that "auto" holds out; the mixture is then fitted to all.
    random_state : int, RandomState instance or None, default=None

    Attributes
    ----------
    n_components_ : int
    density_ : qaffde.nn.StandardizedDensity
    n_features_in_ : int
    """

    n_components: int | str = "auto"
    validation_fraction: float = 0.2
    random_state: Any = None

    @all_or_nothing
    def fit(self, X: ArrayLike, y: None = None, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the mixture to the rows of `X`, of shape (n, d)."""
        check_count("n_components", self.n_components, auto=True)
        check_share("validation_fraction", self.validation_fraction)
        rows, weight, _ = self._validated(X, sample_weight)
        location, scale = units(Moments.of(rows, weight), self._names())
        Z, generator = (rows - location) / scale, generator_from(self.random_state)
        self.n_components_ = self._size(Z, weight, generator)
        measure = _fit_mixture(Z, weight, self.n_components_, generator)
        self.density_ = StandardizedDensity(MixtureDensity(measure), location, scale)
        return self

    def _size(self, Z: Tensor, weight: Tensor, generator: Generator) -> int:
        """Number of components: given, or the last doubling that helped on held-out rows."""
        if self.n_components != "auto":
            if int(self.n_components) > len(Z):
                raise ValueError(
                    f"n_components={self.n_components} is too many for {len(Z)} rows; take fewer "
                    'or "auto"'
                )
            return int(self.n_components)
        chosen, held_out = hold_out(len(Z), self.validation_fraction, generator)
        best, size, most = -torch.inf, 1, min(256, len(Z) // MIN_ROWS_PER_COMPONENT)
        while size <= most and len(held_out):
            measure = _fit_mixture(Z[chosen], weight[chosen], size, generator)
            score = float(weight[held_out] @ measure.log_density(Z[held_out]))
            if score <= best:
                break
            best, size = score, 2 * size
        return max(1, size // 2)


def _fit_mixture(Z: Tensor, weight: Tensor, size: int, generator: Generator) -> GaussianMeasure:
    """Mixture by scikit-learn, which takes no weights: rows are drawn by them."""
    rows = Z[draw_rows(weight, len(Z), generator)].numpy()
    seed = int(torch.randint(2**31 - 1, (), generator=generator))
    model = GaussianMixture(size, reg_covar=1e-7, random_state=seed)
    with catch_warnings():
        simplefilter("ignore", ConvergenceWarning)  # larger sizes are tried all the same
        model.fit(rows)
    parts = model.weights_, model.means_, model.covariances_
    return GaussianMeasure(*(torch.as_tensor(part) for part in parts))

r"""Mixtures of Gaussians from their posterior: a Gibbs chain whose draws are averaged.

Expectation–maximization stops at the next local optimum. A chain moves on to better ones, and the
average of its draws, itself a mixture, overfits less than a single one. One sweep costs two
passes over the rows' monomials of degree two.
"""

import math

import numpy as np
import torch
from sklearn.cluster import KMeans
from torch import Generator, Tensor

from qaffde.nn import GaussianMeasure

N_DRAWS = 16
BURN_IN = 1 / 3
"""Share of the sweeps before the first draw."""
OVERCOMPLETE, START_ROWS, START_PASSES = 40, 10_000, 40
CENTER_SPREAD, THINNEST = 0.4, 0.02
N_CLUSTERINGS = 4
SCATTER = 1e-2
"""Of a component without rows, in variances of all rows."""


def posterior_mixture(
    Z: Tensor,
    n_components: int,
    generator: Generator,
    *,
    strength: float = 0.0,
    n_sweeps: int,
    start: GaussianMeasure | None = None,
) -> GaussianMeasure:
    """Average of mixtures of Gaussians drawn from their posterior given standardized rows.

    Parameters
    ----------
    Z : Tensor of shape (n, d)
    n_components : int
        Of the average; each of its `N_DRAWS` draws has an equal share of them.
    generator : torch.Generator
    strength : float
        Rows of unit covariance that the prior of every component is worth.
    n_sweeps : int
    start : GaussianMeasure, optional
        An earlier average of that size, whose last draw is where the chain goes on.

    Returns
    -------
    GaussianMeasure
        The draws one after the other.
    """
    k = n_components // N_DRAWS
    monomials = Monomials(Z)
    state = (
        first_state(monomials, k, generator) if start is None else _part(start, slice(-k, None))
    )
    rng = np.random.default_rng(int(torch.randint(2**31 - 1, (), generator=generator)))
    kept = np.linspace(BURN_IN * n_sweeps, n_sweeps - 1, N_DRAWS).round().astype(int).tolist()
    draws = []
    for sweep in range(n_sweeps):
        state = _sweep(monomials, state, strength, generator, rng)
        draws += [state] * kept.count(sweep)
    return GaussianMeasure(
        torch.cat([draw.weights for draw in draws]) / N_DRAWS,
        torch.cat([draw.means for draw in draws]),
        torch.cat([draw.covariances for draw in draws]),
    )


class Monomials:
    """Rows as 1, z and the products of two columns: Gaussians are linear in them.

    Parameters
    ----------
    Z : Tensor of shape (n, d)
    """

    def __init__(self, Z: Tensor) -> None:
        self.Z = Z
        self.rows, self.columns = torch.triu_indices(Z.shape[1], Z.shape[1])
        ones = torch.ones(len(Z), 1, dtype=Z.dtype)
        self.values = torch.cat([ones, Z, Z[:, self.rows] * Z[:, self.columns]], dim=1)

    def log_terms(self, mixture: GaussianMeasure, n: int | None = None) -> Tensor:
        """Weighted log-densities (n, K) of the components at the first n rows."""
        d = self.Z.shape[1]
        precision = torch.linalg.inv(mixture.covariances)
        linear = torch.einsum("kij,kj->ki", precision, mixture.means)
        twice = torch.where(self.rows == self.columns, 0.5, 1.0).to(self.Z)
        quadratic = -twice * precision[:, self.rows, self.columns]
        log_volume = torch.linalg.slogdet(mixture.covariances)[1] + d * math.log(2 * math.pi)
        constant = mixture.weights.log() - (log_volume + (mixture.means * linear).sum(1)) / 2
        return self.values[:n] @ torch.cat([constant[:, None], linear, quadratic], dim=1).T

    def moments(self, labels: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
        """Counts (k,), means (k, d) and scatters (k, d, d) of the rows of each label."""
        d = self.Z.shape[1]
        sums = self.values.new_zeros(k, self.values.shape[1]).index_add_(0, labels, self.values)
        count = sums[:, 0]
        mean = sums[:, 1 : d + 1] / count.clamp(min=1)[:, None]
        second = sums.new_zeros(k, d, d)
        second[:, self.rows, self.columns] = second[:, self.columns, self.rows] = sums[:, d + 1 :]
        return count, mean, second - count[:, None, None] * mean[:, :, None] * mean[:, None, :]


def first_state(monomials: Monomials, k: int, generator: Generator) -> GaussianMeasure:
    """The better of two starts: clusters side by side, or thin Gaussians through the middle."""
    starts = [_clusters(monomials, k, generator), _thin(monomials, k, generator)]
    return max(starts, key=lambda s: float(monomials.log_terms(s, START_ROWS).logsumexp(1).mean()))


def _clusters(monomials: Monomials, k: int, generator: Generator) -> GaussianMeasure:
    seed = int(torch.randint(2**31 - 1, (), generator=generator))
    labels = KMeans(k, n_init=N_CLUSTERINGS, random_state=seed).fit(monomials.Z.numpy()).labels_
    count, mean, scatter = monomials.moments(torch.as_tensor(labels).long(), k)
    eye = torch.eye(mean.shape[1], dtype=mean.dtype)
    covariance = (scatter + SCATTER * eye) / (count + 1)[:, None, None]
    return GaussianMeasure((count + 1) / (count + 1).sum(), mean, covariance)


def _thin(monomials: Monomials, k: int, generator: Generator) -> GaussianMeasure:
    """The heaviest of many random Gaussians, whose best weights are a convex problem."""
    many, d = OVERCOMPLETE * k, monomials.Z.shape[1]
    axes = torch.linalg.qr(torch.randn(many, d, d, generator=generator, dtype=torch.float64))[0]
    widths = torch.rand(many, d, generator=generator, dtype=torch.float64).clamp(min=THINNEST)
    widths = widths / widths.mean(1, keepdim=True)
    chosen = torch.randint(len(monomials.Z), (many,), generator=generator)
    means = CENTER_SPREAD * monomials.Z[chosen]
    covariances = axes @ (widths[:, :, None] * axes.mT)
    mixture = GaussianMeasure(torch.full_like(widths[:, 0], 1 / many), means, covariances)
    log_terms = monomials.log_terms(mixture, START_ROWS)
    ratio = log_terms.sub_(log_terms.amax(1, keepdim=True)).exp_()
    weights = mixture.weights
    for _ in range(START_PASSES):
        weights = weights * (ratio.T @ (ratio @ weights).reciprocal()) / len(ratio)
    return _part(
        GaussianMeasure(weights, means, covariances), weights.argsort(descending=True)[:k]
    )


def _part(mixture: GaussianMeasure, chosen: Tensor | slice) -> GaussianMeasure:
    """Some components of a mixture, of total weight one."""
    weights = mixture.weights[chosen]
    return GaussianMeasure(
        weights / weights.sum(), mixture.means[chosen], mixture.covariances[chosen]
    )


def _sweep(
    monomials: Monomials,
    state: GaussianMeasure,
    strength: float,
    generator: Generator,
    rng: np.random.Generator,
) -> GaussianMeasure:
    """Draw the rows' labels given the Gaussians, then the Gaussians given the labels."""
    k = len(state.weights)
    log_terms = monomials.log_terms(state)
    share = log_terms.sub_(log_terms.amax(1, keepdim=True)).float().exp_().cumsum_(1)
    threshold = torch.rand(len(share), 1, generator=generator) * share[:, -1:]
    labels = torch.searchsorted(share, threshold)[:, 0].clamp_(max=k - 1)
    count, mean, scatter = monomials.moments(labels, k)
    covariance_root = _draw_root(count, mean, scatter, strength, generator, rng)
    noise = torch.randn(*mean.shape, 1, generator=generator, dtype=mean.dtype)
    shift = (covariance_root @ noise)[:, :, 0] / (count + 1).sqrt()[:, None]
    weights = torch.as_tensor(rng.standard_gamma(count.numpy() + 1))
    return GaussianMeasure(
        weights / weights.sum(),
        (count / (count + 1))[:, None] * mean + shift,
        covariance_root @ covariance_root.mT,
    )


def _draw_root(
    count: Tensor,
    mean: Tensor,
    scatter: Tensor,
    strength: float,
    generator: Generator,
    rng: np.random.Generator,
) -> Tensor:
    """Square roots (k, d, d) of covariances from their inverse-Wishart posterior (Bartlett).

    The prior of a mean is worth one row at the origin.
    """
    k, d = mean.shape
    pull = (count / (count + 1))[:, None, None]
    prior = (SCATTER + strength) * torch.eye(d, dtype=mean.dtype)
    scale = prior + scatter + pull * mean[:, :, None] * mean[:, None, :]
    freedom = d + 2 + strength + count[:, None].numpy() - np.arange(d)
    bartlett = torch.randn(k, d, d, generator=generator, dtype=mean.dtype).tril(-1)
    bartlett = bartlett + torch.as_tensor(np.sqrt(rng.chisquare(freedom))).diag_embed()
    precision_root = torch.linalg.cholesky(torch.linalg.inv(scale)) @ bartlett
    return torch.linalg.inv(precision_root).mT

r"""Mixtures of Gaussians by expectation–maximization.

A Gaussian is linear in 1, z and the products of two columns, so that all components at all rows
are one matrix product, and so are their moments. A mixture begins with passes over mini-batches
in float32, after each of which all components move (Cappé and Moulines, 2009); iterations over
all rows, extrapolated, follow.
"""

import math
import time
from collections.abc import Iterator, Sequence

import torch
from sklearn.cluster import KMeans
from torch import Generator, Tensor

from qaffde import functional as QF
from qaffde.nn import GaussianMeasure

MAX_ITER, TOLERANCE = 40, 2e-5
"""Iterations of expectation–maximization, and nats that two of them must gain."""
BLOCK = 2**17
"""Terms that stay in cache."""
LOG_NOTHING = -80.0
"""Logarithm of a share that adds nothing; exponentials that underflow are slow."""
SCATTER = 1e-2
"""Of a component without rows, in variances of all rows."""
CLUSTER_ITER, CLUSTER_ROWS = 10, 5000
PASSES, MAX_BATCHES = 4, 20
"""Passes over mini-batches, and the most of these."""
BATCH_ROWS = 4
"""Rows of a batch for each mean and variance of a component."""
SINGLE_RIDGE = 1e-5
"""Least ridge in float32, which does not resolve narrower components."""
FAR = 1e3
"""Deviations beyond which the squares of rows take float64."""
JUDGED_ROWS = 10_000
"""Rows that the more likely of two starts is found by."""


class Monomials:
    """Weighted rows as 1, z and the products of two columns.

    Parameters
    ----------
    Z : Tensor of shape (n, d)
    weight : Tensor of shape (n,), optional
        Ones by default.
    dtype : torch.dtype, default=torch.float64
        Of the products; mixtures are in float64.
    """

    def __init__(
        self, Z: Tensor, weight: Tensor | None = None, dtype: torch.dtype = torch.float64
    ) -> None:
        self.Z = Z
        self.weight = torch.ones(len(Z), dtype=Z.dtype) if weight is None else weight
        self.rows, self.columns = torch.triu_indices(Z.shape[1], Z.shape[1])
        self.values = QF.monomials(Z).to(dtype)

    def coefficients(self, mixture: GaussianMeasure) -> Tensor:
        """Coefficients (K, ·) of the weighted log-densities of the components."""
        parts = mixture.weights.log(), mixture.means, mixture.cholesky
        return QF.gaussian_coefficients(*parts).T.to(self.values)

    def log_terms(self, mixture: GaussianMeasure) -> Iterator[Tensor]:
        """Weighted log-densities (K, m) of the components at m rows, block by block."""
        coefficients = self.coefficients(mixture)
        return (coefficients @ values.T for values in self.values.split(_block(mixture)))

    def log_density(self, mixture: GaussianMeasure) -> Tensor:
        """Log-density of shape (n,)."""
        sums = (_shares(terms) for terms in self.log_terms(mixture))
        return torch.cat([(size.log() + most).to(self.Z) for _, size, most in sums])

    def expectation(
        self, mixture: GaussianMeasure, chosen: slice = slice(None)
    ) -> tuple[float, Tensor]:
        """Mean log-density, and sums (K, ·) of the values over the rows of each component.

        Sums over the rows `chosen` stand for those of all.
        """
        values, weight = self.values[chosen], self.weight[chosen]
        coefficients, block = self.coefficients(mixture), _block(mixture)
        total = torch.zeros((), dtype=weight.dtype)
        sums = torch.zeros_like(coefficients)
        for value, mass in zip(values.split(block), weight.split(block), strict=True):
            share, size, most = _shares(coefficients @ value.T)
            total += (size.log() + most).to(mass) @ mass
            sums.addmm_(share.mul_(mass.to(size) / size), value)
        mass = weight.sum()
        return float(total / mass), sums.to(self.Z) * (self.weight.sum() / mass)

    def moments(self, sums: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Counts (k,), means (k, d) and scatters (k, d, d) from sums of the values."""
        d = self.Z.shape[1]
        count = sums[:, 0]
        mean = sums[:, 1 : d + 1] / count.clamp(min=torch.finfo(sums.dtype).tiny)[:, None]
        second = sums.new_zeros(len(sums), d, d)
        second[:, self.rows, self.columns] = second[:, self.columns, self.rows] = sums[:, d + 1 :]
        return count, mean, second - count[:, None, None] * mean[:, :, None] * mean[:, None, :]

    def sums_of_mixture(self, mixture: GaussianMeasure) -> Tensor:
        """Sums of the values that the moments of a mixture stand for."""
        second = mixture.covariances + mixture.means[:, :, None] * mixture.means[:, None, :]
        parts = [torch.ones_like(mixture.means[:, :1]), mixture.means]
        values = torch.cat([*parts, second[:, self.rows, self.columns]], dim=1)
        return values * (mixture.weights * self.weight.sum())[:, None]

    def sums_of_labels(self, labels: Tensor, k: int) -> Tensor:
        """Weighted sums of the values over the rows of each label."""
        values = self.values.to(self.Z) * self.weight[:, None]
        return values.new_zeros(k, values.shape[1]).index_add_(0, labels, values)


def _block(mixture: GaussianMeasure) -> int:
    """Rows whose terms stay in cache."""
    return max(64, BLOCK // len(mixture.weights))


def _shares(terms: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Exponentials of terms (K, m) over the largest, in place; their sums; the largest."""
    most = terms.amax(0)
    share = terms.sub_(most).clamp_(min=LOG_NOTHING).exp_()
    return share, share.sum(0), most


def fit_mixture(
    rows: Monomials,
    n_components: int,
    generator: Generator,
    *,
    ridge: float,
    start: GaussianMeasure | None = None,
    max_iter: int = MAX_ITER,
    deadline: float = math.inf,
) -> GaussianMeasure:
    """Mixture of Gaussians by expectation–maximization, squared extrapolation between its steps.

    Where components overlap, plain iterations gain little for hundreds of times. Two of them say
    how far to go on (SQUAREM; Varadhan and Roland, 2008); a step that is too long is taken back.

    Parameters
    ----------
    rows : Monomials
        Of standardized rows.
    n_components : int
    generator : torch.Generator
    ridge : float
        Variance that is added to every column of a component.
    start : GaussianMeasure, optional
        By default that of :func:`start_mixture`.
    max_iter : int
    deadline : float
        On the clock of :func:`time.monotonic`.

    Returns
    -------
    GaussianMeasure
    """
    state = start
    if state is None or len(state.weights) != n_components:
        state = start_mixture(rows, n_components, generator, ridge=ridge, deadline=deadline)
    if n_components == 1:
        return _improved(rows, state, ridge)[1]
    safe, last = state, -math.inf
    for _ in range(max_iter // 2):
        value, first = _improved(rows, state, ridge)
        if not value >= last:
            state = safe
            first = _improved(rows, state, ridge)[1]
        value, second = _improved(rows, first, ridge)
        gain, safe, last = value - last, second, value
        if gain < TOLERANCE or time.monotonic() >= deadline:
            break
        state = _extrapolated(state, first, second)
    return safe


def coarse_dtype(Z: Tensor) -> torch.dtype:
    """Precision of early iterations: float32, unless squares of far rows need more."""
    return torch.float32 if Z.abs().max() < FAR else torch.float64


def start_mixture(
    rows: Monomials,
    n_components: int,
    generator: Generator,
    *,
    ridge: float,
    smaller: GaussianMeasure | None = None,
    deadline: float = math.inf,
) -> GaussianMeasure:
    """Mixture after a few passes over mini-batches, from clusters of k-means.

    Of clusters and of a `smaller` mixture of half the size, each of whose components is split in
    two, the start that is more likely after one pass goes on.
    """
    if n_components == 1:
        return _improved(rows, _clusters(rows, 1, generator), ridge)[1]
    order = torch.randperm(len(rows.Z), generator=generator)
    coarse = coarse_dtype(rows.Z)
    single = Monomials(rows.Z[order], rows.weight[order], coarse)
    starts = [_clusters(rows, n_components, generator)]
    if smaller is not None and 2 * len(smaller.weights) == n_components:
        starts.append(_halved(smaller))
    ridge = max(ridge, SINGLE_RIDGE)
    states = [_passed(single, start, ridge) for start in starts]
    state = max(states, key=lambda state: single.expectation(state, slice(JUDGED_ROWS))[0])
    for _ in range(PASSES - 1):
        if time.monotonic() >= deadline:
            break
        state = _passed(single, state, ridge)
    return state


def average(mixtures: Sequence[GaussianMeasure]) -> GaussianMeasure:
    """Mixture of mixtures, all of the same weight; it overfits less than each of them."""
    return GaussianMeasure(
        torch.cat([mixture.weights for mixture in mixtures]) / len(mixtures),
        torch.cat([mixture.means for mixture in mixtures]),
        torch.cat([mixture.covariances for mixture in mixtures]),
    )


def members(mixture: GaussianMeasure, n: int) -> list[GaussianMeasure]:
    """The n mixtures of an average."""
    parts = mixture.weights * n, mixture.means, mixture.covariances
    return [GaussianMeasure(*each) for each in zip(*(p.chunk(n) for p in parts), strict=True)]


def _passed(rows: Monomials, state: GaussianMeasure, ridge: float) -> GaussianMeasure:
    """Mixture after one pass over mini-batches of rows in random order.

    The t-th batch has the share (t + 2)^(−1/2) of the sums.
    """
    n, d = rows.Z.shape
    n_batches = min(MAX_BATCHES, n // (BATCH_ROWS * len(state.weights) * (d + 2)))
    if n_batches < 2:
        return _improved(rows, state, ridge)[1]
    sums, size = rows.sums_of_mixture(state), -(-n // n_batches)
    for t in range(n_batches):
        batch = slice(t * size, (t + 1) * size)
        sums = sums.lerp(rows.expectation(state, batch)[1], (t + 2) ** -0.5)
        state = _maximized(rows, sums, state, ridge)
    return state


def _improved(
    rows: Monomials, state: GaussianMeasure, ridge: float
) -> tuple[float, GaussianMeasure]:
    """Mean log-density of a mixture, and the mixture after one iteration."""
    value, sums = rows.expectation(state)
    return value, _maximized(rows, sums, state, ridge)


def _maximized(
    rows: Monomials, sums: Tensor, state: GaussianMeasure, ridge: float
) -> GaussianMeasure:
    """Mixture that is most likely given the sums over the rows of each component."""
    count, mean, scatter = rows.moments(sums)
    count = count.clamp(min=1e-9 * float(rows.weight.sum()))
    covariance = scatter / count[:, None, None]
    covariance.diagonal(dim1=1, dim2=2).clamp_(min=0.0).add_(ridge)
    failed = torch.linalg.cholesky_ex(covariance).info > 0  # collapsed by rounding
    if failed.any():
        covariance = torch.where(failed[:, None, None], state.covariances, covariance)
        mean = torch.where(failed[:, None], state.means, mean)
    return GaussianMeasure(count / count.sum(), mean, covariance)


def _extrapolated(*states: GaussianMeasure) -> GaussianMeasure:
    """Mixture further along the way of three iterations, in logarithms of weights and scales."""
    d = states[0].means.shape[1]
    start, first, second = (
        torch.cat([m.weights.log()[:, None], m.means, _log_root(m.cholesky).flatten(1)], dim=1)
        for m in states
    )
    step, bend = first - start, second - 2 * first + start
    length = max(1.0, float(step.norm() / bend.norm()))
    x = start + 2 * length * step + length**2 * bend
    root = x[:, d + 1 :].reshape(-1, d, d)
    root = root.tril(-1) + root.diagonal(dim1=1, dim2=2).exp().diag_embed()
    covariance = root @ root.mT
    if not x.isfinite().all() or torch.linalg.cholesky_ex(covariance).info.any():
        return states[-1]
    return GaussianMeasure(x[:, 0].softmax(0), x[:, 1 : d + 1], covariance)


def _log_root(cholesky: Tensor) -> Tensor:
    """Cholesky factors with the logarithms of their diagonals."""
    return cholesky.tril(-1) + cholesky.diagonal(dim1=1, dim2=2).log().diag_embed()


def _halved(mixture: GaussianMeasure) -> GaussianMeasure:
    """Mixture each of whose components is split in two along its longest axis."""
    lam, U = torch.linalg.eigh(mixture.covariances)
    shift = U[:, :, -1] * (lam[:, -1:] / 2).sqrt()
    narrow = mixture.covariances - 0.98 * shift[:, :, None] * shift[:, None, :]
    means = [mixture.means - shift, mixture.means + shift]
    return GaussianMeasure(mixture.weights.repeat(2) / 2, torch.cat(means), narrow.repeat(2, 1, 1))


def _clusters(rows: Monomials, k: int, generator: Generator) -> GaussianMeasure:
    """Gaussians of the clusters of k-means."""
    seed = int(torch.randint(2**31 - 1, (), generator=generator))
    some = torch.randperm(len(rows.Z), generator=generator)[: max(CLUSTER_ROWS, 20 * k)]
    Z, weight = rows.Z[some], rows.weight[some]
    labels = torch.zeros(len(Z), dtype=torch.int64)
    if k > 1:
        model = KMeans(k, n_init=1, max_iter=CLUSTER_ITER, random_state=seed)
        found = model.fit(Z.numpy(), sample_weight=weight.numpy()).labels_
        labels = torch.as_tensor(found).long()
    part = Monomials(Z, weight)
    count, mean, _ = part.moments(part.sums_of_labels(labels, k))
    centered = Monomials(Z - mean[labels], weight)  # far clusters keep their digits
    scatter = centered.moments(centered.sums_of_labels(labels, k))[2]
    unit = weight.mean()
    eye = torch.eye(mean.shape[1], dtype=mean.dtype)
    covariance = (scatter + SCATTER * unit * eye) / (count + unit)[:, None, None]
    return GaussianMeasure((count + unit) / (count + unit).sum(), mean, covariance)

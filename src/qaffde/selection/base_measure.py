r"""Base measures fitted to data: the box, the Gaussian and mixtures of Gaussians.

A Gaussian is linear in 1, z and the products of two columns, so that all components at all rows
are one matrix product, and so are their moments. That makes an iteration of
expectation–maximization several times as fast as one of scikit-learn's, and it takes weights.
"""

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from sklearn.cluster import KMeans
from torch import Generator, Tensor

from qaffde.nn import BaseMeasure, BoxMeasure, GaussianMeasure, KernelMeasure
from qaffde.selection.policy import DEFAULT_POLICY, SelectionPolicy
from qaffde.selection.summary import Moments

N_DRAWS = 8
"""Mixtures in an average over the posterior."""
BURN_IN = 1 / 3
"""Share of the sweeps before the first draw."""
MAX_ITER, TOLERANCE = 40, 2e-5
"""Iterations of expectation–maximization, and nats that two of them must gain."""
BLOCK = 2048
"""Rows whose terms stay in cache."""
SCATTER = 1e-2
"""Of a component without rows, in variances of all rows."""
CLUSTER_ITER = 10


@dataclass(frozen=True)
class BaseSpec:
    """Specification of a base measure: "box", "gaussian", "mixture" or "kernel".

    `n_components` are those of a mixture, or of each draw of an average. `bounds` of shape (2, d)
    are ends of the box, NaN where they come from the data; a roomy one leaves room for rows to
    come, see :func:`fit_box`. `strength` is that of the prior of a mixture averaged over its
    posterior; None is the most likely mixture.
    """

    kind: str
    n_components: int = 1
    bounds: Tensor | None = None
    roomy: bool = False
    strength: float | None = None

    @property
    def name(self) -> str:
        """The kind, and "gaussian" for a mixture of one."""
        single = (self.kind, self.n_components, self.strength) == ("mixture", 1, None)
        return "gaussian" if single else self.kind

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
        begin = start if isinstance(start, GaussianMeasure) else None
        if self.strength is None:
            rows = Monomials(Z[: policy.max_mixture_rows], weight[: policy.max_mixture_rows])
            k, ridge = self.n_components, policy.mixture_ridge
            return fit_mixture(rows, k, generator, ridge=ridge, start=begin, deadline=deadline)
        return average_of(self, Z, weight, generator, policy, begin, deadline)

    def __str__(self) -> str:
        size = f" of {self.n_components}" if self.name == "mixture" else ""
        return f"{self.name}{size}" + (" averaged" if self.strength is not None else "")


def average_of(
    spec: BaseSpec,
    Z: Tensor,
    weight: Tensor,
    generator: Generator,
    policy: SelectionPolicy = DEFAULT_POLICY,
    start: GaussianMeasure | None = None,
    deadline: float = math.inf,
) -> GaussianMeasure:
    """Average over the posterior from a start that may be an average."""
    rows = Monomials(Z[draw_rows(weight, policy.max_mixture_rows, generator)])
    k = spec.n_components
    if start is None or len(start.weights) not in (k, N_DRAWS * k):
        start = fit_mixture(rows, k, generator, ridge=policy.mixture_ridge)
    n_sweeps = max(N_DRAWS, min(policy.max_sweeps, policy.averaged_work // k))
    state = start if len(start.weights) == k else last_draw(start)
    strength = spec.strength or 0.0
    return average_mixture(
        rows, state, generator, strength=strength, n_sweeps=n_sweeps, deadline=deadline
    )


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


class Monomials:
    """Weighted rows (n, d) as 1, z and the products of two columns; weights are one by default."""

    def __init__(self, Z: Tensor, weight: Tensor | None = None) -> None:
        self.Z = Z
        self.weight = torch.ones(len(Z), dtype=Z.dtype) if weight is None else weight
        self.rows, self.columns = torch.triu_indices(Z.shape[1], Z.shape[1])
        ones = torch.ones(len(Z), 1, dtype=Z.dtype)
        self.values = torch.cat([ones, Z, Z[:, self.rows] * Z[:, self.columns]], dim=1)

    def log_terms(self, mixture: GaussianMeasure) -> Iterator[Tensor]:
        """Weighted log-densities (K, m) of the components at m rows, block by block."""
        d = self.Z.shape[1]
        precision = torch.cholesky_inverse(mixture.cholesky)
        linear = torch.einsum("kij,kj->ki", precision, mixture.means)
        twice = torch.where(self.rows == self.columns, 0.5, 1.0).to(self.Z)
        quadratic = -twice * precision[:, self.rows, self.columns]
        log_det = mixture.cholesky.diagonal(dim1=1, dim2=2).log().sum(1)
        constant = (
            mixture.weights.log()
            - (d * math.log(2 * math.pi) + (mixture.means * linear).sum(1)) / 2
        )
        coefficients = torch.cat([(constant - log_det)[:, None], linear, quadratic], dim=1)
        return (coefficients @ values.T for values in self.values.split(BLOCK))

    def log_density(self, mixture: GaussianMeasure) -> Tensor:
        """Log-density of shape (n,)."""
        return torch.cat([terms.logsumexp(0) for terms in self.log_terms(mixture)])

    def expectation(self, mixture: GaussianMeasure) -> tuple[float, Tensor]:
        """Mean log-density, and sums (K, ·) of the values over the rows of each component."""
        total = torch.zeros((), dtype=self.Z.dtype)
        sums = self.values.new_zeros(len(mixture.weights), self.values.shape[1])
        blocks = zip(self.values.split(BLOCK), self.weight.split(BLOCK), strict=True)
        for share, (values, weight) in zip(self.log_terms(mixture), blocks, strict=True):
            most = share.amax(0)
            size = share.sub_(most).exp_().sum(0)
            total += (size.log() + most) @ weight
            sums.addmm_(share.mul_(weight / size), values)
        return float(total / self.weight.sum()), sums

    def moments(self, sums: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Counts (k,), means (k, d) and scatters (k, d, d) from sums of the values."""
        d = self.Z.shape[1]
        count = sums[:, 0]
        mean = sums[:, 1 : d + 1] / count.clamp(min=torch.finfo(sums.dtype).tiny)[:, None]
        second = sums.new_zeros(len(sums), d, d)
        second[:, self.rows, self.columns] = second[:, self.columns, self.rows] = sums[:, d + 1 :]
        return count, mean, second - count[:, None, None] * mean[:, :, None] * mean[:, None, :]

    def sums_of_labels(self, labels: Tensor, k: int) -> Tensor:
        """Weighted sums of the values over the rows of each label."""
        values = self.values * self.weight[:, None]
        return self.values.new_zeros(k, values.shape[1]).index_add_(0, labels, values)


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
    It starts from the clusters of k-means by default, and ends at a deadline on the clock of
    :func:`time.monotonic`. The ridge is a variance that every column of a component has added.
    """
    state = start
    if state is None or len(state.weights) != n_components:
        state = _clusters(rows, n_components, generator)
    if n_components == 1:
        return _improved(rows, state, ridge)[1]
    safe, last = state, -math.inf
    for _ in range(max_iter // 2):
        value, first = _improved(rows, state, ridge)
        if value < last:
            state = safe
            first = _improved(rows, state, ridge)[1]
        value, second = _improved(rows, first, ridge)
        gain, safe, last = value - last, second, value
        if gain < TOLERANCE or time.monotonic() >= deadline:
            break
        state = _extrapolated(state, first, second)
    return safe


def _improved(
    rows: Monomials, state: GaussianMeasure, ridge: float
) -> tuple[float, GaussianMeasure]:
    """Mean log-density of a mixture, and the mixture after one iteration."""
    value, sums = rows.expectation(state)
    count, mean, scatter = rows.moments(sums)
    count = count.clamp(min=1e-9 * float(rows.weight.sum()))
    covariance = scatter / count[:, None, None]
    covariance.diagonal(dim1=1, dim2=2).clamp_(min=0.0).add_(ridge)
    failed = torch.linalg.cholesky_ex(covariance).info > 0  # collapsed by rounding
    if failed.any():
        covariance = torch.where(failed[:, None, None], state.covariances, covariance)
        mean = torch.where(failed[:, None], state.means, mean)
    return value, GaussianMeasure(count / count.sum(), mean, covariance)


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


def _clusters(rows: Monomials, k: int, generator: Generator) -> GaussianMeasure:
    """Gaussians of the clusters of k-means."""
    seed = int(torch.randint(2**31 - 1, (), generator=generator))
    labels = torch.zeros(len(rows.Z), dtype=torch.int64)
    if k > 1:
        model = KMeans(k, n_init=1, max_iter=CLUSTER_ITER, random_state=seed)
        found = model.fit(rows.Z.numpy(), sample_weight=rows.weight.numpy()).labels_
        labels = torch.as_tensor(found).long()
    count, mean, _ = rows.moments(rows.sums_of_labels(labels, k))
    centered = Monomials(rows.Z - mean[labels], rows.weight)  # far clusters keep their digits
    scatter = centered.moments(centered.sums_of_labels(labels, k))[2]
    unit = rows.weight.mean()
    eye = torch.eye(mean.shape[1], dtype=mean.dtype)
    covariance = (scatter + SCATTER * unit * eye) / (count + unit)[:, None, None]
    return GaussianMeasure((count + unit) / (count + unit).sum(), mean, covariance)


def average_mixture(
    rows: Monomials,
    start: GaussianMeasure,
    generator: Generator,
    *,
    strength: float,
    n_sweeps: int,
    deadline: float = math.inf,
) -> GaussianMeasure:
    """Average of mixtures drawn from their posterior given standardized rows of equal weight.

    Expectation–maximization stops at the next local optimum. A Gibbs chain moves on to better
    ones, and the average of its draws, itself a mixture of all their components, overfits less
    than a single one. It starts from a mixture, or from an average, whose last draw is where the
    chain goes on. The prior of every component is worth `strength` rows of unit covariance. After
    the deadline the last draw stands for those to come.
    """
    state = start
    rng = np.random.default_rng(int(torch.randint(2**31 - 1, (), generator=generator)))
    kept = np.linspace(BURN_IN * n_sweeps, n_sweeps - 1, N_DRAWS).round().astype(int).tolist()
    draws = []
    for sweep in range(n_sweeps):
        state = _sweep(rows, state, strength, generator, rng)
        draws += [state] * kept.count(sweep)
        if time.monotonic() >= deadline:
            draws += [state] * (N_DRAWS - len(draws))
            break
    return GaussianMeasure(
        torch.cat([draw.weights for draw in draws]) / N_DRAWS,
        torch.cat([draw.means for draw in draws]),
        torch.cat([draw.covariances for draw in draws]),
    )


def last_draw(average: GaussianMeasure) -> GaussianMeasure:
    """The last mixture of an average."""
    chosen = slice(-len(average.weights) // N_DRAWS, None)
    weights = average.weights[chosen]
    return GaussianMeasure(
        weights / weights.sum(), average.means[chosen], average.covariances[chosen]
    )


def _sweep(
    rows: Monomials,
    state: GaussianMeasure,
    strength: float,
    generator: Generator,
    rng: np.random.Generator,
) -> GaussianMeasure:
    """Draw the rows' labels given the Gaussians, then the Gaussians given the labels."""
    k = len(state.weights)
    drawn = []
    for terms in rows.log_terms(state):
        share = terms.sub_(terms.amax(0)).float().exp_().cumsum_(0)
        threshold = torch.rand(share.shape[1], generator=generator) * share[-1]
        drawn.append((share < threshold).sum(0).clamp_(max=k - 1))
    labels = torch.cat(drawn)
    count, mean, scatter = rows.moments(rows.sums_of_labels(labels, k))
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

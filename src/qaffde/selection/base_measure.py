r"""Base measures fitted to rows: the box, the Gaussian and mixtures of Gaussians.

A Gaussian is linear in 1, z and the products of two columns, so that all components at all rows
are one matrix product, and so are their moments. Expectation–maximization begins with passes over
mini-batches in float32, after each of which all components move (Cappé and Moulines, 2009);
iterations over all rows, extrapolated, follow.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Generator, Tensor

from qaffde import functional as QF
from qaffde.nn import BaseMeasure, BoxMeasure, FourierFeatures, GaussianMeasure, KernelMeasure
from qaffde.selection.policy import (
    CACHED_TERMS,
    DEFAULT_POLICY,
    LOG_NOTHING,
    MAX_KEPT,
    SINGLE_REACH,
    SINGLE_RIDGE,
    SelectionPolicy,
)
from qaffde.selection.summary import Moments


@dataclass(frozen=True)
class Prior:
    """What the covariances of components tend to where rows are few.

    A variance of `ridge` is added to every column, and the mean covariance of all components is
    worth `shrinkage` rows in each one, as in regularized discriminant analysis. Components of
    rows beyond `far` deviations do not count in the mean. One row of variance `scatter` is in
    each component before all others.
    """

    ridge: float
    shrinkage: float = 0.0
    far: float = DEFAULT_POLICY.far
    scatter: float = DEFAULT_POLICY.mixture_scatter

    def components(
        self, size: Tensor, mean: Tensor, scatter: Tensor, last: GaussianMeasure, unit: float = 1.0
    ) -> GaussianMeasure:
        """Components of these sizes, means and scatters, with rows of weight `unit`.

        Those that collapse by rounding stay as they were.
        """
        weight = self.shrinkage * unit
        if weight:
            variance = scatter.diagonal(dim1=1, dim2=2) / size[:, None]
            near = (variance + mean.square() < self.far**2).all(1) * size
            pooled = torch.einsum("k,kij->ij", near / size, scatter)
            scatter = scatter + weight * pooled / near.sum().clamp(min=1e-300)
        covariance = scatter / (size + weight)[:, None, None]
        covariance.diagonal(dim1=1, dim2=2).clamp_(min=0.0).add_(self.ridge)
        failed = torch.linalg.cholesky_ex(covariance).info > 0
        if failed.any():
            covariance = torch.where(failed[:, None, None], last.covariances, covariance)
            mean = torch.where(failed[:, None], last.means, mean)
        return GaussianMeasure(size / size.sum(), mean, covariance)


@dataclass(frozen=True)
class BaseSpec:
    """Specification of a base measure: "box", "gaussian", "mixture" or "kernel".

    `n_components` are those of a mixture, or of each mixture of an average; `n_mixtures`, from
    different starts, are averaged; `shrinkage` is that of their :class:`Prior`. `bounds` of shape
    (2, d) are ends of the box, NaN where they come from the data; a roomy one leaves room for
    rows to come, see :func:`fit_box`.
    """

    kind: str
    n_components: int = 1
    bounds: Tensor | None = None
    roomy: bool = False
    n_mixtures: int = 1
    shrinkage: float = 0.0

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
            return fit_gaussian(moments or Moments.of(Z, weight), policy)
        share = weight[: policy.max_mixture_rows] / weight.mean()
        rows = Monomials(Z[: policy.max_mixture_rows], share)
        k, m = self.n_components, self.n_mixtures
        options: dict[str, Any] = {"prior": self.prior(policy), "policy": policy}
        options |= {"max_iter": policy.mixture_iterations, "deadline": deadline}
        begin: list[GaussianMeasure | None] = [None] * m
        is_far = (Z.abs() > policy.far).any()  # the start may not have seen the few rows out there
        if isinstance(start, GaussianMeasure) and len(start.weights) == k * m and not is_far:
            begin, options["max_iter"] = [*members(start, m)], policy.last_iterations
        return average([fit_mixture(rows, k, generator, start=one, **options) for one in begin])

    def prior(self, policy: SelectionPolicy) -> Prior:
        """The prior of its covariances."""
        return Prior(policy.mixture_ridge, self.shrinkage, policy.far, policy.mixture_scatter)

    def __str__(self) -> str:
        if self.name != "mixture":
            return self.name
        several = f"{self.n_mixtures} × " if self.n_mixtures > 1 else ""
        shrunk = f", shrinkage {self.shrinkage:.3g}" if self.shrinkage else ""
        return f"mixture of {several}{self.n_components}{shrunk}"


Shape = tuple[int, float]
"""Number of components of a mixture, and shrinkage of their covariances."""


def spec_of(shape: Shape) -> BaseSpec:
    """Specification of a mixture."""
    return BaseSpec("mixture", shape[0], shrinkage=shape[1])


def fit_box(
    Z: Tensor, bounds: Tensor | None = None, *, room_rows: int = 0, within: Tensor | None = None
) -> BoxMeasure:
    """Tightest box around the rows; finite `bounds` of shape (2, d) replace its ends.

    If Z is a sample, `within` of shape (2, d) are the ends of all rows, which lie inside as well.
    With `room_rows` the box is larger at each end by the distance of the outermost row from the
    row that many places further in: very little where the density stops at an edge, and about as
    far as new rows may lie where it fades out.
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


def fit_gaussian(moments: Moments, policy: SelectionPolicy) -> GaussianMeasure:
    """Gaussian with the rows' mean and covariance, shrunk to its diagonal where rows are few.

    Beside one row of 1e9 the others round away: a share of the trace keeps it positive definite.
    """
    n, covariance = moments.count, moments.covariance
    d = len(covariance)
    shrinkage = d / (n + d) if n < policy.gaussian_rows * d else 0.0
    shrunk = torch.lerp(covariance, covariance.diagonal().diag(), shrinkage)
    rounding = 100 * torch.finfo(shrunk.dtype).eps * float(shrunk.trace())
    shrunk.diagonal().add_(policy.mixture_ridge + rounding)
    return GaussianMeasure(torch.ones(1, dtype=shrunk.dtype), moments.mean[None], shrunk[None])


def constant_feature(d: int) -> FourierFeatures:
    """The one feature of d columns that leaves a base measure as it is."""
    zero, one = torch.zeros(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64)
    return FourierFeatures(zero.expand(1, d).clone(), zero, one)


def n_distinct(Z: Tensor, rows: int = 10_000) -> int:
    """Number of different rows among about `rows` of them, evenly spread."""
    some = Z[:: -(-len(Z) // rows)]
    direction = torch.rand(Z.shape[1], generator=torch.Generator().manual_seed(0), dtype=Z.dtype)
    on_a_line = len((some @ direction).unique())  # much faster, and at most as many
    return on_a_line if on_a_line == len(some) else len(some.unique(dim=0))


class Monomials:
    """Weighted rows (n, d) as 1, z and the products of two columns; weights are one by default.

    Products are of the dtype, mixtures in float64. Those of many columns are made anew, block by
    block, whenever they are used.
    """

    def __init__(
        self, Z: Tensor, weight: Tensor | None = None, dtype: torch.dtype = torch.float64
    ) -> None:
        self.Z = Z
        self.weight = torch.ones(len(Z), dtype=Z.dtype) if weight is None else weight
        d = Z.shape[1]
        self.rows, self.columns = torch.triu_indices(d, d)
        self.places = torch.zeros(d, d, dtype=torch.int64)  # of products among the values
        self.places[self.rows, self.columns] = torch.arange(d + 1, d + 1 + len(self.rows))
        self.places = self.places.maximum(self.places.T)
        self.dtype, self.n_values = dtype, 1 + d + len(self.rows)
        is_small = len(Z) * self.n_values <= MAX_KEPT
        self.kept = QF.monomials(Z).to(dtype) if is_small else None

    def blocks(self, size: int, chosen: slice = slice(None)) -> Iterator[tuple[Tensor, Tensor]]:
        """Products (m, ·) and weights (m,) of at most `size` rows at a time."""
        size = max(1, min(size, MAX_KEPT // self.n_values))
        products = (
            (QF.monomials(Z).to(self.dtype) for Z in self.Z[chosen].split(size))
            if self.kept is None
            else self.kept[chosen].split(size)
        )
        return zip(products, self.weight[chosen].split(size), strict=True)

    def log_terms(self, mixture: GaussianMeasure, chosen: slice = slice(None)) -> Iterator[Tensor]:
        """Weighted log-densities (K, m) of the components at m rows, block by block."""
        return (terms for terms, _, _ in self._terms(mixture, chosen))

    def _terms(
        self, mixture: GaussianMeasure, chosen: slice
    ) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """The same, and products and weights of the rows."""
        parts = mixture.weights.log(), mixture.means, mixture.cholesky
        coefficients = QF.gaussian_coefficients(*parts).T.to(self.dtype)
        blocks = self.blocks(_block(mixture), chosen)
        return ((coefficients @ values.T, values, weight) for values, weight in blocks)

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
        weight = self.weight[chosen]
        total = torch.zeros((), dtype=weight.dtype)
        sums = torch.zeros(self.n_values, len(mixture.weights), dtype=self.dtype).T
        for terms, value, mass in self._terms(mixture, chosen):
            share, size, most = _shares(terms)
            total += (size.log() + most).to(mass) @ mass
            sums.addmm_(share.mul_(mass.to(size) / size), value)
        mass = weight.sum()
        return float(total / mass), sums.to(self.Z) * (self.weight.sum() / mass)

    def moments(self, sums: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Counts (k,), means (k, d) and scatters (k, d, d) from sums of the values."""
        d = self.Z.shape[1]
        count = sums[:, 0]
        mean = sums[:, 1 : d + 1] / count.clamp(min=torch.finfo(sums.dtype).tiny)[:, None]
        second = sums[:, self.places]
        return count, mean, second - count[:, None, None] * mean[:, :, None] * mean[:, None, :]

    def sums_of_mixture(self, mixture: GaussianMeasure) -> Tensor:
        """Sums of the values that the moments of a mixture stand for."""
        second = mixture.covariances + mixture.means[:, :, None] * mixture.means[:, None, :]
        parts = [torch.ones_like(mixture.means[:, :1]), mixture.means]
        values = torch.cat([*parts, second[:, self.rows, self.columns]], dim=1)
        return values * (mixture.weights * self.weight.sum())[:, None]

    def sums_of_labels(self, labels: Tensor, k: int) -> Tensor:
        """Weighted sums of the values over the rows of each label."""
        sums, start = self.Z.new_zeros(k, self.n_values), 0
        for values, weight in self.blocks(len(self.Z)):
            own = labels[start : start + len(values)]
            sums.index_add_(0, own, values.to(sums) * weight[:, None])
            start += len(values)
        return sums


def _block(mixture: GaussianMeasure) -> int:
    """Rows whose terms stay in cache."""
    return max(64, CACHED_TERMS // len(mixture.weights))


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
    prior: Prior,
    policy: SelectionPolicy = DEFAULT_POLICY,
    start: GaussianMeasure | None = None,
    max_iter: int = DEFAULT_POLICY.mixture_iterations,
    deadline: float = math.inf,
) -> GaussianMeasure:
    """Mixture of Gaussians of standardized rows by expectation–maximization.

    It begins at `start`, by default with :func:`start_mixture`, and ends after the deadline on the
    clock of :func:`time.monotonic`.
    """
    state = start
    if state is None or len(state.weights) != n_components:
        options: dict[str, Any] = {"prior": prior, "policy": policy, "deadline": deadline}
        state = start_mixture(rows, n_components, generator, **options)
    if n_components == 1:
        return _improved(rows, state, prior)[1]
    step = partial(_improved, rows, prior=prior)
    return iterated(step, state, max_iter, policy.mixture_gain, deadline, extrapolated)


State = TypeVar("State")


def iterated(
    improved: Callable[[State], tuple[float, State]],
    state: State,
    max_iter: int,
    least_gain: float,
    deadline: float = math.inf,
    extrapolated: Callable[[State, State, State], State] | None = None,
) -> State:
    """State after iterations; each two of them may say how far to go on.

    This is SQUAREM (Varadhan and Roland, 2008): where components overlap, plain iterations gain
    little for hundreds of times. A step that is too long is taken back.
    """
    safe, last = state, -math.inf
    for _ in range(max_iter // 2):
        if time.monotonic() >= deadline:
            break
        value, first = improved(state)
        if not value >= last:
            state = safe
            first = improved(state)[1]
        value, second = improved(first)
        gain, safe, last = value - last, second, value
        if gain < least_gain:
            break
        state = second if extrapolated is None else extrapolated(state, first, second)
    return safe


def coarse_dtype(Z: Tensor) -> torch.dtype:
    """Precision of early iterations: float32, unless squares of far rows need more."""
    return torch.float32 if Z.abs().max() < SINGLE_REACH else torch.float64


def start_mixture(
    rows: Monomials,
    n_components: int,
    generator: Generator,
    *,
    prior: Prior,
    policy: SelectionPolicy = DEFAULT_POLICY,
    smaller: GaussianMeasure | None = None,
    deadline: float = math.inf,
) -> GaussianMeasure:
    """Mixture after a few passes over mini-batches, from clusters of k-means.

    Of clusters and of a `smaller` mixture of half the size, each of whose components is split in
    two, the start that is more likely after one pass goes on.
    """
    if n_components == 1:
        return _improved(rows, _clusters(rows, 1, generator, prior, policy), prior)[1]
    order = torch.randperm(len(rows.Z), generator=generator)
    coarse = coarse_dtype(rows.Z)
    single = Monomials(rows.Z[order], rows.weight[order], coarse)
    starts = [_clusters(rows, n_components, generator, prior, policy)]
    if smaller is not None and 2 * len(smaller.weights) == n_components:
        starts.append(_halved(smaller))
    prior = replace(prior, ridge=max(prior.ridge, SINGLE_RIDGE))
    states = [_passed(single, start, prior, policy) for start in starts]
    judged = slice(policy.rough_rows)
    state = max(states, key=lambda state: single.expectation(state, judged)[0])
    for _ in range(policy.mixture_passes - 1):
        if time.monotonic() >= deadline:
            break
        state = _passed(single, state, prior, policy)
    return state


def average(mixtures: Sequence[GaussianMeasure]) -> GaussianMeasure:
    """Mixture of mixtures, all of the same weight; it overfits less than each of them."""
    if len(mixtures) == 1:
        return mixtures[0]
    return GaussianMeasure(
        torch.cat([mixture.weights for mixture in mixtures]) / len(mixtures),
        torch.cat([mixture.means for mixture in mixtures]),
        torch.cat([mixture.covariances for mixture in mixtures]),
    )


def members(mixture: GaussianMeasure, n: int) -> list[GaussianMeasure]:
    """The n mixtures of an average."""
    parts = mixture.weights * n, mixture.means, mixture.covariances
    return [GaussianMeasure(*each) for each in zip(*(p.chunk(n) for p in parts), strict=True)]


def _passed(
    rows: Monomials, state: GaussianMeasure, prior: Prior, policy: SelectionPolicy
) -> GaussianMeasure:
    """Mixture after one pass over mini-batches of rows in random order.

    The t-th batch has the share (t + 2)^(−1/2) of the sums.
    """
    n, d = rows.Z.shape
    fewest = policy.batch_rows * len(state.weights) * (d + 2)
    n_batches = min(policy.max_batches, n // fewest)
    if n_batches < 2:
        return _improved(rows, state, prior)[1]
    sums, size = rows.sums_of_mixture(state), -(-n // n_batches)
    for t in range(n_batches):
        batch = slice(t * size, (t + 1) * size)
        sums = sums.lerp(rows.expectation(state, batch)[1], (t + 2) ** -0.5)
        state = _maximized(rows, sums, state, prior)
    return state


def _improved(
    rows: Monomials, state: GaussianMeasure, prior: Prior
) -> tuple[float, GaussianMeasure]:
    """Mean log-density of a mixture, and the mixture after one iteration."""
    value, sums = rows.expectation(state)
    return value, _maximized(rows, sums, state, prior)


def _maximized(
    rows: Monomials, sums: Tensor, state: GaussianMeasure, prior: Prior
) -> GaussianMeasure:
    """Mixture that is most likely given the sums over the rows of each component."""
    count, mean, scatter = rows.moments(sums)
    count = count.clamp(min=1e-9 * float(rows.weight.sum()))
    return prior.components(count, mean, scatter, state)


def extrapolated(*states: GaussianMeasure) -> GaussianMeasure:
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


def cluster(where: Tensor, weight: Tensor, k: int, seed: int, max_iter: int) -> Tensor:
    """Numbers (n,) of the clusters of k-means of weighted rows (n, d), below k."""
    k = min(k, len(where.unique(dim=0)))  # of more, k-means warns
    if k == 1:
        return torch.zeros(len(where), dtype=torch.int64)
    from sklearn.cluster import KMeans  # on first use: a twentieth of all imports

    model = KMeans(k, n_init=1, max_iter=max_iter, random_state=seed)
    found = model.fit(where.numpy(), sample_weight=weight.numpy()).labels_
    return torch.as_tensor(found).long()


def draw_seed(generator: Generator) -> int:
    """Seed of a random number generator of NumPy."""
    return int(torch.randint(2**31 - 1, (), generator=generator))


def _clusters(
    rows: Monomials, k: int, generator: Generator, prior: Prior, policy: SelectionPolicy
) -> GaussianMeasure:
    """Gaussians of the clusters of some rows, each with one more row of small variance."""
    seed = draw_seed(generator)
    some = torch.randperm(len(rows.Z), generator=generator)[: policy.cluster_rows]
    Z, weight = rows.Z[some], rows.weight[some]
    labels = cluster(Z, weight, k, seed, policy.cluster_iterations)
    part = Monomials(Z, weight)
    count, mean, _ = part.moments(part.sums_of_labels(labels, k))
    centered = Monomials(Z - mean[labels], weight)  # far clusters keep their digits
    scatter = centered.moments(centered.sums_of_labels(labels, k))[2]
    size, eye = count + weight.mean(), torch.eye(mean.shape[1], dtype=mean.dtype)
    covariance = (scatter + prior.scatter * weight.mean() * eye) / size[:, None, None]
    return GaussianMeasure(size / size.sum(), mean, covariance)

r"""Mixtures of the parts of tables by expectation–maximization, with gaps.

.. math:: m(x) = \sum_k w_k\, N(x_{\text{lines}}; \mu_k, \Sigma_k) \prod_t f_{kt}(x_t)

Within a component, codes and points of a circle are independent of all else. A row counts by its
marginal likelihood: missing parts are integrated out, and lines enter the moments by their
conditional means and covariances (Ghahramani and Jordan, 1994).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from itertools import product
from operator import add

import torch
from torch import Generator, Tensor, nn

from qaffde.nn import (
    CircleFactor,
    CodeFactor,
    Factor,
    FactoredMeasure,
    GaussianMeasure,
    Part,
)
from qaffde.nn.parts import MAX_DEVIATION, MIN_DEVIATION, gap_patterns
from qaffde.parameters import MAX_ROWS
from qaffde.selection.base_measure import (
    Prior,
    cluster,
    draw_seed,
    iterated,
)
from qaffde.selection.policy import DEFAULT_POLICY, SelectionPolicy
from qaffde.training.closed_form import effective_count


@dataclass(frozen=True)
class CodeLaw:
    """How masses of codes are estimated from counts.

    Where neighbors are alike (`has_order`), counts are smoothed by a Gaussian kernel of this
    `width`, in Silverman's bandwidths. The masses over all components are worth `strength` rows in
    each component.
    """

    has_order: bool
    strength: float = 1.0
    width: float = 1.0

    def masses(self, counts: Tensor) -> Tensor:
        """Masses (K, C) from counts (K, C), none of them zero."""
        total, C = counts.sum(), counts.shape[1]
        smooth = self._smoothed(counts) if self.has_order else counts
        overall = self._smoothed(counts.sum(0)[None]) if self.has_order else counts.sum(0)[None]
        prior = (overall + 1 / C) / (total + 1)
        return (smooth + self.strength * prior) / (counts.sum(1) + self.strength)[:, None]

    def _smoothed(self, counts: Tensor) -> Tensor:
        """Counts spread over neighbors; the mass of a kernel stays inside."""
        code = torch.arange(counts.shape[1], dtype=counts.dtype)
        size = counts.sum(1).clamp(min=1e-9)
        mean = (counts @ code) / size
        spread = ((counts @ code.square()) / size - mean.square()).clamp(min=0).sqrt()
        h = (self.width * 1.06 * spread * size.clamp(min=1) ** -0.2).clamp(min=1e-3)
        squares = (code[:, None] - code).square()
        rows = [
            row @ (-0.5 * squares / bandwidth**2).softmax(1)
            for row, bandwidth in zip(counts, h, strict=True)
        ]
        return torch.stack(rows)


class TableRows:
    """Weighted rows of parts (n, q), NaN where one is missing; lines are in units of deviation."""

    def __init__(self, x: Tensor, weight: Tensor, parts: Sequence[Part]) -> None:
        self.x, self.weight, self.parts = x, weight, tuple(parts)

    @cached_property
    def unit(self) -> float:
        """Weight of one of as many rows of equal weight as these are worth."""
        return float(self.weight.sum()) / effective_count(self.weight)

    @cached_property
    def lines(self) -> Tensor:
        """The lines, of shape (n, c)."""
        return self.x[:, [k for k, part in enumerate(self.parts) if part.is_line]]

    @cached_property
    def others(self) -> list[tuple[Part, Tensor, Tensor]]:
        """Of each other part its kind, which rows have it, and its values there."""
        known = ~self.x.isnan()
        return [
            (part, known[:, k], self.x[known[:, k], k])
            for k, part in enumerate(self.parts)
            if not part.is_line
        ]

    @cached_property
    def patterns(self) -> list[tuple[list[int], list[int], Tensor, Tensor]]:
        """Known and missing lines, numbers of the rows that have them so, and their values."""
        return [
            (have, lack, rows.nonzero()[:, 0], self.lines[rows][:, have])
            for have, lack, rows in gap_patterns(self.lines)
        ]

    def select(self, rows: Tensor | slice) -> "TableRows":
        """Some of the rows."""
        return TableRows(self.x[rows], self.weight[rows], self.parts)

    def coordinates(self, laws: Sequence[CodeLaw]) -> Tensor:
        """Coordinates (n, ·) for clusters: the mean stands for what is missing."""
        found, codes = [self.lines.nan_to_num(nan=0.0)], iter(laws)
        for part, known, values in self.others:
            if part.kind == "circle":
                angle = 2 * math.pi * values
                own = torch.stack([angle.cos(), angle.sin()], 1)
            elif next(codes).has_order:
                own = values[:, None]
            else:
                own = torch.nn.functional.one_hot(values.long(), part.size).double()
            spread = own.std(0).clamp(min=1e-9).amax() if len(own) > 1 else 1.0
            whole = torch.zeros(len(self.x), own.shape[1], dtype=torch.float64)
            whole[known] = (own - own.mean(0)) / spread
            found.append(whole)
        return torch.cat(found, 1)


@dataclass(frozen=True, eq=False)
class TableMixture:
    """K components of a table: Gaussians of the lines, and laws of the other parts.

    Means and covariances have the shapes (K, c), (K, c, c); `laws` are those of codes, and
    `shrinkage` and `ridge` are those of the :class:`Prior` of covariances.
    """

    parts: tuple[Part, ...]
    weights: Tensor
    means: Tensor
    covariances: Tensor
    factors: tuple[Factor, ...]
    laws: tuple[CodeLaw, ...]
    shrinkage: float = 0.0
    ridge: float = 1e-7

    @property
    def n_statistics(self) -> int:
        """Number of the sufficient statistics of all components."""
        K, c = self.means.shape
        sizes = [part.size or 3 for part in self.parts if not part.is_line]
        return K * (1 + c + c * c + sum(sizes))

    def standardized(self, x: Tensor, location: Tensor, scale: Tensor) -> Tensor:
        """Parts (n, q) with lines in units, in place."""
        lines = [k for k, part in enumerate(self.parts) if part.is_line]
        x[:, lines] = (x[:, lines] - location) / scale
        return x

    def log_terms(self, rows: TableRows) -> Tensor:
        """Logarithm (n, K) of the weighted components at the known parts of the rows."""
        total = self.weights.log().repeat(len(rows.x), 1)
        for have, _, number, z in rows.patterns:
            if have:
                total[number] += self._log_normal(z, have)
        for (_, known, values), factor in zip(rows.others, self.factors, strict=True):
            total[known] += factor.log_values(values)
        return total

    def _log_normal(self, z: Tensor, have: list[int]) -> Tensor:
        """Log-densities (n, K) of some of the lines."""
        C = torch.linalg.cholesky(self.covariances[:, have][:, :, have])
        centered = z.T - self.means[:, have, None]
        u = torch.linalg.solve_triangular(C, centered, upper=False)
        log_det = C.diagonal(dim1=1, dim2=2).log().sum(1)
        constant = len(have) / 2 * math.log(2 * math.pi)
        return (-0.5 * u.square().sum(1) - log_det[:, None] - constant).T

    def log_density(self, rows: TableRows) -> Tensor:
        """Log-density (n,) of the known parts of the rows."""
        return self.log_terms(rows).logsumexp(1)

    def shares(self, rows: TableRows) -> tuple[Tensor, Tensor]:
        """Weights (n, K) of the rows in the components, and the log-density (n,)."""
        terms = self.log_terms(rows)
        log_p = terms.logsumexp(1)
        return (terms - log_p[:, None]).exp_() * rows.weight[:, None], log_p

    def moments(self, rows: TableRows, share: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Expected counts (K,), sums (K, c) and second moments (K, c, c) of the lines.

        Of missing lines it takes their means and covariances given the known ones.
        """
        K, c = self.means.shape
        total = torch.zeros(K, 1 + c, 1 + c, dtype=torch.float64)
        for have, lack, number, z in rows.patterns:
            y = torch.cat([torch.ones_like(z[:, :1]), z], 1) if have else z.new_ones(len(z), 1)
            squares = share[number].T @ (y[:, :, None] * y[:, None, :]).flatten(1)
            M = squares.reshape(K, y.shape[1], y.shape[1])
            A, left = self._completion(have, lack)
            total += A @ M @ A.mT + M[:, :1, :1] * left
        return total[:, 0, 0], total[:, 1:, 0], total[:, 1:, 1:]

    def _completion(self, have: list[int], lack: list[int]) -> tuple[Tensor, Tensor]:
        """Means (K, 1 + c, 1 + t) of 1 and the lines given 1 and t of them, and what varies."""
        (K, c), S = self.means.shape, self.covariances
        A, left = (torch.zeros(K, 1 + c, n, dtype=torch.float64) for n in (1 + len(have), 1 + c))
        A[:, [0, *(1 + k for k in have)], range(1 + len(have))] = 1.0
        if lack:
            across, rows = S[:, lack][:, :, have], 1 + torch.tensor(lack)
            slope = torch.linalg.solve(S[:, have][:, :, have], across.mT).mT
            A[:, rows, 1:] = slope
            A[:, rows, 0] = self.means[:, lack] - (slope @ self.means[:, have, None])[:, :, 0]
            left[:, rows[:, None], rows] = S[:, lack][:, :, lack] - slope @ across.mT
        return A, left

    def statistics(self, rows: TableRows, share: Tensor) -> Tensor:
        """Sufficient statistics (K, F) of rows with these weights (n, K) in the components.

        Those of disjoint rows add up: counts, sums and second moments of the lines; of each other
        part the counts of its codes, or count, cosines and sines of points of a circle.
        """
        count, first, second = self.moments(rows, share)
        found = [count[:, None], first, second.flatten(1)]
        for part, known, values in rows.others:
            if part.kind == "circle":
                angle = 2 * math.pi * values
                waves = torch.stack([torch.ones_like(angle), angle.cos(), angle.sin()], 1)
                found.append(share[known].T @ waves)
            else:
                counts = torch.zeros(part.size, share.shape[1], dtype=torch.float64)
                found.append(counts.index_add_(0, values.long(), share[known]).T)
        return torch.cat(found, 1)

    def total_statistics(self, x: Tensor, weight: Tensor) -> Tensor:
        """Sufficient statistics (K, F) of weighted rows of parts, a block at a time."""
        blocks = zip(x.split(MAX_ROWS), weight.split(MAX_ROWS), strict=True)
        tables = (TableRows(*block, self.parts) for block in blocks)
        return reduce(add, (self.statistics(rows, self.shares(rows)[0]) for rows in tables))

    def maximized(self, statistics: Tensor, unit: float) -> "TableMixture":
        """The likeliest mixture given the statistics (K, F) of rows of mean weight `unit`.

        The prior of each component is worth one row.
        """
        K, c = self.means.shape
        count, first, second = statistics[:, : 1 + c + c * c].split([1, c, c * c], 1)
        count = count.clamp(min=0.0)  # rounding, after rows were forgotten
        size = (count + unit)[:, 0]
        mean = first / count.clamp(min=1e-9 * unit)
        scatter = second.reshape(K, c, c) - count[:, :, None] * mean[:, :, None] * mean[:, None, :]
        scatter = (scatter + scatter.mT) / 2
        prior = Prior(self.ridge, self.shrinkage)
        scatter.diagonal(dim1=1, dim2=2).add_(prior.scatter * unit)
        lines = prior.components(size, mean, scatter, self.gaussians(), unit)
        return self.with_lines(lines).with_factors(statistics)

    def with_lines(self, lines: GaussianMeasure) -> "TableMixture":
        """The same with other weights and Gaussians."""
        weights, means = lines.weights, lines.means
        return replace(self, weights=weights, means=means, covariances=lines.covariances)

    def with_factors(self, statistics: Tensor) -> "TableMixture":
        """The same with laws of codes and circles from the statistics (K, F)."""
        c, laws, factors = self.means.shape[1], iter(self.laws), list[Factor]()
        start = 1 + c + c * c
        for part in self.parts:
            if not part.is_line:
                size = part.size if part.kind == "codes" else 3
                own = statistics[:, start : start + size]
                start += size
                if part.kind == "circle":
                    factors.append(_circle(*own.T))
                else:
                    factors.append(CodeFactor(next(laws).masses(own).log()))
        return replace(self, factors=tuple(factors))

    def improved(self, rows: TableRows) -> tuple[float, "TableMixture"]:
        """Mean log-density, and the mixture after one iteration."""
        share, log_p = self.shares(rows)
        value = float((log_p @ rows.weight) / rows.weight.sum())
        return value, self.maximized(self.statistics(rows, share), rows.unit)

    def smoothed(
        self, rows: TableRows, held_out: TableRows, policy: SelectionPolicy
    ) -> "TableMixture":
        """The same components with the smoothing of each code that held-out rows like best."""
        statistics, best = self.statistics(rows, self.shares(rows)[0]), self
        for number, law in enumerate(self.laws):
            widths = policy.code_widths if law.has_order else (1.0,)
            trials = []
            for strength, width in product(policy.code_strengths, widths):
                laws = list(best.laws)
                laws[number] = CodeLaw(law.has_order, strength, width)
                trials.append(replace(best, laws=tuple(laws)).with_factors(statistics))
            best = max(trials, key=lambda m: float(m.log_density(held_out) @ held_out.weight))
        return best

    def gaussians(self) -> GaussianMeasure:
        """The lines alone."""
        return GaussianMeasure(self.weights, self.means, self.covariances)

    def modules(self) -> list[nn.Module]:
        """What has the numbers of the components."""
        return [*self.factors, self.gaussians()]

    def base(self) -> FactoredMeasure | GaussianMeasure:
        """The mixture as a base measure of Fourier features."""
        lines = self.gaussians()
        return FactoredMeasure(self.parts, lines, self.factors) if self.factors else lines

    def units(self, location: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
        """Locations and scales (q,) of all parts from those of the lines."""
        lines = torch.tensor([part.is_line for part in self.parts])
        whole = torch.zeros(2, len(lines), dtype=torch.float64)
        whole[1] = 1
        whole[:, lines] = torch.stack([location, scale])
        return whole[0], whole[1]

    def deviations(self) -> Tensor:
        """Standard deviations (q,) of the parts within a component; of categories one."""
        lines = iter(self.covariances.diagonal(dim1=1, dim2=2).T)
        factors, laws, found = iter(self.factors), iter(self.laws), []
        for part in self.parts:
            factor = None if part.is_line else next(factors)
            if isinstance(factor, CircleFactor):
                variance = factor.deviation.square()
            elif isinstance(factor, CodeFactor):
                mass, code = factor.log_mass.exp(), torch.arange(part.size).double()
                variance = mass @ code.square() - (mass @ code).square()
                variance = variance if next(laws).has_order else torch.ones_like(variance)
            else:
                variance = next(lines)
            found.append((self.weights @ variance).clamp(min=1e-9).sqrt())
        return torch.stack(found)

    def with_background(self, epsilon: float, spread: float) -> "TableMixture":
        """One more component of weight ε: broad, and with the codes of all others."""
        c = self.means.shape[1]
        broad = spread**2 * torch.eye(c, dtype=torch.float64)[None]
        return replace(
            self,
            weights=torch.cat([(1 - epsilon) * self.weights, self.weights.new_tensor([epsilon])]),
            means=torch.cat([self.means, torch.zeros(1, c).double()]),
            covariances=torch.cat([self.covariances, broad]),
            factors=tuple(_with_background(factor, self.weights) for factor in self.factors),
        )


def _with_background(factor: Factor, weights: Tensor) -> Factor:
    """The laws of a part, and one more over all components."""
    if isinstance(factor, CodeFactor):
        overall = (weights @ factor.log_mass.exp())[None].log()
        return CodeFactor(torch.cat([factor.log_mass, overall]))
    assert isinstance(factor, CircleFactor)
    wide = torch.tensor([MAX_DEVIATION], dtype=torch.float64)
    return CircleFactor(torch.cat([factor.mean, 0 * wide]), torch.cat([factor.deviation, wide]))


def _circle(size: Tensor, c: Tensor, s: Tensor) -> CircleFactor:
    """Wrapped normal laws with the first circular moments of the rows."""
    length = (torch.hypot(c, s) / size.clamp(min=1e-300)).clamp(1e-9, 1 - 1e-9)
    deviation = (-2 * length.log()).sqrt() / (2 * math.pi)
    mean = (torch.atan2(s, c) / (2 * math.pi)) % 1
    return CircleFactor(mean, deviation.clamp(MIN_DEVIATION, MAX_DEVIATION))


def fit_table_mixture(
    rows: TableRows,
    n_components: int,
    laws: Sequence[CodeLaw],
    generator: Generator,
    *,
    prior: Prior,
    policy: SelectionPolicy = DEFAULT_POLICY,
    max_iter: int = DEFAULT_POLICY.table_iterations,
    start: TableMixture | None = None,
) -> TableMixture:
    """Mixture by expectation–maximization with parameters as of :func:`fit_mixture`.

    `laws` are those of the parts that are codes. Nothing is extrapolated: in small tables of
    Gaussians that was worse for held-out rows.
    """
    if start is None or len(start.weights) != n_components:
        start = _clusters(rows, n_components, laws, generator, prior, policy)
    start = replace(start, shrinkage=prior.shrinkage, ridge=prior.ridge)
    return iterated(lambda state: state.improved(rows), start, max_iter, policy.mixture_gain)


def _clusters(
    rows: TableRows,
    k: int,
    laws: Sequence[CodeLaw],
    generator: Generator,
    prior: Prior,
    policy: SelectionPolicy,
) -> TableMixture:
    """Mixture of the clusters of the first rows; missing lines count as the mean."""
    some, seed = rows.select(slice(policy.cluster_rows)), draw_seed(generator)
    where, most = some.coordinates(laws), policy.cluster_iterations
    labels = cluster(where, some.weight, k, seed, most)
    share = torch.nn.functional.one_hot(labels, k) * some.weight[:, None]
    c = rows.lines.shape[1]
    unit = torch.eye(c, dtype=torch.float64).expand(k, c, c)
    weights = torch.ones(k, dtype=torch.float64)
    nothing = weights, torch.zeros(k, c).double(), unit, ()
    flat = TableMixture(rows.parts, *nothing, tuple(laws), prior.shrinkage, prior.ridge)
    return flat.maximized(flat.statistics(some, share), rows.unit)

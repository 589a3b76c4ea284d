"""Selection for classifiers: projection, bandwidth, and how density matrices are read."""

import math
from dataclasses import replace
from functools import cached_property, reduce
from operator import add

import torch
from torch import Tensor

from qaffde import functional as QF
from qaffde.nn import BaseMeasure
from qaffde.parameters import MAX_ROWS, ComputeConfig
from qaffde.selection.base_measure import BaseSpec
from qaffde.selection.columns import Maps
from qaffde.selection.plan import CLASSIFIER, ModelSpec
from qaffde.selection.policy import (
    DEFAULT_POLICY,
    EXACT,
    LEAST_NOISE,
    NEGLIGIBLE,
    USUAL_TOLERANCE,
    SelectionPolicy,
)
from qaffde.selection.search import Choice, Search, Split, fixed
from qaffde.selection.selector import METHODS, Frame, Method
from qaffde.selection.summary import Moments, Names, Summary, moved_nearer
from qaffde.training.classes import (
    ROUGH,
    ClassReader,
    ClassSums,
    LabeledRows,
    log_defended,
    of_class,
)

OFFERED = {
    "auto": ("pretty_good", "coherent", "square_root"),
    "generative": ("square_root",),
    "gradient": ("coherent",),
}
"""Measurements to compare; gradient training takes nothing but the bandwidth from them."""


def summarize_classes(
    rows: LabeledRows, seed: int, policy: SelectionPolicy | None = None
) -> Summary:
    """Summary of labeled rows, a block at a time: no second copy of them is made.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from qaffde.selection import LabeledRows, ModelSpec, select, solve
    >>> X, y = (torch.tensor(part) for part in load_iris(return_X_y=True))
    >>> rows = LabeledRows(X, y, torch.ones(150).double(), n_classes=3)
    >>> spec = ModelSpec(method="classifier", measurement="auto", base_measure="gaussian")
    >>> plan = select(summarize_classes(rows, seed=0), spec)
    >>> density = solve(plan, rows)
    >>> density.log_prob(X[[0, 60, 149]]).argmax(1)
    tensor([0, 1, 2])
    """
    parts = zip(*(part.split(MAX_ROWS) for part in (rows.X, rows.weight, rows.y)), strict=True)
    most = (policy or DEFAULT_POLICY).class_sample_rows
    return reduce(add, (Summary.of(x.double(), w, seed, most, y) for x, w, y in parts))


def of_codes(
    codes: Tensor, spec: ModelSpec, policy: SelectionPolicy | None
) -> tuple[Summary, ModelSpec]:
    """Summary and specification of codes, (m, q), by an encoder that is yet to be trained.

    It keeps codes within (−1, 1), whatever those of today are: their law and their bandwidth are
    constants, and nothing is compared.
    """
    spread, q = (policy or DEFAULT_POLICY).class_code_spread, codes.shape[1]
    summary = Summary.of(codes, torch.ones(len(codes), dtype=torch.float64), 0)
    zero, one = torch.zeros(q, dtype=torch.float64), torch.ones(q, dtype=torch.float64)
    ends, covariance = torch.stack([-one, one]), spread**2 * one.diag()
    law = replace(summary.moments, ends=ends, mean=zero, covariance=covariance)
    h = spread * math.sqrt(q) if isinstance(spec.bandwidth, str) else spec.bandwidth
    return replace(summary, moments=law), replace(spec, bandwidth=h, n_components=None)


class Classes(Method):
    """Densities of classes: candidates, judged by held-out classes or, if generative, rows."""

    usual_tolerance = USUAL_TOLERANCE
    rules = ("auto",)

    def __init__(
        self, spec: ModelSpec, policy: SelectionPolicy, compute: ComputeConfig, seed: int
    ) -> None:
        super().__init__(spec, policy, compute, seed)
        self.is_trained = spec.measurement == "gradient"  # density matrices are not read
        self.judges_rows = spec.measurement == "generative"
        most = policy.many_features if isinstance(spec.n_features, str) else int(spec.n_features)
        few, least = min(most, policy.class_features), policy.class_rows
        self.policy = replace(
            policy,
            rough_rows=max(least, policy.class_rows_per_feature * few),
            fine_rows=max(least, policy.class_rows_per_feature * most),
            mixture_ridge=policy.class_measure_ridge,
        )
        self.epsilon = fixed(policy.background) or policy.class_background
        self._readers: dict[tuple[str, Split], tuple[Tensor, Tensor, ClassReader]] = {}

    def frame(self, summary: Summary, maps: Maps | None, names: Names) -> Frame:
        """Centered and scaled columns, or principal components."""
        return principal_frame(summary, self.spec.n_components, self.policy)

    def n_features(self, base: BaseSpec, n: int | None, d: int) -> int:
        """Number of features: twice those of a density of as many rows."""
        return super().n_features(base, None if n is None else 2 * n, d)

    def most_features(self, base: BaseSpec, d: int) -> int:
        """Number of features for many rows."""
        return self.policy.many_features if d > 1 else self.policy.rough_features

    def choose(self, search: Search, bases: list[BaseSpec], h: Tensor | None) -> Choice:
        """Measurement with few features; then smaller bandwidths with all features."""
        policy, (n, q) = self.policy, search.Z.shape
        unit = math.sqrt(q) * torch.ones(q, dtype=torch.float64)
        if n < policy.class_few_rows or (self.is_trained and h is not None):
            usual = policy.class_usual_bandwidth * unit if h is None else h
            return self.unsearched(bases[0], usual, n)
        D = self.n_features(bases[0], None if self.spec.open_ended else n, q)
        few = min(D, policy.class_features)
        widths = [h] if h is not None else [f * unit for f in policy.class_bandwidths]
        best = self._highest(search, self._offered(bases[0], widths, few), search.rough)
        if h is not None or self.is_trained or D == few or search.is_late(search.fine):
            return best
        most, least = best.bandwidth, policy.class_finest * best.bandwidth
        finer = [width for width in widths if least[0] < width[0] <= most[0]]
        alike = [
            choice
            for choice in self._offered(bases[0], finer, D)
            if (choice.measurement, choice.rank) == (best.measurement, best.rank)
        ]
        return self._highest(search, alike, search.fine)

    def _highest(self, search: Search, choices: list[Choice], rows: int) -> Choice:
        """Best of the candidates that there is time for, usual bandwidths first."""
        usual = self.policy.class_usual_bandwidth * math.sqrt(search.Z.shape[1])
        choices.sort(key=lambda choice: float((choice.bandwidth[0] / usual).log().abs()))
        for n, choice in enumerate(choices[:-1], 1):
            search.value(choice, rows)
            if search.is_late(rows):
                return search.highest(choices[:n], rows)
        return search.highest(choices, rows)

    def unsearched(self, base: BaseSpec, h: Tensor, count: float) -> Choice:
        """The first measurement, with a ridge and a rank in the middle."""
        measurement, ridges, ranks = self._readings[0]
        return Choice(base, h, ridges[-2:][0], False, measurement, ranks[:2][-1])

    def _offered(self, base: BaseSpec, widths: list[Tensor], D: int) -> list[Choice]:
        return [
            Choice(base, h, ridge, False, measurement, rank, D)
            for h in widths
            for measurement, ridges, ranks in self._readings
            for ridge in ridges
            for rank in sorted({min(rank, D) for rank in ranks})
        ]

    @cached_property
    def _readings(self) -> list[tuple[str, tuple[float | None, ...], tuple[int | float, ...]]]:
        """Measurements to compare, each with its ridges and ranks."""
        policy, rank, asked = self.policy, self.spec.rank, self.spec.measurement
        ridge = None if self.is_trained else fixed(policy.class_ridge)
        ridges = policy.class_ridges if ridge is None else (ridge,)
        is_open = self.is_trained or isinstance(rank, str)
        ranks = policy.class_ranks if is_open else (rank,)
        of = {"pretty_good": (ridges[-2:][:1], ranks), "coherent": (ridges, (1,))}
        return [(name, *of.get(name, ((None,), ranks))) for name in OFFERED.get(asked, (asked,))]

    @torch.no_grad()
    def scores(self, measure: BaseMeasure, choice: Choice, split: Split) -> Tensor:
        """Held-out log-probabilities of classes, or log-densities of rows."""
        phi, log_prior, reader = self._reader(measure, choice, split)
        factor = reader.factor(str(choice.measurement), choice.ridge or 0.0, choice.rank)
        table = log_defended(QF.born_rule(phi, factor), self.epsilon)
        if self.judges_rows:
            table = table + measure.log_density(split.valid)[:, None]
        else:
            table = (table + log_prior).log_softmax(1)
        return of_class(table, split.valid_labels)

    def _reader(
        self, measure: BaseMeasure, choice: Choice, split: Split
    ) -> tuple[Tensor, Tensor, ClassReader]:
        """Features of the validation rows of a split; prior and closed forms of its others.

        All candidates of one bandwidth share them.
        """
        same, known = f"{choice.bandwidth.tolist()} {choice.n_features}", self._readers
        if (same, split) not in known:
            for other in [key for key in known if key[0] != same]:
                del known[other]
            n_classes = 1 + int(max(split.train_labels.max(), split.valid_labels.max()))
            rows = LabeledRows(split.train, split.train_labels, split.train_weight, n_classes)
            features = self.draw_features(choice, measure, split.ends, None, self.generator())
            most = max(rank for _, _, ranks in self._readings for rank in ranks)
            sums, G = ClassSums.of(features, rows), measure.gram(features)
            known[same, split] = (
                features(split.valid),
                rows.log_prior.clamp(min=math.log(1e-300)),
                ClassReader(sums, G, self.tolerance, ROUGH, most),
            )
        return known[same, split]

    def settled(self, chosen: Choice, search: Search, z: Summary, given: Tensor | None) -> Choice:
        """The candidate chosen, or its bandwidth for gradient training.

        There are as many features as usual, but where time is over as many as were judged.
        """
        choice = chosen if search.was_late else replace(chosen, n_features=0)
        if not self.is_trained:
            return choice
        policy, rank = self.policy, self.spec.rank
        return replace(
            choice,
            measurement="gradient",
            rank=policy.class_gradient_rank if isinstance(rank, str) else rank,
            ridge=fixed(policy.class_ridge) or policy.class_gradient_ridge,
        )

    def background(self, choice: Choice, frame: Frame) -> float:
        """Weight of the base measure in every class."""
        return self.epsilon


METHODS[CLASSIFIER] = Classes


def principal_frame(
    summary: Summary, n_components: int | str | None, policy: SelectionPolicy
) -> Frame:
    """Center and scale columns, or project them on principal axes.

    Columns are scaled to unit variance one by one; principal components by one number, so that
    distances stay those of the data.
    """
    _check_held(summary.moments.covariance.diagonal(), summary.moments.ends)
    summary, d = _with_near_values(summary, policy), summary.rows.shape[1]
    moments, constant = summary.moments, summary.moments.ends[0] == summary.moments.ends[1]
    location = torch.where(constant, moments.ends[0], moments.mean)  # constants do not round
    covariance = moments.covariance.masked_fill(constant[:, None] | constant, 0.0)
    summary = replace(summary, moments=replace(moments, mean=location, covariance=covariance))
    if n_components is None or (n_components == "auto" and d <= policy.projected_columns):
        scale = _safe_root(covariance.diagonal(), location)
        return Frame(None, location, scale, summary.standardized(location, scale))
    most = min(policy.max_components if isinstance(n_components, str) else n_components, d)
    size = covariance.diagonal().max()
    size = torch.where(size > 0, size, 1.0)
    variance, axes = QF.leading_eigenpairs(covariance / size, most, EXACT)
    variance = variance * size
    if n_components == "auto":
        explained = variance.cumsum(0) / covariance.trace()
        most = min(most, int((explained < policy.explained).sum()) + 1)
    most = max(1, min(most, int((variance > NEGLIGIBLE * variance[0]).sum())))
    variance, axes = variance[:most], axes[:most].T.contiguous()
    axes = axes * axes.gather(0, axes.abs().argmax(0, keepdim=True)).sign()  # one way each
    usual, noise = variance.mean(), None
    if most < d:
        least = LEAST_NOISE * usual if usual > 0 else torch.ones_like(usual)
        noise = ((covariance.trace() - variance.sum()) / (d - most)).clamp(min=least)
    scale = _safe_root(usual.expand(most), location.abs().amax()[None])
    y = summary.standardized(location, scale[0].expand(d))
    rows = y.rows @ axes
    ends, inside = torch.stack([rows.amin(0), rows.amax(0)]), axes.T @ y.moments.covariance @ axes
    along = replace(y.moments, ends=ends, mean=y.moments.mean @ axes, covariance=inside)
    z = replace(y, rows=rows, moments=along)
    return Frame(None, location, scale, z, axes=axes, noise=noise)


def _with_near_values(summary: Summary, policy: SelectionPolicy) -> Summary:
    """The summary, values that few rows have far from all others moved nearer to them."""
    rows = moved_nearer(summary.rows, summary.weight, policy)
    if rows.equal(summary.rows):
        return summary
    near = Moments.of(rows, summary.weight)
    moments = replace(summary.moments, mean=near.mean, covariance=near.covariance)
    return replace(summary, rows=rows, moments=moments)


def _check_held(variance: Tensor, ends: Tensor) -> None:
    """Reject columns whose variance is not a normal number."""
    constant = ends[0] == ends[1]
    held = constant | ((variance >= torch.finfo(torch.float64).tiny) & variance.isfinite())
    if not held.all():
        size = float(ends[:, int(held.int().argmin())].abs().max())
        raise ValueError(
            f"values of the size {size:.0e} have a spread that float64 cannot hold; multiply or "
            "divide the columns first"
        )


def _safe_root(variance: Tensor, location: Tensor) -> Tensor:
    """Standard deviation; one where there is none but rounding."""
    scale = variance.sqrt()
    constant = scale <= 1e-13 * location.abs().expand_as(scale)
    return torch.where(constant | ~(scale > 0), torch.ones_like(scale), scale)

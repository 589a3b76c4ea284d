"""Selection for classifiers: projection, bandwidth, and how density matrices are read."""

import math
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from operator import add

import torch
from torch import Tensor

from qaffde import functional as QF
from qaffde.nn import BaseMeasure, FourierFeatures, GaussianMeasure
from qaffde.nn.class_density import Projection, log_defended, of_class
from qaffde.parameters import check_bandwidth, check_choice, check_count, check_rank
from qaffde.selection.base_measure import BaseSpec
from qaffde.selection.plan import Choice, Plan, fixed
from qaffde.selection.policy import DEFAULT_POLICY, SelectionPolicy
from qaffde.selection.search import Search, Split, fewer_features
from qaffde.selection.selector import search_context, warn_if_late
from qaffde.selection.summary import Moments, relative_bandwidth
from qaffde.training.adaptive import fit_adaptive_features
from qaffde.training.class_readings import MEASUREMENTS, ROUGH, ClassReader
from qaffde.training.closed_form import ClassSums, LabeledRows
from qaffde.training.run import Run

OFFERED = {
    "auto": ("pretty_good", "coherent", "square_root"),
    "generative": ("square_root",),
    **{name: (name,) for name in MEASUREMENTS},
    "gradient": ("coherent",),
}
"""Measurements to compare; gradient training takes nothing but the bandwidth from them."""
FEATURES = ("auto", *(kind for kind in QF.FREQUENCIES if kind != "lattice"), "adaptive")
USUAL_TOLERANCE = 1e-7
BASE = BaseSpec("gaussian")
BLOCK = 8192
EIGEN_TOLERANCE = 1e-12
NEGLIGIBLE, LEAST_NOISE = 1e-10, 1e-6
"""Share of the largest variance below which an axis is empty, and of the mean variance of the
axes that a direction without axis has at least."""


@dataclass(frozen=True, kw_only=True)
class ClassSpec:
    """Specification of a classifier; parameters as in :class:`qaffde.QAFFDEClassifier`.

    Parameters
    ----------
    method, n_features, bandwidth, rank, features, n_components
        As in the estimator.
    open_ended : bool, default=False
        Whether rows are still to come; then there are as many features as in a large fit.

    Examples
    --------
    >>> ClassSpec(method="weak")
    Traceback (most recent call last):
    ValueError: method='weak' is not known; choose one of auto, generative, direct, ...
    """

    method: str = "auto"
    n_features: int | str = "auto"
    bandwidth: object = "auto"
    rank: int | float | str = "auto"
    features: str = "auto"
    n_components: int | str | None = "auto"
    open_ended: bool = False

    def __post_init__(self) -> None:
        check_choice("method", self.method, OFFERED)
        check_count("n_features", self.n_features, auto=True, minimum=2)
        check_rank(self.rank)
        check_choice("features", self.features, FEATURES)
        if self.n_components is not None:
            check_count("n_components", self.n_components, auto=True)


def select_classes(
    rows: LabeledRows,
    spec: ClassSpec | None = None,
    *,
    policy: SelectionPolicy | None = None,
    seed: int = 0,
    run: Run | None = None,
    codes: Tensor | None = None,
) -> Plan:
    """Choose the open parameters of a specification by held-out likelihood of classes or rows.

    Parameters
    ----------
    rows : LabeledRows
    spec : ClassSpec, optional
        Parameters that are fixed; all others are chosen.
    policy : SelectionPolicy, optional
        Constants of the search.
    seed : int, default=0
    run : Run, optional
        Clock, checkpoint and progress.
    codes : Tensor of shape (m, k), optional
        Of some rows, by an encoder that is yet to be trained, within (−1, 1). The plan is one of
        codes then, and nothing is compared.

    Returns
    -------
    Plan
        Of the method "classifier".
    """
    spec = ClassSpec() if spec is None else spec
    policy = DEFAULT_POLICY if policy is None else policy
    if codes is None:
        projection = principal_projection(rows, spec.n_components, policy)
        Z = project(projection, rows).X
    else:
        one = torch.ones(codes.shape[1], dtype=torch.float64)
        projection, Z = Projection(0 * one, one), codes
    scale = projection.scale
    h = relative_bandwidth(check_bandwidth(spec.bandwidth, len(scale), ("auto",)), scale)
    method = ClassMethod(spec, policy, rows, len(scale), seed)
    search = Search(
        Z,
        rows.weight,
        method.scores,
        policy=method.search_policy,
        seed=seed,
        labels=rows.y,
        **search_context(run, policy, spec, (Z, rows.y, rows.weight), seed),
    )
    measure: BaseMeasure
    if codes is None:
        choice = method.choose(search, h)
        warn_if_late(search)
        measure = search.measure(BASE, choice.bandwidth, Moments.of(Z, rows.weight))
    else:
        spread = policy.class_code_spread
        choice = method.usual(spread * method.unit if h is None else h)
        measure = GaussianMeasure(one[:1], 0 * one[None], spread**2 * one.diag()[None])
    measurement, rank, ridge = str(choice.measurement), choice.rank, choice.ridge or 0.0
    if method.is_trained:
        measurement = spec.method
        rank = policy.class_gradient_rank if isinstance(spec.rank, str) else spec.rank
        ridge = fixed(policy.class_ridge) or policy.class_gradient_ridge
    ends = torch.tensor([[-torch.inf], [torch.inf]], dtype=torch.float64)
    log_scale = float(scale.log().sum()) if method.is_generative else 0.0
    return Plan(
        method="classifier",
        location=projection.location,
        scale=scale,
        bandwidth=choice.bandwidth,
        base=str(choice.base),
        measure=measure,
        features=method.draw_features(method.n_features, choice.bandwidth, Z),
        reach=ends.expand(2, len(scale)).clone(),
        measurement=measurement,
        rank=rank,
        ridge=ridge,
        min_trace=policy.min_trace,
        background=method.background,
        background_spread=policy.background_spread,
        tolerance=method.tolerance,
        n_rows=len(rows.y),
        trials=search.trials(choice, scale, lambda _: log_scale),
        axes=projection.axes,
        noise=projection.noise,
    )


class ClassMethod:
    """Strategy of the search for a classifier: candidates, and how they are judged.

    Parameters
    ----------
    spec : ClassSpec
    policy : SelectionPolicy
    rows : LabeledRows
    q : int
        Number of coordinates that the features see.
    seed : int
        Of the features: those that are judged are those of the fit, if they are as many.
    """

    def __init__(
        self, spec: ClassSpec, policy: SelectionPolicy, rows: LabeledRows, q: int, seed: int
    ) -> None:
        self.spec, self.policy, self.seed = spec, policy, seed
        self.n_rows, self.n_classes = len(rows.y), rows.n_classes
        # Classifiers take twice the features of a density of as many rows.
        most = policy.many_features if q > 1 else policy.rough_features
        usual = most if spec.open_ended else fewer_features(policy, most, 2 * self.n_rows)
        self.n_features = usual if isinstance(spec.n_features, str) else int(spec.n_features)
        self.is_trained = spec.method == "gradient"
        self.is_generative = spec.method == "generative"  # judged by the likelihood of rows
        self.tolerance = fixed(policy.tolerance) or USUAL_TOLERANCE
        self.background = fixed(policy.background) or policy.class_background
        self.unit = torch.full((q,), math.sqrt(q), dtype=torch.float64)
        self.readers: dict[tuple[str, int], tuple[Tensor, Tensor, ClassReader]] = {}

    @property
    def search_policy(self) -> SelectionPolicy:
        """The policy with rows for few features, and rows for all of them."""
        policy = self.policy
        few, least = min(self.n_features, policy.class_features), policy.class_rows
        return replace(
            policy,
            rough_rows=max(least, policy.class_rows_per_feature * few),
            fine_rows=max(least, policy.class_rows_per_feature * self.n_features),
            mixture_ridge=policy.class_measure_ridge,
        )

    def choose(self, search: Search, h: Tensor | None) -> Choice:
        """Measurement with few features; then smaller bandwidths with all features."""
        policy = self.policy
        if self.n_rows < policy.class_few_rows or (self.is_trained and h is not None):
            return self.usual(policy.class_usual_bandwidth * self.unit if h is None else h)
        widths = [h] if h is not None else [f * self.unit for f in policy.class_bandwidths]
        few = min(self.n_features, policy.class_features)
        best = self._highest(search, self._offered(widths, few), search.rough)
        if h is not None or self.is_trained or self.n_features == few:
            return best
        most, least = best.bandwidth, policy.class_finest * best.bandwidth
        finer = [width for width in widths if least[0] < width[0] <= most[0]]
        alike = [
            choice
            for choice in self._offered(finer, self.n_features)
            if (choice.measurement, choice.rank) == (best.measurement, best.rank)
        ]
        return self._highest(search, alike, search.fine)

    def _highest(self, search: Search, choices: list[Choice], rows: int) -> Choice:
        """Best of the candidates that there is time for, usual bandwidths first."""
        usual = self.policy.class_usual_bandwidth * self.unit[0]
        choices.sort(key=lambda choice: float((choice.bandwidth[0] / usual).log().abs()))
        for n, choice in enumerate(choices[:-1], 1):
            search.value(choice, rows)
            if search.is_late(rows):
                return search.highest(choices[:n], rows)
        return search.highest(choices, rows)

    def usual(self, h: Tensor) -> Choice:
        """The choice without a search: all is given, or rows are too few."""
        measurement, ridges, ranks = self._readings[0]
        ridge, rank = ridges[-2:][0], ranks[:2][-1]
        return Choice(BASE, h, ridge, False, measurement, rank, self.n_features)

    def _offered(self, widths: list[Tensor], D: int) -> list[Choice]:
        return [
            Choice(BASE, h, ridge, False, measurement, rank, D)
            for h in widths
            for measurement, ridges, ranks in self._readings
            for ridge in ridges
            for rank in ranks
        ]

    @cached_property
    def _readings(self) -> list[tuple[str, tuple[float | None, ...], tuple[int | float, ...]]]:
        """Measurements to compare, each with its ridges and ranks."""
        policy, rank = self.policy, self.spec.rank
        ridge = None if self.is_trained else fixed(policy.class_ridge)
        ridges = policy.class_ridges if ridge is None else (ridge,)
        ranks: tuple[int | float, ...] = tuple(
            sorted({min(r, self.n_features) for r in policy.class_ranks})
        )
        if not self.is_trained and not isinstance(rank, str):
            ranks = (rank,)
        of = {"pretty_good": (ridges[-2:][:1], ranks), "coherent": (ridges, (1,))}
        return [(name, *of.get(name, ((None,), ranks))) for name in OFFERED[self.spec.method]]

    @torch.no_grad()
    def scores(self, measure: BaseMeasure, choice: Choice, split: Split) -> Tensor:
        """Held-out log-probabilities of classes, or log-densities of rows."""
        phi, log_prior, reader = self._reader(measure, choice, split)
        factor = reader.factor(str(choice.measurement), choice.ridge or 0.0, choice.rank)
        table = log_defended(QF.born_rule(phi, factor), self.background)
        if self.is_generative:
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
        same = f"{choice.bandwidth.tolist()} {choice.n_features}"
        if (same, id(split)) not in self.readers:
            self.readers = {key: kept for key, kept in self.readers.items() if key[0] == same}
            features = self.draw_features(choice.n_features, choice.bandwidth)
            rows = LabeledRows(split.train, split.train_labels, split.train_weight, self.n_classes)
            most = max(rank for _, _, ranks in self._readings for rank in ranks)
            sums, G = ClassSums.of(features, rows), measure.gram(features)
            self.readers[same, id(split)] = (
                features(split.valid),
                rows.log_prior.clamp(min=math.log(1e-300)),
                ClassReader(sums, G, self.tolerance, ROUGH, most),
            )
        return self.readers[same, id(split)]

    def draw_features(
        self, n: int, h: Tensor, adapted_to: Tensor | None = None
    ) -> FourierFeatures:
        """Frequencies, those of Algorithm 1 if they are to be `adapted_to` rows."""
        generator, kind = torch.Generator().manual_seed(self.seed), self.spec.features
        if kind in ("auto", "adaptive"):
            kind = "sobol" if len(h) <= 6 else "orthogonal"
        features = FourierFeatures.draw(kind, n, h, None, generator)
        if adapted_to is None or self.spec.features != "adaptive":
            return features
        return fit_adaptive_features(features, adapted_to, h, generator=generator)


def project(projection: Projection, rows: LabeledRows) -> LabeledRows:
    """Many rows in coordinates; no second copy of them is made."""
    return replace(rows, X=torch.cat([projection(x.double()) for x in rows.X.split(BLOCK)]))


def principal_projection(
    rows: LabeledRows, n_components: int | str | None, policy: SelectionPolicy
) -> Projection:
    """Center and scale columns, or project them on principal axes.

    Columns are scaled to unit variance one by one; principal components by one number, so that
    distances stay those of the data. Moments are taken in units of about the largest value: their
    squares neither overflow nor vanish.
    """
    d = rows.X.shape[1]
    plain = n_components is None or (n_components == "auto" and d <= policy.projected_columns)
    largest = rows.X.abs().amax(0).double()
    largest = largest if plain else largest.max().expand(d)
    unit = torch.where(largest > 0, largest, 1.0).log2().floor().exp2()  # dividing is exact
    blocks = zip(rows.X.split(BLOCK), rows.weight.split(BLOCK), strict=True)
    moments = reduce(add, (Moments.of(x.double() / unit, weight) for x, weight in blocks))
    location, covariance = moments.mean, moments.covariance
    if plain:
        scale = _safe_root(covariance.diagonal(), location) * unit
        _check_held(scale, largest)
        return Projection(location * unit, scale)
    most = min(policy.max_components if isinstance(n_components, str) else n_components or d, d)
    variance, axes = QF.leading_eigenpairs(covariance, most, EIGEN_TOLERANCE)
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
        noise = noise * unit[0] * unit[0]
        _check_held(noise[None], largest)
    scale = _safe_root(usual.expand(most), location[:1])
    return Projection(location * unit, scale * unit[:most], axes, noise)


def _check_held(spread: Tensor, largest: Tensor) -> None:
    """Reject columns whose spread, a deviation or a variance, is not a normal number."""
    held = (spread >= torch.finfo(torch.float64).tiny) & spread.isfinite()
    if not held.all():
        size = float(largest[int(held.int().argmin())])
        raise ValueError(
            f"values of the size {size:.0e} have a spread that float64 cannot hold; multiply or "
            "divide the columns first"
        )


def _safe_root(variance: Tensor, location: Tensor) -> Tensor:
    """Standard deviation; one where there is none but rounding."""
    scale = variance.sqrt()
    constant = scale <= 1e-13 * location.abs().expand_as(scale)
    return torch.where(constant | ~(scale > 0), torch.ones_like(scale), scale)

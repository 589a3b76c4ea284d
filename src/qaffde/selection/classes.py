"""Selection for classifiers: projection, bandwidth, and how density matrices are read."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add

import numpy as np
import torch
from scipy.sparse.linalg import eigsh
from torch import Tensor

from qaffde import functional as QF
from qaffde.nn import BaseMeasure, FourierFeatures, GaussianMeasure
from qaffde.nn.class_density import Projection, log_defended, of_class
from qaffde.parameters import check_bandwidth, check_choice, check_count, check_rank
from qaffde.selection.base_measure import BaseSpec
from qaffde.selection.plan import Choice, Plan, Trial, fixed
from qaffde.selection.policy import DEFAULT_POLICY, SelectionPolicy
from qaffde.selection.search import Search, Split
from qaffde.selection.selector import search_context
from qaffde.selection.summary import Moments
from qaffde.training.adaptive import fit_adaptive_features
from qaffde.training.class_likelihood import LOSSES
from qaffde.training.class_readings import (
    MEASUREMENTS,
    ROUGH,
    WITH_RIDGE,
    ClassReader,
)
from qaffde.training.closed_form import ClassSums, LabeledRows
from qaffde.training.run import Run

METHODS = ("auto", *MEASUREMENTS, "gradient")
FEATURES = ("auto", *(kind for kind in QF.FREQUENCIES if kind != "lattice"), "adaptive")
OFFERED = {
    ("auto", "conditional"): ("pretty_good", "coherent", "square_root"),
    ("auto", "generative"): ("square_root",),
    ("gradient", "conditional"): ("coherent",),
    ("gradient", "generative"): ("square_root",),
}
"""Measurements to compare; gradient training takes nothing but the bandwidth from them."""
USUAL_TOLERANCE = 1e-7
BASE = BaseSpec("gaussian")
BLOCK = 8192
NEGLIGIBLE, LEAST_NOISE = 1e-10, 1e-6
"""Share of the largest variance below which an axis is empty, and of the mean variance of the
axes that a direction without axis has at least."""


@dataclass(frozen=True, kw_only=True)
class ClassSpec:
    """Specification of a classifier; parameters as in :class:`qaffde.QAFFDEClassifier`.

    Parameters
    ----------
    method, objective, n_features, bandwidth, rank, features, n_components
        As in the estimator.
    open_ended : bool, default=False
        Whether rows are still to come; then there are as many features as in a large fit.

    Examples
    --------
    >>> ClassSpec(method="weak")
    Traceback (most recent call last):
    ValueError: method='weak' is not known; choose one of auto, direct, square_root, ...
    """

    method: str = "auto"
    objective: str = "conditional"
    n_features: int | str = "auto"
    bandwidth: object = "auto"
    rank: int | float | str = "auto"
    features: str = "auto"
    n_components: int | str | None = "auto"
    open_ended: bool = False

    def __post_init__(self) -> None:
        check_choice("method", self.method, METHODS)
        check_choice("objective", self.objective, LOSSES)
        check_count("n_features", self.n_features, auto=True, minimum=2)
        check_rank(self.rank)
        check_choice("features", self.features, FEATURES)
        if self.n_components is not None:
            check_count("n_components", self.n_components, auto=True)

    @property
    def measurements(self) -> tuple[str, ...]:
        """Measurements to compare."""
        return OFFERED.get((self.method, self.objective), (self.method,))


def select_classes(
    rows: LabeledRows,
    spec: ClassSpec | None = None,
    *,
    policy: SelectionPolicy | None = None,
    seed: int = 0,
    run: Run | None = None,
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

    Returns
    -------
    Plan
        Of the method "classifier".
    """
    spec = ClassSpec() if spec is None else spec
    policy = DEFAULT_POLICY if policy is None else policy
    projection = principal_projection(rows, spec.n_components, policy)
    scale = projection.scale
    Z = project(projection, rows.X)
    h = check_bandwidth(spec.bandwidth, len(scale), ("auto",))
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
    choice = method.choose(search, None if h is None else h / scale)
    measure = search.measure(BASE, choice.bandwidth, Moments.of(Z, rows.weight))
    log_scale = float(scale.log().sum()) if method.is_generative else 0.0
    trials = search.trials(choice, scale, log_scale)
    return method.plan(projection, choice, measure, Z, trials)


def plan_codes(
    codes: Tensor, rows: LabeledRows, spec: ClassSpec, policy: SelectionPolicy | None, seed: int
) -> Plan:
    """Plan of gradient training behind an encoder, whose codes lie in (−1, 1); nothing is chosen.

    Parameters
    ----------
    codes : Tensor of shape (m, k)
        Of some rows, by the encoder as it is now.
    rows, spec, policy, seed
        As in :func:`select_classes`.
    """
    policy = DEFAULT_POLICY if policy is None else policy
    k = codes.shape[1]
    zero, one = torch.zeros(k, dtype=torch.float64), torch.ones(k, dtype=torch.float64)
    method = ClassMethod(spec, policy, rows, k, seed)
    spread = policy.class_code_spread
    h = check_bandwidth(spec.bandwidth, k, ("auto",))
    choice = method.usual(spread * math.sqrt(k) * one if h is None else h)
    measure = GaussianMeasure(one[:1], zero[None], spread**2 * one.diag()[None])
    return method.plan(Projection(zero, one), choice, measure, codes)


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
        usual = policy.n_features(None if spec.open_ended else 2 * self.n_rows, q)
        self.n_features = usual if isinstance(spec.n_features, str) else int(spec.n_features)
        self.tolerance = fixed(policy.tolerance) or USUAL_TOLERANCE
        self.background = fixed(policy.background) or policy.class_background
        self.unit = torch.full((q,), math.sqrt(q), dtype=torch.float64)
        self.forms: dict[tuple[str, int], HeldOutForms] = {}

    @property
    def is_generative(self) -> bool:
        """Whether candidates are judged by the likelihood of rows, not by that of classes."""
        return self.spec.objective == "generative"

    @property
    def search_policy(self) -> SelectionPolicy:
        """The policy with rows for few features, and rows for all of them."""
        policy = self.policy
        few, least = min(self.n_features, policy.class_features), policy.class_rows
        return replace(
            policy,
            rough_rows=max(least, policy.class_rows_per_feature * few),
            fine_rows=max(least, policy.class_rows_per_feature * self.n_features),
            fine_folds=1,
            mixture_ridge=policy.class_measure_ridge,
        )

    def choose(self, search: Search, h: Tensor | None) -> Choice:
        """Measurement with few features; then smaller bandwidths with all features."""
        policy, trained = self.policy, self.spec.method == "gradient"
        if self.n_rows < policy.class_few_rows or (trained and h is not None):
            return self.usual(policy.class_usual_bandwidth * self.unit if h is None else h)
        widths = [h] if h is not None else [f * self.unit for f in policy.class_bandwidths]
        few = min(self.n_features, policy.class_features)
        best = search.highest(self._offered(widths, few), search.rough)
        if h is not None or trained or self.n_features == few:
            return best
        most, least = best.bandwidth, policy.class_finest * best.bandwidth
        finer = [width for width in widths if least[0] < width[0] <= most[0]]
        return search.highest(self._offered(finer, self.n_features, best), search.fine)

    def usual(self, h: Tensor) -> Choice:
        """The choice without a search: all is given, or rows are too few."""
        measurement = self.spec.measurements[0]
        rank, ridge = self._ranks(measurement)[:2][-1], self._ridges(measurement)[-2:][0]
        return Choice(BASE, h, ridge, False, measurement, rank, self.n_features)

    def _offered(self, widths: list[Tensor], D: int, like: Choice | None = None) -> list[Choice]:
        """All candidates, or all bandwidths and ridges that go with the reading of another."""
        return [
            Choice(BASE, h, ridge, False, measurement, rank, D)
            for h in widths
            for measurement in self.spec.measurements
            for ridge in self._ridges(measurement)
            for rank in self._ranks(measurement)
            if like is None or (measurement, rank) == (like.measurement, like.rank)
        ]

    def _ridges(self, measurement: str) -> Sequence[float | None]:
        given = fixed(self.policy.class_ridge)
        if measurement not in WITH_RIDGE:
            return (None,)
        if given is not None and self.spec.method != "gradient":
            return (given,)
        ridges = self.policy.class_ridges
        return ridges if measurement == "coherent" else ridges[-2:][:1]

    def _ranks(self, measurement: str) -> Sequence[int | float]:
        if measurement == "coherent":
            return (1,)
        if self.spec.method != "gradient" and not isinstance(self.spec.rank, str):
            return (self.spec.rank,)
        return sorted({min(rank, self.n_features) for rank in self.policy.class_ranks})

    @torch.no_grad()
    def scores(self, measure: BaseMeasure, choice: Choice, splits: list[Split]) -> Tensor:
        """Held-out log-probabilities of classes, or log-densities of rows."""
        return torch.cat([self._score(measure, choice, split) for split in splits])

    def _score(self, measure: BaseMeasure, choice: Choice, split: Split) -> Tensor:
        form = self._form(measure, choice, split)
        log_ratio = log_defended(form.ratio(choice), self.background)
        if self.is_generative:
            table = log_ratio + measure.log_density(split.valid)[:, None]
        else:
            table = (log_ratio + form.log_prior).log_softmax(1)
        return of_class(table, split.valid_labels)

    def _form(self, measure: BaseMeasure, choice: Choice, split: Split) -> "HeldOutForms":
        """Closed forms of a split, which candidates of one bandwidth share."""
        same = f"{choice.bandwidth.tolist()} {choice.n_features}"
        if (same, id(split)) not in self.forms:
            self.forms = {key: form for key, form in self.forms.items() if key[0] == same}
            features = self.draw_features(choice.n_features, choice.bandwidth)
            ranks = [rank for name in self.spec.measurements for rank in self._ranks(name)]
            self.forms[same, id(split)] = HeldOutForms(
                features, measure, split, self.n_classes, self.tolerance, ranks
            )
        return self.forms[same, id(split)]

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

    def plan(
        self,
        projection: Projection,
        choice: Choice,
        measure: BaseMeasure,
        Z: Tensor,
        trials: tuple[Trial, ...] = (),
    ) -> Plan:
        """The plan of a choice; `Z` are rows in its units."""
        spec, policy = self.spec, self.policy
        measurement, rank, ridge = choice.measurement, choice.rank, choice.ridge or 0.0
        if spec.method == "gradient":
            measurement = spec.method
            rank = policy.class_gradient_rank if isinstance(spec.rank, str) else spec.rank
            ridge = fixed(policy.class_ridge) or policy.class_gradient_ridge
        ends = torch.tensor([[-torch.inf], [torch.inf]], dtype=torch.float64)
        return Plan(
            method="classifier",
            location=projection.location,
            scale=projection.scale,
            bandwidth=choice.bandwidth,
            base=str(choice.base),
            measure=measure,
            features=self.draw_features(self.n_features, choice.bandwidth, Z),
            reach=ends.expand(2, len(self.unit)).clone(),
            measurement=str(measurement),
            rank=rank,
            ridge=ridge,
            min_trace=policy.min_trace,
            background=self.background,
            background_spread=policy.background_spread,
            tolerance=self.tolerance,
            n_rows=self.n_rows,
            trials=trials,
            axes=projection.axes,
            noise=projection.noise,
        )


class HeldOutForms:
    """Closed forms of the training rows of a split, seen by its validation rows.

    Sums are shared by all readings, and eigenpairs by all ranks.

    Parameters
    ----------
    features : FourierFeatures
    measure : BaseMeasure
    split : Split
    n_classes : int
    tolerance : float
    ranks : sequence of int or float
        Ranks that will be asked for.

    Attributes
    ----------
    log_prior : Tensor of shape (C,)
        Of the training rows.
    """

    def __init__(
        self,
        features: FourierFeatures,
        measure: BaseMeasure,
        split: Split,
        n_classes: int,
        tolerance: float,
        ranks: Sequence[int | float],
    ) -> None:
        rows = LabeledRows(split.train, split.train_labels, split.train_weight, n_classes)
        self.log_prior = rows.log_prior.clamp(min=math.log(1e-300))
        self.phi, self.G = features(split.valid), measure.gram(features)
        self.reader = ClassReader(ClassSums.of(features, rows), self.G, tolerance)
        most = max(QF.resolve_rank(rank, self.G[0], 1.0) for rank in ranks)
        self.most = most
        self.squares: dict[tuple[str, float], tuple[Tensor, Tensor]] = {}

    def ratio(self, choice: Choice) -> Tensor:
        """‖L_c φ‖² of mass one, of shape (n, C): densities relative to the base measure."""
        key = str(choice.measurement), choice.ridge or 0.0
        if key not in self.squares:
            lam, V = self.reader.spectra(*key, self.most, ROUGH)
            mass = (lam * ((V @ self.G) * V).sum(2)).cumsum(1)
            amplitudes = torch.einsum("nd,crd->ncr", self.phi, V)
            self.squares[key] = (amplitudes.square() * lam).cumsum(2), mass
        squares, mass = self.squares[key]
        r = min(QF.resolve_rank(choice.rank, self.G[0], 1.0), mass.shape[1])
        return squares[:, :, r - 1] / mass[:, r - 1]


def project(projection: Projection, X: Tensor) -> Tensor:
    """Coordinates of many rows, of which no second copy is made."""
    return torch.cat([projection(x.double()) for x in X.split(BLOCK)])


def principal_projection(
    rows: LabeledRows, n_components: int | str | None, policy: SelectionPolicy
) -> Projection:
    """Center and scale columns, or project them on principal axes.

    Columns are scaled to unit variance one by one; principal components by one number, so that
    distances stay those of the data.
    """
    blocks = zip(rows.X.split(BLOCK), rows.weight.split(BLOCK), strict=True)
    moments = reduce(add, (Moments.of(x.double(), weight) for x, weight in blocks))
    location, covariance = moments.mean, moments.covariance
    d = len(location)
    if n_components is None or (n_components == "auto" and d <= policy.projected_columns):
        return Projection(location, _safe_root(covariance.diagonal(), location))
    most = min(policy.max_components if n_components == "auto" else int(n_components), d)
    variance, axes = _principal(covariance, most)
    if n_components == "auto":
        explained = variance.cumsum(0) / covariance.trace()
        most = min(most, int((explained < policy.explained).sum()) + 1)
    most = max(1, min(most, int((variance > NEGLIGIBLE * variance[0]).sum())))
    variance, axes = variance[:most], axes[:, :most].contiguous()
    usual, noise = variance.mean(), None
    if most < d:
        least = LEAST_NOISE * usual if usual > 0 else torch.ones_like(usual)
        noise = ((covariance.trace() - variance.sum()) / (d - most)).clamp(min=least)
    scale = _safe_root(usual.expand(most), location[:1])
    return Projection(location, scale, axes, noise)


def _safe_root(variance: Tensor, location: Tensor) -> Tensor:
    """Standard deviation; one where there is none but rounding."""
    scale = variance.sqrt()
    constant = scale <= 1e-13 * location.abs().expand_as(scale)
    return torch.where(constant | ~(scale > 0), torch.ones_like(scale), scale)


def _principal(covariance: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """Leading variances, falling, and their axes as columns, each of them pointing one way."""
    d = len(covariance)
    if 2 * most >= d:
        lam, V = torch.linalg.eigh(covariance)
        lam, V = lam[-most:], V[:, -most:]
    else:
        found = eigsh(covariance.numpy(), most, v0=np.ones(d))
        lam, V = (torch.tensor(part) for part in found)
    order = lam.argsort(descending=True)
    V = V[:, order]
    sign = V.gather(0, V.abs().argmax(0, keepdim=True)).sign()
    return lam[order].clamp(min=0), V * sign

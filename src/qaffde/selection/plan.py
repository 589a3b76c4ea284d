"""Specification of a model, and the plan selected for it before rows are summed or trained on."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

import torch
from torch import Tensor, nn

from qaffde import functional as QF
from qaffde.extras import Printed
from qaffde.nn import (
    BaseMeasure,
    BornDensity,
    DefensiveDensity,
    Density,
    FactoredMeasure,
    FourierFeatures,
    GaussianMeasure,
    StandardizedDensity,
    TableColumn,
    TableDensity,
    find_born,
)
from qaffde.nn.columns import encode_columns
from qaffde.nn.maps import MapTable
from qaffde.parameters import (
    MAX_BANDWIDTH,
    ComputeConfig,
    check_choice,
    check_count,
    check_rank,
    check_share,
    holds_numbers,
    read_bounds,
)
from qaffde.schema import Schema
from qaffde.selection.base_measure import BaseSpec, constant_feature
from qaffde.selection.policy import SelectionPolicy
from qaffde.selection.search import Trial, show_numbers
from qaffde.selection.summary import Part
from qaffde.selection.table_mixture import TableMixture
from qaffde.training.classes import MEASUREMENTS, ClassReader, ClassSums
from qaffde.training.closed_form import (
    SPECTRUM_WIDENING,
    Sums,
    effective_count,
    read_density,
)

Fitted = StandardizedDensity | TableDensity
CLASSIFIER = "classifier"
METHODS = ("closed_form", "likelihood", CLASSIFIER)
CLASS_MEASUREMENTS = ("auto", "generative", *MEASUREMENTS, "gradient")
BASE_MEASURES = ("auto", "box", "gaussian", "mixture", "kernel")
TRANSFORMATIONS = ("auto", "normal")
FEATURES = ("auto", *QF.FREQUENCIES, "adaptive")
NOT_PLAIN = "the plan is one of real columns without gaps, but the table has kinds or gaps (NaN)"


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """Specification of a density, or of those of classes; parameters as in the estimators.

    Parameters
    ----------
    method : {"closed_form", "likelihood", "classifier"}, default="closed_form"
        Of :class:`qaffde.QAFFDE`, `QAFFDESGD` or `QAFFDEClassifier`.
    n_features, bandwidth, rank, features, base_measure, bounds, transformation, measurement, ridge
        As in the estimators. The `measurement` of a classifier is called `method` there; its base
        measure is "gaussian", without bounds and transformation.
    n_components : int, "auto" or None, default="auto"
        Principal components of a classifier.
    open_ended : bool, default=False
        Whether rows are still to come. Then "auto" takes a plan that holds any later row: the
        mixture base, frequencies without a period, and as many features as a large fit has.

    Examples
    --------
    >>> ModelSpec(base_measure="ball")
    Traceback (most recent call last):
    ValueError: base_measure='ball' is not known; choose one of auto, box, gaussian, mixture, ...
    """

    method: str = "closed_form"
    n_features: int | str = "auto"
    bandwidth: Any = "auto"
    rank: int | float | str = "auto"
    features: str = "auto"
    base_measure: int | str = "auto"
    bounds: Any = None
    transformation: str | None = "auto"
    measurement: str = "square_root"
    ridge: float | str = "auto"
    n_components: int | str | None = "auto"
    open_ended: bool = False

    def __post_init__(self) -> None:
        check_choice("method", self.method, METHODS)
        classes = self.method == CLASSIFIER
        check_count("n_features", self.n_features, auto=True, minimum=2)
        check_rank(self.rank)
        kinds = (kind for kind in FEATURES if not (classes and kind == "lattice"))
        check_choice("features", self.features, kinds)
        if isinstance(self.base_measure, Integral) and not isinstance(self.base_measure, bool):
            check_count("base_measure", self.base_measure)
        else:
            check_choice("base_measure", self.base_measure, BASE_MEASURES)
        measurements = CLASS_MEASUREMENTS if classes else SPECTRUM_WIDENING
        check_choice("measurement", self.measurement, measurements)
        check_share("ridge", self.ridge, auto=True)
        if self.n_components is not None:
            check_count("n_components", self.n_components, auto=True)
        if self.transformation is not None:
            check_choice("transformation", self.transformation, TRANSFORMATIONS)

    def check_ends(self) -> None:
        """Reject known ends of real columns where there is nothing that could have them."""
        boxed = self.base_measure in ("auto", "box")
        if self.bounds is not None and not boxed and self.transformation != "normal":
            raise ValueError(
                "without maps of columns known ends are those of a box, but "
                f"base_measure={self.base_measure!r} and transformation={self.transformation!r}; "
                'leave them out, or set base_measure="box" or transformation="normal"'
            )

    def check_mixture(self) -> None:
        """Reject what a table with kinds of columns or gaps cannot have."""
        for name in ("n_features", "bandwidth", "rank", "features"):
            if not _is_auto(value := getattr(self, name)):
                raise ValueError(
                    f"{name}={value!r}, but a table with kinds of columns or gaps (NaN) has no "
                    "Fourier features, or those that are chosen together with its mixture. Leave "
                    f"{name}='auto'"
                )
        if isinstance(self.base_measure, str) and self.base_measure not in ("auto", "mixture"):
            raise ValueError(
                f"base_measure={self.base_measure!r}, but the base measure of a table with kinds "
                "of columns or gaps (NaN) is a mixture; give 'auto', 'mixture' or its number of "
                "components"
            )

    @property
    def is_given(self) -> bool:
        """Whether the parameters alone determine the plan, without looking at any row."""
        numbers = holds_numbers(self.bandwidth) and holds_numbers(self.bounds)
        open_choices = self.features == "adaptive" or self.transformation == "normal"
        boxed = self.base_measure in ("auto", "box")
        return numbers and boxed and not open_choices and self.method == "closed_form"

    @property
    def is_single(self) -> bool:
        """Whether no mixture of Gaussians is tried."""
        bare = self.base_measure in ("box", "gaussian", "kernel")
        return bare and holds_numbers(self.bandwidth) and self.transformation != "normal"

    def may_map(self, d: int, policy: SelectionPolicy) -> bool:
        """Whether d columns may have maps; if nothing is asked, only where no box is offered.

        A box of which some ends are known, and others are not, has mass beyond all of them.
        """
        ends = self.ends(d)
        leaks = ends is not None and bool(ends.isnan().any()) and self.base_measure == "auto"
        many = self.transformation == "auto" and (d > policy.max_box_columns or leaks)
        return (many or self.transformation == "normal") and self.base_measure != "kernel"

    def box_ends(self, d: int, policy: SelectionPolicy) -> Tensor | None:
        """Known ends, of shape (2, d), where they are those of a box and not of maps."""
        ends = self.ends(d)
        if ends is None or not self.may_map(d, policy) or self.is_given:
            return ends
        boxed = self.base_measure == "box" and self.transformation == "auto"
        return ends if boxed and not ends.isnan().any() else None

    @property
    def is_free(self) -> bool:
        """Whether features, bandwidth, rank and number of Gaussians are all left open."""
        free = self.n_features, self.bandwidth, self.features, self.rank
        return all(map(_is_auto, free)) and isinstance(self.base_measure, str)

    def frequency_kind(self, d: int) -> str:
        """Kind of frequencies for d columns."""
        if self.features not in ("auto", "adaptive"):
            return self.features
        if self.features == "auto" and d <= 2 and self.method != CLASSIFIER:
            return "lattice"
        return "sobol" if d <= 6 else "orthogonal"

    def opened(self, d: int) -> "ModelSpec":
        """The same for rows of d columns of which more are to come."""
        spec = replace(self, open_ended=True)
        if self.base_measure == "box" or holds_numbers(self.bounds):  # a box with these ends
            known = self.base_measure in ("auto", "box") and holds_numbers(self.bounds)
            is_open = self.transformation == "auto"
            return replace(spec, transformation=None) if known and is_open else spec
        base = "mixture" if self.base_measure == "auto" else self.base_measure
        wrapped = self.features == "auto" and self.frequency_kind(d) == "lattice"
        return replace(spec, base_measure=base, features="sobol" if wrapped else self.features)

    def base_specs(
        self, ends: Tensor | None, n: int, d: int, policy: SelectionPolicy
    ) -> list[BaseSpec]:
        """Base measures to compare, the simplest first; size 0 is a size still to be chosen.

        There are n distinct rows of d columns. `ends` of shape (2, d) are known ends of a box, in
        the units of the plan.
        """
        few, kind = n < policy.few_rows, self.base_measure
        if isinstance(kind, Integral):
            return [BaseSpec("mixture", int(kind))]
        box = BaseSpec("box", bounds=ends, roomy=self.method == "likelihood")
        mixture = BaseSpec("mixture", 1 if few else 0)
        if kind != "auto":
            return [{"box": box, "mixture": mixture}.get(str(kind), BaseSpec(str(kind)))]
        if ends is not None:
            return [box]
        if few:
            return [BaseSpec("gaussian")]
        return [box, mixture] if d <= policy.max_box_columns else [mixture]

    def ends(self, d: int) -> Tensor | None:
        """Known ends of the box, of shape (2, d), in the units of the data; NaN where unknown."""
        return read_bounds(self.bounds, d)


@dataclass(frozen=True, eq=False, repr=False)
class Plan(Printed):
    """Units, base measure, features, and how the density is read from them; immutable.

    Fits with the same plan can be added. ``print(plan)`` shows choices and candidates.

    Parameters
    ----------
    method : {"closed_form", "likelihood", "classifier"}
    location, scale : Tensors of shapes (d,), (q,)
        The features see z = (x − location) · axes / scale; q is d where there are no axes.
    bandwidth : Tensor of shape (q,)
        In the units of z.
    base : str
        Description of the base measure.
    measure : BaseMeasure, or TableMixture of a table with kinds of columns or gaps
        Of z. That of a table makes one more iteration of expectation–maximization over all rows of
        a fit.
    features : FourierFeatures
        Of z; of all parts of the columns of a table.
    reach : Tensor of shape (2, q)
        Smallest and largest values that rows may have, in the units of z: the ends of the box,
        or those beyond which a lattice of frequencies repeats itself; infinite without any.
    measurement : str
        How ρ is read: "square_root" or "direct"; "likelihood" where it is fitted. Of a classifier:
        its measurement, or "gradient".
    rank : int, float or "auto"
    ridge : float
        Of maximum likelihood, a share of the largest eigenvalue of G; of the closed form of a
        classifier, one of ρ̄, the mean density matrix.
    min_trace, background, background_spread, tolerance
        As in :class:`SelectionPolicy`, without "auto" in `tolerance`. There is no background where
        all ends of a box are known: beyond them is nothing.
    n_rows : int
        Rows that it was selected on.
    trials : tuple of Trial
        Candidates that were compared.
    axes, noise : Tensors of shapes (d, q), (), optional
        Of a classifier: principal axes, and the variance in other directions.
    columns : tuple of TableColumn, optional
        Maps and codes of the columns in front of the units; x stands above for the lines among
        their parts.
    schema : Schema, optional
        Names and kinds of the columns of a table.
    """

    method: str
    location: Tensor
    scale: Tensor
    bandwidth: Tensor
    base: str
    measure: BaseMeasure | TableMixture
    features: FourierFeatures
    reach: Tensor
    measurement: str
    rank: int | float | str
    ridge: float
    min_trace: float
    background: float | str
    background_spread: float
    tolerance: float
    n_rows: int
    trials: tuple[Trial, ...] = ()
    axes: Tensor | None = None
    noise: Tensor | None = None
    columns: tuple[TableColumn, ...] | None = None
    schema: Schema | None = None

    @property
    def n_dims(self) -> int:
        """The number of columns d."""
        return len(self.location if self.columns is None else self.columns)

    @property
    def base_law(self) -> BaseMeasure:
        """The base measure of Fourier features."""
        assert isinstance(self.measure, BaseMeasure)
        return self.measure

    @property
    def base_measure(self) -> str:
        """Kind of the base measure."""
        return self.base.partition(" ")[0]

    @property
    def has_waves(self) -> bool:
        """Whether there are features other than a constant one."""
        return bool(self.features.W.any())

    def standardize(self, X: Tensor, number: Sequence[int] | None = None) -> Tensor:
        """Rows of shape (n, d), mapped and in the units of the plan.

        Rows beyond the reach are an error, since the density could not show them where they are,
        and so are rows whose phases overflow. Messages call rows by `number`, from 0 by default.
        """
        number = range(len(X)) if number is None else number
        x = self._encoded(X, number)
        if isinstance(self.measure, TableMixture):
            z = self.measure.standardized(x, self.location, self.scale)
            for row in (z.abs() > MAX_BANDWIDTH).any(1).nonzero()[:1, 0].tolist():
                raise ValueError(
                    f"row {number[row]}, {X[row].tolist()}, is so far from all others that "
                    "squares overflow; leave it out"
                )
            return z
        Z = (x - self.location) / (self.scale if self.axes is None else self.scale[0])
        Z = Z if self.axes is None else Z @ self.axes
        reach = self.reach.clamp(-MAX_BANDWIDTH, MAX_BANDWIDTH)
        outside = ~((Z >= reach[0]) & (Z <= reach[1])).all(1)
        if not outside.any():
            return Z
        row = int(outside.nonzero()[0, 0])
        if X[outside].isnan().any():
            raise ValueError(
                f"{NOT_PLAIN}, first in row {number[row]}; fit without plan or, where rows are "
                "read once, begin with some that have gaps"
            )
        ends = self.location + self.scale * reach
        ends = ends if self.columns is None else MapTable.of(self.columns).inverse(ends)
        raise ValueError(
            f"{int(outside.sum())} rows lie outside the ends of the plan, {ends[0].tolist()} to "
            f"{ends[1].tolist()}; the first is row {number[row]}: {X[row].tolist()}. Drop them, "
            "give ends that hold all rows to come, columns=Real(lower, upper), or begin with "
            "partial_fit and base_measure='auto' or 'mixture', which have no ends"
        )

    def _encoded(self, X: Tensor, number: Sequence[int]) -> Tensor:
        """Parts of rows; those with impossible values are refused."""
        if self.columns is None:
            return X
        parts, log_slope = encode_columns(self.columns, X)
        impossible = (log_slope == -torch.inf).nonzero()[:, 0].tolist()
        if impossible:
            row = impossible[0]
            raise ValueError(
                f"{len(impossible)} rows have values that the plan holds for impossible; the "
                f"first is row {number[row]}: {X[row].tolist()}. Drop them, or give wider ends, "
                "or transformation=None, or fit without this plan"
            )
        return parts

    def matches(self, other: "Plan") -> bool:
        """Whether sums on both plans may be added: units, base measure and features agree."""
        names = "base_measure", "measurement"
        units = "location", "scale", "bandwidth"
        return (
            all(getattr(self, name) == getattr(other, name) for name in names)
            and all(torch.equal(getattr(self, unit), getattr(other, unit)) for unit in units)
            and _same_modules(self.columns, other.columns)
            and _same_modules([self.features, *_parts(self)], [other.features, *_parts(other)])
        )

    def sums(self, compute: ComputeConfig, part: Part) -> Sums:
        """Sufficient statistics of rows, their weights and numbers, for a closed form.

        Those of all rows of a source are ``source.total(partial(plan.sums, compute))``.
        """
        rows, weight, number = part
        Z, mixture = self.standardize(rows, number), self.measure
        if isinstance(mixture, TableMixture):
            statistics = mixture.total_statistics(Z, weight).flatten()
            return Sums(statistics, float(weight.sum()), effective_count(weight))
        return Sums.of(self.features, Z, weight, compute)

    def read(self, sums: Sums | ClassSums) -> Fitted:
        """Density, or those of classes, that a closed form reads from its sums."""
        if isinstance(sums, ClassSums):
            reader = ClassReader(sums, self.base_law.gram(self.features), self.tolerance)
            factor = reader.factor(self.measurement, self.ridge, self.rank)
            return self.complete(BornDensity(self.features, factor, self.base_law))
        if isinstance(self.measure, TableMixture):
            base, one = self.table_base(sums), torch.ones(1, 1, dtype=torch.float64)
            features = constant_feature(len(self.measure.parts))
            return self.complete(BornDensity(features, one, base), sums.count)
        how, rho = self.measurement, sums.rho / sums.weight
        options = {"min_trace": self.min_trace, "tolerance": self.tolerance}
        born = read_density(how, self.features, rho, self.measure, rank=self.rank, **options)
        return self.complete(born, sums.count)

    def table_base(self, sums: Sums) -> BaseMeasure:
        """The mixture of a table after one more iteration over the rows of the sums.

        Where it has other parts than lines it has a broad component.
        """
        assert isinstance(self.measure, TableMixture)
        statistics = sums.rho.reshape(len(self.measure.weights), -1)
        mixture = self.measure.maximized(statistics, sums.weight / sums.count)
        if mixture.factors:
            epsilon = background_weight(self.background, sums.count)
            mixture = mixture.with_background(epsilon, self.background_spread)
        return mixture.base()

    def complete(self, born: Density, count: float = 1.0) -> Fitted:
        """Density of rows: background, units and maps around a Born density of z.

        The effective number `count` of rows is for the weight of the background; classes do
        without.
        """
        location, scale = self.location, self.scale
        if isinstance(self.measure, TableMixture):
            location, scale = self.measure.units(location, scale)
        units = location, scale, self.axes, self.noise
        density = StandardizedDensity(self.defended(born, count), *units)
        density.requires_grad_(False).eval()
        if self.columns is None:
            return density
        return TableDensity(density, self.columns).requires_grad_(False).eval()

    def defended(self, born: Density, count: float) -> Density:
        """The density of z with its background, if it has one; of classes, the base measure."""
        if self.method == CLASSIFIER:
            assert isinstance(self.measure, GaussianMeasure)
            background = self.measure.means[0], self.measure.covariances[0]
            return DefensiveDensity(born, float(self.background), *background)
        has_its_own = isinstance(find_born(born).measure, FactoredMeasure)
        if self.base_measure == "kernel" or self.background == 0 or has_its_own:
            return born
        one = torch.ones(self.n_dims, dtype=torch.float64)
        broad = 0 * one, self.background_spread**2 * one.diag()
        return DefensiveDensity(born, background_weight(self.background, count), *broad)

    def __repr__(self) -> str:
        n = self.features.n_features
        return f"<Plan: {self.method}, {self.base}, {n} features, {len(self.trials)} trials>"

    def __str__(self) -> str:
        def line(name: str, value: object) -> str:
            return f"  {name:<13} {value}"

        plain = self.schema is None
        method = self.method.replace("_", " ") if plain else "table"
        lines = [
            f"Plan ({method}, selected on {self.n_rows:,} rows)",
            line("base measure", self.base),
        ]
        if self.schema is not None:
            lines += [f"  {text}" for text in str(self.schema).splitlines()]
        if plain or self.has_waves:
            h = show_numbers(self.bandwidth * self.scale)
            lines += [line("bandwidth", h), line("features", self.features.n_features)]
            lines += [line("rank", self.rank)]
        names = range(self.n_dims) if self.schema is None else self.schema.names
        columns = zip(names, self.columns or (), strict=bool(self.columns))
        lines += [line(f"column {name}", own) for name, own in columns if len(own.breaks())]
        if self.axes is not None:
            lines.append(line("components", f"{len(self.scale)} of {self.n_dims} columns"))
        if plain and self.method != "likelihood":
            lines.append(line("measurement", self.measurement))
        if self.method != "closed_form" and (plain or self.has_waves):
            lines.append(line("ridge", f"{self.ridge:.4g}"))
        if self.trials:
            width = max(len(trial.name) for trial in self.trials)
            lines.append(f"  {'tried':{width}}     rows  held-out log-likelihood")
        lines += [
            f"  {trial.name:{width}}  {trial.n_rows:7,}  {trial.log_likelihood:.5f}"
            + ("  chosen" if trial.chosen else "")
            for trial in self.trials
        ]
        return "\n".join(lines)


def background_weight(background: float | str, count: float) -> float:
    """Weight of the background, 1/(n + 1) if "auto"."""
    return 1 / (count + 1) if background == "auto" else float(background)


def _is_auto(value: object) -> bool:
    return isinstance(value, str) and value == "auto"


def _parts(plan: Plan) -> list[nn.Module]:
    measure = plan.measure
    return [measure] if isinstance(measure, BaseMeasure) else measure.modules()


def _same_modules(first: Sequence[nn.Module] | None, second: Sequence[nn.Module] | None) -> bool:
    """Whether modules are of the same kinds with the same numbers."""
    if first is None or second is None:
        return first is second
    states = nn.ModuleList(first).state_dict(), nn.ModuleList(second).state_dict()
    return (
        [*map(str, first)] == [*map(str, second)]
        and states[0].keys() == states[1].keys()
        and all(torch.equal(value, states[1][name]) for name, value in states[0].items())
    )

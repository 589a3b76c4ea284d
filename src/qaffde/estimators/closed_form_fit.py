"""The stages of a closed-form fit: survey, design, frame, ρ, and its reading."""

from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any, Self

import torch
from torch import Generator, Tensor

from qaffde.estimators.assembly import (
    FEW_ROWS,
    LATTICE_MARGIN,
    background_weight,
    candidate_measures,
    default_size,
    defended,
    draw_features,
    frequency_kind,
    in_data_units,
)
from qaffde.estimators.bandwidth import scott, silverman
from qaffde.estimators.data_measure import MeasureSpec, measure_ends, n_distinct
from qaffde.estimators.design import Design, Split, choose_design
from qaffde.estimators.frame import Frame
from qaffde.estimators.kernel_rule import held_out_kde
from qaffde.estimators.parameters import (
    check_bandwidth,
    check_inside,
    check_lattice,
    check_mixture,
    holds_numbers,
    read_bounds,
)
from qaffde.estimators.random import generator_from
from qaffde.estimators.scaling import box_units, units
from qaffde.estimators.sources import Source
from qaffde.estimators.sums import Sums
from qaffde.estimators.survey import Survey
from qaffde.estimators.totals import effective_count
from qaffde.estimators.updates import UpdatableEstimator
from qaffde.nn import (
    BaseMeasure,
    BoxMeasure,
    Density,
    FourierFeatures,
    KernelMeasure,
)
from qaffde.training.adaptive import fit_adaptive_features
from qaffde.training.closed_form import (
    READINGS,
    SPECTRUM_WIDENING,
    density_matrix,
    row_batches,
)

BANDWIDTH_RULES = ("auto", "scott", "silverman")


class ClosedFormEstimator(UpdatableEstimator):
    """The stages of a closed-form fit; the parameters are those of :class:`QAFFDE`."""

    n_features: int | str
    bandwidth: Any
    rank: int | float | str
    features: str
    base_measure: str
    bounds: Any
    measurement: str
    n_base_components: int | str
    min_trace: float
    background: float | str
    tolerance: float
    random_state: Any

    def _fit(self, source: Source, *, warm: bool) -> Self:
        frame = self.frame_ if warm else self._settle(source)
        sums = source.sums(frame, self._compute())
        return self._learn(frame, sums, self._read(frame, sums))

    def _settle(self, source: Source, *, stream: bool = False) -> Frame:
        d, given = self.n_features_in_, self._is_given()
        check_lattice(self.features, d)
        check = partial(check_inside, read_bounds(self.bounds, d))
        seed = generator_from(self.random_state).initial_seed()
        survey = source.survey(check, seed, brief=given)
        stream = stream or source.endless
        settled = copy(self).set_params(**self._endless(d)) if stream else self
        return settled._frame(survey, endless=stream or given)

    def _frame(self, survey: Survey, *, endless: bool) -> Frame:
        n, d = survey.totals.n, self.n_features_in_
        check_mixture(self.n_base_components, n)
        generator = generator_from(self.random_state)
        numbers = check_bandwidth(self.bandwidth, d, BANDWIDTH_RULES)
        ends = read_bounds(self.bounds, d)
        if ends is not None and self._is_given():
            location, scale = box_units(ends)
        else:
            smoothing = numbers if self.base_measure == "kernel" else None
            location, scale = units(self, survey.totals, smoothing)
        survey = survey.standardized(location, scale)

        design = self._design(
            survey,
            None if numbers is None else numbers / scale,
            None if ends is None else (ends - location) / scale,
            generator,
        )
        measure = self._measure(design, survey, generator)
        D = self._n_fourier_features(None if endless else n, d)
        features = self._features(D, survey.totals.ends, design.bandwidth, measure, generator)
        if self.features == "adaptive":
            widened = self._widened(design.bandwidth, measure)
            features = fit_adaptive_features(features, survey.rows, widened, generator=generator)
        return Frame(
            location,
            scale,
            design.bandwidth,
            design.spec.name,
            measure,
            features,
            self._reading(measure),
            self._reach(survey.totals.ends, design.bandwidth, measure),
        )

    def _is_given(self) -> bool:
        """Whether parameters settle the frame, so that no row has a say in it."""
        numbers = holds_numbers(self.bandwidth) and holds_numbers(self.bounds)
        return numbers and self.features != "adaptive"

    def _endless(self, d: int) -> dict[str, Any]:
        """What "auto" means where rows are still to come: nothing that they can fall out of."""
        if self.bounds is not None or self.base_measure == "box":
            return {}
        base = {"base_measure": "mixture"} if self.base_measure == "auto" else {}
        wrapped = self.features == "auto" and frequency_kind(self.features, d) == "lattice"
        return base | ({"features": "sobol"} if wrapped else {})

    def _reach(self, Z: Tensor, h: Tensor, measure: BaseMeasure) -> Tensor:
        """Ends that rows must keep to: a box stops there, a lattice begins to repeat itself."""
        ends = torch.stack(measure_ends(measure, Z))
        if isinstance(measure, BoxMeasure):
            return ends
        infinite = torch.tensor([[-torch.inf], [torch.inf]], dtype=Z.dtype).expand_as(ends)
        if frequency_kind(self.features, Z.shape[1]) != "lattice":
            return infinite
        margin = LATTICE_MARGIN / 2 * self._widened(h, measure)
        return ends + margin * infinite.sign()

    def _design(
        self,
        survey: Survey,
        numbers: Tensor | None,
        ends: Tensor | None,
        generator: Generator,
    ) -> Design:
        """Bandwidth and base measure: given, by a rule, or by held-out likelihood."""
        design = self._sample_design(survey.rows, survey.weight, numbers, ends, generator)
        if numbers is not None:
            return design
        return replace(design, bandwidth=design.bandwidth * survey.shrinkage)

    def _sample_design(
        self,
        Z: Tensor,
        weight: Tensor,
        numbers: Tensor | None,
        ends: Tensor | None,
        generator: Generator,
    ) -> Design:
        h = numbers if numbers is not None else self._rule(Z, weight, generator)
        specs = candidate_measures(
            self.base_measure,
            self.n_base_components,
            MeasureSpec("box", bounds=ends),
            n_distinct(Z),
            Z.shape[1],
        )
        if h is not None and len(specs) == 1 and specs[0].n_components > 0:
            return Design(specs[0], h)

        def judge(measure: BaseMeasure, h: Tensor, split: Split) -> Tensor:
            D = self._n_fourier_features(*split.train.shape)
            features = self._features(D, split.train, h, measure, generator)
            rho = density_matrix(features, row_batches(split.train, split.train_weight))
            reading, n = self._reading(measure), effective_count(split.train_weight)
            density = self._density_of(features, rho, measure, reading, n)
            with torch.no_grad():
                return density.log_prob(split.valid)

        blur = SPECTRUM_WIDENING[self.measurement]
        return choose_design(Z, weight, specs, h, judge, blur, generator)

    def _rule(self, Z: Tensor, weight: Tensor, generator: Generator) -> Tensor | None:
        """Bandwidth by a named rule; None leaves it to the held-out likelihood."""
        n, d = effective_count(weight), Z.shape[1]
        if self.bandwidth == "scott":
            return torch.full((d,), scott(n, d), dtype=Z.dtype)
        if self.bandwidth == "silverman" or n_distinct(Z) < FEW_ROWS:
            return torch.full((d,), silverman(n, d), dtype=Z.dtype)
        if self.base_measure == "kernel":  # no likelihood of its own: the exact estimate's
            return torch.full((d,), held_out_kde(Z, weight, generator), dtype=Z.dtype)
        return None

    def _measure(self, design: Design, survey: Survey, generator: Generator) -> BaseMeasure:
        h = design.bandwidth
        if design.spec.kind == "kernel":
            return KernelMeasure(h)
        Z, weight, totals = survey.rows, survey.weight, survey.totals
        return design.spec.fit(Z, weight, h, generator, design.start, totals)

    def _features(
        self,
        n_features: int,
        Z: Tensor,
        h: Tensor,
        measure: BaseMeasure,
        generator: Generator,
    ) -> FourierFeatures:
        """Frequencies for the reading, for rows that reach as far as Z."""
        widened = self._widened(h, measure)
        return draw_features(self.features, n_features, widened, measure, Z, generator)

    def _n_fourier_features(self, n: int | None, d: int) -> int:
        """The number of features for n rows, or for however many are to come."""
        return default_size(n, d) if self.n_features == "auto" else int(self.n_features)

    def _reading(self, measure: BaseMeasure) -> str:
        return "direct" if isinstance(measure, KernelMeasure) else self.measurement

    def _widened(self, h: Tensor, measure: BaseMeasure) -> Tensor:
        """Bandwidth of the frequencies."""
        return h * SPECTRUM_WIDENING[self._reading(measure)]

    def _read(self, frame: Frame, sums: Sums) -> Density:
        rho = sums.rho / sums.weight
        density = self._density_of(
            frame.features, rho, frame.measure, frame.measurement, sums.count
        )
        return in_data_units(density, frame.location, frame.scale)

    def _density_of(
        self, features: FourierFeatures, rho: Tensor, measure: BaseMeasure, reading: str, n: float
    ) -> Density:
        """Born density of standardised rows and, unless it is the paper's own, its background."""
        born = READINGS[reading](
            features,
            rho,
            measure,
            rank=self.rank,
            min_trace=self.min_trace,
            tolerance=self.tolerance,
        )
        if isinstance(measure, KernelMeasure):
            return born
        return defended(born, background_weight(self.background, n), features.n_dims)

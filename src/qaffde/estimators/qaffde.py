"""QAFFDE: the paper's optimisation-free density estimator (Algorithms 1 and 2)."""

from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any, Self

import torch
from numpy.typing import ArrayLike
from torch import Generator, Tensor

from qaffde import functional as QF
from qaffde.estimators.assembly import (
    BASE_MEASURES,
    FEW_ROWS,
    LATTICE_MARGIN,
    background_weight,
    candidate_measures,
    check_bounds_belong,
    default_size,
    defended,
    draw_features,
    frequency_kind,
    in_data_units,
)
from qaffde.estimators.bandwidth import scott, silverman
from qaffde.estimators.compute import Compute, check_compute
from qaffde.estimators.data_measure import MeasureSpec, measure_ends, n_distinct
from qaffde.estimators.design import Design, Split, choose_design
from qaffde.estimators.frame import Frame
from qaffde.estimators.kernel_rule import held_out_kde
from qaffde.estimators.parameters import (
    check_bandwidth,
    check_choice,
    check_count,
    check_inside,
    check_lattice,
    check_mixture,
    check_rank,
    check_share,
    holds_numbers,
    read_bounds,
)
from qaffde.estimators.random import generator_from
from qaffde.estimators.scaling import box_units, units
from qaffde.estimators.sources import Source, all_or_nothing
from qaffde.estimators.spectrum import SpectrumMixin
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
from qaffde.streams import Chunks
from qaffde.training.adaptive import fit_adaptive_features
from qaffde.training.closed_form import (
    READINGS,
    SPECTRUM_WIDENING,
    density_matrix,
    row_batches,
)

BANDWIDTH_RULES = ("auto", "scott", "silverman")


class QAFFDE(SpectrumMixin, UpdatableEstimator):
    r"""Density by quantum adaptive Fourier features, in closed form.

    Fourier features φ turn each row into a state; their mean :math:`\rho = \frac1n \sum_i
    \phi(x_i) \phi(x_i)^\top` is the density matrix of the data (paper, Algorithm 2), and the Born
    rule reads the density from it:

    .. math:: p(x) = m(x)\, \lVert \Lambda^{1/2} V G^{-1/2} \phi(x) \rVert^2

    where m is a base measure, G the Gram matrix of the features in it, and
    :math:`V^\top \Lambda V` the leading eigenpairs of ρ. It is a kernel density estimate whose
    scoring cost does not grow with the data, and it integrates to one exactly. Since ρ is a sum,
    rows can be added (:meth:`partial_fit`), merged and forgotten.

    Parameters
    ----------
    n_features : int or "auto", default="auto"
        Number D of Fourier features. "auto" takes up to 1000 (256 for one column), fewer for few
        rows, unless more may come: after a first `partial_fit`, or where no row has a say in the
        frame (see `bounds`).
    bandwidth : "auto", "scott", "silverman", float or array of d floats, default="auto"
        Standard deviation of the Gaussian kernel, in the units of the data. "auto" maximises the
        held-out likelihood.
    rank : int, float or "auto", default="auto"
        Eigenpairs of ρ to keep: a number, a share of D in (0, 1], or as few as hold `min_trace`.
    features : {"auto", "lattice", "sobol", "orthogonal", "paired", "random", "adaptive"}
        How frequencies are found. "auto" is a lattice in one and two dimensions, Sobol points up
        to six, orthogonal random ones beyond. "adaptive" trains them by the paper's Algorithm 1.
    base_measure : {"auto", "box", "gaussian", "mixture", "kernel"}, default="auto"
        "auto" chooses between the first and the third (whose size may be one) by held-out
        likelihood, or the third alone beyond three columns. "kernel" is the paper's
        normalisation by a constant, which is no density; see :class:`qaffde.nn.KernelMeasure`.
    bounds : pair or d pairs of floats, optional
        Ends of the box, where they are known; None leaves an end to the data. Implies the box.
        Together with numbers for `bandwidth` they settle all that precedes ρ, and columns may
        even be constant; only "adaptive" features still look at the rows.
    measurement : {"square_root", "direct"}, default="square_root"
        How ρ is read; "direct" is the paper's :math:`\phi^\top \rho \phi / \operatorname{tr}(\rho
        G)`, with no :math:`G^{-1/2}`.
    n_base_components : int or "auto", default="auto"
        Number of Gaussians of the mixture base.
    min_trace : float, default=0.9999
        Share of the trace of ρ to keep when `rank` is "auto".
    background : float or "auto", default="auto"
        Weight of a broad Gaussian that keeps every log-density finite; "auto" is 1/(n + 1).
    tolerance : float, default=1e-6
        Eigenvalues of G below this share of the largest count as zero.
    warm_start : bool, default=False
        Whether another `fit` keeps the frame of the fit before (units, bandwidth, base measure,
        features) and replaces the rows alone. What the parameters say of the frame is then
        passed over; `rank`, `min_trace`, `background` and `tolerance` count.
    batch_size : int or "auto", default="auto"
        Rows whose features are computed at once. "auto" keeps them in the cache of a core and
        within the memory that is left.
    dtype : {"float64", "float32"}, default="float64"
        Precision of features and of `score_samples`. Single precision is about twice as fast and
        takes digits from small densities; ρ is summed, and G computed, in float64 anyway.
    device : str, default="cpu"
        Where rows are summed and scored; fitted tensors stay on the CPU.
    compile : bool, default=False
        Whether `score_samples` has whole blocks of rows compiled by :func:`torch.compile`: a
        fifth faster in float32, after some seconds at the first call. It needs a C++ compiler.
    random_state : int, RandomState instance or None, default=None

    Attributes
    ----------
    density_ : qaffde.nn.Density
        The fitted density, a torch module.
    bandwidth_ : ndarray of shape (d,)
        Kernel bandwidth in the units of the data.
    base_measure_ : str
        Name of the base measure.
    rank_, n_fourier_features_ : int
    frame_ : Frame
        What was settled before ρ: fits that share it can be merged.
    rho_ : Tensor of shape (D, D)
        Weighted sum of φφᵀ.
    weight_sum_, effective_count_ : float
    n_features_in_ : int
    feature_names_in_ : ndarray of str, where X had names

    References
    ----------
    Gallego and González, "Quantum Adaptive Fourier Features for Neural Density Estimation", 2022.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(2000, 2))
    >>> model = QAFFDE(random_state=0).fit(X)
    >>> model.score_samples([[0.0, 0.0]]).round(1)  # the true log-density is -1.84
    array([-1.8])
    """

    def __init__(
        self,
        n_features: int | str = "auto",
        bandwidth: Any = "auto",
        rank: int | float | str = "auto",
        features: str = "auto",
        base_measure: str = "auto",
        bounds: Any = None,
        *,
        measurement: str = "square_root",
        n_base_components: int | str = "auto",
        min_trace: float = 0.9999,
        background: float | str = "auto",
        tolerance: float = 1e-6,
        warm_start: bool = False,
        batch_size: int | str = "auto",
        dtype: str = "float64",
        device: str = "cpu",
        compile: bool = False,
        random_state: Any = None,
    ) -> None:
        self.n_features = n_features
        self.bandwidth = bandwidth
        self.rank = rank
        self.features = features
        self.base_measure = base_measure
        self.bounds = bounds
        self.measurement = measurement
        self.n_base_components = n_base_components
        self.min_trace = min_trace
        self.background = background
        self.tolerance = tolerance
        self.warm_start = warm_start
        self.batch_size = batch_size
        self.dtype = dtype
        self.device = device
        self.compile = compile
        self.random_state = random_state

    @all_or_nothing
    def fit(
        self,
        X: ArrayLike | Chunks,
        y: None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Fit the density to the rows of `X`.

        Parameters
        ----------
        X : array-like of shape (n, d), or a source of chunks
            Large arrays, memory-mapped ones too, are read in blocks. Sources are the path of a
            Parquet file or of a folder of them, a ``pyarrow.dataset.Dataset``, an iterator of
            chunks, and whatever :func:`qaffde.streams.chunks` makes. The first pass over them
            draws a sample that settles the frame, the second one sums up ρ. An iterator, which
            can be read once, has its frame settled by its first 100 000 rows, as `partial_fit`
            would.
        y : None
            Ignored.
        sample_weight : array-like of shape (n,), optional
            Chunks bring their own weights.
        """
        self._check_parameters()
        warm = bool(self.warm_start) and self.__sklearn_is_fitted__()
        return self._fit(self._source(X, sample_weight, reset=not warm), warm=warm)

    def _fit(self, source: Source, *, warm: bool) -> Self:
        frame = self.frame_ if warm else self._settle(source)
        sums = source.sums(frame, self._compute())
        return self._learn(frame, sums, self._read(frame, sums))

    def _check_parameters(self) -> None:
        check_count("n_features", self.n_features, auto=True, minimum=2)
        check_count("n_base_components", self.n_base_components, auto=True)
        check_rank(self.rank)
        check_choice("features", self.features, ("auto", *QF.FREQUENCIES, "adaptive"))
        check_choice("base_measure", self.base_measure, BASE_MEASURES)
        check_choice("measurement", self.measurement, READINGS)
        check_share("min_trace", self.min_trace, whole=True)
        check_share("background", self.background, auto=True)
        check_share("tolerance", self.tolerance)
        check_bounds_belong(self.bounds, self.base_measure)
        check_compute(self.dtype, self.device, self.batch_size)

    def _compute(self) -> Compute:
        return Compute.of(self.dtype, self.device, self.batch_size, compile=self.compile)

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

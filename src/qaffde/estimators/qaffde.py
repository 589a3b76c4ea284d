"""QAFFDE: the paper's optimisation-free density estimator (Algorithms 1 and 2)."""

from collections.abc import Callable
from typing import Any, Self

import torch
from numpy.typing import ArrayLike
from torch import Generator, Tensor

from qaffde import functional as QF
from qaffde.estimators.bandwidth import scott, silverman
from qaffde.estimators.calculus import BornEstimator
from qaffde.estimators.data_measure import (
    MeasureSpec,
    effective_count,
    measure_ends,
    n_distinct,
)
from qaffde.estimators.design import Design, Split, choose_design
from qaffde.estimators.kernel_rule import held_out_kde
from qaffde.estimators.parameters import (
    check_bandwidth,
    check_bounds,
    check_choice,
    check_count,
    check_lattice,
    check_mixture,
    check_rank,
    check_share,
)
from qaffde.estimators.random import generator_from
from qaffde.estimators.scaling import standardize
from qaffde.estimators.spectrum import SpectrumMixin
from qaffde.nn import (
    BaseMeasure,
    BornDensity,
    DefensiveDensity,
    Density,
    FourierFeatures,
    KernelMeasure,
    StandardizedDensity,
)
from qaffde.training.adaptive import fit_adaptive_features
from qaffde.training.closed_form import (
    READINGS,
    SPECTRUM_WIDENING,
    density_matrix,
    row_batches,
)

BASE_MEASURES = ("auto", "box", "gaussian", "mixture", "kernel")
BANDWIDTH_RULES = ("auto", "scott", "silverman")
BACKGROUND_SPREAD = 2.0
FEW_ROWS = 10
"""Below this there is nothing to hold out."""
MAX_BOX_DIMS = 3
LATTICE_MARGIN = 3.0
"""Bandwidths between the data and their next image; G^{−1/2} sees to what is left of the wrap."""
START: dict[str, Callable[[int], str]] = {
    "auto": lambda d: "lattice" if d <= 2 else "sobol" if d <= 6 else "orthogonal",
    "adaptive": lambda d: "sobol" if d <= 6 else "orthogonal",
}
"""Kind of frequencies by the number of columns."""


class QAFFDE(SpectrumMixin, BornEstimator):
    r"""Density by quantum adaptive Fourier features, in closed form.

    Fourier features φ turn each row into a state; their mean :math:`\rho = \frac1n \sum_i
    \phi(x_i) \phi(x_i)^\top` is the density matrix of the data (paper, Algorithm 2), and the Born
    rule reads the density from it:

    .. math:: p(x) = m(x)\, \lVert \Lambda^{1/2} V G^{-1/2} \phi(x) \rVert^2

    where m is a base measure, G the Gram matrix of the features in it, and
    :math:`V^\top \Lambda V` the leading eigenpairs of ρ. It is a kernel density estimate whose
    scoring cost does not grow with the data, and it integrates to one exactly.

    Parameters
    ----------
    n_features : int or "auto", default="auto"
        Number D of Fourier features. "auto" takes up to 1000 (256 for one column), fewer for few
        rows.
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
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: None = None, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the density to the rows of `X`.

        Parameters
        ----------
        X : array-like of shape (n, d)
        y : None
            Ignored.
        sample_weight : array-like of shape (n,), optional
        """
        self._check_parameters()
        rows, weight = self._validated(X, sample_weight)
        check_lattice(self.features, rows.shape[1])
        check_mixture(self.n_base_components, len(rows))
        generator = generator_from(self.random_state)
        numbers = check_bandwidth(self.bandwidth, rows.shape[1], BANDWIDTH_RULES)
        ends = check_bounds(self.bounds, rows)
        smoothing = numbers if self.base_measure == "kernel" else None
        Z, location, scale = standardize(self, rows, weight, smoothing)

        design = self._design(
            Z,
            weight,
            None if numbers is None else numbers / scale,
            None if ends is None else (ends - location) / scale,
            generator,
        )
        measure = self._measure(design, Z, weight, generator)
        features = self._features(Z, design.bandwidth, measure, generator)
        rho = density_matrix(features, row_batches(Z, weight))
        born = self._read(features, rho / weight.sum(), measure)

        self.density_ = _in_data_units(
            self._defended(born, effective_count(weight)), location, scale
        )
        self.bandwidth_ = (design.bandwidth * scale).numpy()
        self.base_measure_ = design.spec.name
        self.rank_, self.n_fourier_features_ = born.rank, features.n_features
        self.rho_, self.weight_sum_ = rho, float(weight.sum())
        self.effective_count_ = effective_count(weight)
        return self

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
        if self.bounds is not None and self.base_measure not in ("auto", "box"):
            raise ValueError(
                f"bounds belong to the box, but base_measure={self.base_measure!r}; "
                'leave bounds out or set base_measure="box"'
            )

    def _design(
        self,
        Z: Tensor,
        weight: Tensor,
        numbers: Tensor | None,
        ends: Tensor | None,
        generator: Generator,
    ) -> Design:
        """Bandwidth and base measure: given, by a rule, or by held-out likelihood."""
        h = numbers if numbers is not None else self._rule(Z, weight, generator)
        specs = self._specs(ends, n_distinct(Z), Z.shape[1])
        if h is not None and len(specs) == 1 and specs[0].n_components > 0:
            return Design(specs[0], h)

        def judge(measure: BaseMeasure, h: Tensor, split: Split) -> Tensor:
            features = self._features(split.train, h, measure, generator, adapt=False)
            rho = density_matrix(features, row_batches(split.train, split.train_weight))
            density = self._defended(
                self._read(features, rho, measure), effective_count(split.train_weight)
            )
            with torch.no_grad():
                return density.log_prob(split.valid)

        blur = SPECTRUM_WIDENING[self.measurement]
        return choose_design(Z, weight, specs, h, judge, blur, generator)

    def _specs(self, ends: Tensor | None, n: int, d: int) -> list[MeasureSpec]:
        """Base measures to compare.

        A mixture of one component is the Gaussian. A box is no candidate in many dimensions,
        where it is nearly all empty.
        """
        chosen = 1 if n < FEW_ROWS else 0
        size = chosen if self.n_base_components == "auto" else int(self.n_base_components)
        box, mixture = MeasureSpec("box", bounds=ends), MeasureSpec("mixture", size)
        if self.base_measure != "auto":
            named = {"box": box, "mixture": mixture}
            return [named.get(self.base_measure, MeasureSpec(self.base_measure))]
        if ends is not None:
            return [box]
        if n < FEW_ROWS:
            return [MeasureSpec("gaussian")]
        return [box, mixture] if d <= MAX_BOX_DIMS else [mixture]

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

    def _measure(
        self, design: Design, Z: Tensor, weight: Tensor, generator: Generator
    ) -> BaseMeasure:
        if design.spec.kind == "kernel":
            return KernelMeasure(design.bandwidth)
        return design.spec.fit(Z, weight, design.bandwidth, generator, design.start)

    def _features(
        self,
        Z: Tensor,
        h: Tensor,
        measure: BaseMeasure,
        generator: Generator,
        *,
        adapt: bool = True,
    ) -> FourierFeatures:
        """Frequencies for the reading, and Algorithm 1 if they are to be adaptive."""
        widened = h * SPECTRUM_WIDENING[self._reading(measure)]
        d = Z.shape[1]
        kind = START[self.features](d) if self.features in START else self.features
        lower, upper = measure_ends(measure, Z)
        period = upper - lower + LATTICE_MARGIN * widened
        features = FourierFeatures.draw(
            kind, self._n_fourier_features(*Z.shape), widened, period, generator
        )
        if self.features == "adaptive" and adapt:
            features = fit_adaptive_features(features, Z, widened, generator=generator)
        return features

    def _n_fourier_features(self, n: int, d: int) -> int:
        if self.n_features != "auto":
            return int(self.n_features)
        return min(256 if d == 1 else 1000, max(64, n // 4))

    def _reading(self, measure: BaseMeasure) -> str:
        return "direct" if isinstance(measure, KernelMeasure) else self.measurement

    def _read(self, features: FourierFeatures, rho: Tensor, measure: BaseMeasure) -> BornDensity:
        return READINGS[self._reading(measure)](
            features,
            rho,
            measure,
            rank=self.rank,
            min_trace=self.min_trace,
            tolerance=self.tolerance,
        )

    def _defended(self, born: BornDensity, n: float) -> Density:
        """Add the background, unless the paper's own form is asked for."""
        if isinstance(born.measure, KernelMeasure):
            return born
        epsilon = 1 / (n + 1) if self.background == "auto" else float(self.background)
        d = born.features.n_dims
        mean = torch.zeros(d, dtype=torch.float64)
        spread = BACKGROUND_SPREAD**2 * torch.eye(d, dtype=torch.float64)
        return DefensiveDensity(born, epsilon, mean, spread)


def _in_data_units(density: Density, location: Tensor, scale: Tensor) -> StandardizedDensity:
    return StandardizedDensity(density, location, scale).requires_grad_(False).eval()

"""QAFFDE: the paper's optimisation-free density estimator (Algorithms 1 and 2)."""

from typing import Any, Self

from numpy.typing import ArrayLike

from qaffde import functional as QF
from qaffde.estimators.assembly import BASE_MEASURES, check_bounds_belong
from qaffde.estimators.closed_form_fit import ClosedFormEstimator
from qaffde.estimators.compute import Compute, check_compute
from qaffde.estimators.parameters import check_choice, check_count, check_rank, check_share
from qaffde.estimators.sources import all_or_nothing
from qaffde.estimators.spectrum import SpectrumMixin
from qaffde.streams import Chunks
from qaffde.training.closed_form import READINGS


class QAFFDE(SpectrumMixin, ClosedFormEstimator):
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

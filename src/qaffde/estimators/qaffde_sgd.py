"""QAFFDE-SGD: the density matrix of maximum likelihood (paper, Algorithm 3)."""

import os
from functools import partial, reduce
from operator import add
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from qaffde.estimators.assembly import (
    in_data_units,
)
from qaffde.estimators.base import Array
from qaffde.estimators.candidates import Candidate
from qaffde.estimators.compute import Compute
from qaffde.estimators.encoder import (
    behind,
    encode_rows,
    has_parameters,
    own_encoder,
)
from qaffde.estimators.likelihood_parameters import LikelihoodParameters
from qaffde.estimators.parameters import (
    check_bandwidth,
    check_bounds,
    check_count,
    check_inside,
    check_lattice,
    check_mixture,
)
from qaffde.estimators.random import generator_from
from qaffde.estimators.refusal import Refused
from qaffde.estimators.regions import Seed
from qaffde.estimators.rows import Clock, Rows
from qaffde.estimators.scaling import standardize, units
from qaffde.estimators.sources import ChunkSource, all_or_nothing, declare_columns
from qaffde.estimators.spectrum import SpectrumMixin
from qaffde.estimators.survey import Look, Survey
from qaffde.nn import (
    BaseMeasure,
    Encoder,
    TransformedDensity,
    decode,
    expand,
)
from qaffde.streams import Chunks, as_chunks
from qaffde.training import fit_shear
from qaffde.training.peers import ALONE, Peers

STREAM_ROWS = 1_000_000
"""Rows of a stream that the likelihood is maximised on."""


class QAFFDESGD(SpectrumMixin, LikelihoodParameters):
    r"""Density by quantum Fourier features and maximum likelihood, exact and untuned.

    The density is that of :class:`QAFFDE`,

    .. math:: p(x) = m(x)\, \frac{\lVert L \phi(x) \rVert^2}{\operatorname{tr}(L G L^\top)}

    but L maximises the likelihood (paper, Algorithm 3). The closed-form Gram matrix G of the
    features in the base measure m makes that likelihood exact and, in :math:`L^\top L`, convex.
    A ridge on G keeps the density smooth; it is chosen with bandwidth and base measure by
    held-out likelihood.

    Parameters
    ----------
    n_features : int or "auto", default="auto"
        Number D of Fourier features; "auto" is up to 1000. Those that add nothing are dropped.
    bandwidth : "auto", float or array of d floats, default="auto"
        Bandwidth of the frequencies, in the units of the data: the finest detail that the
        density can have. "auto" maximises the held-out likelihood.
    rank : int, float or "auto", default="auto"
        Of the density matrix: a number, or a share of the coordinates; "auto" is 16
        up to three columns and 64 beyond.
    features : {"auto", "lattice", "sobol", "orthogonal", "paired", "random", "adaptive"}
        How frequencies are found, as in :class:`QAFFDE`.
    base_measure : {"auto", "box", "gaussian", "mixture"}, default="auto"
        "auto" chooses by held-out likelihood between the box (of up to three columns; it is tight
        where the density stops at an edge and roomy where it fades out) and the mixture, whose
        size may be one. Where held-out rows cannot tell that features add anything to a mixture,
        and no parameter asks for features or a rank, it is left bare: one constant feature. (One
        Gaussian of one column is bent a little instead, by wide features that see its skewness.)
    bounds : pair or d pairs of floats, optional
        Ends of the box, where they are known; None leaves an end to the data. Implies the box.
    ridge : float or "auto", default="auto"
        Share of the largest eigenvalue of G that is added to all of them while training. "auto"
        maximises the held-out likelihood.
    solver : {"lbfgs", "adam", "fixed_point", "accelerated_fixed_point"}, default="lbfgs"
        For the convex problem of frozen features. L-BFGS won the benchmark of them all.
    initialisation : {"closed_form", "random"}, default="closed_form"
        Of the density matrix: by Algorithm 2, or at random.
    learn_features : bool, default=False
        Whether W and b learn too, by Adam on the exact likelihood, from the convex solution. That
        pays where a few hundred frequencies must find their way in many columns.
    encoder : "shear", torch.distributions.Transform or module that returns one, optional
        Invertible map in front. "shear" takes from columns what polynomials of the others explain
        of them, by least squares in closed form (:class:`qaffde.nn.PolynomialShear`): it
        straightens what bends. Parameters of a module learn together with the density matrix.
        `bandwidth` and `bounds` are in the units of the code. Marginals, conditionals and
        probabilities of what is behind a map have no closed form and are refused. (Inverses of
        torch, such as ``ExpTransform().inv``, cannot be copied: let a module return them.)
    normalisation : {"exact", "kernel"}, default="exact"
        "kernel" is the paper's objective, which divides by a constant; its likelihood is not that
        of a density. See :class:`qaffde.nn.KernelMeasure`.
    max_iter : int, default=60
        Iterations of the convex solver; for "adam", epochs.
    max_steps, batch_size, learning_rate : default=2000, 1024, 3e-3
        Of Adam, where features or encoder learn; the rate falls linearly to 1e-5.
    clip_norm : float or None, default=10.0
        Largest norm of its gradient.
    validation_fraction, patience : default=0.1, 10
        Share of rows that Adam does not see, and fiftieths of `max_steps` without improvement on
        them before it stops. What was best on them is kept.
    time_limit : float or None, default=60.0
        Seconds. After 70 % of them the search takes what it has found; learning stops at the end.
        A result that the clock did not cut short depends on the seed alone.
    n_base_components : int or "auto", default="auto"
        Number of Gaussians of the mixture base.
    background : float or "auto", default="auto"
        Weight of a broad Gaussian that keeps every log-density finite; "auto" is 1/(n + 1).
    tolerance : float, default=1e-7
        Eigenvalues of G below this share of the largest count as zero.
    checkpoint : path or None, default=None
        Where the state is kept while fitting, in files that begin with this name. A fit that was
        killed goes on from them when called again with the same data, parameters and seed.
    verbose : bool, default=False
        Print progress.
    dtype : {"float64", "float32"}, default="float64"
        Precision of `score_samples`. The likelihood is maximised in float32, which is all that it
        needs, and G computed in float64, whatever this is.
    device : str, default="cpu"
        Where the likelihood is maximised and rows are scored; fitted tensors stay on the CPU.
    compile : bool, default=False
        Whether `score_samples` has whole blocks of rows compiled by :func:`torch.compile`: a
        fifth faster in float32, after some seconds at the first call. It needs a C++ compiler.
    random_state : int, RandomState instance or None, default=None

    Attributes
    ----------
    density_ : qaffde.nn.Density
        The fitted density, a torch module.
    bandwidth_ : ndarray of shape (d,)
        Bandwidth of the frequencies in the units of the data (or of the code of an encoder).
    ridge_ : float
    base_measure_ : str
    rank_, n_fourier_features_ : int
    search_ : dict of {str: float}
        Held-out log-likelihood of every candidate, in standardised units.
    history_ : list of qaffde.training.History
        Of the convex solver and, where something else learned, of Adam.
    n_features_in_ : int
    feature_names_in_ : ndarray of str, where X had names

    References
    ----------
    Gallego and González, "Quantum Adaptive Fourier Features for Neural Density Estimation", 2022.
    Hradil, "Quantum-state estimation", 1997. Tsuchida et al., "Squared Neural Families", 2023.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(2000, 2))
    >>> model = QAFFDESGD(random_state=0).fit(X)
    >>> model.score_samples([[0.0, 0.0]]).round()  # the true log-density is -1.84
    array([-2.])
    """

    partial_fit = Refused(
        "a maximum-likelihood fit is no sum over rows, so QAFFDESGD cannot add rows to one; "
        "use QAFFDE, which can, or fit again with all rows"
    )
    merge = Refused(
        "a maximum-likelihood fit is no sum over rows, so two fits of QAFFDESGD cannot be merged; "
        "use QAFFDE, whose fits can, or fit again with all rows"
    )
    forget = Refused(
        "a maximum-likelihood fit is no sum over rows, so QAFFDESGD cannot forget some; "
        "use QAFFDE, which can, or fit again with the rows that remain"
    )

    def __init__(
        self,
        n_features: int | str = "auto",
        bandwidth: Any = "auto",
        rank: int | float | str = "auto",
        features: str = "auto",
        base_measure: str = "auto",
        bounds: Any = None,
        *,
        ridge: float | str = "auto",
        solver: str = "lbfgs",
        initialisation: str = "closed_form",
        learn_features: bool = False,
        encoder: Any = None,
        normalisation: str = "exact",
        max_iter: int = 60,
        max_steps: int = 2000,
        batch_size: int = 1024,
        learning_rate: float = 3e-3,
        clip_norm: float | None = 10.0,
        validation_fraction: float = 0.1,
        patience: int | None = 10,
        time_limit: float | None = 60.0,
        n_base_components: int | str = "auto",
        background: float | str = "auto",
        tolerance: float = 1e-7,
        checkpoint: str | os.PathLike[str] | None = None,
        verbose: bool = False,
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
        self.ridge = ridge
        self.solver = solver
        self.initialisation = initialisation
        self.learn_features = learn_features
        self.encoder = encoder
        self.normalisation = normalisation
        self.max_iter = max_iter
        self.max_steps = max_steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.clip_norm = clip_norm
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.time_limit = time_limit
        self.n_base_components = n_base_components
        self.background = background
        self.tolerance = tolerance
        self.checkpoint = checkpoint
        self.verbose = verbose
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
            Every iteration needs all rows, so arrays are read into memory, and a source of
            chunks as in :meth:`QAFFDE.fit` is fitted by a sample: a million of its rows, each
            with the same chance, or the first million of an iterator. To fit all rows of more
            than fits into memory, see :func:`qaffde.distributed.fit_shard`.
        y : None
            Ignored.
        sample_weight : array-like of shape (n,), optional
            Chunks bring their own weights.
        """
        self._check_parameters()
        return self._fit(*self._sampled(X, sample_weight), ALONE)

    def _sampled(self, X: Any, sample_weight: ArrayLike | None) -> tuple[Tensor, Tensor]:
        """Rows and weights: all of an array, or a sample of chunks."""
        chunks = None if isinstance(X, np.ndarray) else as_chunks(X, sample_weight)
        if chunks is None:
            return self._validated(X, sample_weight)
        declare_columns(self, chunks.n_columns, chunks.names, reset=True)
        seed = generator_from(self.random_state).initial_seed()
        source = ChunkSource(chunks, minimum=2, most=STREAM_ROWS)
        survey = source.survey(partial(check_inside, None), seed)
        return survey.rows, survey.weight

    def _fit(self, values: Tensor, weight: Tensor, peers: Peers) -> Self:
        """Fit checked rows, those of this process and of its peers."""
        clock = Clock(self.time_limit)
        seed = peers.first(self._seed)
        encoder = self._own_encoder(values, weight, seed, peers)
        if encoder is not None and has_parameters(encoder):
            peers.share_(list(encoder.parameters()))  # type: ignore[union-attr]
        codes = values if encoder is None else encode_rows(encoder, values)
        h, ends = peers.together(lambda: self._check_data(codes))
        rows = self._in_working_units(codes, weight, seed, peers)
        location, scale = rows.location, rows.scale

        def choose() -> tuple[Candidate, BaseMeasure, dict[str, float]]:
            search = self._search(rows.typical, seed, clock)
            candidate = self._candidate(
                rows.typical,
                search,
                None if h is None else h / scale,
                None if ends is None else (ends - location) / scale,
            )
            return candidate, self._measure(candidate, search, rows.typical), search.values

        candidate, measure, found = peers.first(choose)
        learn = self._learn if self.learn_features or has_parameters(encoder) else self._maximise
        born, history = learn(rows, measure, candidate, seed, clock, values, encoder)

        density = in_data_units(self._defended(born, rows), location, scale)
        self.density_ = density if encoder is None else behind(encoder, density)
        self.bandwidth_ = (candidate.bandwidth * scale).numpy()
        self.ridge_ = candidate.ridge / rows.count
        self.base_measure_ = candidate.spec.name
        self.rank_, self.n_fourier_features_ = born.rank, born.features.n_features
        self.search_, self.history_ = found, history
        if self.checkpoint is not None:
            self._file("search").remove()
        return self

    def _seed(self) -> int:
        return int(torch.randint(2**31, (), generator=generator_from(self.random_state)))

    def _own_encoder(
        self, values: Tensor, weight: Tensor, seed: int, peers: Peers
    ) -> Encoder | None:
        """The encoder of this fit; one that is found by least squares is that of all peers."""
        if not isinstance(self.encoder, str):
            return own_encoder(self.encoder)
        if peers.size == 1:
            return fit_shear(values, weight, *standardize(self, values, weight, None))
        survey = self._survey(values, weight, seed, peers)
        return fit_shear(survey.rows, survey.weight, *units(self, survey.totals, None))

    @staticmethod
    def _survey(values: Tensor, weight: Tensor, seed: int, peers: Peers) -> Survey:
        """A sample of the rows of all peers, the same in each."""
        return reduce(add, peers.gather(lambda: Look.at(values, weight, seed))).survey()

    def _in_working_units(self, codes: Tensor, weight: Tensor, seed: int, peers: Peers) -> Rows:
        """Rows of this process and, where there are others, what stands for those of all."""
        if peers.size == 1:
            location, scale = standardize(self, codes, weight, None)
            return Rows((codes - location) / scale, weight, location, scale)
        survey = self._survey(codes, weight, seed, peers)
        location, scale = units(self, survey.totals, None)
        sample = Rows.of(survey, location, scale)
        Z = (codes - location) / scale
        return Rows(Z, weight, location, scale, sample.totals, peers, sample)

    def sample(self, n_samples: int = 1, random_state: Seed = None) -> Array:
        """Exact independent draws.

        Parameters
        ----------
        n_samples : int, default=1
        random_state : int, RandomState instance or None, default=None

        Returns
        -------
        ndarray of shape (n_samples, d)
        """
        check_is_fitted(self)
        if not isinstance(self.density_, TransformedDensity):
            return super().sample(n_samples, random_state)
        check_count("n_samples", n_samples)
        codes = expand(self.density_.density).sample(n_samples, generator_from(random_state))
        return decode(self.density_.encoder, codes).numpy()

    def _compute(self) -> Compute:
        return Compute.of(self.dtype, self.device, compile=self.compile)

    def _check_data(self, codes: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """Bandwidths and ends of the box, as far as they are given."""
        check_lattice(self.features, codes.shape[1])
        check_mixture(self.n_base_components, len(codes))
        numbers = check_bandwidth(self.bandwidth, codes.shape[1], ("auto",))
        return numbers, check_bounds(self.bounds, codes)

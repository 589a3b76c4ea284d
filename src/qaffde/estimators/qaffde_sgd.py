"""QAFFDE-SGD: the density matrix of maximum likelihood (paper, Algorithm 3)."""

from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, Self
from warnings import warn

import torch
from numpy.typing import ArrayLike
from sklearn.exceptions import ConvergenceWarning
from torch import Generator, Tensor
from torch.distributions import Transform

from qaffde.estimators.base import PlanMixin, RowsLike, all_or_nothing, spec_of, training_of
from qaffde.estimators.calculus import BornEstimator
from qaffde.nn import TransformedDensity, encode, expand, find_born
from qaffde.parameters import check_inside, generator_from
from qaffde.selection import ModelSpec, Source
from qaffde.selection.likelihood import maximized_state, maximized_table
from qaffde.selection.solver import check_plan
from qaffde.selection.summary import MemorySource
from qaffde.training import History, TrainingConfig
from qaffde.training.run import Run


class _Refused:
    """Method that is not there (``hasattr`` is False), and says why."""

    def __get__(self, instance: object, owner: Any = None) -> Any:
        raise AttributeError(
            "a maximum-likelihood fit is not a sum over rows: QAFFDESGD cannot add rows to one, "
            "merge two or forget rows; use QAFFDE, which can, or fit again with all rows"
        )


@dataclass(eq=False, repr=False)
class QAFFDESGD(PlanMixin, BornEstimator):
    r"""Density by quantum Fourier features and maximum likelihood, exact and untuned.

    The density is that of :class:`QAFFDE`,

    .. math:: p(x) = m(x)\, \frac{\lVert L \phi(x) \rVert^2}{\operatorname{tr}(L G L^\top)}

    but L maximizes the likelihood (paper, Algorithm 3), which the Gram matrix G of the features in
    the base measure m makes exact and, in :math:`L^\top L`, convex. A ridge on G keeps the density
    smooth; it is chosen with bandwidth and base measure by held-out likelihood.

    Parameters
    ----------
    n_features : int or "auto", default="auto"
        Number D of Fourier features; "auto" is up to 500 in two columns, else up to 250.
        Those that add nothing are dropped.
    bandwidth : "auto", "scott", "silverman", float or array of d floats, default="auto"
        Bandwidth of the frequencies, in the units of the data: the finest detail that the
        density can have. "auto" maximizes the held-out likelihood.
    rank : int, float or "auto", default="auto"
        Of the density matrix: a number, or a share of the coordinates; "auto" is 16
        up to three columns and 64 beyond.
    features : {"auto", "lattice", "sobol", "orthogonal", "paired", "random", "adaptive"}
        How frequencies are found, as in :class:`QAFFDE`.
    base_measure : {"auto", "box", "gaussian", "mixture", "kernel"} or int, default="auto"
        "auto" chooses between "box" and "mixture" by held-out likelihood, and takes "mixture"
        beyond three columns. If features do not improve a mixture on held-out rows, and no
        parameter asks for features or a rank, the mixture itself is the density, with one constant
        feature. "kernel" is the paper's objective, whose likelihood is not that of a density; see
        :class:`qaffde.nn.KernelMeasure`.
    columns : "auto", kind, list of d kinds, dict of {column: kind} or None, default="auto"
        Kinds of the columns, and known ends of real ones, as in :class:`QAFFDE`.
    transformation : "auto", "normal", None, or torch transform, default="auto"
        Maps of the columns, as in :class:`QAFFDE`. A ``torch.distributions.Transform`` is an
        invertible map of whole rows. `bandwidth` and known ends are in the units of the code.
        Marginals, conditionals and probabilities behind such a map are refused.
    ridge : float or "auto", default="auto"
        Share of the largest eigenvalue of G that is added to all of them while training. "auto"
        maximizes the held-out likelihood.
    plan : Plan, optional
        Plan of an earlier fit (``model.plan_``), or of :func:`qaffde.select`. Nothing is searched
        then, and the parameters above, but for a torch transform, are not used.
    time_limit : float or None, default=None
        Seconds. After 70 % of them, at the latest, the search takes its best candidate, or without
        any the mixture alone; training stops at the end.
    verbose : bool, default=False
        Print progress: a line for each candidate of a search and each evaluation of a training.
    training : TrainingConfig, optional
        Solver, iterations, checkpoint.
    policy, compute : SelectionPolicy, ComputeConfig, optional
        Constants of the search; precision of scoring, and device.
    random_state : int, RandomState instance or None, default=None

    Attributes
    ----------
    density_ : qaffde.nn.Density
        A torch module.
    bandwidth_ : ndarray of shape (d,)
        Of the frequencies, in the units of the data (or of mapped columns, or a code).
    ridge_, base_measure_ : float, str
    rank_, n_fourier_features_, n_features_in_ : int
    plan_ : Plan
        ``print(model.plan_)`` shows the choices, and the candidates that were compared.
    history_ : list of qaffde.training.History
        Of the convex solver.
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

    partial_fit = merge = forget = _Refused()

    _: KW_ONLY
    ridge: float | str = "auto"
    training: TrainingConfig | None = None

    @all_or_nothing
    def fit(self, X: RowsLike, y: None = None, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the density to the rows of `X`.

        Parameters
        ----------
        X : array-like of shape (n, d), or a source of chunks
            Every iteration needs all rows, so a source of chunks as in :meth:`QAFFDE.fit` is
            fitted by a random sample of a million rows, or by the first million of an iterator.
            For more than fits into memory see :func:`qaffde.distributed.fit_shard`.
        y : ignored
        sample_weight : array-like of shape (n,), optional
            Chunks bring their own weights.
        """
        config = self._config()
        source = self._source(X, sample_weight)
        spec, peers = self._spec(source), source.peers
        run = Run(self.time_limit, config.checkpoint, verbose=bool(self.verbose), peers=peers)
        seed = peers.first(self._seed)
        values, weight = source.rows(seed)
        encoded = isinstance(self.transformation, Transform)
        codes = _encode_rows(self.transformation, values) if encoded else values
        memory = MemorySource(codes, weight, peers=peers, schema=source.schema)
        summary = memory.summarize(seed, partial(check_inside, spec.ends(codes.shape[1])))
        if self.plan is None:
            plan = peers.first(lambda: self._select(summary, spec, seed, run))
        else:
            plan = check_plan(self.plan, spec.method, source.n_columns, source.schema)
        self.plan_, self.n_fourier_features_ = plan, plan.features.n_features
        self.rank_, self.history_ = 1, list[History]()
        if plan.schema is not None:
            sums = memory.total(partial(plan.sums, self._compute()))
            rest = sums, config, self._compute(), seed, run
            self.density_, self.history_ = maximized_table(plan, values, weight, *rest)
            self.rank_ = find_born(self.density_).rank
            return self
        Z = plan.standardize(codes)
        fit = maximized_state(plan, Z, weight, config, self._compute(), seed, run)
        space, state, self.history_ = fit[0], fit[1], [fit[2]]
        if self.history_[-1].stopped_by == "time_limit":
            warn("time_limit has ended the training", ConvergenceWarning, stacklevel=2)
        born = space.density(state).cpu()
        self.rank_, self.density_ = born.rank, plan.complete(born, summary.moments.count)
        if encoded:
            self.density_ = TransformedDensity(self.density_, self.transformation).eval()
        if (file := run.file("search")) is not None:
            file.remove()
        return self

    @property
    def ridge_(self) -> float:
        """Share of the largest eigenvalue of G that was added to all."""
        return self.plan_.ridge

    def _draw(self, n: int, generator: Generator) -> Tensor:
        if not isinstance(self.density_, TransformedDensity):
            return super()._draw(n, generator)
        codes = expand(self.density_.density).sample(n, generator)
        return self.density_.transform.inv(codes)

    def _kinds(self) -> Any:
        """Kinds that were asked for; in front of a map of whole rows all columns are real."""
        return None if isinstance(self.transformation, Transform) else super()._kinds()

    def _spec(self, source: Source) -> ModelSpec:
        if not isinstance(self.transformation, str | Transform | None):
            raise ValueError(
                f"transformation={self.transformation!r} must be 'auto', 'normal', None, or a "
                "torch.distributions.Transform"
            )
        named = None if isinstance(self.transformation, Transform) else self.transformation
        return spec_of(self, method="likelihood", transformation=named, bounds=source.ends)

    def _config(self) -> TrainingConfig:
        config = training_of(self)
        if config.learn_features:
            raise ValueError(
                "learn_features is for classifiers: densities gained nothing from it on any set "
                "that was tried"
            )
        return config

    def _seed(self) -> int:
        return int(torch.randint(2**31, (), generator=generator_from(self.random_state)))


@torch.no_grad()
def _encode_rows(transform: Transform, rows: Tensor) -> Tensor:
    """Codes of shape (n, d) of rows of the same shape, once they are finite."""
    codes, log_det = encode(transform, rows)
    if codes.shape != rows.shape:
        raise ValueError(
            f"transformation turns rows of shape {tuple(rows.shape)} into {tuple(codes.shape)}; "
            "it must be invertible, so the shape stays"
        )
    finite = codes.isfinite().all(1) & log_det.isfinite()
    if not finite.all():
        row = int((~finite).nonzero()[0, 0])
        raise ValueError(
            f"transformation gives no finite code, or log-determinant, for {int((~finite).sum())} "
            f"rows, the first is row {row}: {rows[row].tolist()}; they must lie in its domain"
        )
    return codes

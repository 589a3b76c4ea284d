"""QAFFDE: the paper's optimization-free density estimator (Algorithms 1 and 2)."""

from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from qaffde.estimators.base import PlanMixin, RowsLike, all_or_nothing, spec_of
from qaffde.estimators.calculus import BornEstimator
from qaffde.nn import Density, find_born
from qaffde.parameters import check_inside, check_share, generator_from
from qaffde.selection import ModelSpec, Plan, Source
from qaffde.selection.solver import check_plan
from qaffde.training.closed_form import Sums
from qaffde.training.run import Run

MIN_WEIGHT = 1e-290
"""Of all rows together; below it, weights of single rows round to zero."""


@dataclass(eq=False, repr=False)
class QAFFDE(PlanMixin, BornEstimator):
    r"""Density by quantum adaptive Fourier features, in closed form.

    Fourier features φ turn each row into a state; the mean :math:`\rho = \frac1n \sum_i
    \phi(x_i) \phi(x_i)^\top` is the density matrix of the data (paper, Algorithm 2), and the Born
    rule reads the density from it:

    .. math:: p(x) = m(x)\, \lVert \Lambda^{1/2} V G^{-1/2} \phi(x) \rVert^2

    where m is a base measure, G the Gram matrix of the features in it, and
    :math:`V^\top \Lambda V` the leading eigenpairs of ρ. It is a kernel density estimate whose
    scoring cost does not grow with the data, and it integrates to one exactly. Since ρ is a sum,
    rows can be added, merged and forgotten.

    Parameters
    ----------
    n_features : int or "auto", default="auto"
        Number D of Fourier features. "auto" takes up to 500 in two columns (1000 on a box), else
        up to 250; fewer for small n, unless fitting incrementally or with fixed bandwidth and
        ends. Those that add nothing are dropped.
    bandwidth : "auto", "scott", "silverman", float or array of d floats, default="auto"
        Standard deviation of the Gaussian kernel, in the units of the data. "auto" maximizes the
        held-out likelihood.
    rank : int, float or "auto", default="auto"
        Eigenpairs of ρ to keep: a number, a share of D in (0, 1], or as few as hold
        ``policy.min_trace`` of the trace.
    features : {"auto", "lattice", "sobol", "orthogonal", "paired", "random", "adaptive"}
        How frequencies are found. "auto" is a lattice in one and two dimensions, Sobol points up
        to six, orthogonal random ones beyond. "adaptive" trains them by the paper's Algorithm 1.
    base_measure : {"auto", "box", "gaussian", "mixture", "kernel"} or int, default="auto"
        "auto" chooses between "box" and "mixture" by held-out likelihood, and takes "mixture"
        beyond three columns. A number asks for a mixture of so many Gaussians. "kernel" is the
        paper's normalization by a constant, which is not a density; see
        :class:`qaffde.nn.KernelMeasure`.
    columns : "auto", kind, list of d kinds, dict of {column: kind} or None, default="auto"
        Kinds of the columns: "real" or :class:`~qaffde.Real` (with known ends), "integer",
        "category", :class:`~qaffde.Periodic`, :class:`~qaffde.Atom`. "auto" finds them in a data
        frame; arrays are real. None makes all columns real. A table with other kinds, or with
        gaps (NaN), has a mixture as its density, see :doc:`/maps`. Known ends are, up to three
        columns or with ``transformation=None``, those of a box base measure; otherwise the column
        is mapped to the whole line. With numbers for `bandwidth`, known ends of all columns settle
        the plan without looking at the rows (unless features are "adaptive").
    transformation : "auto", "normal" or None, default="auto"
        Maps of the columns, one for each. "normal" makes each column its normal scores, by a
        smooth map that is learned from the rows; columns that show an end at zero keep it. "auto"
        takes these maps in more than three columns if they raise the held-out likelihood, unless
        `bandwidth` is given in numbers, which are in the units of mapped columns; and in fewer
        where a column ends at zero, if no parameter above is given and they do not lower it.
    measurement : {"square_root", "direct"}, default="square_root"
        How ρ is read; "direct" is the paper's :math:`\phi^\top \rho \phi / \operatorname{tr}(\rho
        G)`, with no :math:`G^{-1/2}`.
    plan : Plan, optional
        Plan of an earlier fit (``model.plan_``), or of :func:`qaffde.select`. Nothing is searched
        then, and the parameters above are not used.
    warm_start : bool, default=False
        Whether another `fit` keeps the plan of the fit before and replaces only the rows.
    time_limit : float or None, default=None
        Seconds. After 70 % of them, at the latest, the search takes its best candidate, or without
        any the mixture alone, with a warning.
    verbose : bool, default=False
        Print progress: a line for each candidate of a search and each evaluation of a training.
    policy, compute : SelectionPolicy, ComputeConfig, optional
        Constants of the search, and of how ρ is read; precision, device and block size.
    random_state : int, RandomState instance or None, default=None

    Attributes
    ----------
    density_ : qaffde.nn.Density
        A torch module.
    bandwidth_ : ndarray of shape (d,)
        Where one Gaussian describes the rows, the widest that is tried.
    base_measure_ : str
    rank_, n_fourier_features_, n_features_in_ : int
    plan_ : Plan
        ``print(model.plan_)`` shows the choices, and the candidates that were compared. Fits that
        share a plan can be merged.
    sums_ : Sums
        Weighted sum ``rho`` of φφᵀ, sum ``weight`` of the weights and effective ``count``; of a
        table with kinds or gaps, ``rho`` are the statistics of its mixture.
    schema_ : Schema or None
        Names, kinds and dtypes of the columns of a data frame or table.
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

    _: KW_ONLY
    measurement: str = "square_root"
    warm_start: bool = False
    _density: Density | None = field(init=False)

    @all_or_nothing
    def fit(self, X: RowsLike, y: None = None, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the density to the rows of `X`.

        Parameters
        ----------
        X : array-like of shape (n, d), or a source of chunks
            Large arrays are read in blocks. Sources are the path of a Parquet file or of a folder
            of them, a ``pyarrow.dataset.Dataset``, an iterator of chunks, and whatever
            :func:`qaffde.streams.chunks` makes. The plan of an iterator, which can be read once,
            is selected on its first 100 000 rows, as in `partial_fit`.
        y : ignored
        sample_weight : array-like of shape (n,), optional
            Chunks bring their own weights.
        """
        warm = bool(self.warm_start) and self.__sklearn_is_fitted__()
        run = Run(self.time_limit, verbose=bool(self.verbose))
        source = self._source(X, sample_weight, reset=not warm)
        spec = spec_of(self, bounds=source.ends)
        plan = self.plan_ if warm else self._plan(source, spec, run)
        run.say(f"sums of all rows: {plan.features.n_features} features")
        sums = source.total(partial(plan.sums, self._compute()))
        return self.restore(plan, sums, plan.read(sums))

    @all_or_nothing
    def partial_fit(
        self, X: RowsLike, y: None = None, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Add rows to the fit.

        The first call selects the plan (units, bandwidth, base measure, features) from its
        rows: make them typical ones. "auto" then chooses a plan that holds any later row: the
        mixture base, frequencies without a period, and as many features as a large fit would
        have. Later calls, and calls after `fit`, keep the plan and add to ρ; chunks give the
        same density as all their rows in one `fit` with that plan, in any order.

        Parameters
        ----------
        X : array-like of shape (n, d), or a source of chunks as in `fit`
            At least two rows in the first call. Rows beyond the ends of the plan, where it has
            any, are an error.
        y : ignored
        sample_weight : array-like of shape (n,), optional
        """
        first = not self.__sklearn_is_fitted__()
        source = self._source(X, sample_weight, minimum=2 if first else 1, reset=first)
        spec = spec_of(self, bounds=source.ends)
        run = Run(self.time_limit, verbose=bool(self.verbose))
        plan = self._plan(source, spec, run, more=True) if first else self.plan_
        sums = source.total(partial(plan.sums, self._compute()))
        return self.restore(plan, sums if first else self.sums_ + sums)

    def merge(self, other: "QAFFDE") -> Self:
        """Add the rows of another fit with the same plan, in place; `other` stays as it is.

        Parameters
        ----------
        other : QAFFDE, fitted
            With the same plan: ``QAFFDE(plan=model.plan_).fit(rows)``, an updated copy, or any fit
            with the same numbers for `bandwidth`, known ends and `random_state`.
        """
        check_is_fitted(self)
        if not isinstance(other, QAFFDE):
            raise TypeError(f"only a fit with a density matrix can be merged, got {other!r}")
        check_is_fitted(other)
        names = [model.feature_names_in_ for model in (self, other) if model._names() is not None]
        same_names = len(names) < 2 or np.array_equal(*names)
        if not self.plan_.matches(other.plan_) or not same_names:
            raise ValueError(
                "the two fits have different plans (units, bandwidth, base measure, features or "
                "column names), so their sums do not add up. Fit the second one with the plan of "
                "the first: QAFFDE(plan=first.plan_).fit(rows)"
            )
        return self.restore(self.plan_, self.sums_ + other.sums_)

    def forget(
        self,
        X: ArrayLike | None = None,
        *,
        decay: float | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Remove rows from the fit, or let all that it holds fade.

        Parameters
        ----------
        X : array-like of shape (n, d), optional
            Rows that are in the fit.
        decay : float in (0, 1), optional
            Factor for the weight of every row so far; rows that come later weigh more.
        sample_weight : array-like of shape (n,), optional
            The weights that the rows have now: those they were added with, times all decay since.
        """
        check_is_fitted(self)
        if (X is None) == (decay is None):
            raise ValueError("give either rows to forget or decay, a factor; not both, not none")
        if X is not None:
            source = self._source(X, sample_weight, minimum=1, reset=False)
            gone = source.total(partial(self.plan_.sums, self._compute()))
            return self.restore(self.plan_, self.sums_ - gone)
        check_share("decay", decay)
        if sample_weight is not None:
            raise ValueError("sample_weight belongs to rows; decay is one factor for all of them")
        faded = self.sums_ * float(decay)  # type: ignore[arg-type]
        if faded.weight < MIN_WEIGHT:
            raise ValueError(
                f"after this decay all rows together would weigh {faded.weight:g}, which rounds "
                "their density away; add new rows first, or fit anew"
            )
        return self.restore(self.plan_, faded)

    @property
    def density_(self) -> Density:  # type: ignore[override]
        """The density, a torch module; read from ρ when first asked for after an update."""
        if self._density is None:
            self._density = self.plan_.read(self.sums_)
        return self._density

    @property
    def rank_(self) -> int:
        """Number of eigenpairs that the density keeps; one of a table."""
        return find_born(self.density_).rank if self.plan_.schema is None else 1

    @property
    def n_fourier_features_(self) -> int:
        """Number of Fourier features; the constant one of a table."""
        return self.plan_.features.n_features

    def _plan(self, source: Source, spec: ModelSpec, run: Run, *, more: bool = False) -> Plan:
        """The given plan, or one that is selected; `more` rows may come."""
        if self.plan is not None:
            return check_plan(self.plan, spec.method, source.n_columns, source.schema)
        seed, d = generator_from(self.random_state).initial_seed(), source.n_columns
        summary = source.summarize(seed, partial(check_inside, spec.ends(d)), brief=spec.is_given)
        if summary.is_plain and (more or source.partly_seen):
            spec = spec.opened(d)
        return self._select(summary, spec, seed, run)

    def restore(self, plan: Plan, sums: Sums, density: Density | None = None) -> Self:
        """Take over a plan, the sums of all rows on it, and the density where it is known."""
        self.plan_, self.sums_, self._density = plan, sums, density
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "sums_")

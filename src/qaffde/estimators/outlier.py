"""Outliers: rows where the density is low, by a density that they have no part in."""

from copy import copy
from dataclasses import KW_ONLY, dataclass
from numbers import Real
from typing import Any, Self
from warnings import warn

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, OutlierMixin, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from qaffde.estimators.base import (
    Array,
    DensityEstimator,
    FileMixin,
    all_or_nothing,
    read_numbers,
    read_weight,
)
from qaffde.estimators.kernel_mixture import KernelMixture
from qaffde.estimators.qaffde import QAFFDE
from qaffde.frames import as_frame
from qaffde.functional.regions import weighted_quantile
from qaffde.kinds import Category
from qaffde.nn import TableDensity
from qaffde.parameters import check_positive, generator_from
from qaffde.schema import Schema
from qaffde.selection.summary import moved_nearer
from qaffde.training.run import Run

FOLDS = 5
FALSE_ALARMS = 0.01
"""With "auto", the share of fresh rows like the training rows that are called outliers."""

QUARTILES = (0.25, 0.5, 0.75)


@dataclass(eq=False, repr=False)
class QAFFDEOutlierDetector(FileMixin, OutlierMixin, BaseEstimator):
    r"""Outliers by a low density.

    Each row is scored by densities, and each training row by those of the other folds. By default
    these are a single Gaussian, in which a row is unlikely that is far from all others together,
    and a kernel estimate, in which one is that is far from each
    (:class:`~qaffde.estimators.KernelMixture`, with one kernel and with many). Their
    log-densities are averaged in units of their spread, so that neither outweighs the other.

    Outliers among the training rows make others like them likely. The densities are therefore
    fitted twice, the second time without the rows of the lowest scores: the share `contamination`
    or, with "auto", one row in a hundred.

    Parameters
    ----------
    estimator : density estimator or list of them, optional
        Anything with `fit` and `score_samples` of this package. By default a Gaussian and a
        kernel estimate or, for a data frame with categories, integers or gaps, an untuned
        :class:`QAFFDE`.
    contamination : "auto" or float in (0, 0.5], default="auto"
        Share of outliers among the training rows, where it is known: `offset_` is then the
        quantile of their scores. "auto" takes the 1 % quantile of the out-of-fold scores: one in a
        hundred new rows of the same distribution falls below it. It does not estimate how many
        outliers there are.
    time_limit : float or None, default=None
        Seconds for all fits, the folds' too. The estimator must have such a limit, which each of
        its fits gets a share of.
    verbose : bool, default=False
        Print progress: a line for each fit, and those of the estimator if it has any.
    random_state : int, RandomState instance or None, default=None
        For the folds and for the default estimator.

    Attributes
    ----------
    estimator_ : density estimator or list of them
        Fitted, without the rows that were left out.
    units_ : ndarray of shape (k, 2) or None
        Middle and spread (distance of the quartiles) of the log-densities of the training rows,
        out of fold, for k estimators; None of one, whose scores are log-densities.
    offset_ : float
        Score below which a row is an outlier.
    out_of_fold_scores_ : ndarray of shape (n,)
        Score of each training row, without its fold (and the rows that were left out).
    n_features_in_ : int
    feature_names_in_ : ndarray of str, where X had names

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(500, 2))
    >>> detector = QAFFDEOutlierDetector(random_state=0).fit(X)
    >>> detector.predict([[0.0, 0.0], [5.0, 5.0]])
    array([ 1, -1])
    """

    estimator: Any = None
    _: KW_ONLY
    contamination: float | str = "auto"
    time_limit: float | None = None
    verbose: bool = False
    random_state: Any = None
    schema_ = None
    units_ = None

    @all_or_nothing
    def fit(self, X: ArrayLike, y: None = None, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the densities and the offset.

        Parameters
        ----------
        X : array-like of shape (n, d), or a data frame with kinds of columns and gaps
        y : ignored
        sample_weight : array-like of shape (n,), optional
        """
        given: Any = self.contamination
        is_auto = isinstance(given, str) and given == "auto"
        share: Any = FALSE_ALARMS if is_auto else given
        if isinstance(share, bool) or not isinstance(share, Real) or not 0 < float(share) <= 0.5:
            raise ValueError(f'contamination={given!r} must be "auto" or a number in (0, 0.5]')
        share = float(share)
        check_positive("time_limit", self.time_limit, optional=True)
        run = Run(self.time_limit, verbose=bool(self.verbose))
        new = self._unfitted(X)
        self.schema_ = _table_schema(X, new[0])
        rows = self._rows(X, reset=True, minimum=2)
        weight = read_weight(sample_weight, rows)
        counted = weight > 0
        distinct, copy_of = np.unique(rows[counted], axis=0, return_inverse=True)
        if len(distinct) < 2:
            raise ValueError(
                f"all {len(rows)} rows are the same: there is no density to compare rows by"
            )
        total: Any = np.bincount(copy_of.ravel(), weight[counted])
        near = total * _are_near(distinct, total)
        run.say("fit of all rows, and scores of each fold without it")
        began = run.seconds
        models, scores = self._fitted(new, distinct, near, total, run, 2 * len(new))
        trusted = scores >= weighted_quantile(scores, total, share)
        if run.left is None or run.left > 0.5 * (run.seconds - began):
            run.say(f"fit of the {int(trusted.sum())} most likely rows of {len(distinct)}")
            models, scores = self._fitted(models, distinct, near * trusted, total, run, len(new))
        else:
            message = "time_limit leaves none for a second fit: the density is that of all rows"
            warn(message, ConvergenceWarning, stacklevel=2)
        self.estimator_ = models if len(models) > 1 else models[0]
        judged = scores if is_auto else self._scores(distinct)
        self.offset_ = float(weighted_quantile(judged, total, share))
        self.out_of_fold_scores_ = np.empty(len(rows))
        self.out_of_fold_scores_[counted] = scores[copy_of.ravel()]
        if not counted.all():
            self.out_of_fold_scores_[~counted] = self._scores(rows[~counted])
        return self

    def _unfitted(self, X: Any) -> list[Any]:
        """Estimators that were given, or the default ones for `X`."""
        if isinstance(self.estimator, list | tuple):
            if not self.estimator:
                raise ValueError("estimator=[] has no density; give one or more, or None")
            return list(self.estimator)
        if self.estimator is not None:
            return [self.estimator]
        whole = QAFFDE(random_state=self.random_state)
        if _table_schema(X, whole) is not None:
            return [whole]
        kernel = KernelMixture(n_kernels=1, whitening=1.0, random_state=self.random_state)
        return [kernel, KernelMixture(random_state=self.random_state)]

    def _fitted(
        self, new: list[Any], rows: Array, weight: Array, total: Array, run: Run, n_left: int
    ) -> tuple[list[Any], Array]:
        """Fits to weighted rows, and scores (n,) of all rows out of fold."""
        models, scores = [], []
        for k, model in enumerate(new):
            own = _of_codes(_limited(model, run, n_left - k), self.schema_)
            try:
                own.fit(rows, sample_weight=weight)
            except ValueError:  # a column that only outliers move is constant without them
                if "density_" not in vars(model) and "plan_" not in vars(model):
                    raise
                own = model
            models.append(own)
            scores.append(_scores_out_of_fold(own, rows, weight, self.random_state))
        self.units_ = None
        if len(scores) > 1:
            ends = [[weighted_quantile(s, total, q) for q in QUARTILES] for s in scores]
            self.units_ = np.array([[mid, high - low or 1.0] for low, mid, high in ends])
        return models, self._combined(scores)

    def _combined(self, scores: list[Array]) -> Array:
        """Mean of log-densities (n,) in units of their spread, or the only one."""
        if self.units_ is None:
            return scores[0]
        parts = zip(scores, self.units_, strict=True)
        return np.mean([(s - middle) / spread for s, (middle, spread) in parts], axis=0)

    def _rows(self, X: Any, **how: Any) -> Array:
        """Rows as numbers, codes for categories."""
        finite = True if self.schema_ is None else "allow-nan"
        return read_numbers(self, X, self.schema_, ensure_all_finite=finite, **how)

    def score_samples(self, X: ArrayLike) -> Array:
        """Score of each row, of shape (n,): the lower, the more of an outlier.

        It is the log-density of a single estimator, or the mean of those of several in units of
        their spread.
        """
        check_is_fitted(self)
        return self._scores(self._rows(X))

    def _scores(self, rows: Array) -> Array:
        own = self.estimator_
        models = own if isinstance(own, list) else [own]
        return self._combined([model.score_samples(rows) for model in models])

    def decision_function(self, X: ArrayLike) -> Array:
        """Score of each row above the offset, of shape (n,): negative for outliers."""
        return self.score_samples(X) - self.offset_

    def predict(self, X: ArrayLike) -> NDArray[np.int64]:
        """Whether each row is an inlier (1) or an outlier (−1), of shape (n,)."""
        return np.where(self.decision_function(X) >= 0, 1, -1)


def _table_schema(X: Any, estimator: Any) -> Schema | None:
    """Schema of a data frame with kinds of columns or gaps; None of plain numbers."""
    if as_frame(X) is None or not hasattr(estimator, "columns"):
        return None
    is_ours = isinstance(estimator, DensityEstimator)
    schema = Schema.infer(X, estimator._kinds() if is_ours else estimator.columns)
    rows = schema.encode(X)
    schema.check(rows)
    return None if schema.is_real and not np.isnan(rows).any() else schema


def _limited(estimator: Any, run: Run, n_left: int) -> Any:
    """Unfitted estimator for one of so many fits that are left, each followed by its folds.

    Folds of a :class:`QAFFDE` take little of the time; those of others are fits.
    """
    own, may = dict[str, Any](), estimator.get_params(deep=False)
    if run.left is not None and "time_limit" in may:
        folds = 0.2 if isinstance(estimator, QAFFDE) else FOLDS
        own["time_limit"] = run.left / n_left / (1 + folds)
    if run.verbose and "verbose" in may:
        own["verbose"] = True
    return clone(estimator).set_params(**own)


def _of_codes(estimator: Any, schema: Schema | None) -> Any:
    """The estimator, for rows in which categories are their codes."""
    if schema is None:
        return estimator
    kinds = [Category(tuple(c.codes.values())) if c.codes else c.kind for c in schema.columns]
    return estimator.set_params(columns=kinds)


def _scores_out_of_fold(model: Any, X: Array, weight: Array, random_state: Any) -> Array:
    """Log-density (n,) of each row, under the density without its fold.

    A row of weight w counts as w copies, one of which is in the fold.
    """
    order = torch.randperm(len(X), generator=generator_from(random_state)).numpy()
    scores = np.empty(len(X))
    for fold in np.array_split(order, min(FOLDS, len(X))):
        gone = np.zeros(len(X))
        gone[fold] = weight[fold].clip(max=1)
        scores[fold] = _without(model, X, weight, gone).score_samples(X[fold])
    return scores


def _are_near(X: Array, weight: Array) -> NDArray[np.bool_]:
    """Rows without values far from all others.

    A base measure has a component for these, which vouches for them in every fold.
    """
    near = moved_nearer(torch.from_numpy(X), torch.from_numpy(weight)).numpy()
    return ((near == X) | np.isnan(X)).all(axis=1)


def _without(model: Any, X: Array, weight: Array, gone: Array) -> Any:
    """The density with less weight of some of its rows; `model` stays as it is."""
    if not gone.any():
        return model
    if isinstance(model, QAFFDE):
        return copy(model).forget(X[gone > 0], sample_weight=gone[gone > 0])
    fresh: Any = clone(model)
    if isinstance(getattr(model, "density_", None), TableDensity) and hasattr(model, "plan_"):
        fresh.set_params(plan=model.plan_)
    left = weight - gone
    return fresh.fit(X[left > 0], sample_weight=left[left > 0])

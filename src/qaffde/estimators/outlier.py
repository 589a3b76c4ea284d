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
TRIMMED = 0.1
"""Share of training rows, the least likely ones, that the density does without: more than most
data hold of outliers."""
FALSE_ALARMS = 0.01
"""With "auto", the share of fresh rows like the training rows that are called outliers."""


@dataclass(eq=False, repr=False)
class QAFFDEOutlierDetector(FileMixin, OutlierMixin, BaseEstimator):
    r"""Outliers by a low density.

    The density is fitted twice. After the first fit each row is scored by the density of the
    other folds; the lowest tenth, or the share `contamination` if that is more, is left out of the
    second fit. With a :class:`QAFFDE` the folds need no fits: their rows are removed from the sum
    ρ exactly (:meth:`QAFFDE.forget`).

    Parameters
    ----------
    estimator : density estimator, optional
        Anything with `fit` and `score_samples` of this package; an untuned :class:`QAFFDE` by
        default.
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
    estimator_ : density estimator
        Fitted, without the rows that were left out.
    offset_ : float
        Log-density below which a row is an outlier.
    out_of_fold_scores_ : ndarray of shape (n,)
        Log-density of each training row, without its fold (and the rows that were left out).
    n_features_in_ : int
    feature_names_in_ : ndarray of str, where X had names

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(500, 2))
    >>> detector = QAFFDEOutlierDetector(random_state=0).fit(X)
    >>> detector.predict([[0.0, 0.0], [5.0, 5.0]])
    array([ 1, -1])
    """

    estimator: DensityEstimator | None = None
    _: KW_ONLY
    contamination: float | str = "auto"
    time_limit: float | None = None
    verbose: bool = False
    random_state: Any = None
    schema_ = None

    @all_or_nothing
    def fit(self, X: ArrayLike, y: None = None, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the density and the offset.

        Parameters
        ----------
        X : array-like of shape (n, d), or a data frame with kinds of columns and gaps
        y : ignored
        sample_weight : array-like of shape (n,), optional
            Copies of a row are one row of their weight: in two folds each would raise the score
            of the other.
        """
        given: Any = self.contamination
        share: Any = FALSE_ALARMS if isinstance(given, str) and given == "auto" else given
        if isinstance(share, bool) or not isinstance(share, Real) or not 0 < float(share) <= 0.5:
            raise ValueError(f'contamination={given!r} must be "auto" or a number in (0, 0.5]')
        share = float(share)
        check_positive("time_limit", self.time_limit, optional=True)
        run = Run(self.time_limit, verbose=bool(self.verbose))
        new = QAFFDE(random_state=self.random_state) if self.estimator is None else self.estimator
        self.schema_ = _table_schema(X, new)
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
        run.say("fit of all rows")
        whole = _of_codes(_limited(new, run, 2), self.schema_).fit(distinct, sample_weight=near)
        run.say("scores of each fold without it")
        began = run.seconds
        scores = _scores_out_of_fold(whole, distinct, near, self.random_state)
        trusted = scores >= weighted_quantile(scores, total, max(share, TRIMMED))
        own = whole
        if run.left is None or run.left > 2 * (run.seconds - began):
            run.say(f"fit of the {int(trusted.sum())} most likely rows of {len(distinct)}")
            try:
                own = _limited(whole, run, 1).fit(distinct[trusted], sample_weight=near[trusted])
            except ValueError:  # a column that only outliers move is constant without them
                own = _without(whole, distinct, near, ~trusted)
            scores = _scores_out_of_fold(own, distinct, total * trusted, self.random_state)
        else:
            message = "time_limit leaves none for a second fit: the density is that of all rows"
            warn(message, ConvergenceWarning, stacklevel=2)
        judged = scores if given == "auto" else own.score_samples(distinct)
        self.estimator_, self.offset_ = own, float(weighted_quantile(judged, total, share))
        self.out_of_fold_scores_ = np.empty(len(rows))
        self.out_of_fold_scores_[counted] = scores[copy_of.ravel()]
        if not counted.all():
            self.out_of_fold_scores_[~counted] = own.score_samples(rows[~counted])
        return self

    def _rows(self, X: Any, **how: Any) -> Array:
        """Rows as numbers, codes for categories."""
        finite = True if self.schema_ is None else "allow-nan"
        return read_numbers(self, X, self.schema_, ensure_all_finite=finite, **how)

    def score_samples(self, X: ArrayLike) -> Array:
        """Log-density of each row, of shape (n,): the lower, the more of an outlier."""
        check_is_fitted(self)
        return self.estimator_.score_samples(self._rows(X))

    def decision_function(self, X: ArrayLike) -> Array:
        """Log-density of each row above the offset, of shape (n,): negative for outliers."""
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
    own: dict[str, Any] = {}
    if run.left is not None:
        folds = 0.2 if isinstance(estimator, QAFFDE) else FOLDS
        own["time_limit"] = run.left / n_left / (1 + folds)
    if run.verbose and "verbose" in estimator.get_params(deep=False):
        own["verbose"] = True
    return clone(estimator).set_params(**own)


def _of_codes(estimator: Any, schema: Schema | None) -> Any:
    """The estimator, for rows in which categories are their codes."""
    if schema is None:
        return estimator
    kinds = [Category(tuple(c.codes.values())) if c.codes else c.kind for c in schema.columns]
    return estimator.set_params(columns=kinds)


def _scores_out_of_fold(model: Any, X: Array, weight: Array, random_state: Any) -> Array:
    """Log-density (n,) of each row, under the density without its fold."""
    order = torch.randperm(len(X), generator=generator_from(random_state)).numpy()
    scores = np.empty(len(X))
    for fold in np.array_split(order, min(FOLDS, len(X))):
        held_out = np.zeros(len(X), dtype=bool)
        held_out[fold] = True
        scores[fold] = _without(model, X, weight, held_out).score_samples(X[fold])
    return scores


def _are_near(X: Array, weight: Array) -> NDArray[np.bool_]:
    """Rows without values far from all others.

    A base measure has a component for these, which vouches for them in every fold.
    """
    near = moved_nearer(torch.from_numpy(X), torch.from_numpy(weight)).numpy()
    return ((near == X) | np.isnan(X)).all(axis=1)


def _without(model: Any, X: Array, weight: Array, left_out: NDArray[np.bool_]) -> Any:
    """The density without some of its rows; `model` stays as it is."""
    if not weight[left_out].any():
        return model
    if isinstance(model, QAFFDE):
        return copy(model).forget(X[left_out], sample_weight=weight[left_out])
    fresh: Any = clone(model)
    if isinstance(getattr(model, "density_", None), TableDensity) and hasattr(model, "plan_"):
        fresh.set_params(plan=model.plan_)
    return fresh.fit(X[~left_out], sample_weight=weight[~left_out])

"""Outliers: rows where the density is low, by a density that they have no part in."""

from copy import copy
from dataclasses import KW_ONLY, dataclass
from numbers import Real
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, OutlierMixin, clone
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from qaffde.estimators.base import Array, DensityEstimator, all_or_nothing, kinds_of
from qaffde.estimators.persistence import FileMixin
from qaffde.estimators.qaffde import QAFFDE
from qaffde.estimators.qaffde_sgd import QAFFDESGD
from qaffde.estimators.regions import weighted_quantile
from qaffde.frames import as_frame
from qaffde.kinds import Category
from qaffde.nn import TableDensity
from qaffde.parameters import generator_from
from qaffde.schema import Schema
from qaffde.selection.summary import moved_nearer

FOLDS = 5
TRIMMED = 0.1
"""Share of training rows, the least likely ones, that the density does without.

More than most data hold of outliers: a density that lacks a few of its tails ranks rows as
before, one that was shaped by outliers does not.
"""
FALSE_ALARMS = 0.01
"""With "auto", the share of fresh rows like the training rows that are called outliers."""


@dataclass(eq=False, repr=False)
class QAFFDEOutlierDetector(FileMixin, OutlierMixin, BaseEstimator):
    r"""Outliers by a low density.

    Outliers among the training rows raise the density around themselves and widen its base
    measure. So the density is fitted twice. After the first fit each row is scored by the density
    of the other folds; the lowest tenth, or the share `contamination` if that is more, is left out
    of the second fit. With a :class:`QAFFDE` the folds need no fits: ρ is a sum, from which rows
    are removed exactly (:meth:`QAFFDE.forget`).

    Parameters
    ----------
    estimator : density estimator, optional
        Anything with `fit` and `score_samples` of this package; an untuned :class:`QAFFDE` by
        default.
    contamination : "auto" or float in (0, 0.5], default="auto"
        Share of outliers among the training rows, where it is known: `offset_` is then the
        quantile of their scores. "auto" takes the 1 % quantile of the out-of-fold scores, which
        is a false-alarm rate: one in a hundred new rows of the same distribution falls below it.
        It does not estimate how many outliers there are: give the share if it is more than one
        in a hundred.
    random_state : int, RandomState instance or None, default=None
        For the folds and for the default estimator.

    Attributes
    ----------
    estimator_ : density estimator
        Fitted, without the rows that were left out.
    offset_ : float
        Log-density below which a row is an outlier.
    out_of_fold_scores_ : ndarray of shape (n,)
        Log-density of each training row, under the density without its fold (and without the
        rows that were left out).
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
    random_state: Any = None
    schema_ = None

    @all_or_nothing
    def fit(self, X: ArrayLike, y: None = None, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the density and the offset.

        Parameters
        ----------
        X : array-like of shape (n, d), or a data frame with kinds of columns and gaps
        y : None
            Ignored.
        sample_weight : array-like of shape (n,), optional
            Copies of a row are one row of their weight: in two folds each would raise the score
            of the other.
        """
        share = _check_contamination(self.contamination)
        new = QAFFDE(random_state=self.random_state) if self.estimator is None else self.estimator
        self.schema_ = _table_schema(X, new)
        rows = self._rows(X, reset=True, ensure_min_samples=2)
        weight: Any = _check_sample_weight(
            sample_weight, rows, dtype=np.float64, ensure_non_negative=True
        )
        counted = weight > 0
        distinct, copy_of = np.unique(rows[counted], axis=0, return_inverse=True)
        if len(distinct) < 2:
            raise ValueError(
                f"all {len(rows)} rows are the same: there is no density to compare rows by"
            )
        total: Any = np.bincount(copy_of.ravel(), weight[counted])
        scores = self._fit_distinct(_of_codes(clone(new), self.schema_), distinct, total, share)
        self.out_of_fold_scores_ = self.estimator_.score_samples(rows)
        self.out_of_fold_scores_[counted] = scores[copy_of.ravel()]
        return self

    def _rows(self, X: Any, *, reset: bool = False, **how: Any) -> Any:
        """Rows as numbers, codes for categories."""
        if self.schema_ is None:
            return validate_data(self, X, dtype=np.float64, order="C", reset=reset, **how)
        validate_data(self, X, reset=reset, skip_check_array=True)
        return self.schema_.encode(X)

    def _fit_distinct(self, new: DensityEstimator, X: Array, weight: Array, share: float) -> Array:
        """Fit to different rows, and return their scores out of fold."""
        near = weight * _are_near(X, weight)
        whole = new.fit(X, sample_weight=near)
        scores = _scores_out_of_fold(whole, X, near, self.random_state)
        trusted = scores >= weighted_quantile(scores, weight, max(share, TRIMMED))
        self.estimator_ = _fit_core(whole, X, near, trusted)
        scores = _scores_out_of_fold(self.estimator_, X, weight * trusted, self.random_state)
        judged = scores if self.contamination == "auto" else self.estimator_.score_samples(X)
        self.offset_ = float(weighted_quantile(judged, weight, share))
        return scores

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
    is_ours = isinstance(estimator, QAFFDE | QAFFDESGD)
    schema = Schema.infer(X, kinds_of(estimator) if is_ours else estimator.columns)
    rows = schema.encode(X)
    schema.check(rows)
    return None if schema.is_real and not np.isnan(rows).any() else schema


def _of_codes(estimator: Any, schema: Schema | None) -> Any:
    """The estimator, for rows in which categories are their codes."""
    if schema is None:
        return estimator
    kinds = [
        Category(tuple(range(len(column.codes)))) if column.codes else column.kind
        for column in schema.columns
    ]
    return estimator.set_params(columns=kinds)


def _check_contamination(value: Any) -> float:
    """Share of training rows below the offset."""
    if isinstance(value, str) and value == "auto":
        return FALSE_ALARMS
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 < value <= 0.5:  # type: ignore[operator]
        raise ValueError(f'contamination={value!r} must be "auto" or a number in (0, 0.5]')
    return float(value)


def _scores_out_of_fold(
    model: DensityEstimator, X: Array, weight: Array, random_state: Any
) -> Array:
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
    weights = torch.from_numpy(weight)
    near = torch.stack([moved_nearer(x, weights) for x in torch.from_numpy(X).T], 1).numpy()
    return ((near == X) | np.isnan(X)).all(axis=1)


def _fit_core(
    whole: DensityEstimator, X: Array, weight: Array, trusted: NDArray[np.bool_]
) -> DensityEstimator:
    """Fit anew to the trusted rows; where they have no density of their own, forget the others.

    A column that only outliers move is constant without them.
    """
    try:
        return clone(whole).fit(X[trusted], sample_weight=weight[trusted])
    except ValueError:
        return _without(whole, X, weight, ~trusted)


def _without(
    model: DensityEstimator, X: Array, weight: Array, left_out: NDArray[np.bool_]
) -> DensityEstimator:
    """The density without some of its rows; `model` stays as it is."""
    if not weight[left_out].any():
        return model
    if isinstance(model, QAFFDE):
        return copy(model).forget(X[left_out], sample_weight=weight[left_out])
    fresh: Any = clone(model)
    if isinstance(getattr(model, "density_", None), TableDensity) and hasattr(model, "plan_"):
        fresh.set_params(plan=model.plan_)
    return fresh.fit(X[~left_out], sample_weight=weight[~left_out])

"""Standardisation of columns, and the errors of data that have no density."""

import math

import numpy as np
import torch
from sklearn.base import BaseEstimator
from torch import Tensor

from qaffde.estimators.totals import Totals


def standardize(
    estimator: BaseEstimator, X: Tensor, weight: Tensor, bandwidth: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Location and scale to unit variance, so that units change nothing but the Jacobian.

    Parameters
    ----------
    estimator : BaseEstimator
        Whose ``feature_names_in_`` name columns in messages.
    X, weight : Tensors of shapes (n, d), (n,)
    bandwidth : Tensor of shape (d,), optional
        Scale of a constant column, where the kernel alone makes it a density.

    Returns
    -------
    location, scale : Tensors of shape (d,)
    """
    return units(estimator, Totals.of(X, weight), bandwidth)


def units(
    estimator: BaseEstimator, totals: Totals, bandwidth: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The same from the totals of the rows."""
    location, scale = totals.mean, totals.covariance.diagonal().sqrt()
    constant = (totals.ends[0] == totals.ends[1]) | ~(scale > 0)
    if constant.any() and bandwidth is None:
        _complain_constant(estimator, constant)
    if bandwidth is not None:
        scale = torch.where(constant, bandwidth, scale)
    if not (location.isfinite() & scale.isfinite()).all():
        raise ValueError(
            "the values are so large that their variance overflows; divide the columns first"
        )
    if bandwidth is None:
        _complain_copies(estimator, totals.standardized(location, scale))
    return location, scale


def box_units(ends: Tensor) -> tuple[Tensor, Tensor]:
    """Location and scale of the uniform law between `ends` of shape (2, d)."""
    lower, upper = ends
    return (lower + upper) / 2, (upper - lower) / math.sqrt(12)


def _complain_constant(estimator: BaseEstimator, constant: Tensor) -> None:
    names = ", ".join(_name(estimator, int(i)) for i in constant.nonzero()[:, 0])
    raise ValueError(
        f"constant column: {names}. A constant has no density; drop it, or smooth it "
        "with base_measure='kernel' and bandwidth as a number"
    )


def _complain_copies(estimator: BaseEstimator, totals: Totals) -> None:
    """Reject columns that repeat one another exactly: their joint density does not exist."""
    correlation = totals.covariance.abs().fill_diagonal_(0.0)
    if totals.n > 2 and correlation.max() > 1 - 1e-12:
        i, j = np.unravel_index(int(correlation.argmax()), correlation.shape)
        raise ValueError(
            f"columns {_name(estimator, int(i))} and {_name(estimator, int(j))} are copies of "
            "each other up to units: their joint density does not exist; drop one, or smooth them "
            "with base_measure='kernel' and bandwidth as a number"
        )


def _name(estimator: BaseEstimator, column: int) -> str:
    names = getattr(estimator, "feature_names_in_", None)
    return str(column) if names is None else repr(str(names[column]))

"""Units of columns, and the errors of data that have no density."""

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from qaffde.selection.summary import Moments

Names = Sequence[str] | None


def units(
    moments: Moments, names: Names = None, bandwidth: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Location and scale to unit variance, so that units change nothing but the Jacobian.

    Parameters
    ----------
    moments : Moments
        Of the rows.
    names : sequence of str, optional
        Of the columns, for messages.
    bandwidth : Tensor of shape (d,), optional
        Scale of a constant column, where the kernel alone makes it a density.

    Returns
    -------
    location, scale : Tensors of shape (d,)
    """
    location, scale = moments.mean, moments.covariance.diagonal().sqrt()
    constant = (moments.ends[0] == moments.ends[1]) | ~(scale > 0)
    if constant.any() and bandwidth is None:
        _complain_constant(constant, names)
    if bandwidth is not None:
        scale = torch.where(constant, bandwidth, scale)
    if not (location.isfinite() & scale.isfinite()).all():
        raise ValueError(
            "the values are so large that their variance overflows; divide the columns first"
        )
    if bandwidth is None:
        _complain_copies(moments.standardized(location, scale), names)
    return location, scale


def box_units(ends: Tensor) -> tuple[Tensor, Tensor]:
    """Location and scale of the uniform law between `ends` of shape (2, d)."""
    lower, upper = ends
    return (lower + upper) / 2, (upper - lower) / math.sqrt(12)


def _complain_constant(constant: Tensor, names: Names) -> None:
    columns = ", ".join(_name(names, int(i)) for i in constant.nonzero()[:, 0])
    raise ValueError(
        f"constant column: {columns}. A constant has no density; drop it, or smooth it "
        "with base_measure='kernel' and bandwidth as a number"
    )


def _complain_copies(moments: Moments, names: Names) -> None:
    """Reject columns that repeat one another exactly: their joint density does not exist."""
    correlation = moments.covariance.abs().fill_diagonal_(0.0)
    if moments.n > 2 and correlation.max() > 1 - 1e-12:
        i, j = np.unravel_index(int(correlation.argmax()), correlation.shape)
        raise ValueError(
            f"columns {_name(names, int(i))} and {_name(names, int(j))} are copies of "
            "each other up to units: their joint density does not exist; drop one, or smooth them "
            "with base_measure='kernel' and bandwidth as a number"
        )


def _name(names: Names, column: int) -> str:
    return str(column) if names is None else repr(str(names[column]))

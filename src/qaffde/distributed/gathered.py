"""One pass for all that a fit needs of the rows: ρ, and the ends and moments of its base.

ρ depends on units and frequencies, and on no base measure. So these can be settled by some of the
rows, while the ends of the box or the moments of the Gaussian come from all of them, gathered
beside ρ and put in its place before the density is read.
"""

from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from qaffde.estimators.assembly import frequency_kind
from qaffde.estimators.compute import Compute
from qaffde.estimators.data_measure import fit_gaussian
from qaffde.estimators.frame import Frame
from qaffde.estimators.parameters import holds_numbers, read_bounds
from qaffde.estimators.qaffde import QAFFDE
from qaffde.estimators.sums import Part, Sums
from qaffde.estimators.totals import Totals
from qaffde.nn import BoxMeasure


@dataclass(frozen=True, eq=False)
class Gathered:
    """What rows leave behind in a frame, and what they say of its base measure."""

    sums: Sums
    totals: Totals

    @classmethod
    def over(cls, frame: Frame, part: Part, compute: Compute) -> "Gathered":
        """Gather one part of the rows."""
        rows, weight, _ = part
        return cls(Sums.over(frame, [part], compute), Totals.of(rows, weight))

    def __add__(self, other: "Gathered") -> "Gathered":
        return Gathered(self.sums + other.sums, self.totals + other.totals)


def without_ends(model: QAFFDE, d: int) -> QAFFDE:
    """The model to settle a frame with: ends that move leave no place for a period."""
    box = model.base_measure == "box" or model.bounds is not None
    left_open = box and not holds_numbers(model.bounds)
    if left_open and model.features == "auto" and frequency_kind("auto", d) == "lattice":
        found: Any = copy(model).set_params(features="sobol")
        return found
    return model


def opened(model: QAFFDE, frame: Frame) -> Frame:
    """The frame with no end of the box but those that were given."""
    if not _moves(model, frame):
        return frame
    infinite = torch.tensor([[-torch.inf], [torch.inf]], dtype=frame.reach.dtype)
    given = read_bounds(model.bounds, frame.reach.shape[1])
    if given is None:
        return replace(frame, reach=infinite.expand_as(frame.reach))
    return replace(frame, reach=torch.where(given.isnan(), infinite, frame.reach))


def closed(model: QAFFDE, frame: Frame, totals: Totals) -> Frame:
    """The frame whose box or Gaussian is that of all rows."""
    totals = totals.standardized(frame.location, frame.scale)
    if _moves(model, frame):
        ends = _around(frame.measure, totals.ends)
        return replace(frame, measure=BoxMeasure(*ends), reach=ends)
    if frame.base_measure == "gaussian":
        return replace(frame, measure=fit_gaussian(totals))
    return frame


def _moves(model: QAFFDE, frame: Frame) -> bool:
    """Whether the ends of the frame may still move: a box, on frequencies without a period."""
    kind = frequency_kind(model.features, frame.reach.shape[1])
    return isinstance(frame.measure, BoxMeasure) and kind != "lattice"


def _around(box: Any, ends: Tensor) -> Tensor:
    """Ends of shape (2, d) of the least box that holds a box and others' ends."""
    return torch.stack([box.lower.minimum(ends[0]), box.upper.maximum(ends[1])])

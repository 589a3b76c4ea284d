"""What a long fit carries along: its rows in working units, and its clock."""

import math
import time
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from qaffde.estimators.survey import Survey
from qaffde.estimators.totals import Totals, effective_count
from qaffde.training.peers import ALONE, Peers


class Clock:
    """Time that is left of a limit in seconds; None is no limit."""

    def __init__(self, limit: float | None) -> None:
        self.limit = math.inf if limit is None else limit
        self.started = time.monotonic()

    @property
    def seconds(self) -> float:
        """Since the start."""
        return time.monotonic() - self.started

    @property
    def left(self) -> float | None:
        """Seconds that are left, never quite none; None without a limit."""
        return None if math.isinf(self.limit) else max(self.limit - self.seconds, 1e-3)

    def at(self, share: float) -> float:
        """When a share of the limit is over, on the clock of :func:`time.monotonic`."""
        return self.started + share * self.limit


@dataclass(frozen=True, eq=False)
class Rows:
    """Weighted rows in the units that a fit works in: x = location + scale · z.

    Parameters
    ----------
    Z, weight : Tensors of shapes (n, d), (n,)
    location, scale : Tensors of shape (d,)
    totals : Totals, optional
        In the same units, of all rows where these are a part of them.
    peers : Peers
        Processes that hold the other parts.
    sample : Rows, optional
        Rows that stand for all of them.
    """

    Z: Tensor
    weight: Tensor
    location: Tensor
    scale: Tensor
    totals: Totals | None = None
    peers: Peers = ALONE
    sample: "Rows | None" = None

    @property
    def count(self) -> float:
        """Effective number of all rows."""
        return effective_count(self.weight) if self.totals is None else self.totals.count

    @property
    def ends(self) -> Tensor:
        """Least and largest values of all rows, of shape (2, d)."""
        ends = torch.stack([self.Z.amin(0), self.Z.amax(0)])
        return ends if self.totals is None else self.totals.ends

    @property
    def typical(self) -> "Rows":
        """Rows that a design is chosen by."""
        return self if self.sample is None else self.sample

    @property
    def relative_weight(self) -> Tensor:
        """Weights of mean one; means over the parts of several processes then are that of all."""
        if self.totals is None or self.peers.size == 1:
            return self.weight / self.weight.mean()
        return self.weight * (len(self.weight) * self.peers.size / self.totals.weight)

    @classmethod
    def plain(cls, Z: Tensor, weight: Tensor) -> "Rows":
        """Rows in units of their own."""
        return cls(Z, weight, torch.zeros_like(Z[0]), torch.ones_like(Z[0]))

    @classmethod
    def of(cls, survey: Survey, location: Tensor, scale: Tensor) -> "Rows":
        """Rows of a survey that stand for all rows."""
        survey = survey.standardized(location, scale)
        return cls(survey.rows, survey.weight, location, scale, survey.totals)

    def part(self, chosen: Tensor) -> "Rows":
        """Some of the rows."""
        share = len(chosen) / len(self.Z)
        totals = None if self.totals is None else self.totals.scaled(share)
        return replace(self, Z=self.Z[chosen], weight=self.weight[chosen], totals=totals)

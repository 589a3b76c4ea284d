"""What a long fit carries along: its rows in working units, and its clock."""

import math
import time
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from qaffde.estimators.data_measure import effective_count


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
    """Weighted rows in the units that a fit works in: x = location + scale · z."""

    Z: Tensor
    weight: Tensor
    location: Tensor
    scale: Tensor

    @property
    def count(self) -> float:
        """Effective number of rows."""
        return effective_count(self.weight)

    @property
    def relative_weight(self) -> Tensor:
        """Weights of mean one."""
        return self.weight / self.weight.mean()

    @classmethod
    def plain(cls, Z: Tensor, weight: Tensor) -> "Rows":
        """Rows in units of their own."""
        return cls(Z, weight, torch.zeros_like(Z[0]), torch.ones_like(Z[0]))

    def part(self, chosen: Tensor) -> "Rows":
        """Some of the rows."""
        return replace(self, Z=self.Z[chosen], weight=self.weight[chosen])

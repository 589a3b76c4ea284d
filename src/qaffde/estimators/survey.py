"""A look at rows before the fit: a sample that settles the design, and totals of all of them."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from hashlib import blake2b
from operator import add

import numpy as np
import torch
from torch import Tensor

from qaffde.estimators.totals import Totals, effective_count

SAMPLE_ROWS = 100_000
"""Rows that settle a design: as many as expectation–maximisation sees of any fit."""

Check = Callable[[Tensor, Sequence[int]], None]
"""Rejects rows, of which it is told the numbers."""


@dataclass(frozen=True, eq=False)
class Sample:
    """Rows drawn from all rows, each with the same chance, in their order.

    Every row has a random key, and those with the least keys are the sample; samples of parts so
    become a sample of the whole. Keys are drawn from a seed and the content of a part: neither
    who looks at it nor when changes the sample.

    Parameters
    ----------
    rows, weight, keys : Tensors of shapes (n, d), (n,), (n,)
    most : int
        Rows that are kept.
    """

    rows: Tensor
    weight: Tensor
    keys: Tensor
    most: int = SAMPLE_ROWS

    @classmethod
    def of(cls, rows: Tensor, weight: Tensor, seed: int, most: int = SAMPLE_ROWS) -> "Sample":
        """Sample of one part."""
        content = int.from_bytes(blake2b(rows.numpy().tobytes(), digest_size=8).digest())
        keys = torch.from_numpy(np.random.default_rng([seed, content]).random(len(rows)))
        return cls(rows, weight, keys, most)._thinned()

    def __add__(self, other: "Sample") -> "Sample":
        return Sample(
            torch.cat([self.rows, other.rows]),
            torch.cat([self.weight, other.weight]),
            torch.cat([self.keys, other.keys]),
            self.most,
        )._thinned()

    def _thinned(self) -> "Sample":
        if len(self.keys) <= self.most:
            return self
        return self._part(self.keys.topk(self.most, largest=False, sorted=False)[1].sort()[0])

    def in_order_of_keys(self) -> "Sample":
        """The same rows in an order that does not depend on that of the parts."""
        return self._part(self.keys.argsort())

    def _part(self, chosen: Tensor) -> "Sample":
        return replace(
            self, rows=self.rows[chosen], weight=self.weight[chosen], keys=self.keys[chosen]
        )


@dataclass(frozen=True, eq=False)
class Survey:
    """Rows that a design is chosen by, and the totals of all the rows that they stand for.

    Parameters
    ----------
    rows, weight : Tensors of shapes (n, d), (n,)
    totals : Totals
    """

    rows: Tensor
    weight: Tensor
    totals: Totals

    @classmethod
    def of(cls, rows: Tensor, weight: Tensor) -> "Survey":
        """Survey of rows that are all at hand."""
        return cls(rows, weight, Totals.of(rows, weight))

    @property
    def shrinkage(self) -> float:
        """Best bandwidth for all rows, in units of the best one for the sample: n^(−1/(d+4))."""
        share = effective_count(self.weight) / self.totals.count
        return share ** (1 / (self.rows.shape[1] + 4))

    def standardized(self, location: Tensor, scale: Tensor) -> "Survey":
        """The same in the units z = (x − location) / scale."""
        return Survey(
            (self.rows - location) / scale, self.weight, self.totals.standardized(location, scale)
        )


@dataclass(frozen=True, eq=False)
class Look:
    """What a part of the rows adds to a survey."""

    sample: Sample
    totals: Totals

    @classmethod
    def at(cls, rows: Tensor, weight: Tensor, seed: int, most: int = SAMPLE_ROWS) -> "Look":
        """Look at one part."""
        return cls(Sample.of(rows, weight, seed, most), Totals.of(rows, weight))

    def __add__(self, other: "Look") -> "Look":
        return Look(self.sample + other.sample, self.totals + other.totals)

    def survey(self, *, any_order: bool = False) -> Survey:
        """Survey of all parts; with `any_order`, one that does not depend on theirs."""
        sample = self.sample.in_order_of_keys() if any_order else self.sample
        return Survey(sample.rows, sample.weight, self.totals)


def joined(looks: Iterable[Look | None]) -> Look | None:
    """All looks together; None where there were no rows to look at."""
    found = (look for look in looks if look is not None)
    first = next(found, None)
    return None if first is None else reduce(add, found, first)

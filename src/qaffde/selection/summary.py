"""Additive statistics of weighted rows: counts, ends, moments and a uniform sample."""

from dataclasses import dataclass, replace
from hashlib import blake2b

import numpy as np
import torch
from torch import Tensor

from qaffde.training.sums import effective_count, joint_count

SAMPLE_ROWS = 100_000
"""Rows of the sample that a plan is selected on: as many as expectation–maximization sees."""


@dataclass(frozen=True, eq=False)
class Moments:
    """Counts, ends and moments of weighted rows; those of disjoint parts add up.

    Parameters
    ----------
    n : int
        Number of rows.
    weight, count : float
        Sum of their weights, and effective number.
    ends : Tensor of shape (2, d)
        Least and largest value of each column.
    mean, covariance : Tensors of shapes (d,), (d, d)

    Examples
    --------
    >>> X = torch.tensor([[1.0], [2.0], [6.0]])
    >>> one, two = Moments.of(X[:1], torch.ones(1)), Moments.of(X[1:], torch.ones(2))
    >>> both = one + two
    >>> both.n, both.mean.item(), both.ends.tolist()
    (3, 3.0, [[1.0], [6.0]])
    """

    n: int
    weight: float
    count: float
    ends: Tensor
    mean: Tensor
    covariance: Tensor

    @classmethod
    def of(cls, rows: Tensor, weight: Tensor) -> "Moments":
        """Moments of rows of shape (n, d) with positive weights of shape (n,)."""
        total = weight.sum()
        share = weight / total
        mean = share @ rows
        centered = rows - mean
        return cls(
            len(rows),
            float(total),
            effective_count(weight),
            torch.stack([rows.amin(0), rows.amax(0)]),
            mean,
            centered.T @ (centered * share[:, None]),
        )

    def __add__(self, other: "Moments") -> "Moments":
        weight = self.weight + other.weight
        share, step = other.weight / weight, other.mean - self.mean
        between = share * (1 - share) * step[:, None] * step
        return Moments(
            self.n + other.n,
            weight,
            joint_count((self.weight, self.count), (other.weight, other.count)),
            torch.stack(
                [
                    torch.minimum(self.ends[0], other.ends[0]),
                    torch.maximum(self.ends[1], other.ends[1]),
                ]
            ),
            self.mean + share * step,
            torch.lerp(self.covariance, other.covariance, share) + between,
        )

    def scaled(self, factor: float) -> "Moments":
        """Estimate of the moments of `factor` times as many rows."""
        return replace(
            self,
            n=round(factor * self.n),
            weight=factor * self.weight,
            count=factor * self.count,
        )

    def standardized(self, location: Tensor, scale: Tensor) -> "Moments":
        """Moments of the rows in the units z = (x − location) / scale."""
        return replace(
            self,
            ends=(self.ends - location) / scale,
            mean=(self.mean - location) / scale,
            covariance=self.covariance / scale / scale[:, None],
        )


@dataclass(frozen=True, eq=False)
class Summary:
    """Moments of all rows and a uniform sample of them; summaries of disjoint parts add up.

    Every row has a random key, and the sample holds the rows with the smallest keys. Keys are
    drawn from a seed and the content of a part, so the sample does not depend on who reads a part
    or when.

    Parameters
    ----------
    moments : Moments
        Of all rows.
    rows, weight, keys : Tensors of shapes (m, d), (m,), (m,)
        The sample, in the order of the rows.
    max_rows : int
        Largest size of the sample.

    Examples
    --------
    >>> X = torch.arange(6.0).double()[:, None]
    >>> parts = [Summary.of(part, torch.ones(3).double(), seed=0) for part in X.split(3)]
    >>> both = parts[0] + parts[1]
    >>> both.moments.n, both.rows.shape
    (6, torch.Size([6, 1]))
    """

    moments: Moments
    rows: Tensor
    weight: Tensor
    keys: Tensor
    max_rows: int = SAMPLE_ROWS

    @classmethod
    def of(cls, rows: Tensor, weight: Tensor, seed: int, max_rows: int = SAMPLE_ROWS) -> "Summary":
        """Summary of one part: rows of shape (n, d) with positive weights of shape (n,)."""
        content = int.from_bytes(blake2b(rows.numpy().tobytes(), digest_size=8).digest())
        keys = torch.from_numpy(np.random.default_rng([seed, content]).random(len(rows)))
        return cls(Moments.of(rows, weight), rows, weight, keys, max_rows)._thinned()

    def __add__(self, other: "Summary") -> "Summary":
        return Summary(
            self.moments + other.moments,
            torch.cat([self.rows, other.rows]),
            torch.cat([self.weight, other.weight]),
            torch.cat([self.keys, other.keys]),
            self.max_rows,
        )._thinned()

    @property
    def shrinkage(self) -> float:
        """Ratio n^(−1/(d+4)) of the best bandwidths for all rows and for the sample."""
        share = effective_count(self.weight) / self.moments.count
        return float(share ** (1 / (self.rows.shape[1] + 4)))

    def standardized(self, location: Tensor, scale: Tensor) -> "Summary":
        """The summary in the units z = (x − location) / scale."""
        moments = self.moments.standardized(location, scale)
        return replace(self, moments=moments, rows=(self.rows - location) / scale)

    def sorted_by_keys(self) -> "Summary":
        """The summary with its sample in an order that does not depend on that of the parts."""
        return self._subset(self.keys.argsort())

    def _thinned(self) -> "Summary":
        if len(self.keys) <= self.max_rows:
            return self
        return self._subset(
            self.keys.topk(self.max_rows, largest=False, sorted=False)[1].sort()[0]
        )

    def _subset(self, chosen: Tensor) -> "Summary":
        return replace(
            self, rows=self.rows[chosen], weight=self.weight[chosen], keys=self.keys[chosen]
        )

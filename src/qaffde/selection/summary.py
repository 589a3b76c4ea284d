"""Additive statistics of the rows of a fit, the units they give, and where rows come from.

A :class:`Summary` holds counts, ends, moments and a uniform sample. A :class:`Source` passes over
its parts and adds up the results of a task; those that read as they go are in
:mod:`~qaffde.selection.sources` and :mod:`qaffde.distributed`.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from hashlib import blake2b
from operator import add
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from qaffde.schema import Schema, asked_kinds
from qaffde.selection.policy import (
    COVARIANCES,
    DEFAULT_POLICY,
    FINEST,
    MAX_BYTES,
    MIN_DIGITS,
    SAMPLE_ROWS,
    SelectionPolicy,
)
from qaffde.training.closed_form import effective_count, joint_count
from qaffde.training.run import ALONE, Peers


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
        The covariance of rows with gaps has the means in place of what is missing.
    gaps : Tensor of shape (d,)
        Weight of the rows in which a column is missing (NaN).

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
    gaps: Tensor

    @classmethod
    def of(cls, rows: Tensor, weight: Tensor) -> "Moments":
        """Moments of rows of shape (n, d) with positive weights of shape (n,)."""
        total, missing = weight.sum(), rows.isnan()
        gaps, ends = weight @ missing.to(weight), torch.stack([rows.amin(0), rows.amax(0)])
        share = weight / total
        mean = share @ rows
        if missing.any():
            mean = (weight @ rows.nan_to_num(nan=0.0)) / (total - gaps).clamp(min=1e-300)
            low, high = (rows.nan_to_num(nan=side) for side in (torch.inf, -torch.inf))
            ends = torch.stack([low.amin(0), high.amax(0)])
            rows = torch.where(missing, mean, rows)
        centered = rows - mean
        covariance = centered.T @ (centered * share[:, None])
        count = effective_count(weight)
        return cls(len(rows), float(total), count, ends, mean, covariance, gaps)

    def __add__(self, other: "Moments") -> "Moments":
        weight = self.weight + other.weight
        share, step = other.weight / weight, other.mean - self.mean
        between, gaps = share * (1 - share) * step[:, None] * step, self.gaps + other.gaps
        lower, upper = torch.stack([self.ends, other.ends], 1)
        seen = (weight - gaps).clamp(min=1e-300)
        known = (other.weight - other.gaps) / seen if gaps.any() else share
        return Moments(
            self.n + other.n,
            weight,
            joint_count((self.weight, self.count), (other.weight, other.count)),
            torch.stack([lower.amin(0), upper.amax(0)]),
            self.mean + known * step,
            torch.lerp(self.covariance, other.covariance, share) + between,
            gaps,
        )

    def standardized(self, location: Tensor, scale: Tensor) -> "Moments":
        """Moments of the rows in the units z = (x − location) / scale."""
        ends, mean = (self.ends - location) / scale, (self.mean - location) / scale
        covariance = self.covariance / scale / scale[:, None]
        return replace(self, ends=ends, mean=mean, covariance=covariance)


@dataclass(frozen=True, eq=False)
class Summary:
    """Moments of all rows and a uniform sample of them; summaries of disjoint parts add up.

    The sample holds the rows with the smallest random keys. These are drawn from a seed and the
    content of a part, so the sample does not depend on who reads it or when.

    Parameters
    ----------
    moments : Moments
        Of all rows.
    rows, weight, keys : Tensors of shapes (m, d), (m,), (m,)
        The sample, in the order of the rows.
    max_rows : int
        Largest size of the sample.
    labels : Tensor of shape (m,), optional
        Numbers of the classes of the sample.
    schema : Schema, optional
        Kinds of the columns; without one all are real.

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
    labels: Tensor | None = None
    schema: Schema | None = None

    @classmethod
    def of(
        cls,
        rows: Tensor,
        weight: Tensor,
        seed: int,
        max_rows: int = SAMPLE_ROWS,
        labels: Tensor | None = None,
        schema: Schema | None = None,
    ) -> "Summary":
        """Summary of one part: rows of shape (n, d) with positive weights of shape (n,)."""
        content = int.from_bytes(blake2b(rows.numpy().tobytes(), digest_size=8).digest())
        keys = torch.from_numpy(np.random.default_rng([seed, content]).random(len(rows)))
        moments = Moments.of(rows, weight)
        return cls(moments, rows, weight, keys, max_rows, labels, schema)._thinned()

    def __add__(self, other: "Summary") -> "Summary":
        labels = [part for part in (self.labels, other.labels) if part is not None]
        return Summary(
            self.moments + other.moments,
            torch.cat([self.rows, other.rows]),
            torch.cat([self.weight, other.weight]),
            torch.cat([self.keys, other.keys]),
            self.max_rows,
            torch.cat(labels) if labels else None,
            self.schema,
        )._thinned()

    @property
    def is_plain(self) -> bool:
        """Whether all columns are real and none has gaps."""
        return not self.moments.gaps.any() and (self.schema is None or self.schema.is_real)

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
        smallest = self.keys.topk(self.max_rows, largest=False, sorted=False)[1]
        return self._subset(smallest.sort()[0])

    def _subset(self, chosen: Tensor) -> "Summary":
        labels = None if self.labels is None else self.labels[chosen]
        rows, weight, keys = self.rows[chosen], self.weight[chosen], self.keys[chosen]
        return replace(self, rows=rows, weight=weight, keys=keys, labels=labels)


Part = tuple[Tensor, Tensor, Sequence[int]]
"""Rows of shape (n, d), positive weights of shape (n,) and the numbers of the rows."""
Check = Callable[[Tensor, Sequence[int]], None]
"""Rejects rows, of which it is told the numbers."""
Value = TypeVar("Value")


def accept(rows: Tensor, number: Sequence[int]) -> None:
    """Check that accepts all rows."""


def summarize_part(part: Part, *, check: Check = accept, **options: Any) -> Summary:
    """Summary of the rows of a part, which are checked before."""
    rows, weight, number = part
    check(rows, number)
    return Summary.of(rows, weight, **options)


class Source(ABC):
    """Rows of a fit, which reads them at most twice.

    Attributes
    ----------
    n_columns, names : int, sequence of str or None
        Number and names of the columns.
    max_rows : int
        Of the sample of a summary.
    partly_seen : bool
        Whether the summary has seen only some of the rows.
    peers : Peers
        Processes that hold other rows of the same fit.
    framed : bool
        Whether rows have dtypes that tell kinds of columns.
    schema : Schema or None
        Kinds of the columns, whose values are encoded by it; without one all are real.
    """

    n_columns: int
    names: Sequence[str] | None
    max_rows = SAMPLE_ROWS
    partly_seen = False
    peers: Peers = ALONE
    framed = False
    schema: Schema | None = None

    def infer(self, columns: Any) -> Schema | None:
        """Schema for kinds that are asked for; None of numbers of which nothing is asked."""
        names: Sequence[str | int] = range(self.n_columns) if self.names is None else self.names
        return Schema.of_parts(columns, names, self.inferred, framed=self.framed)

    @abstractmethod
    def inferred(self, columns: Any) -> Schema:
        """Schema of the rows with kinds that are asked for."""

    @abstractmethod
    def settled(self, schema: Schema | None, *, gaps: bool) -> "Source":
        """The source whose rows are encoded by a schema; NaN may be `gaps`."""

    @property
    def ends(self) -> Any:
        """Known ends of real columns, a pair for each column; None where none has any."""
        return None if self.schema is None else self.schema.ends

    def task(self, seed: int, check: Check) -> Callable[[Part], Summary]:
        """Task that checks a part of the rows and summarizes it."""
        check_width(self.n_columns, COVARIANCES)
        options: dict[str, Any] = {"max_rows": self.max_rows, "schema": self.schema}
        return partial(summarize_part, check=check, seed=seed, **options)

    @abstractmethod
    def summarize(self, seed: int, check: Check = accept, *, brief: bool = False) -> Summary:
        """Summary of the rows, with a sample by the seed.

        The check rejects rows that the fit cannot have; if it is `brief`, a few rows will do.
        """

    @abstractmethod
    def total(self, task: Callable[[Part], Value]) -> Value:
        """Sum of ``task(part)`` over all parts of the rows."""

    @abstractmethod
    def rows(self, seed: int) -> tuple[Tensor, Tensor]:
        """Rows and weights in memory: all of them, or a large sample."""


class MemorySource(Source):
    """Rows (n, d) and weights (n,) in memory, already checked."""

    def __init__(
        self,
        rows: Tensor,
        weight: Tensor,
        names: Sequence[str] | None = None,
        max_rows: int = SAMPLE_ROWS,
        peers: Peers = ALONE,
        schema: Schema | None = None,
    ) -> None:
        self.part: Part = rows, weight, range(len(rows))
        self.n_columns, self.names = rows.shape[1], names
        self.max_rows, self.peers, self.schema = max_rows, peers, schema

    def infer(self, columns: Any) -> Schema | None:
        """The schema that encoded the rows, or one for kinds that are asked for."""
        return super().infer(columns) if self.schema is None else self.schema

    def inferred(self, columns: Any) -> Schema:
        """Schema of the rows of this process."""
        names: Sequence[str | int] = range(self.n_columns) if self.names is None else self.names
        return Schema.infer(self.part[0].numpy(), asked_kinds(columns, names))

    def settled(self, schema: Schema | None, *, gaps: bool) -> Source:
        """The rows, encoded by a schema if they were not."""
        if schema is None or self.schema is not None:
            return self
        rows, weight, _ = self.part
        rows = torch.from_numpy(schema.encode(rows.numpy()))
        return MemorySource(rows, weight, self.names, self.max_rows, self.peers, schema)

    def summarize(self, seed: int, check: Check = accept, *, brief: bool = False) -> Summary:
        """Summary of all rows, those of the peers included."""
        return self.total(self.task(seed, check))

    def total(self, task: Callable[[Part], Value]) -> Value:
        """The task on all rows, those of the peers included."""
        if self.peers.size == 1:
            return task(self.part)
        return reduce(add, self.peers.gather(lambda: task(self.part)))

    def rows(self, seed: int) -> tuple[Tensor, Tensor]:
        """The rows of this process."""
        return self.part[:2]


Names = Sequence[str] | None
TOO_LARGE = "the values are so large that their variance overflows; divide the columns first"


def units(
    moments: Moments, names: Names = None, bandwidth: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Location and scale, of shape (d,), to unit variance: units change nothing but the Jacobian.

    A given bandwidth is the scale of a constant column, where the kernel alone makes it a density.
    Messages call columns by their names.
    """
    location, scale = moments.mean, moments.covariance.diagonal().sqrt()
    constant = moments.ends[0] == moments.ends[1]
    if constant.any() and bandwidth is None:
        columns = ", ".join(_name(names, int(i)) for i in constant.nonzero()[:, 0])
        raise ValueError(
            f"constant column: {columns}. A constant has no density; drop it, or smooth it "
            "with base_measure='kernel' and bandwidth as a number"
        )
    _check_digits(location, torch.where(constant, torch.inf, scale), names)
    if bandwidth is not None:
        scale = torch.where(constant, bandwidth, scale)
    if not (location.isfinite() & scale.isfinite()).all():
        raise ValueError(TOO_LARGE)
    correlation = (moments.covariance / scale / scale[:, None]).abs().fill_diagonal_(0.0)
    if bandwidth is None and moments.n > 2 and correlation.max() > 1 - 1e-14:
        first, second = divmod(int(correlation.argmax()), len(scale))
        raise ValueError(
            f"columns {_name(names, first)} and {_name(names, second)} are copies of "
            "each other up to units, to seven digits or more: their joint density does not exist; "
            "drop one, or smooth them with base_measure='kernel' and bandwidth as a number"
        )
    return location, scale


def check_width(d: int, n_copies: int) -> None:
    """Refuse d columns of which so many covariance matrices take more memory than a fit may."""
    n_bytes = 8 * n_copies * d**2
    if n_bytes > MAX_BYTES:
        raise ValueError(
            f"one density of {d:,} columns would take about {n_bytes / 1e9:,.0f} GB of memory for "
            "its covariances; name columns that belong together (columns= of a file), or reduce "
            "them first, as sklearn.decomposition.PCA does"
        )


def _check_digits(location: Tensor, scale: Tensor, names: Names) -> None:
    """Reject columns whose variation float64 cannot hold."""
    tiny = scale.square() < torch.finfo(scale.dtype).tiny
    if tiny.any():
        column = _name(names, int(tiny.nonzero()[0]))
        raise ValueError(
            f"the values of column {column} differ by so little that their variance underflows; "
            "multiply the column first"
        )
    coarse = location.abs() * torch.finfo(location.dtype).eps > MIN_DIGITS * scale
    if coarse.any():
        i = int(coarse.nonzero()[0])
        raise ValueError(
            f"the values of column {_name(names, i)} lie around {float(location[i]):.3g} and "
            f"differ by {float(scale[i]):.3g} only: float64 keeps too few digits; subtract "
            "a constant from the column before it is stored as float64"
        )


def _name(names: Names, column: int) -> str:
    return str(column) if names is None else repr(str(names[column]))


def robust_units(
    summary: Summary,
    policy: SelectionPolicy = DEFAULT_POLICY,
    names: Names = None,
    bandwidth: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Units that a few rows far from all others do not change.

    Location and scale are mean and standard deviation. In a column whose standard deviation is
    far larger than half the distance between its 16 % and 84 % quantiles, they are the median and
    that half distance. Parameters and results are those of :func:`units`.
    """
    low, middle, high = _quantiles(summary.rows, summary.weight, (0.16, 0.5, 0.84))
    spread, scale = (high - low) / 2, summary.moments.covariance.diagonal().sqrt()
    reach = policy.far_spread * spread
    far = (spread > 0) & ~(scale <= reach)
    if not far.any():
        return units(summary.moments, names, bandwidth)
    away = ((summary.moments.ends - middle) / spread)[:, far].abs().amax()
    if away > 1 / FINEST:
        raise ValueError(
            f"some values are {float(away):.0e} times as far from the others as those are from "
            "each other, which float64 cannot hold together; leave their rows out"
        )
    near = torch.where(far, summary.rows.clamp(middle - reach, middle + reach), summary.rows)
    location, scale = units(Moments.of(near, summary.weight), names, bandwidth)
    return torch.where(far, middle, location), torch.where(far, spread, scale)


def moved_nearer(x: Tensor, weight: Tensor, policy: SelectionPolicy = DEFAULT_POLICY) -> Tensor:
    """Rows (n, d) with values that few of them have far from all others moved nearer.

    Far are those that :func:`robust_units` takes for far, if at most one row in a hundred, or one
    row, has them. They are moved to the distance from which values are far. NaN stays.
    """
    return torch.stack([_moved_nearer(column, weight, policy) for column in x.T], 1)


def _moved_nearer(x: Tensor, weight: Tensor, policy: SelectionPolicy) -> Tensor:
    """The same of one column (n,)."""
    known = ~x.isnan()
    values, own = x[known], weight[known]
    if not len(values):
        return x
    low, middle, high = _quantiles(values[:, None], own, (0.16, 0.5, 0.84))[:, 0]
    reach, share = policy.far_spread * (high - low) / 2, own / own.sum()
    is_far = (values - middle).abs() > reach
    spread = (share @ (values - share @ values).square()).sqrt()
    few = share[is_far].sum() <= share.max().clamp(min=policy.far_share)
    if reach == 0 or spread <= reach or not few:
        return x
    return x.clamp(middle - reach, middle + reach)


def _quantiles(rows: Tensor, weight: Tensor, shares: Sequence[float]) -> Tensor:
    """Quantiles, of shape (len(shares), d), of weighted rows of shape (n, d)."""
    values, order = rows.sort(0)
    cumulative = weight[order].cumsum(0)
    wanted = torch.tensor(shares, dtype=rows.dtype)[None] * cumulative[-1][:, None]
    place = torch.searchsorted(cumulative.T.contiguous(), wanted).clamp(max=len(rows) - 1)
    return values.gather(0, place.T)


def relative_bandwidth(h: Tensor | None, scale: Tensor) -> Tensor | None:
    """A given bandwidth in the units of a plan."""
    if h is None:
        return None
    relative = h / scale
    if (relative < FINEST).any():
        raise ValueError(
            f"a bandwidth of {float(h.min()):.3g} is only {float(relative.min()):.0e} standard "
            "deviations of its column; give a larger one, or leave rows out that are far off"
        )
    return relative


def box_units(ends: Tensor) -> tuple[Tensor, Tensor]:
    """Location and scale of the uniform law between `ends` of shape (2, d)."""
    lower, upper = ends
    return (lower + upper) / 2, (upper - lower) / math.sqrt(12)

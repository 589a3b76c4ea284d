"""Sources of the rows of a fit, and their additive statistics.

A :class:`Source` passes over its parts and adds up the results of a task; a :class:`Summary`
holds counts, ends, moments and a uniform sample.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from hashlib import blake2b
from itertools import chain, islice
from operator import add
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.utils.validation import _get_feature_names
from torch import Tensor

from qaffde.parameters import Seed, generator_from
from qaffde.schema import Schema
from qaffde.streams import Block, Chunks, as_chunks
from qaffde.streams.blocks import checked
from qaffde.training.closed_form import effective_count, joint_count
from qaffde.training.run import ALONE, Peers

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
        known = ((other.weight - other.gaps) / (weight - gaps)) if gaps.any() else share
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
            self.mean + known * step,
            torch.lerp(self.covariance, other.covariance, share) + between,
            gaps,
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
        return self._subset(
            self.keys.topk(self.max_rows, largest=False, sorted=False)[1].sort()[0]
        )

    def _subset(self, chosen: Tensor) -> "Summary":
        return replace(
            self,
            rows=self.rows[chosen],
            weight=self.weight[chosen],
            keys=self.keys[chosen],
            labels=None if self.labels is None else self.labels[chosen],
        )


MANY_ROWS = 1_000_000
"""Rows of a stream that a likelihood is maximized on."""
TOO_FEW = "fewer than two rows have a positive sample_weight; a density needs at least two"
NONE_LEFT = "no row has a positive weight; an iterator can be read once only"

Part = tuple[Tensor, Tensor, Sequence[int]]
"""Rows of shape (n, d), positive weights of shape (n,) and the numbers of the rows."""
Check = Callable[[Tensor, Sequence[int]], None]
"""Rejects rows, of which it is told the numbers."""
Value = TypeVar("Value")


def accept(rows: Tensor, number: Sequence[int]) -> None:
    """Check that accepts all rows."""


class Source(ABC):
    """Rows of a fit, which reads them at most twice.

    Attributes
    ----------
    n_columns : int
    names : sequence of str or None
        Of the columns.
    partly_seen : bool
        Whether the summary has seen only some of the rows.
    peers : Peers
        Processes that hold other rows of the same fit.
    schema : Schema or None
        Kinds of the columns, whose values are encoded by it; without one all are real.
    """

    n_columns: int
    names: Sequence[str] | None
    partly_seen = False
    peers: Peers = ALONE
    schema: Schema | None = None

    @property
    def ends(self) -> Any:
        """Known ends of real columns, a pair for each column; None where none has any."""
        return None if self.schema is None else self.schema.ends

    @abstractmethod
    def summarize(self, seed: int, check: Check = accept, *, brief: bool = False) -> Summary:
        """Summary of the rows.

        Parameters
        ----------
        seed : int
            Of the sample.
        check : Check
            Rejects rows that the fit cannot have.
        brief : bool
            Whether a few rows will do.
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

    def summarize(self, seed: int, check: Check = accept, *, brief: bool = False) -> Summary:
        """Summary of all rows, those of the peers included."""
        return self._together(lambda: _summary(self.part, check, seed, self.max_rows, self.schema))

    def total(self, task: Callable[[Part], Value]) -> Value:
        """The task on all rows, those of the peers included."""
        return self._together(lambda: task(self.part))

    def _together(self, work: Callable[[], Value]) -> Value:
        """Result of some work, added up over the peers."""
        if self.peers.size == 1:
            return work()
        return reduce(add, self.peers.gather(work))

    def rows(self, seed: int) -> tuple[Tensor, Tensor]:
        """The rows of this process."""
        return self.part[:2]


class ChunkSource(Source):
    """Rows that are read a block at a time, of which there must be a `minimum`.

    A summary reads all of them where they can be read again. Of an iterator it keeps the first
    rows until they are summed together with the rest.
    """

    def __init__(self, chunks: Chunks, minimum: int = 2, max_rows: int = SAMPLE_ROWS) -> None:
        self.chunks, self.minimum, self.max_rows = chunks, minimum, max_rows
        self.n_columns, self.names = chunks.n_columns, chunks.names
        self.unread: Iterator[Block] | None = None

    def summarize(self, seed: int, check: Check = accept, *, brief: bool = False) -> Summary:
        """Summary of all rows, or of the first ones of those that can be read once."""
        if self.chunks.again:
            blocks: Iterable[Block] = self.chunks.blocks("looking at the rows")
        else:
            blocks = self._first(self.minimum if brief else self.max_rows)
        found = (
            _summary(_part(block), check, seed, self.max_rows, self.schema)
            for block in blocks
            if len(block.weight)
        )
        return _enough(_until(found, self.minimum) if brief else found, self.minimum)

    def total(self, task: Callable[[Part], Value]) -> Value:
        """Sum of the task over all blocks."""
        blocks = self.chunks.blocks("adding up") if self.unread is None else self.unread
        self.unread = None
        return reduce(add, map(task, self._parts(blocks)))

    def rows(self, seed: int) -> tuple[Tensor, Tensor]:
        """A sample: all rows have the same chance, or the first ones of an iterator are taken."""
        sample = ChunkSource(self.chunks, self.minimum, MANY_ROWS).summarize(seed)
        return sample.rows, sample.weight

    def _first(self, n: int) -> list[Block]:
        """Blocks with at least `n` rows, which stay unread."""
        blocks = self.chunks.blocks("adding up")
        held: list[Block] = []
        while sum(len(block.weight) for block in held) < n:
            block = next(blocks, None)
            if block is None:
                break
            held.append(block)
        following = list(islice(blocks, 1))
        self.partly_seen = bool(following)
        self.unread = chain(held, following, blocks)
        return held

    def _parts(self, blocks: Iterable[Block]) -> Iterator[Part]:
        """Parts of the blocks that have rows, of which there must be enough."""
        n = 0
        held: list[Part] = []
        for block in blocks:
            if not len(block.weight):
                continue
            n += len(block.weight)
            held.append(_part(block))
            if n >= self.minimum:
                yield from held
                held = []
        if n < self.minimum:
            raise ValueError(TOO_FEW if self.minimum > 1 else NONE_LEFT)


def summarize(
    X: Any,
    sample_weight: ArrayLike | None = None,
    *,
    columns: Any = None,
    random_state: Seed = None,
    max_rows: int = SAMPLE_ROWS,
) -> Summary:
    """Additive statistics of rows: counts, ends, moments and a uniform sample.

    Summaries of disjoint parts of the rows add up to the summary of all rows.

    Parameters
    ----------
    X : array-like of shape (n, d), a source of chunks, or Source
        Chunks as :func:`qaffde.streams.chunks` makes them; for a Dask collection, a
        :class:`qaffde.distributed.DaskSource`.
    sample_weight : array-like of shape (n,), optional
    columns : "auto", kind, list of d kinds, dict of {column: kind} or None, default=None
        Kinds of the columns of a table in memory, which may have gaps then, as in
        :class:`qaffde.QAFFDE`. By default all are real and none has a gap.
    random_state : int, RandomState instance or None, default=None
        Of the sample.
    max_rows : int, default=100_000
        Rows of the sample.

    Returns
    -------
    Summary

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(500, 2))
    >>> whole = summarize(X)
    >>> parts = summarize(X[:200]) + summarize(X[200:])
    >>> whole.moments.n, torch.allclose(whole.moments.mean, parts.moments.mean)
    (500, True)
    """
    seed = generator_from(random_state).initial_seed()
    schema = None if columns is None else Schema.infer(X, columns)
    return as_source(X, sample_weight, max_rows=max_rows, schema=schema).summarize(seed)


def as_source(
    X: Any,
    sample_weight: ArrayLike | None = None,
    *,
    minimum: int = 1,
    max_rows: int = SAMPLE_ROWS,
    schema: Schema | None = None,
) -> Source:
    """Source of rows that need no check by an estimator; a schema encodes those in memory."""
    if isinstance(X, Source):
        return X
    chunks = as_chunks(X, sample_weight)
    if chunks is not None:
        return ChunkSource(chunks, minimum, max_rows)
    names = _get_feature_names(X)
    rows = np.ascontiguousarray(X if schema is None else schema.encode(X), dtype=np.float64)
    if rows.ndim != 2:
        raise ValueError(f"rows must be of shape (n, d), got {rows.shape}")
    weight = (
        np.ones(len(rows)) if sample_weight is None else np.asarray(sample_weight, dtype=float)
    )
    block = checked(rows, weight, 0, names, gaps=schema is not None)
    if len(block.weight) < minimum:
        raise ValueError(TOO_FEW if minimum > 1 else NONE_LEFT)
    values = torch.tensor(block.rows), torch.tensor(block.weight)
    return MemorySource(*values, names=names, max_rows=max_rows, schema=schema)


def _summary(part: Part, check: Check, seed: int, max_rows: int, schema: Schema | None) -> Summary:
    rows, weight, number = part
    check(rows, number)
    return Summary.of(rows, weight, seed, max_rows, schema=schema)


def _enough(summaries: Iterable[Summary], minimum: int) -> Summary:
    """Sum of summaries, which must hold enough rows."""
    total: Summary | None = None
    for summary in summaries:
        total = summary if total is None else total + summary
    if total is None or total.moments.n < minimum:
        raise ValueError(TOO_FEW if minimum > 1 else NONE_LEFT)
    return total


def _until(summaries: Iterable[Summary], n: int) -> Iterator[Summary]:
    """Summaries of the first rows, until there are `n` of them."""
    for summary in summaries:
        yield summary
        n -= summary.moments.n
        if n <= 0:
            return


def _part(block: Block) -> Part:
    return torch.from_numpy(block.rows), torch.from_numpy(block.weight), block.number


Names = Sequence[str] | None


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
        _complain_constant(constant, names)
    _complain_digits(location, torch.where(constant, torch.inf, scale), names)
    if bandwidth is not None:
        scale = torch.where(constant, bandwidth, scale)
    if not (location.isfinite() & scale.isfinite()).all():
        raise ValueError(
            "the values are so large that their variance overflows; divide the columns first"
        )
    if bandwidth is None:
        _complain_copies(moments.standardized(location, scale), names)
    return location, scale


BEYOND, FINEST = 1e12, 1e-12
"""Deviations of a value, and of a bandwidth, that a fit can hold beside those of all others."""
MIN_DIGITS = 0.01
"""Rounding error of the values, in standard deviations, that is too much."""
FAR = 20.0
"""Ratio of standard deviation and central spread beyond which a few rows make the former."""
FEW = 0.01
"""Share of the rows that may be moved nearer to the others."""


def robust_units(
    summary: Summary, names: Names = None, bandwidth: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Units that a few rows far from all others do not change.

    Location and scale are mean and standard deviation. In a column whose standard deviation is
    far larger than half the distance between its 16 % and 84 % quantiles, they are the median and
    that half distance. Parameters and results are those of :func:`units`.
    """
    low, middle, high = _quantiles(summary.rows, summary.weight, (0.16, 0.5, 0.84))
    spread, scale = (high - low) / 2, summary.moments.covariance.diagonal().sqrt()
    far = (spread > 0) & ~(scale <= FAR * spread)
    if not far.any():
        return units(summary.moments, names, bandwidth)
    away = ((summary.moments.ends - middle) / spread)[:, far].abs().amax()
    if away > BEYOND:
        raise ValueError(
            f"some values are {float(away):.0e} times as far from the others as those are from "
            "each other, which float64 cannot hold together; leave their rows out"
        )
    near = torch.where(
        far, summary.rows.clamp(middle - FAR * spread, middle + FAR * spread), summary.rows
    )
    location, scale = units(Moments.of(near, summary.weight), names, bandwidth)
    return torch.where(far, middle, location), torch.where(far, spread, scale)


def moved_nearer(x: Tensor, weight: Tensor) -> Tensor:
    """Values (n,) of a column, those that few rows have far from all others moved nearer.

    Far are those that :func:`robust_units` takes for far, if at most one row in a hundred, or one
    row, has them. They are moved to the distance from which values are far. NaN stays.
    """
    known = ~x.isnan()
    values, own = x[known], weight[known]
    if not len(values):
        return x
    low, middle, high = _quantiles(values[:, None], own, (0.16, 0.5, 0.84))[:, 0]
    reach, share = FAR * (high - low) / 2, own / own.sum()
    is_far = (values - middle).abs() > reach
    spread = (share @ (values - share @ values).square()).sqrt()
    few = share[is_far].sum() <= share.max().clamp(min=FEW)
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


def _complain_constant(constant: Tensor, names: Names) -> None:
    columns = ", ".join(_name(names, int(i)) for i in constant.nonzero()[:, 0])
    raise ValueError(
        f"constant column: {columns}. A constant has no density; drop it, or smooth it "
        "with base_measure='kernel' and bandwidth as a number"
    )


def _complain_digits(location: Tensor, scale: Tensor, names: Names) -> None:
    """Reject columns whose variation float64 cannot hold."""
    if (scale == 0).any():
        column = _name(names, int((scale == 0).nonzero()[0]))
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


def _complain_copies(moments: Moments, names: Names) -> None:
    """Reject columns that repeat one another exactly: their joint density does not exist."""
    correlation = moments.covariance.abs().fill_diagonal_(0.0)
    if moments.n > 2 and correlation.max() > 1 - 1e-14:
        i, j = np.unravel_index(int(correlation.argmax()), correlation.shape)
        raise ValueError(
            f"columns {_name(names, int(i))} and {_name(names, int(j))} are copies of "
            "each other up to units, to seven digits or more: their joint density does not exist; "
            "drop one, or smooth them with base_measure='kernel' and bandwidth as a number"
        )


def _name(names: Names, column: int) -> str:
    return str(column) if names is None else repr(str(names[column]))

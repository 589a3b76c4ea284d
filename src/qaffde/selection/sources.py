"""Where the rows of a fit are: in memory, in a stream of blocks, or in the parts of a cluster."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from itertools import chain, islice
from operator import add
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.utils.validation import _get_feature_names
from torch import Tensor

from qaffde.random import Seed, generator_from
from qaffde.selection.summary import SAMPLE_ROWS, Summary
from qaffde.streams import Block, Chunks, as_chunks
from qaffde.streams.blocks import checked
from qaffde.training.peers import ALONE, Peers

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
    """

    n_columns: int
    names: Sequence[str] | None
    partly_seen = False
    peers: Peers = ALONE

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
    """Rows and weights in memory, already checked.

    Parameters
    ----------
    rows, weight : Tensors of shapes (n, d), (n,)
    names : sequence of str, optional
    max_rows : int
        Rows of the sample.
    peers : Peers
    """

    def __init__(
        self,
        rows: Tensor,
        weight: Tensor,
        names: Sequence[str] | None = None,
        max_rows: int = SAMPLE_ROWS,
        peers: Peers = ALONE,
    ) -> None:
        self.part: Part = rows, weight, range(len(rows))
        self.n_columns, self.names = rows.shape[1], names
        self.max_rows, self.peers = max_rows, peers

    def summarize(self, seed: int, check: Check = accept, *, brief: bool = False) -> Summary:
        """Summary of all rows, those of the peers included."""
        found = self.peers.gather(lambda: _summary(self.part, check, seed, self.max_rows))
        return reduce(add, found)

    def total(self, task: Callable[[Part], Value]) -> Value:
        """The task on all rows, those of the peers included."""
        return reduce(add, self.peers.gather(lambda: task(self.part)))

    def rows(self, seed: int) -> tuple[Tensor, Tensor]:
        """The rows of this process."""
        return self.part[:2]


class ChunkSource(Source):
    """Rows that are read a block at a time.

    A summary reads all of them where they can be read again. Of an iterator it keeps the first
    rows until they are summed together with the rest.

    Parameters
    ----------
    chunks : Chunks
    minimum : int, default=2
        Rows that there must be.
    max_rows : int
        Rows of the sample.
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
        found = (_summary(_part(b), check, seed, self.max_rows) for b in blocks if len(b.weight))
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
    random_state: Seed = None,
    max_rows: int = SAMPLE_ROWS,
) -> Summary:
    """Additive statistics of rows: counts, ends, moments and a uniform sample.

    Summaries of disjoint parts of the rows add up to that of all of them, whoever made them.

    Parameters
    ----------
    X : array-like of shape (n, d), a source of chunks, or Source
        Chunks as :func:`qaffde.streams.chunks` makes them; for a Dask collection, a
        :class:`qaffde.distributed.DaskSource`.
    sample_weight : array-like of shape (n,), optional
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
    return as_source(X, sample_weight, max_rows=max_rows).summarize(seed)


def as_source(
    X: Any,
    sample_weight: ArrayLike | None = None,
    *,
    minimum: int = 1,
    max_rows: int = SAMPLE_ROWS,
) -> Source:
    """Source of rows that need no check by an estimator."""
    if isinstance(X, Source):
        return X
    chunks = as_chunks(X, sample_weight)
    if chunks is not None:
        return ChunkSource(chunks, minimum, max_rows)
    names = _get_feature_names(X)
    rows = np.ascontiguousarray(X, dtype=np.float64)
    if rows.ndim != 2:
        raise ValueError(f"rows must be of shape (n, d), got {rows.shape}")
    weight = (
        np.ones(len(rows)) if sample_weight is None else np.asarray(sample_weight, dtype=float)
    )
    block = checked(rows, weight, 0, names)
    if len(block.weight) < minimum:
        raise ValueError(TOO_FEW if minimum > 1 else NONE_LEFT)
    values = torch.tensor(block.rows), torch.tensor(block.weight)
    return MemorySource(*values, names=names, max_rows=max_rows)


def _summary(part: Part, check: Check, seed: int, max_rows: int) -> Summary:
    rows, weight, number = part
    check(rows, number)
    return Summary.of(rows, weight, seed, max_rows)


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

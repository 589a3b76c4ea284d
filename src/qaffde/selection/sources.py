"""Rows that are read a block at a time, and the source of any rows."""

import math
from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from itertools import chain, islice
from operator import add
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.utils.validation import _get_feature_names
from torch import Tensor

from qaffde.parameters import Seed, generator_from
from qaffde.schema import Schema
from qaffde.selection.policy import MANY_ROWS, SAMPLE_ROWS
from qaffde.selection.summary import (
    Check,
    MemorySource,
    Part,
    Source,
    Summary,
    Value,
    accept,
)
from qaffde.streams import Block, Chunks, as_chunks
from qaffde.streams.blocks import checked

TOO_FEW = "fewer than two rows have a positive sample_weight; a density needs at least two"
NONE_LEFT = "no row has a positive weight; an iterator can be read once only"


class ChunkSource(Source):
    """Rows that are read a block at a time, of which there must be a `minimum`.

    A summary reads all of them where they can be read again. Of an iterator it keeps the first
    rows until they are summed together with the rest.
    """

    def __init__(self, chunks: Chunks, minimum: int = 2, max_rows: int = SAMPLE_ROWS) -> None:
        self.chunks, self.minimum, self.max_rows = chunks, minimum, max_rows
        self.n_columns, self.names = chunks.n_columns, chunks.names
        self.framed, self.schema = chunks.framed, chunks.schema
        self.unread: Iterator[Block] | None = None

    def infer(self, columns: Any) -> Schema | None:
        """Schema for kinds that are asked for; None of numbers of which nothing is asked."""
        return self.chunks.infer(columns)

    def inferred(self, columns: Any) -> Schema:
        """Schema of the rows, which stay unread, with kinds that are asked for."""
        return self.chunks.inferred(columns)

    def settled(self, schema: Schema | None, *, gaps: bool) -> "ChunkSource":
        """The same source, which reads rows by a schema from now on."""
        self.chunks.settle(schema, gaps=gaps)
        self.schema = schema
        return self

    def summarize(self, seed: int, check: Check = accept, *, brief: bool = False) -> Summary:
        """Summary of all rows, or of the first ones of those that can be read once."""
        enough = self.minimum if brief else math.inf
        if self.chunks.again:
            blocks: Iterable[Block] = self.chunks.blocks("looking at the rows")
        else:
            blocks = self._first(self.minimum if brief else self.max_rows)
        return reduce(add, map(self.task(seed, check), self._parts(blocks, enough)))

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
        blocks, held = self.chunks.blocks("adding up"), list[Block]()
        while sum(len(block.weight) for block in held) < n and (some := [*islice(blocks, 1)]):
            held += some
        following = [*islice(blocks, 1)]
        self.partly_seen = bool(following)
        self.unread = chain(held, following, blocks)
        return held

    def _parts(self, blocks: Iterable[Block], enough: float = math.inf) -> Iterator[Part]:
        """Parts of the blocks that have rows, until these are `enough`; few are an error."""
        n = 0
        for block in blocks:
            if len(block.weight):
                n += len(block.weight)
                yield torch.from_numpy(block.rows), torch.from_numpy(block.weight), block.number
            if n >= enough:
                return
        check_enough(n, self.minimum)


def check_enough(n: int, minimum: int) -> None:
    """Reject fewer rows than the minimum."""
    if n < minimum:
        raise ValueError(TOO_FEW if minimum > 1 else NONE_LEFT)


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
        Kinds of the columns of a table, which may have gaps then, as in :class:`qaffde.QAFFDE`. By
        default all are real and none has a gap.
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
    source = as_source(X, sample_weight, max_rows=max_rows, columns=columns)
    return source.summarize(seed)


def as_source(
    X: Any,
    sample_weight: ArrayLike | None = None,
    *,
    minimum: int = 1,
    max_rows: int = SAMPLE_ROWS,
    columns: Any = None,
    schema: Schema | None = None,
    gaps: bool | None = None,
) -> Source:
    """Source of rows that need no check by an estimator.

    They are encoded by a schema, or by one of their own with kinds of `columns` that are asked
    for; they may have `gaps` then, if it does not say otherwise.
    """
    gaps = (schema is not None or columns is not None) if gaps is None else gaps
    source: Source | None = X if isinstance(X, Source) else None
    if source is None and (chunks := as_chunks(X, sample_weight)) is not None:
        source = ChunkSource(chunks, minimum, max_rows)
    if source is not None:
        return source.settled(schema or source.infer(columns), gaps=gaps)
    if schema is None and columns is not None:
        schema = Schema.infer(X, columns)
    names = _get_feature_names(X)
    rows = np.ascontiguousarray(X if schema is None else schema.encode(X), dtype=np.float64)
    if rows.ndim != 2:
        raise ValueError(f"rows must be of shape (n, d), got {rows.shape}")
    weight = np.ones(len(rows)) if sample_weight is None else np.asarray(sample_weight, float)
    block = checked(rows, weight, 0, names, gaps=gaps)
    check_enough(len(block.weight), minimum)
    values = torch.tensor(block.rows), torch.tensor(block.weight)
    return MemorySource(*values, names=names, max_rows=max_rows, schema=schema)

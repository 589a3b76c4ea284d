"""Where the rows of a fit are: in memory, or in a stream of blocks."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from itertools import chain, islice
from typing import Any, TypeVar

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data
from torch import Tensor

from qaffde.estimators.compute import Compute
from qaffde.estimators.frame import Frame
from qaffde.estimators.sums import Part, Sums
from qaffde.estimators.survey import SAMPLE_ROWS, Check, Look, Survey, joined
from qaffde.streams import Block, Chunks
from qaffde.streams.names import framed

TOO_FEW = "fewer than two rows have a positive sample_weight; a density needs at least two"
NONE_LEFT = "no row has a positive weight; an iterator can be read once only"

Method = TypeVar("Method", bound=Callable[..., Any])


def all_or_nothing(method: Method) -> Method:
    """Method that leaves its object as it was if it fails."""

    @wraps(method)
    def guarded(self: Any, *args: Any, **kwargs: Any) -> Any:
        before = vars(self).copy()
        try:
            return method(self, *args, **kwargs)
        except BaseException:
            vars(self).clear()
            vars(self).update(before)
            raise

    return guarded  # type: ignore[return-value]


class Source(ABC):
    """Rows of a fit, which passes over them at most twice."""

    endless = False
    """Whether the survey has seen only the first of the rows."""

    @abstractmethod
    def survey(self, check: Check, seed: int, *, brief: bool = False) -> Survey:
        """Look at the rows.

        Parameters
        ----------
        check : Check
            Rejects rows that the fit cannot have.
        seed : int
            Of the sample.
        brief : bool
            Whether a few rows will do: nothing but their number of columns counts.
        """

    @abstractmethod
    def sums(self, frame: Frame, compute: Compute) -> Sums:
        """Add up all rows."""


class MemorySource(Source):
    """Rows and weights that were checked."""

    def __init__(self, rows: Tensor, weight: Tensor) -> None:
        self.rows, self.weight = rows, weight

    def survey(self, check: Check, seed: int, *, brief: bool = False) -> Survey:
        """Look at all rows."""
        check(self.rows, range(len(self.rows)))
        return Survey.of(self.rows, self.weight)

    def sums(self, frame: Frame, compute: Compute) -> Sums:
        """Add up all rows."""
        return Sums.of(frame, self.rows, self.weight, compute)


class ChunkSource(Source):
    """Rows that stream by.

    A survey reads all of them where they can be read again. Of an iterator it keeps the first
    ones, until they are added up together with the rest.

    Parameters
    ----------
    chunks : Chunks
    minimum : int
        Rows that there must be.
    most : int
        Rows of the sample.
    """

    def __init__(self, chunks: Chunks, minimum: int, most: int = SAMPLE_ROWS) -> None:
        self.chunks, self.minimum, self.most = chunks, minimum, most
        self.unread: Iterator[Block] | None = None

    def survey(self, check: Check, seed: int, *, brief: bool = False) -> Survey:
        """Look at all rows, or at the first ones of those that can be read once."""
        if not self.chunks.again:
            blocks: Iterable[Block] = self._first(self.minimum if brief else self.most)
        else:
            blocks = self.chunks.blocks("looking at the rows")
        looks = (self._look(block, check, seed) for block in blocks if len(block.weight))
        look = joined(_until(looks, self.minimum) if brief else looks)
        if look is None or look.totals.n < self.minimum:
            raise ValueError(TOO_FEW if self.minimum > 1 else NONE_LEFT)
        return look.survey()

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
        self.endless = bool(following)
        self.unread = chain(held, following, blocks)
        return held

    def _look(self, block: Block, check: Check, seed: int) -> Look:
        rows, weight, number = _part(block)
        check(rows, number)
        return Look.at(rows, weight, seed, self.most)

    def sums(self, frame: Frame, compute: Compute) -> Sums:
        """Add up all rows."""
        blocks = self.chunks.blocks("adding up") if self.unread is None else self.unread
        self.unread = None
        return Sums.over(frame, self._enough(blocks), compute)

    def _enough(self, blocks: Iterable[Block]) -> Iterator[Part]:
        """Parts of blocks that have rows; an error at the end if those were too few."""
        n = 0
        for block in blocks:
            n += len(block.weight)
            if len(block.weight):
                yield _part(block)
        if n < self.minimum:
            raise ValueError(TOO_FEW if self.minimum > 1 else NONE_LEFT)


def _until(looks: Iterable[Look], n: int) -> Iterator[Look]:
    """Looks at the first rows, until there are `n` of them."""
    for look in looks:
        yield look
        n -= look.totals.n
        if n <= 0:
            return


def _part(block: Block) -> Part:
    return torch.from_numpy(block.rows), torch.from_numpy(block.weight), block.number


def declare_columns(
    estimator: BaseEstimator, n: int, names: list[str] | None, *, reset: bool
) -> None:
    """Let the columns be those of the fit from now on or, unless `reset`, check that they are."""
    validate_data(estimator, framed(np.zeros((1, n)), names), reset=reset)

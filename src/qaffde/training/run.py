"""Shared by all stages of a long fit: history, progress, peers, clock and checkpoints."""

import math
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import Generator, Tensor

from qaffde.training.checkpoint import Checkpoint

FEW_ROWS = 20
"""With fewer rows nothing is held out."""


def hold_out(
    n: int,
    share: float,
    generator: Generator | None = None,
    *,
    most: int | None = None,
    few: int = FEW_ROWS,
) -> tuple[Tensor, Tensor]:
    """Numbers of rows to train on, and of rows to hold out; none of the latter if n < `few`.

    The one split of this package: candidates of a search and states of a training are judged by
    what it holds out.

    Parameters
    ----------
    n : int
    share : float
        Of the rows that are held out.
    generator : torch.Generator, optional
        Rows that are in random order already need none: the first of them are held out.
    most : int, optional
        Most rows that are held out.
    few : int, default=20

    Examples
    --------
    >>> chosen, held_out = hold_out(100, 0.1, torch.Generator())
    >>> len(chosen), len(held_out)
    (90, 10)
    """
    order = torch.arange(n) if generator is None else torch.randperm(n, generator=generator)
    n_held_out = 0 if n < few else max(1, round(share * n))
    n_held_out = n_held_out if most is None else min(n_held_out, most)
    return order[n_held_out:], order[:n_held_out]


@dataclass
class History:
    """Record of a training; lists have one entry for each evaluation.

    Attributes
    ----------
    steps : list of int
    train_loss : list of float
        Mean over the steps since the last evaluation.
    valid_loss : list of float
        NaN where nothing is held out.
    learning_rate : list of float
    seconds : list of float
        Since the start, time before a resume included.
    n_recoveries : int
        How often a loss or gradient was not finite.
    stopped_by : {"", "max_steps", "patience", "time_limit"}
        Empty while training goes on.
    """

    steps: list[int] = field(default_factory=list)
    train_loss: list[float] = field(default_factory=list)
    valid_loss: list[float] = field(default_factory=list)
    learning_rate: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    n_recoveries: int = 0
    stopped_by: str = ""


def print_progress(max_steps: int) -> Callable[[History], None]:
    """Report that prints a line for each evaluation of a training of so many steps."""
    return lambda history: print(progress_line(history, max_steps))  # noqa: T201


def progress_line(history: History, max_steps: int) -> str:
    """Text of the last evaluation.

    Examples
    --------
    >>> print(progress_line(History([250], [1.31], [1.25], [1e-3], [2.5]), max_steps=1000))
    step  250/1000  train 1.3100  valid 1.2500  learning rate 1.0e-03  2.5 s
    """
    valid = history.valid_loss[-1]
    parts = [
        f"step {history.steps[-1]:>{len(str(max_steps))}}/{max_steps}",
        f"train {history.train_loss[-1]:.4f}",
        "" if math.isnan(valid) else f"valid {valid:.4f}",
        f"learning rate {history.learning_rate[-1]:.1e}",
        f"{history.seconds[-1]:.1f} s",
        f"recoveries {history.n_recoveries}" if history.n_recoveries else "",
        f"stopped by {history.stopped_by}" if history.stopped_by else "",
    ]
    return "  ".join(part for part in parts if part)


Value = TypeVar("Value")


class Peers(ABC):
    """Communication of `size` processes of a training, of which this is number `rank`, from 0.

    All of them make the same calls.
    """

    size: int
    rank: int

    @abstractmethod
    def average_(self, tensors: Sequence[Tensor]) -> None:
        """Replace tensors by their means over the processes, in place."""

    @abstractmethod
    def share_(self, tensors: Sequence[Tensor]) -> None:
        """Replace tensors by those of the first process, in place."""

    @abstractmethod
    def largest(self, number: int) -> int:
        """Largest number that any process gives."""

    @abstractmethod
    def first(self, make: Callable[[], Value]) -> Value:
        """Result of the first process, or its error, in all of them."""

    @abstractmethod
    def gather(self, make: Callable[[], Value]) -> list[Value]:
        """Results of all processes in their order; an error of one is raised in all."""

    def together(self, make: Callable[[], Value]) -> Value:
        """Result of this process; an error of one is raised in all."""
        made: list[Value] = []
        self.gather(lambda: made.append(make()))
        return made[0]

    def any(self, flag: bool) -> bool:  # noqa: FBT001 (a value, not an option)
        """Whether the flag is set in any process."""
        return bool(self.largest(int(flag)))

    def share_of(self, number: int) -> int:
        """Share of a number for each process, at least one."""
        return -(-number // self.size)


class Alone(Peers):
    """A single process."""

    size, rank = 1, 0

    def average_(self, tensors: Sequence[Tensor]) -> None:
        """Leave tensors as they are."""

    def share_(self, tensors: Sequence[Tensor]) -> None:
        """Leave tensors as they are."""

    def largest(self, number: int) -> int:
        """The number itself."""
        return number

    def first(self, make: Callable[[], Value]) -> Value:
        """Result of this process."""
        return make()

    def gather(self, make: Callable[[], Value]) -> list[Value]:
        """Result of this process, in a list."""
        return [make()]


ALONE = Alone()


class Run:
    """Clock, checkpoint files, progress and peers of one fit.

    Names of checkpoint files, one for each stage, begin with `checkpoint`. Progress is printed by
    the first of several processes.

    Examples
    --------
    >>> Run(time_limit=60.0).left <= 60.0
    True
    """

    def __init__(
        self,
        time_limit: float | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        *,
        verbose: bool = False,
        peers: Peers = ALONE,
    ) -> None:
        self.time_limit = math.inf if time_limit is None else time_limit
        self.checkpoint, self.peers = checkpoint, peers
        self.verbose = verbose and peers.rank == 0
        self.started = time.monotonic()

    def say(self, line: str) -> None:
        """Print a line of progress, if that is asked for."""
        if self.verbose:
            print(line)  # noqa: T201

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.started

    @property
    def left(self) -> float | None:
        """Seconds that are left, never quite none; None without a limit."""
        return None if math.isinf(self.time_limit) else max(self.time_limit - self.seconds, 1e-3)

    def deadline(self, share: float = 1.0) -> float:
        """When a share of the limit is over, on the clock of :func:`time.monotonic`."""
        return self.started + share * self.time_limit

    def file(self, stage: str) -> Checkpoint | None:
        """Checkpoint of a stage, if there are checkpoints."""
        if self.checkpoint is None:
            return None
        return Checkpoint(f"{os.fspath(self.checkpoint)}.{stage}")

    def loop_arguments(self, stage: str, max_steps: int) -> dict[str, Any]:
        """Arguments of :func:`~qaffde.training.loop.train` for a stage of this fit."""
        return {
            "checkpoint": self.file(stage),
            "report": print_progress(max_steps) if self.verbose else None,
            "peers": self.peers,
        }

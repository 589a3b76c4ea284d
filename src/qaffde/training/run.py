"""Shared by all stages of a long fit: history, progress, peers, clock and checkpoints."""

import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Generator, Tensor

from qaffde.training.checkpoint import Checkpoint, fingerprint


def hold_out(
    n: int,
    share: float,
    generator: Generator | None = None,
    *,
    most: int | None = None,
    few: int = 20,
) -> tuple[Tensor, Tensor]:
    """Numbers of rows to train on, and of rows to hold out; none of the latter if n < `few`.

    Held out are a `share` of n rows, but not more than `most`; without a generator the first ones,
    for rows in random order.

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

    A `train_loss` is the mean over the steps since the last one, a `valid_loss` NaN where nothing
    is held out; `seconds` include those before a resume.
    """

    steps: list[int] = field(default_factory=list)
    train_loss: list[float] = field(default_factory=list)
    valid_loss: list[float] = field(default_factory=list)
    learning_rate: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    n_recoveries: int = 0  # how often a loss or gradient was not finite
    stopped_by: str = ""  # max_steps, patience or time_limit; empty while training goes on


def print_progress(max_steps: int, limit: float | None = None) -> Callable[[History], None]:
    """Report that prints a line for each evaluation of a training of so many steps, or seconds."""
    return lambda history: print(progress_line(history, max_steps, limit), flush=True)  # noqa: T201


def progress_line(history: History, max_steps: int, limit: float | None = None) -> str:
    """Text of the last evaluation, with the seconds so far and those that are left.

    Examples
    --------
    >>> print(progress_line(History([250], [1.31], [1.25], [1e-3], [2.5]), max_steps=1000))
    step  250/1000  train 1.3100  valid 1.2500  learning rate 1.0e-03  2.5 s, 7.5 s left
    """
    valid, seconds = history.valid_loss[-1], history.seconds[-1]
    left = seconds * (max_steps / history.steps[-1] - 1)
    left = left if limit is None else min(left, max(limit - seconds, 0.0))
    parts = [
        f"step {history.steps[-1]:>{len(str(max_steps))}}/{max_steps}",
        f"train {history.train_loss[-1]:.4f}",
        "" if math.isnan(valid) else f"valid {valid:.4f}",
        f"learning rate {history.learning_rate[-1]:.1e}",
        f"{seconds:.1f} s" + ("" if history.stopped_by else f", {left:.1f} s left"),
        f"recoveries {history.n_recoveries}" if history.n_recoveries else "",
        f"stopped by {history.stopped_by}" if history.stopped_by else "",
    ]
    return "  ".join(part for part in parts if part)


Value = TypeVar("Value")


class Peers:
    """Processes of a training, of which this is number `rank`, from 0; all make the same calls.

    If `grouped`, they are the default group of ``torch.distributed``; else there is one alone.
    """

    def __init__(self, *, grouped: bool = False) -> None:
        self.size = dist.get_world_size() if grouped else 1
        self.rank = dist.get_rank() if grouped else 0

    def average_(self, tensors: Sequence[Tensor]) -> None:
        """Replace tensors by their means over the processes, summed in float64."""
        if self.size == 1:
            return
        flat = torch.cat([tensor.detach().reshape(-1).double() for tensor in tensors])
        dist.all_reduce(flat)
        means = (flat / self.size).split([tensor.numel() for tensor in tensors])
        for tensor, mean in zip(tensors, means, strict=True):
            tensor.detach().copy_(mean.reshape(tensor.shape))

    def share_(self, tensors: Sequence[Tensor]) -> None:
        """Replace tensors by those of the first process."""
        for tensor in tensors if self.size > 1 else ():
            dist.broadcast(tensor.detach(), src=0)

    def largest(self, number: int) -> int:
        """Largest number that any process gives."""
        numbers = torch.tensor(number)
        if self.size > 1:
            dist.all_reduce(numbers, op=dist.ReduceOp.MAX)
        return int(numbers)

    def any(self, flag: bool) -> bool:  # noqa: FBT001 (a value, not an option)
        """Whether the flag is set in any process."""
        return bool(self.largest(int(flag)))

    def first(self, make: Callable[[], Value]) -> Value:
        """Result of the first process, or its error, in all of them."""
        if self.size == 1:
            return make()
        told: list[Any] = [_attempt(make) if self.rank == 0 else None]
        dist.broadcast_object_list(told, src=0)
        value, error = told[0]
        if error is not None:
            raise error
        return value

    def gather(self, make: Callable[[], Value]) -> list[Value]:
        """Results of all processes in their order; an error of one is raised in all."""
        if self.size == 1:
            return [make()]
        told: list[Any] = [None] * self.size
        dist.all_gather_object(told, _attempt(make))
        for rank, (_, error) in enumerate(told):
            if error is not None:
                raise type(error)(f"process {rank}: {error}")
        return [value for value, _ in told]

    def together(self, make: Callable[[], Value]) -> Value:
        """Result of this process; an error of one is raised in all."""
        made: list[Value] = []
        self.gather(lambda: made.append(make()))
        return made[0]

    def share_of(self, number: int) -> int:
        """Share of a number for each process, at least one."""
        return -(-number // self.size)


def _attempt(make: Callable[[], Value]) -> tuple[Value | None, ValueError | TypeError | None]:
    """A value, or the error of whoever gave bad input."""
    try:
        return make(), None
    except (ValueError, TypeError) as error:
        return None, error


ALONE = Peers()


class Run:
    """Clock, checkpoint files, progress and peers of one fit.

    Checkpoint files, one for each stage, begin with `checkpoint`. The first process prints.

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
        """Print a line of progress after the seconds so far, if that is asked for."""
        if self.verbose:
            limit = "" if math.isinf(self.time_limit) else f" of {self.time_limit:.3g}"
            print(f"{self.seconds:6.1f}{limit} s  {line}", flush=True)  # noqa: T201

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
        name = self.checkpoint
        return None if name is None else Checkpoint(f"{os.fspath(name)}.{stage}")

    def loop_arguments(self, stage: str, max_steps: int) -> dict[str, Any]:
        """Arguments of :func:`~qaffde.training.loop.train` for a stage of this fit."""
        return {
            "checkpoint": self.file(stage),
            "report": print_progress(max_steps, self.left) if self.verbose else None,
            "peers": self.peers,
        }

    def search(self, share: float, **identity: Any) -> dict[str, Any]:
        """Deadlines, checkpoint and report of a search within a share of the time."""
        file, known = self.file("search"), {}
        identity = {} if file is None else fingerprint(**identity)
        if file is not None and (saved := file.load(identity)) is not None:
            with file.restoring():
                known = {str(name): scores.double() for name, scores in saved["known"].items()}

        def report(name: str, value: float) -> None:
            self.say(f"{name}: held-out log-likelihood {value:.5f}")
            if file is not None:
                file.save({"known": dict(known)}, identity)

        ends = {"deadline": self.deadline(share), "end": self.deadline()}
        return {**ends, "known": known, "report": report}

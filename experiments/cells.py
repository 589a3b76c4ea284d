"""What a runner runs: cells, the rows that they yield, and locks on those under way."""

import hashlib
import json
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

from filelock import FileLock  # comes with torch

from experiments.attempts import attempt
from experiments.rows import Row, read_rows


@dataclass(frozen=True)
class Measured:
    """A row, and what goes to the file of pictures."""

    row: Row
    pictures: tuple[Row, ...] = ()


@dataclass(frozen=True)
class Ledger:
    """Rows that a cell need not measure, and locks on those that it does.

    Two runs may work on the same rows: each is measured by the one that claims it first.

    Parameters
    ----------
    done : dict of {str: Row}
        Rows that were there at the start, by identity.
    rows : Path
        File of the rows.
    n_seen : int
        Lines that the file had at the start.
    locks : Path
        Folder of the locks.
    """

    done: Mapping[str, Row]
    rows: Path
    n_seen: int
    locks: Path

    @contextmanager
    def claim(self, task: str) -> Iterator[Row | None]:
        """The row of a task, or None if it is to be measured, which no other run does meanwhile.

        The lock is held until the block ends: the row must be on the disk by then.
        """
        if task in self.done:
            yield self.done[task]
            return
        self.locks.mkdir(parents=True, exist_ok=True)
        with FileLock(self.locks / f"{task}.lock"):
            since = {row["id"]: row for row in read_rows(self.rows)[self.n_seen :]}
            yield since.get(task)


class Cell(Protocol):
    """Work that one process does in a row; pickles."""

    @property
    def label(self) -> str:
        """Name for people."""

    def tasks(self) -> list[str]:
        """Identities of all its rows."""

    def kept(self, done: Mapping[str, Row]) -> dict[str, Row]:
        """Rows of its own, of all that are there, which need not be measured again."""
        return {task: done[task] for task in self.tasks() if task in done}

    def run(self, ledger: Ledger) -> Iterator[Measured]:
        """Measure what is not done, each row as soon as it is there.

        A row is yielded while its task is claimed.
        """


@dataclass(frozen=True)
class SingleRow(Cell):
    """A cell of one row: a method on a set, with a seed."""

    budget_name: str
    set: str
    method: str
    seed: int

    experiment: ClassVar[str]

    @property
    def label(self) -> str:
        """Name for people."""
        return f"{self.method} on {self.set}, seed {self.seed}"

    def extent(self) -> tuple[Any, ...]:
        """What else decides the row."""
        return ()

    def notes(self) -> Row:
        """What else the row says of itself."""
        return {}

    @abstractmethod
    def measured(self) -> Row:
        """Status and figures of the row."""

    def tasks(self) -> list[str]:
        """Identity of the only row."""
        place = [self.budget_name, self.set, self.method, self.seed]
        return [identity(self.experiment, place, *self.extent())]

    def run(self, ledger: Ledger) -> Iterator[Measured]:
        """Measure the row if it is not there."""
        [task] = self.tasks()
        with ledger.claim(task) as known:
            if known is None:
                row: Row = {"id": task, "experiment": self.experiment, "budget": self.budget_name}
                row |= {key: getattr(self, key) for key in ("set", "method", "seed")}
                row |= {"stage": "final", "trial": None, **self.notes()}
                yield Measured(attempt(row, self.measured))


def identity(*parts: Any) -> str:
    """Short name of a row, from all that decides what it will hold, but the machine.

    Examples
    --------
    >>> identity("planar", {"seed": 1}) == identity("planar", {"seed": 1})
    True
    """
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:12]

"""What a runner runs: cells, and the rows that they yield."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from experiments.rows import Row


@dataclass(frozen=True)
class Measured:
    """A row, and what goes to the file of pictures."""

    row: Row
    pictures: tuple[Row, ...] = ()


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

    def run(self, done: Mapping[str, Row]) -> Iterator[Measured]:
        """Measure what is not done, each row as soon as it is there."""


def identity(*parts: Any) -> str:
    """Short name of a row, from all that decides what it will hold, but the machine.

    Examples
    --------
    >>> identity("planar", {"seed": 1}) == identity("planar", {"seed": 1})
    True
    """
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:12]

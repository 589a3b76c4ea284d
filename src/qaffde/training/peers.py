"""Processes that train one module together, each on rows of its own."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TypeVar

from torch import Tensor

Value = TypeVar("Value")


class Peers(ABC):
    """What the processes of a training tell each other; all of them make the same calls.

    Attributes
    ----------
    size : int
        Number of processes.
    rank : int
        Which of them this is, from 0.
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
        """What the first process makes, or its error, in all of them."""

    @abstractmethod
    def gather(self, make: Callable[[], Value]) -> list[Value]:
        """What each process makes, in their order; an error of one is one of all."""

    def together(self, make: Callable[[], Value]) -> Value:
        """What this process makes; an error of one is one of all."""
        made: list[Value] = []
        self.gather(lambda: made.append(make()))
        return made[0]

    def any(self, flag: bool) -> bool:  # noqa: FBT001 (a value, not an option)
        """Whether any process says so."""
        return bool(self.largest(int(flag)))

    def share_of(self, number: int) -> int:
        """What each process does of a number, at least one."""
        return -(-number // self.size)


class Alone(Peers):
    """One process, which has no one to tell."""

    size, rank = 1, 0

    def average_(self, tensors: Sequence[Tensor]) -> None:
        """Leave tensors as they are."""

    def share_(self, tensors: Sequence[Tensor]) -> None:
        """Leave tensors as they are."""

    def largest(self, number: int) -> int:
        """The number itself."""
        return number

    def first(self, make: Callable[[], Value]) -> Value:
        """What is made here."""
        return make()

    def gather(self, make: Callable[[], Value]) -> list[Value]:
        """What is made here."""
        return [make()]


ALONE = Alone()

"""Panels of a picture: computed values that know how to draw themselves."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from qaffde.estimators.columns import Column


class Panel(ABC):
    """Values of one picture.

    Parameters
    ----------
    size : tuple of float
        Width and height of a figure of its own, in inches.
    """

    size: tuple[float, float] = (5.2, 3.6)

    def make_axes(self, figure: Any) -> Any:
        """Axes of a figure of its own."""
        return figure.add_subplot()

    @abstractmethod
    def draw(self, ax: Any) -> None:
        """Draw into axes."""


@dataclass(frozen=True)
class Wishes:
    """Options of a picture, whatever its kind.

    Parameters
    ----------
    columns : iterable of int or str, optional
    given : mapping of {int or str: float or several}, optional
    truth : target or callable, optional
    masses : tuple of float
    n_points : int, optional
    random_state : int
    """

    columns: Iterable[Column] | None = None
    given: Mapping[Column, Any] | None = None
    truth: Any = None
    masses: tuple[float, ...] = (0.5, 0.9)
    n_points: int | None = None
    random_state: int = 0

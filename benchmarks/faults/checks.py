"""Questions to a fitted model, and whether an answer is one."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

Question = tuple[str, Callable[[], object]]


class WrongError(AssertionError):
    """An answer that is no answer."""


def of_derived(
    name: str, make: Callable[[], Any], questions: Callable[[Any], Iterator[Question]]
) -> Iterator[Question]:
    """Questions to a density that is derived from a model, or the refusal to derive it."""
    made: list[Any] = []
    yield name, lambda: made.append(make())
    for derived in made:
        for asked, question in questions(derived):
            yield f"{name}: {asked}", question


def _check(fine: Any, values: Any) -> None:
    if not np.all(fine):
        raise WrongError(str(np.asarray(values)[~np.broadcast_to(fine, np.shape(values))][:3]))


def finite(values: Any) -> None:
    """All are finite."""
    _check(np.isfinite(values), values)


def log(values: Any) -> None:
    """All are log-densities: less than infinity."""
    _check(np.asarray(values) < np.inf, values)


def within(values: Any, low: float, high: float) -> None:
    """All lie between two numbers."""
    _check((np.asarray(values) >= low) & (np.asarray(values) <= high), values)


def near(values: Any, wanted: float) -> None:
    """All are a number, to 1e-6."""
    _check(np.abs(np.asarray(values) - wanted) < 1e-6, values)


def rising(values: Any) -> None:
    """All are finite, none less than the one before."""
    finite(values)
    _check(np.diff(values, prepend=-np.inf) >= 0, values)

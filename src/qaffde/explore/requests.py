"""Requests of the page, checked."""

import json
import math
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

LIMITS = {"samples": 2000, "seed": 2**32 - 1}
Ends = tuple[float, float]


class RequestError(ValueError):
    """A request that is refused, with what would make sense and its status in HTTP."""

    def __init__(self, message: str, status: HTTPStatus = HTTPStatus.BAD_REQUEST) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class State:
    """One state of the page."""

    shown: tuple[int, ...]  # one or two columns on the axes
    given: dict[int, float]  # columns with values; all others are integrated out
    box: tuple[Ends, ...] | None = None  # a pair for each column shown; infinite ends are open
    samples: int = 0  # how many draws
    seed: int = 0  # and which
    draft: bool = False  # something quick is wanted, because it will move on at once


def parse_state(text: bytes, n_columns: int) -> State:
    """Read a state of the page from JSON.

    Examples
    --------
    >>> parse_state(b'{"shown": [1], "given": {"0": 2.5}}', 3)
    State(shown=(1,), given={0: 2.5}, box=None, samples=0, seed=0, draft=False)
    """
    try:
        body = json.loads(text, parse_constant=int)  # of "NaN" and "Infinity", an error
    except (ValueError, RecursionError):
        raise RequestError("the body must be JSON, without NaN or Infinity") from None
    _require(isinstance(body, dict), "the body must be a JSON object")
    for name in body.keys() - State.__dataclass_fields__.keys():
        raise RequestError(f"unknown key {name[:40]!r}")
    shown, given = _shown(body.get("shown"), n_columns), _given(body.get("given", {}), n_columns)
    _require(not set(shown) & set(given), "a column cannot be both in 'shown' and in 'given'")
    for name, most in LIMITS.items():
        fine = type(body.get(name, 0)) is int and 0 <= body.get(name, 0) <= most
        _require(fine, f"{name!r} must be a whole number from 0 to {most}")
    _require(isinstance(body.get("draft", False), bool), "'draft' must be true or false")
    box = _box(body.get("box"), len(shown))
    return State(**{**body, "shown": shown, "given": given, "box": box})


def _require(fine: bool, message: str) -> None:  # noqa: FBT001
    if not fine:
        raise RequestError(message)


def _shown(value: Any, n: int) -> tuple[int, ...]:
    short = isinstance(value, list) and len(value) in (1, 2)
    _require(short, "'shown' must be a list of one or two column numbers")
    known = all(type(item) is int and 0 <= item < n for item in value)
    message = f"'shown' must have different column numbers from 0 to {n - 1}"
    _require(known and len(set(value)) == len(value), message)
    return tuple(value)


def _given(value: Any, n: int) -> dict[int, float]:
    _require(isinstance(value, dict), "'given' must be an object of column numbers and values")
    known = [j for j in range(n) if str(j) in value]
    message = f"'given' must have column numbers from 0 to {n - 1} as keys"
    _require(len(known) == len(value), message)
    return {j: _number(value[str(j)], f"the value of column {j}") for j in known}


def _box(value: Any, k: int) -> tuple[Ends, ...] | None:
    if value is None:
        return None
    fine = isinstance(value, list) and len(value) == k
    fine = fine and all(isinstance(pair, list) and len(pair) == 2 for pair in value)
    _require(fine, "'box' must be null or have a pair of numbers, or nulls, for each column")
    ends = []
    for low, high in value:
        low = -math.inf if low is None else _number(low, "an end of the box")
        high = math.inf if high is None else _number(high, "an end of the box")
        _require(low <= high, f"the lower end of the box, {low:g}, is above the upper, {high:g}")
        ends.append((low, high))
    return tuple(ends)


def _number(value: Any, what: str) -> float:
    _require(type(value) in (int, float), f"{what} must be a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    _require(math.isfinite(number), f"{what} must be finite")
    return number

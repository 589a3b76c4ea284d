"""Requests of the page, checked."""

import json
import math
from dataclasses import dataclass
from typing import Any, NoReturn

MAX_SAMPLES = 2000
MAX_SEED = 2**32 - 1
Ends = tuple[float, float]


class RequestError(ValueError):
    """A request that makes no sense, with what would."""


@dataclass(frozen=True)
class State:
    """One state of the page.

    Parameters
    ----------
    shown : tuple of one or two int
        Columns on the axes.
    given : dict of {int: float}
        Columns with values; all others are integrated out.
    box : tuple of pairs of float, optional
        Ends of a box, one pair for each column shown; infinite ends are open.
    samples, seed : int
        How many draws, and which.
    draft : bool
        Whether something quick is wanted, because it will move on at once.
    """

    shown: tuple[int, ...]
    given: dict[int, float]
    box: tuple[Ends, ...] | None = None
    samples: int = 0
    seed: int = 0
    draft: bool = False


def parse_state(text: bytes, n_columns: int) -> State:
    """Read a state of the page from JSON.

    Examples
    --------
    >>> parse_state(b'{"shown": [1], "given": {"0": 2.5}}', 3)
    State(shown=(1,), given={0: 2.5}, box=None, samples=0, seed=0, draft=False)
    """
    body = _parse_object(text)
    unknown = sorted(set(body) - {"shown", "given", "box", "samples", "seed", "draft"})
    if unknown:
        raise RequestError(f"unknown key {unknown[0][:40]!r}")
    shown = _shown(body.get("shown"), n_columns)
    given = _given(body.get("given", {}), n_columns)
    if set(shown) & set(given):
        raise RequestError("a column cannot be both in 'shown' and in 'given'")
    draft = body.get("draft", False)
    if not isinstance(draft, bool):
        raise RequestError("'draft' must be true or false")
    return State(
        shown,
        given,
        _box(body.get("box"), len(shown)),
        _count(body, "samples", MAX_SAMPLES),
        _count(body, "seed", MAX_SEED),
        draft,
    )


def _parse_object(text: bytes) -> dict[str, Any]:
    try:
        body = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise RequestError("the body must be JSON, without NaN or Infinity") from None
    if not isinstance(body, dict):
        raise RequestError("the body must be a JSON object")
    return body


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _shown(value: Any, n: int) -> tuple[int, ...]:
    if not isinstance(value, list) or len(value) not in (1, 2):
        raise RequestError("'shown' must be a list of one or two column numbers")
    if not all(_is_column(item, n) for item in value) or len(set(value)) < len(value):
        raise RequestError(f"'shown' must have different column numbers from 0 to {n - 1}")
    return tuple(value)


def _given(value: Any, n: int) -> dict[int, float]:
    if not isinstance(value, dict):
        raise RequestError("'given' must be an object of column numbers and values")
    found = {}
    for key, number in value.items():
        if not (key.isascii() and key.isdigit() and len(key) < 9 and int(key) < n):
            raise RequestError(f"'given' must have column numbers from 0 to {n - 1} as keys")
        found[int(key)] = _number(number, f"the value of column {key}")
    return dict(sorted(found.items()))


def _box(value: Any, k: int) -> tuple[Ends, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list) or len(value) != k:
        raise RequestError("'box' must be null or have a pair of ends for each column shown")
    return tuple(_ends(pair) for pair in value)


def _ends(pair: Any) -> Ends:
    if not isinstance(pair, list) or len(pair) != 2:
        raise RequestError("the ends of a box are pairs of numbers, or null where it is open")
    low = -math.inf if pair[0] is None else _number(pair[0], "an end of the box")
    high = math.inf if pair[1] is None else _number(pair[1], "an end of the box")
    if low > high:
        raise RequestError(f"the lower end of the box, {low:g}, is above the upper, {high:g}")
    return low, high


def _count(body: dict[str, Any], name: str, most: int) -> int:
    value = body.get(name, 0)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise RequestError(f"{name!r} must be a whole number from 0 to {most}")
    return value


def _number(value: Any, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise RequestError(f"{what} must be a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise RequestError(f"{what} must be finite")
    return number


def _is_column(value: Any, n: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < n

"""Kinds of columns: real, periodic, integer, category, and one common value among real ones.

A kind is the set of values that a column can have and the measure its density is against:
Lebesgue measure for real and periodic columns, counting measure for integers and categories, and
for an :class:`Atom` the sum of both, with a unit mass at its value. The density of a table is
against the product over its columns.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from numbers import Real as Number
from typing import Any

__all__ = ["Atom", "Category", "Integer", "Periodic", "Real"]

Label = str | int | float | bool
LEAST_WIDTH = 1e-9
"""Distance of two ends, as a share of the larger one."""
LEAST = 1e-300
"""Shortest period, and least distance of two ends: inverses of less overflow."""
MAX_WHOLE = 2**53
"""From here on float64 has not all whole numbers."""


class Kind:
    """What values a column can have; its text is the kind in words."""

    def __str__(self) -> str:
        return type(self).__name__.lower()


@dataclass(frozen=True)
class Real(Kind):
    """Numbers of the line, or of a part of it.

    Parameters
    ----------
    lower, upper : float, optional
        Ends beyond which no value is possible; None where there is none.

    Examples
    --------
    >>> print(Real()), print(Real(lower=0))
    real
    real, at least 0
    (None, None)
    """

    lower: float | None = None
    upper: float | None = None

    def __post_init__(self) -> None:
        for name in ("lower", "upper"):
            if getattr(self, name) is not None:
                _make_float(self, name, "must be a finite number, or None where there is no end")
        if not self.ends[0] < self.ends[1]:
            raise ValueError(f"Real(lower={self.lower:g}, upper={self.upper:g}): swap the ends")
        if self.lower is not None and self.upper is not None:
            width, size = self.upper - self.lower, max(abs(self.lower), abs(self.upper))
            least = max(LEAST_WIDTH * size, LEAST)
            if not least < width < math.inf:
                raise ValueError(
                    f"Real(lower={self.lower!r}, upper={self.upper!r}): the ends are too close or "
                    "too far apart for float64; shift or scale the column"
                )

    @property
    def ends(self) -> tuple[float, float]:
        """Both ends, infinite where there is none."""
        lower, upper = self.lower, self.upper
        return -math.inf if lower is None else lower, math.inf if upper is None else upper

    def __str__(self) -> str:
        if self.lower is not None and self.upper is not None:
            return f"real, {self.lower:g} to {self.upper:g}"
        low = "" if self.lower is None else f", at least {self.lower:g}"
        return f"real{low}" + ("" if self.upper is None else f", at most {self.upper:g}")


@dataclass(frozen=True)
class Periodic(Kind):
    """Numbers of a circle, such as an angle or the time of day.

    Parameters
    ----------
    period : float
    start : float, default=0
        Where the circle is cut: values are reported in [start, start + period).

    Examples
    --------
    >>> print(Periodic(24))
    periodic, 0 to 24
    """

    period: float
    start: float = 0.0

    def __post_init__(self) -> None:
        why = f"must be a positive number above {LEAST:g}, such as 24 for hours or 360 for degrees"
        _make_float(self, "period", why, above=LEAST)
        _make_float(self, "start", "must be a finite number")

    def __str__(self) -> str:
        return f"periodic, {self.start:g} to {self.start + self.period:g}"


@dataclass(frozen=True)
class Integer(Kind):
    """Whole numbers, such as counts and ages.

    Examples
    --------
    >>> print(Integer())
    integer
    """


@dataclass(frozen=True)
class Category(Kind):
    """Labels without an order that matters; inside, the numbers 0 to K − 1.

    Parameters
    ----------
    values : iterable of str, numbers or bool, optional
        The labels, whose places are their numbers; by default those that the fit sees, sorted.

    Examples
    --------
    >>> print(Category(["Bogotá", "Cali"]))
    category of 2: Bogotá, Cali
    """

    values: tuple[Label, ...] | None = None

    def __post_init__(self) -> None:
        if self.values is None:
            return
        if isinstance(self.values, str) or not isinstance(self.values, Iterable):
            raise ValueError(
                f"Category({self.values!r}) must be a list of labels: Category([{self.values!r}])"
            )
        labels = tuple(label_of(value) for value in self.values)
        if not labels:
            raise ValueError("Category([]) must have at least one label")
        (label, count), *_ = Counter(labels).most_common(1)
        if count > 1:
            raise ValueError(f"Category has the label {label!r} twice; give each label once")
        object.__setattr__(self, "values", labels)

    def __str__(self) -> str:
        if self.values is None:
            return "category"
        shown = ", ".join(map(str, self.values[:6])) + (", …" if len(self.values) > 6 else "")
        return f"category of {len(self.values)}: {shown}"


@dataclass(frozen=True)
class Atom(Kind):
    """Real numbers of which one has a probability of its own, such as an amount that is often 0.

    Parameters
    ----------
    value, rest : float, Real
        The common value, and what the others can be.

    Examples
    --------
    >>> print(Atom(0, rest=Real(lower=0)))
    atom at 0, else real, at least 0
    """

    value: float
    rest: Real = field(default_factory=Real)

    def __post_init__(self) -> None:
        _make_float(self, "value", "must be a finite number")
        if not isinstance(self.rest, Real):
            raise ValueError(f"Atom(rest={self.rest!r}) must be Real(), or Real(lower, upper)")

    def __str__(self) -> str:
        return f"atom at {self.value:g}, else {self.rest}"


def label_of(value: Any) -> Label:
    """A label as a plain Python value: text, bool or finite number, whole ones as int.

    Examples
    --------
    >>> label_of("a"), label_of(2.0), label_of(True)
    ('a', 2, True)
    """
    if isinstance(value, str):
        return str(value)
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, bool):
        return value
    if not isinstance(value, Number) or not math.isfinite(value):
        raise ValueError(
            f"the label {value!r} is {type(value).__name__}, where text, a finite number or a "
            "bool is wanted; make it text"
        )
    number = float(value)
    return int(number) if number.is_integer() and abs(number) < MAX_WHOLE else number


def _make_float(kind: Kind, name: str, why: str, above: float = -math.inf) -> None:
    """Let a field be a float, if it is a finite number above another."""
    value = getattr(kind, name)
    is_number = isinstance(value, Number) and not isinstance(value, bool)
    if not is_number or not above < value < math.inf:
        raise ValueError(f"{type(kind).__name__}({name}={value!r}) {why}")
    object.__setattr__(kind, name, float(value))


NAMES: dict[str, Callable[..., Kind]] = {
    kind.__name__.lower(): kind for kind in (Real, Periodic, Integer, Category, Atom)
}
"""Names of kinds; numbers may follow: "periodic:24", "atom:0", "real:0:100", "real:0:"."""


def as_kind(kind: Any, column: object) -> Kind:
    """A kind from itself or from its name; errors say for which `column`.

    Examples
    --------
    >>> as_kind("periodic:24", "hour")
    Periodic(period=24.0, start=0.0)
    """
    if isinstance(kind, Kind):
        return kind
    if isinstance(kind, type) and issubclass(kind, Kind):
        kind = kind.__name__.lower()
    name, *numbers = kind.split(":") if isinstance(kind, str) else [None]
    if name not in NAMES:
        raise ValueError(
            f"column {column!r}: {kind!r} is not a kind of column; take {', '.join(NAMES)}, or "
            "Periodic(24), Atom(0), Category([...]), Real(lower=0)"
        )
    if name in ("periodic", "atom") and not numbers:
        example = "Periodic(24) or 'periodic:24'" if name == "periodic" else "Atom(0) or 'atom:0'"
        wanted = "a period" if name == "periodic" else "its value"
        raise ValueError(f"column {column!r}: {name!r} needs {wanted}: {example}")
    most = {"real": 2, "periodic": 2, "atom": 1}.get(name, 0)
    try:
        values = [float(number) if number else None for number in numbers]
    except ValueError:
        values = [None] * (most + 1)
    if len(values) > most:
        raise ValueError(
            f"column {column!r}: {kind!r} is not understood; write it as 'periodic:24', 'atom:0', "
            "'real:0:100' or 'integer'"
        )
    return NAMES[name](*values)

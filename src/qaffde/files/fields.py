"""Fields of one object of a file, and the checks of their values.

A check takes the fields, a name and its value, and raises a
:class:`~qaffde.files.format.FileError` that names the field where the value does not pass. A class
stands for the check of an object of it, ``(FourierFeatures, "q=d D")`` for one whose sizes d and D
are ours called q and D, and a text such as "K d, positive" for that of a tensor, by
:func:`tensor`.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from types import UnionType
from typing import Any, get_args

import numpy as np
import torch
from torch import Tensor

from qaffde.files.format import DAMAGED, OLDER, FileError

Check = Callable[["Fields", str, Any], None]
Spec = Check | type | UnionType | tuple[Any, str] | str

MAX_COEFFICIENT = 1e100
"""Squares of sums of coefficients are numbers too."""
MAX_FREQUENCY = 1e7
"""A density of one column is a series of about as many terms."""
CLAIMS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "positive": (lambda x: (x > 0).all(), "must be positive"),
    "not negative": (lambda x: (x >= 0).all(), "must not be negative"),
    "not zero": (lambda x: x.abs().max() > 1 / MAX_COEFFICIENT, "is zero"),
    "limited": (lambda x: (x.abs() < MAX_COEFFICIENT).all(), "is beyond measure"),
    "frequencies": (lambda x: (x.abs() <= MAX_FREQUENCY).all(), "are beyond measure"),
    "rising": (lambda x: (x.diff() > 0).all(), "must rise"),
    "symmetric": (lambda C: torch.allclose(C, C.mT, rtol=1e-6, atol=1e-9), "must be symmetric"),
    "definite": (
        lambda C: (torch.linalg.cholesky_ex(C).info == 0).all(),
        "must be positive definite",
    ),
    "triangular": (
        lambda C: C.equal(C.tril()) and (C.diagonal(dim1=-2, dim2=-1) > 0).all(),
        "must be lower triangular and positive on its diagonal",
    ),
    "sum one": (lambda m: abs(float(m.sum()) - 1) < 1e-6, "must have sum one"),
    "mass one": (lambda m: (m.logsumexp(1).abs() < 1e-9).all(), "does not sum to one"),
}
"""What may be said of a tensor, and what the error says where it does not hold."""


class Fields(dict[str, Any]):
    """Values of one object of class `kind`, and the sizes that they agree on.

    Sizes are known by letters, the same in all classes: d columns, q components, D features, H
    frequencies, C classes. `known` has the sizes of the objects made so far, by their id. `charge`
    complains where the use of the object takes more bytes than it should.

    Examples
    --------
    >>> fields = Fields("Line", {})
    >>> tensor("d")(fields, "slope", torch.ones(3).double())
    >>> tensor("d")(fields, "end", torch.ones(2).double())
    Traceback (most recent call last):
    qaffde.files.format.FileError: Line.end has shape (2,), not (3,): the file is damaged, ...
    """

    def __init__(
        self,
        kind: str,
        values: Mapping[str, Any],
        known: Mapping[int, dict[str, int]] = {},
        charge: Callable[[int], None] = lambda _: None,
    ) -> None:
        super().__init__(values)
        self.kind, self.charge, self._known = kind, charge, known
        self.sizes: dict[str, int] = {}

    def require(self, fits: object, name: str, what: str) -> None:
        """Raise the error of a field unless it fits."""
        if not fits:
            raise FileError(f"{self.kind}.{name} {what}: {DAMAGED}")

    def require_all(self, names: Iterable[str]) -> None:
        """Complain about fields that are missing."""
        for name in names:
            if name not in self:
                raise FileError(f"{self.kind}.{name} is missing: {DAMAGED}; {OLDER}")

    def agree(self, name: str, letter: str, size: int) -> None:
        """Complain about a size unless it is what its letter stands for."""
        wanted = self.sizes.setdefault(letter, size)
        self.require(size == wanted, name, f"has {letter} = {size}, not {wanted}")

    def sizes_of(self, made: object) -> Mapping[str, int]:
        """Sizes of an object made before."""
        return self._known.get(id(made), {})

    def check_shape(self, name: str, given: tuple[int, ...], shape: str, *, empty: bool) -> None:
        """Complain about an array of another shape, or one that is empty and must not be."""
        letters = shape.split()
        wanted = tuple(int(s) if s.isdigit() else self.sizes.get(s, s) for s in letters)
        fits = len(given) == len(wanted) and (empty or 0 not in given)
        pairs = zip(wanted, given, strict=False)
        fits = fits and all(isinstance(size, str) or size == number for size, number in pairs)
        self.require(fits, name, f"has shape {given}, not {wanted}")
        for letter, number in zip(letters, given, strict=True):
            if not letter.isdigit():
                self.agree(name, letter, number)


def as_check(spec: Any) -> Check:
    """The check that a class, a text or a pair stands for; others are checks themselves."""
    if isinstance(spec, str):
        return tensor(spec)
    if isinstance(spec, tuple):
        return item(*spec)
    return item(spec) if isinstance(spec, type | UnionType) else spec


def parametrized(check: Callable[..., None]) -> Callable[..., Check]:
    """Make ``check(*options)`` the check that calls ``check(fields, name, value, *options)``."""
    return lambda *options, **more: lambda f, name, value: check(f, name, value, *options, **more)


def anything(f: Fields, name: str, value: Any) -> None:
    """Accept any value: the object's class checks it."""


@parametrized
def checked(f: Fields, name: str, value: Any, check: Callable[..., None], **options: Any) -> None:
    """A value that passes a check of :mod:`qaffde.parameters`."""
    check(name, value, **options)


@parametrized
def optional(f: Fields, name: str, value: Any, spec: Spec) -> None:
    """None, or a value that passes a check."""
    if value is not None:
        as_check(spec)(f, name, value)


@parametrized
def item(f: Fields, name: str, value: Any, kind: Any, letters: str = "") -> None:
    """An object of a class, or of one of several; "q=d C" are our q and C, its d and C."""
    fits = isinstance(value, kind) and isinstance(value, bool) is (kind is bool)
    names = " or ".join(each.__name__ for each in get_args(kind) or (kind,))
    f.require(fits, name, f"is not of type {names}")
    for pair in letters.split():
        ours, its = pair[0], pair[-1]
        if its in f.sizes_of(value):
            f.agree(name, ours, f.sizes_of(value)[its])


@parametrized
def items(
    f: Fields, name: str, values: Any, spec: Spec, kind: type = list, least: int = 0
) -> None:
    """A list, or a tuple, of at least so many values that pass a check."""
    item(kind)(f, name, values)
    f.require(len(values) >= least, name, f"has fewer than {least}")
    for value in values:
        as_check(spec)(f, name, value)


@parametrized
def number(
    f: Fields, name: str, value: Any, lower: float = -math.inf, upper: float = math.inf
) -> None:
    """A number strictly between two others, hence finite."""
    item(float | int)(f, name, value)
    f.require(lower < value < upper, name, f"= {value!r} is out of range")


@parametrized
def whole(f: Fields, name: str, value: Any, lower: int = 1, upper: float = math.inf) -> None:
    """A whole number of a closed interval."""
    item(int)(f, name, value)
    f.require(lower <= value <= upper, name, f"= {value!r} is out of range")


@parametrized
def array(
    f: Fields,
    name: str,
    value: Any,
    shape: str,
    kinds: str = "f",
    *,
    empty: bool = False,
    missing: bool = False,
) -> None:
    """An array of finite doubles, NaN if some may be missing, or other numbers or texts."""
    item(np.ndarray)(f, name, value)
    fits = value.dtype.kind in kinds and (kinds != "f" or value.dtype == np.float64)
    f.require(fits, name, f"is of type {value.dtype}")
    f.check_shape(name, value.shape, shape, empty=empty)
    if value.dtype.kind == "f":
        known = np.isfinite(value) | (missing & np.isnan(value))
        f.require(known.all(), name, "is not finite")


@parametrized
def tensor(
    f: Fields, name: str, value: Any, said: str, dtype: torch.dtype = torch.float64
) -> None:
    """A tensor of doubles, finite and not empty unless "infinite", "missing", "empty" are said.

    `said` is its shape and any :data:`CLAIMS`, separated by commas.
    """
    shape, *claims = said.split(", ")
    item(Tensor)(f, name, value)
    f.require(value.dtype == dtype, name, f"is of type {value.dtype}, not {dtype}")
    f.check_shape(name, tuple(value.shape), shape, empty="empty" in claims)
    f.require("missing" in claims or not value.isnan().any(), name, "holds NaN")
    f.require("infinite" in claims or not value.isinf().any(), name, "holds infinite numbers")
    for claim in claims:
        if claim not in ("infinite", "missing", "empty"):
            fits, what = CLAIMS[claim]
            f.require(fits(value), name, what)

"""Fields of one object of a file, and the checks of their values.

A check takes the fields, a name and its value, and raises a
:class:`~qaffde.files.format.FileError` that names the field where the value does not pass.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, get_args

import numpy as np
import torch
from torch import Tensor

from qaffde.files.format import DAMAGED, FileError

Check = Callable[["Fields", str, Any], None]
Size = int | str


class Fields(dict[str, Any]):
    """Values of one object of class `kind`, and the sizes that they agree on.

    Sizes are known by letters, the same in all classes: d columns, q components, D features, H
    frequencies, C classes. All values of an object agree on what a letter stands for. `known` has
    the sizes of the objects made so far, by their id. `charge` is told how many bytes the use of
    the object will take, and complains where that is too much.

    Examples
    --------
    >>> fields = Fields("Line", {})
    >>> reals("d")(fields, "slope", torch.ones(3).double())
    >>> reals("d")(fields, "end", torch.ones(2).double())
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
        self.kind = kind
        self.charge = charge
        self.sizes: dict[str, int] = {}
        self._known = known

    def require(self, fits: object, name: str, what: str) -> None:
        """Raise the error of a field unless it fits."""
        if not fits:
            raise FileError(f"{self.kind}.{name} {what}: {DAMAGED}")

    def require_all(self, names: Iterable[str]) -> None:
        """Complain about fields that are missing."""
        for name in names:
            self.require(name in self, name, "is missing")

    def agree(self, name: str, letter: str, size: int) -> None:
        """Complain about a size unless it is what its letter stands for."""
        wanted = self.sizes.setdefault(letter, size)
        self.require(size == wanted, name, f"has {letter} = {size}, not {wanted}")

    def sizes_of(self, made: object) -> Mapping[str, int]:
        """Sizes of an object made before."""
        return self._known.get(id(made), {})

    def check_shape(self, name: str, given: tuple[int, ...], shape: tuple[Size, ...]) -> None:
        """Complain about an array that is empty or has another shape."""
        wanted = tuple(self.sizes.get(str(size), size) for size in shape)
        fits = len(given) == len(shape) and 0 not in given
        for size, number in zip(wanted, given, strict=False):
            fits = fits and (isinstance(size, str) or size == number)
        self.require(fits, name, f"has shape {given}, not {wanted}")
        for letter, number in zip(shape, given, strict=True):
            if isinstance(letter, str):
                self.agree(name, letter, number)


def parametrized(check: Callable[..., None]) -> Callable[..., Check]:
    """Make ``check(*options)`` the check that calls ``check(fields, name, value, *options)``."""
    return lambda *options, **more: lambda f, name, value: check(f, name, value, *options, **more)


def anything(f: Fields, name: str, value: Any) -> None:
    """Accept any value: the object's class checks it."""


def checked(check: Callable[..., None], **options: Any) -> Check:
    """A value that passes a check of :mod:`qaffde.parameters`."""
    return lambda f, name, value: check(name, value, **options)


def optional(check: Check) -> Check:
    """None, or a value that passes a check."""
    return lambda f, name, value: None if value is None else check(f, name, value)


def _named(kind: Any) -> str:
    """Name of a class, or of several; those of numbers are "number"."""
    kinds = get_args(kind) or (kind,)
    return "number" if set(kinds) == {int, float} else " or ".join(each.__name__ for each in kinds)


@parametrized
def item(f: Fields, name: str, value: Any, kind: Any, **letters: str) -> None:
    """An object of a class, or of one of several; ``q="d"`` says that our q is its d."""
    fits = isinstance(value, kind) and isinstance(value, bool) is (kind is bool)
    f.require(fits, name, f"is not of type {_named(kind)}")
    sizes = f.sizes_of(value)
    for ours, its in letters.items():
        if its in sizes:
            f.agree(name, ours, sizes[its])


@parametrized
def items(
    f: Fields, name: str, values: Any, check: Check, kind: type = list, least: int = 0
) -> None:
    """A list, or a tuple, of at least so many values that pass a check."""
    item(kind)(f, name, values)
    f.require(len(values) >= least, name, f"has fewer than {least}")
    for value in values:
        check(f, name, value)


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
def array(f: Fields, name: str, value: Any, *shape: Size, kinds: str = "f") -> None:
    """An array of finite doubles, or of other kinds of numbers or texts."""
    item(np.ndarray)(f, name, value)
    fits = value.dtype.kind in kinds and (kinds != "f" or value.dtype == np.float64)
    f.require(fits, name, f"is of type {value.dtype}")
    f.check_shape(name, value.shape, shape)
    f.require(value.dtype.kind != "f" or np.isfinite(value).all(), name, "is not finite")


@parametrized
def reals(
    f: Fields,
    name: str,
    value: Any,
    *shape: Size,
    dtype: torch.dtype = torch.float64,
    finite: bool = True,
    positive: bool = False,
    most: float = math.inf,
) -> None:
    """A tensor of doubles, without NaN even if it may be infinite."""
    item(Tensor)(f, name, value)
    f.require(value.dtype == dtype, name, f"is of type {value.dtype}, not {dtype}")
    f.check_shape(name, tuple(value.shape), shape)
    f.require(not value.isnan().any(), name, "holds NaN")
    f.require(not finite or value.isfinite().all(), name, "holds infinite numbers")
    f.require(not positive or (value > 0).all(), name, "must be positive")
    f.require(most == math.inf or value.abs().max() < most, name, "is beyond measure")


positive = partial(reals, positive=True)


@parametrized
def cholesky(f: Fields, name: str, value: Any, *shape: Size) -> None:
    """A lower-triangular tensor of doubles, positive on its diagonal."""
    reals(*shape)(f, name, value)
    fits = value.equal(value.tril()) and (value.diagonal(dim1=-2, dim2=-1) > 0).all()
    f.require(fits, name, "must be lower triangular and positive on its diagonal")

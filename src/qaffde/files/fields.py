"""Fields of one object of a file, checked as they are asked for."""

from collections.abc import Iterable
from typing import Any, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from qaffde.files.format import DAMAGED, UNKNOWN, FileError, quoted

Size = int | str


class Fields:
    """Fields of one object in a file; each is read by its name and its kind.

    Sizes may be letters: all tensors of an object agree on what a letter stands for.

    Parameters
    ----------
    kind : str
        Name of the class, for messages.
    values : dict

    Examples
    --------
    >>> fields = Fields("Line", {"slope": torch.ones(3).double(), "end": torch.ones(2).double()})
    >>> fields.tensor("slope", "d").shape
    torch.Size([3])
    >>> fields.tensor("end", "d")
    Traceback (most recent call last):
    qaffde.files.format.FileError: Line.end has shape (2,), not (3,): the file is damaged, ...
    """

    def __init__(self, kind: str, values: dict[str, Any]) -> None:
        self.kind = kind
        self.sizes: dict[str, int] = {}
        self._values = values
        self._asked: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def finish(self) -> None:
        """Complain about fields that nothing asked for."""
        for name in self._values.keys() - self._asked:
            raise FileError(f"{self.kind}.{quoted(name)} is {UNKNOWN}")

    def complain(self, name: str, what: str) -> NoReturn:
        """Raise the error of a field that is not as it must be."""
        raise FileError(f"{self.kind}.{name} {what}: {DAMAGED}")

    def require(self, fits: object, name: str, what: str) -> None:
        """Complain about a field unless it fits."""
        if not fits:
            self.complain(name, what)

    def get(self, name: str) -> Any:
        """A value of any kind."""
        if name not in self._values:
            self.complain(name, "is missing")
        self._asked.add(name)
        return self._values[name]

    def item(self, name: str, kind: Any) -> Any:
        """An object of a class, or of one of several."""
        value = self.get(name)
        if not isinstance(value, kind) or isinstance(value, bool) is not (kind is bool):
            self.complain(name, f"is not of type {getattr(kind, '__name__', 'number')}")
        return value

    def items(self, name: str, kind: Any) -> list[Any]:
        """A list of objects of a class, or of one of several."""
        values = self.get(name)
        fit = isinstance(values, list) and all(isinstance(value, kind) for value in values)
        if not fit or any(isinstance(value, bool) for value in values):
            self.complain(name, f"is not a list of {getattr(kind, '__name__', 'numbers')}")
        return list(values)

    def number(self, name: str, lower: float = -np.inf, upper: float = np.inf) -> float:
        """A finite number strictly between two others."""
        value: float = self.item(name, float | int)
        self.require(lower < value < upper, name, f"= {value!r} is out of range")
        return float(value)

    def count(self, name: str) -> int:
        """A whole number of at least 1."""
        value: int = self.item(name, int)
        self.require(value >= 1, name, f"= {value!r} is out of range")
        return value

    def choice(self, name: str, choices: Iterable[str]) -> str:
        """One of some words."""
        value: str = self.item(name, str)
        self.require(value in choices, name, f"= {quoted(value)!r} is not known")
        return value

    def tensor(self, name: str, *shape: Size, finite: bool = True) -> Tensor:
        """A tensor of doubles; without NaN even if it may be infinite."""
        value: Tensor = self.item(name, Tensor)
        self._check(name, value, shape, torch.float64)
        self.require(not value.isnan().any(), name, "holds NaN")
        self.require(not finite or value.isfinite().all(), name, "holds infinite numbers")
        return value

    def whole(self, name: str, *shape: Size) -> Tensor:
        """A tensor of whole numbers."""
        value: Tensor = self.item(name, Tensor)
        self._check(name, value, shape, torch.int64)
        return value

    def positive(self, name: str, *shape: Size) -> Tensor:
        """A tensor of positive doubles."""
        value = self.tensor(name, *shape)
        self.require((value > 0).all(), name, "must be positive")
        return value

    def cholesky(self, name: str, *shape: Size) -> Tensor:
        """A lower-triangular tensor of doubles, positive on its diagonal."""
        value = self.tensor(name, *shape)
        on_diagonal = value.diagonal(dim1=-2, dim2=-1)
        self.require((on_diagonal > 0).all(), name, "must be positive on its diagonal")
        return value.tril()

    def array(self, name: str, *shape: Size) -> NDArray[np.float64]:
        """An array of finite doubles."""
        value: NDArray[np.float64] = self.item(name, np.ndarray)
        self._check(name, value, shape, np.dtype(np.float64))
        self.require(np.isfinite(value).all(), name, "is not finite")
        return value

    def _check(self, name: str, value: Any, shape: tuple[Size, ...], dtype: object) -> None:
        self.require(value.dtype == dtype, name, f"is of type {value.dtype}, not {dtype}")
        given = tuple(value.shape)
        if len(given) == len(shape) and 0 not in given:
            for letter, size in zip(shape, given, strict=True):
                if isinstance(letter, str):
                    self.sizes.setdefault(letter, size)
        wanted = tuple(
            self.sizes.get(size, 0) if isinstance(size, str) else size for size in shape
        )
        self.require(given == wanted and 0 not in given, name, f"has shape {given}, not {wanted}")

"""Values of a model as JSON and arrays, and back.

A header lists objects, each after those that it refers to, so that they are made one by one
without recursion. A value is plain (None, bool, number, text or a list of values) or an object
with one tag: ``{"float": "nan"}``, ``{"tuple": [...]}``, ``{"dict": {...}}``, ``{"texts": [...]}``
(an array of them), ``{"array": name}`` and ``{"tensor": name}`` (in the file's tensors),
``{"complex": name}`` (a tensor of pairs), ``{"object": number}`` (earlier in the list).
"""

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from numpy.random import RandomState
from numpy.typing import NDArray
from torch import Tensor

from qaffde.files.fields import Fields
from qaffde.files.format import DAMAGED, DTYPES, UNKNOWN, Arrays, FileError, Json, quoted

MAX_OBJECTS = 100_000
N_KEYS = 624
"""Words of state of a Mersenne twister."""
MAX_DEPTH = 8
UNUSUAL = {str(value): value for value in (math.nan, math.inf, -math.inf)}


@dataclass(frozen=True)
class Recipe:
    """How objects of one class are taken apart, and made of what the file says of them.

    Parameters
    ----------
    kind : type
    take : callable
        Fields of an object, as a dict.
    make : callable
        The object of :class:`~qaffde.files.fields.Fields`.
    """

    kind: type
    take: Callable[[Any], Mapping[str, Any]]
    make: Callable[[Fields], Any]


Recipes = Mapping[str, Recipe]


def attributes(*names: str) -> Callable[[Any], dict[str, Any]]:
    """Function that takes the attributes of these names from an object."""
    return lambda item: {name: getattr(item, name) for name in names}


def without_fields(kind: type) -> Recipe:
    """Recipe of a class whose objects are all the same."""
    return Recipe(kind, lambda item: {}, lambda f: kind())


class Writer:
    """Objects and arrays of one file.

    Parameters
    ----------
    recipes : dict of {str: Recipe}
        Classes that a file may hold.
    """

    def __init__(self, recipes: Recipes) -> None:
        self.objects: list[Json] = []
        self.arrays: Arrays = {}
        self._names = {recipe.kind: name for name, recipe in recipes.items()}
        self._recipes = recipes
        self._known: dict[int, tuple[int, object]] = {}

    def add(self, item: object, where: str) -> int:
        """Number of an object, that is added unless the file has it."""
        if id(item) not in self._known:
            name = self._names.get(type(item))
            if name is None:
                raise FileError(_unknown(item, where))
            fields = self._recipes[name].take(item)
            entry = {key: self.value(value, f"{name}.{key}") for key, value in fields.items()}
            self._known[id(item)] = len(self.objects), item
            self.objects.append({"class": name, "fields": entry})
        return self._known[id(item)][0]

    def value(self, value: Any, where: str) -> Any:
        """A value as JSON; its arrays are kept under the name of where it was found."""
        match value:
            case None | bool() | str():
                return value
            case np.bool_():
                return bool(value)
            case Integral():
                return int(value)
            case Real():
                return self._number(float(value))
            case list():
                return [self.value(item, where) for item in value]
            case tuple():
                return {"tuple": [self.value(item, where) for item in value]}
            case dict() if all(isinstance(key, str) for key in value):
                return {"dict": {k: self.value(v, f"{where}.{k}") for k, v in value.items()}}
            case os.PathLike():
                return os.fspath(value)
            case np.ndarray() if value.dtype.kind in "OU":
                return self._texts(value, where)
            case np.ndarray():
                return {"array": self._keep(value, where)}
            case Tensor() if value.is_complex():
                return {"complex": self._keep(_numpy(torch.view_as_real(value)), where)}
            case Tensor():
                return {"tensor": self._keep(_numpy(value), where)}
        return {"object": self.add(value, where)}

    @staticmethod
    def _number(value: float) -> Any:
        return value if math.isfinite(value) else {"float": str(value)}

    @staticmethod
    def _texts(value: NDArray[Any], where: str) -> Json:
        if value.ndim != 1 or not all(isinstance(item, str) for item in value):
            raise FileError(f"{where} holds objects other than text; keep such models by pickle")
        return {"texts": [str(item) for item in value], "object": value.dtype.kind == "O"}

    def _keep(self, array: NDArray[Any], where: str) -> str:
        plain = np.asarray(array, dtype=array.dtype.newbyteorder("<"), order="C")
        if plain.dtype not in DTYPES.values():
            raise FileError(f"{where} is of type {array.dtype}, which files do not hold")
        name = f"{where}.{len(self.arrays)}"
        self.arrays[name] = plain
        return name


class Reader:
    """Objects made of what a file says.

    Parameters
    ----------
    recipes : dict of {str: Recipe}
        Classes that a file may hold; no other is ever made.
    arrays : dict of {str: ndarray}
        Each is taken only once, so that the result is not larger than the file.
    """

    def __init__(self, recipes: Recipes, arrays: Arrays) -> None:
        self.made: list[Any] = []
        self._recipes = recipes
        self._arrays = dict(arrays)

    def make(self, objects: Any) -> Any:
        """The last of the objects, and all before it."""
        if not isinstance(objects, list) or not 0 < len(objects) <= MAX_OBJECTS:
            raise FileError(f"the file's list of objects is wrong: {DAMAGED}")
        for entry in objects:
            self.made.append(self._one(entry))
        return self.made[-1]

    def _one(self, entry: Any) -> Any:
        match entry:
            case {"class": str(name), "fields": dict(raw)} if len(entry) == 2:
                pass
            case _:
                raise FileError(f"the file's list of objects is wrong: {DAMAGED}")
        if name not in self._recipes:
            raise FileError(f"the file holds a {quoted(name)}, a class {UNKNOWN}")
        fields = Fields(name, {key: self.value(value) for key, value in raw.items()})
        item = self._recipes[name].make(fields)
        fields.finish()
        return item

    def value(self, value: Any, depth: int = 0) -> Any:
        """Object that a JSON value stands for."""
        if depth > MAX_DEPTH:
            raise FileError(f"values are nested too deeply: {DAMAGED}")
        match value:
            case None | bool() | str() | int() | float():
                return value
            case list():
                return self._items(value, depth)
            case {"tuple": list(items), **rest} if not rest:
                return tuple(self._items(items, depth))
            case {"dict": dict(items), **rest} if not rest:
                return dict(zip(items, self._items(list(items.values()), depth), strict=True))
            case {"float": str(name), **rest} if not rest and name in UNUSUAL:
                return UNUSUAL[name]
            case {"texts": list(texts), "object": bool(is_object), **rest} if not rest:
                return self._texts(texts, is_object=is_object)
            case {"array": str(name), **rest} if not rest:
                return self._taken(name)
            case {"tensor": str(name), **rest} if not rest:
                return _torch(self._taken(name))
            case {"complex": str(name), **rest} if not rest:
                return _complex(_torch(self._taken(name)))
            case {"object": int(number), **rest} if not rest and 0 <= number < len(self.made):
                return self.made[number]
        raise FileError(f"a value of the file is of no known kind: {DAMAGED}")

    def _items(self, items: Sequence[Any], depth: int) -> list[Any]:
        return [self.value(item, depth + 1) for item in items]

    @staticmethod
    def _texts(texts: list[Any], *, is_object: bool) -> NDArray[Any]:
        if not all(isinstance(text, str) for text in texts):
            raise FileError(f"an array of texts holds something else: {DAMAGED}")
        return np.array(texts, dtype=object if is_object else np.str_)

    def _taken(self, name: str) -> NDArray[Any]:
        if name not in self._arrays:
            raise FileError(f"a tensor is missing, or is used twice: {DAMAGED}")
        return self._arrays.pop(name)


def _numpy(tensor: Tensor) -> NDArray[Any]:
    return tensor.detach().cpu().resolve_conj().numpy()


def _torch(array: NDArray[Any]) -> Tensor:
    return torch.from_numpy(array.astype(array.dtype.newbyteorder("="), copy=False))


def _complex(pairs: Tensor) -> Tensor:
    if pairs.ndim == 0 or pairs.shape[-1] != 2 or not pairs.is_floating_point():
        raise FileError(f"a complex tensor is not a tensor of pairs: {DAMAGED}")
    return torch.view_as_complex(pairs)


def _unknown(item: object, where: str) -> str:
    name = f"{type(item).__module__}.{type(item).__qualname__}"
    return (
        f"{where} is a {name}, which is not among the classes that files may hold; keep such a "
        "model by pickle (where you trust its reader's code), or fit it without this object"
    )


def _random_state(f: Fields) -> RandomState:
    keys = f.item("keys", np.ndarray)
    f.require((keys.shape, keys.dtype) == ((N_KEYS,), np.uint32), "keys", "have the wrong shape")
    position = f.item("position", int)
    f.require(0 <= position <= N_KEYS, "position", "is out of range")
    state = RandomState()
    has_gauss = int(f.item("has_gauss", bool))
    state.set_state(("MT19937", keys, position, has_gauss, f.number("gauss")))
    return state


def _state_of(random_state: RandomState) -> dict[str, Any]:
    state = random_state.get_state(legacy=False)
    inner = state["state"]
    return {
        "keys": inner["key"],
        "position": inner["pos"],
        "has_gauss": bool(state["has_gauss"]),
        "gauss": state["gauss"],
    }


RECIPES: dict[str, Recipe] = {"RandomState": Recipe(RandomState, _state_of, _random_state)}
"""Classes that a file may hold: each layer adds its own when it is imported, and only those.

A file names them; it cannot name anything else.
"""
FORMER: dict[int, dict[str, Recipe]] = {}
"""Classes that files of earlier formats may hold, by the number of the format."""

"""Values of a model as JSON and arrays, and back.

A header lists objects, each after those that it refers to. A value is plain (None, bool, number,
text or a list of values) or an object with one tag: ``{"float": "nan"}``, ``{"tuple": [...]}``,
``{"dict": {...}}``, ``{"texts": [...]}`` (an array of them), ``{"array": name}`` and
``{"tensor": name}`` (in the file's tensors), ``{"turned": name}`` (its last two axes swapped),
``{"complex": name}`` (a tensor of pairs), ``{"object": number}`` (earlier in the list).
"""

import math
import os
from collections.abc import Callable, Iterable, Mapping
from inspect import signature
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from numpy.random import RandomState
from numpy.typing import NDArray
from torch import Tensor, nn

from qaffde.files.fields import Fields, Spec, anything, array, as_check, number, whole
from qaffde.files.format import DAMAGED, DTYPES, UNKNOWN, Arrays, FileError, Json, quoted

MAX_OBJECTS = 10_000
MAX_NUMBER = {int: 2**63, float: math.inf}
MAX_CHAIN = 256
"""Objects that may hold each other in a chain, such as integrals of integrals."""
MAX_NESTING = 8
"""Of lists in lists."""
MAX_USE = 1 << 32
USE_OF_FILE = 16
"""Bytes that the matrices of a model in use may take, in all or for every byte of its file."""
UNUSUAL = {str(value): value for value in (math.nan, math.inf, -math.inf)}


Rule = Callable[[Fields], None]


def must(name: str, fits: Callable[[Fields], Any], what: str) -> Rule:
    """Rule that blames a field where something does not hold for all of them."""
    return lambda f: f.require(fits(f), name, what)


class Recipe:
    """How objects of one class are taken apart, and made of what a file says of them.

    `specs` are the checks of its fields, in this order, and `rules` look at all fields together
    afterwards. Without specs, the fields are the parameters of the class, which checks them
    itself, and may lack. `take` returns the fields of an object, by default its attributes, and
    `make` the object of its fields. A file must have all `required` fields, by default all.
    """

    def __init__(
        self,
        kind: Any,
        /,
        *rules: Rule,
        make: Callable[[Fields], Any] | None = None,
        take: Callable[[Any], Mapping[str, Any]] | None = None,
        required: Iterable[str] | None = None,
        **specs: Spec,
    ) -> None:
        self.kind, self._rules, self._make = kind, rules, make or (lambda f: kind(**f))
        checks = {name: as_check(spec) for name, spec in specs.items()}
        self._checks = checks or dict.fromkeys(signature(kind).parameters, anything)
        self._required = checks if required is None else required
        self.take = take or (lambda item: {name: getattr(item, name) for name in self._checks})

    def read(self, fields: Fields) -> Any:
        """Object of its fields, once they are checked; modules are frozen."""
        for name in fields.keys() - self._checks.keys():
            raise FileError(f"{fields.kind}.{quoted(name)} is {UNKNOWN}")
        fields.require_all(self._required)
        for name, check in self._checks.items():
            if name in fields:
                check(fields, name, fields[name])
        for rule in self._rules:
            rule(fields)
        item = self._make(fields)
        return item.requires_grad_(False).eval() if isinstance(item, nn.Module) else item


RECIPES: dict[str, Recipe] = {}
"""Classes that a file may hold, by name: a file cannot name anything else."""


class Writer:
    """Objects and arrays of one file."""

    def __init__(self) -> None:
        self.objects: list[Json] = []
        self.arrays: Arrays = {}
        self._names = {recipe.kind: name for name, recipe in RECIPES.items()}
        self._known: dict[int, tuple[int, object]] = {}

    def add(self, item: object, where: str) -> int:
        """Number of an object, that is added unless the file has it."""
        if id(item) not in self._known:
            name = self._names.get(type(item))
            if name is None:
                raise FileError(
                    f"{where} is a {type(item).__module__}.{type(item).__qualname__}, which is "
                    "not among the classes that files may hold; keep such a model by pickle "
                    "(where you trust its reader's code), or fit it without this object"
                )
            fields = RECIPES[name].take(item)
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
                return float(value) if math.isfinite(value) else {"float": str(float(value))}
            case list() | nn.ModuleList() | nn.ParameterList():
                return [self.value(item, where) for item in value]
            case tuple():
                return {"tuple": [self.value(item, where) for item in value]}
            case dict() if all(isinstance(key, str) for key in value):
                return {"dict": {k: self.value(v, f"{where}.{k}") for k, v in value.items()}}
            case os.PathLike():
                return os.fspath(value)
            case np.ndarray() if value.dtype.kind in "OU":
                if value.ndim != 1 or not all(isinstance(item, str) for item in value):
                    wrong = f"{where} holds objects other than text; keep such models by pickle"
                    raise FileError(wrong)
                return {"texts": [str(item) for item in value], "object": value.dtype.kind == "O"}
            case np.ndarray():
                return {"array": self._keep(value, where)}
            case Tensor() if value.is_complex():
                pairs = torch.view_as_real(value.resolve_conj())
                return {"complex": self.value(pairs.contiguous(), where)["tensor"]}
            case Tensor():  # as it lies in memory: the order of sums decides on their last bits
                turned = value.ndim > 1 and value.mT.is_contiguous() > value.is_contiguous()
                plain = (value.mT if turned else value).detach().cpu().numpy()
                return {"turned" if turned else "tensor": self._keep(plain, where)}
        return {"object": self.add(value, where)}

    def _keep(self, array: NDArray[Any], where: str) -> str:
        plain = np.asarray(array, dtype=array.dtype.newbyteorder("<"), order="C")
        if plain.dtype not in DTYPES.values():
            raise FileError(f"{where} is of type {array.dtype}, which files do not hold")
        name = f"{where}.{len(self.arrays)}"
        self.arrays[name] = plain
        return name


class Reader:
    """Objects made of what a file says.

    Each array is taken only once, so that the result is not larger than the file.
    """

    def __init__(self, arrays: Arrays) -> None:
        self._arrays, self._longest = dict(arrays), 0
        self._made: list[Any] = []
        self._sizes: dict[int, dict[str, int]] = {}
        self._lengths: list[int] = []  # of the chains that end in each object
        self._left = max(MAX_USE, USE_OF_FILE * sum(array.nbytes for array in arrays.values()))

    def make(self, objects: Any) -> Any:
        """The last of the objects, and all before it."""
        if not isinstance(objects, list) or not 0 < len(objects) <= MAX_OBJECTS:
            raise FileError(f"the file's list of objects is wrong: {DAMAGED}")
        for entry in objects:
            self._add(entry)
        return self._made[-1]

    def _add(self, entry: Any) -> None:
        match entry:
            case {"class": str(name), "fields": dict(raw), **rest} if not rest:
                pass
            case _:
                raise FileError(f"the file's list of objects is wrong: {DAMAGED}")
        if name not in RECIPES:
            raise FileError(f"the file holds a {quoted(name)}, a class {UNKNOWN}")
        self._longest = 0
        values = {key: self.value(value) for key, value in raw.items()}
        if self._longest > MAX_CHAIN:
            raise FileError(f"objects hold each other in too long a chain: {DAMAGED}")
        fields = Fields(name, values, self._sizes, self._charge)
        item = RECIPES[name].read(fields)
        self._made.append(item)
        self._sizes[id(item)] = fields.sizes
        self._lengths.append(self._longest + 1)

    def _charge(self, n_bytes: int) -> None:
        self._left -= n_bytes
        if self._left < 0:
            raise FileError(
                "using the model would take more than "
                f"{MAX_USE >> 30} GiB, far more than the file: {DAMAGED}"
            )

    def value(self, value: Any, depth: int = 0) -> Any:
        """Object that a JSON value stands for."""
        if depth > MAX_NESTING:
            raise FileError(f"values are nested too deeply: {DAMAGED}")
        kind = type(value)
        if kind is float or kind is int:
            if not abs(value) < MAX_NUMBER[kind]:
                raise FileError(f"the number {quoted(value)} is too large: {DAMAGED}")
            return value
        if kind is str or kind is bool or value is None:
            return value
        match value:
            case list():
                return [self.value(item, depth + 1) for item in value]
            case {"tuple": list(items), **rest} if not rest:
                return tuple(self.value(item, depth + 1) for item in items)
            case {"dict": dict(items), **rest} if not rest:
                return {key: self.value(item, depth + 1) for key, item in items.items()}
            case {"float": str(name), **rest} if not rest and name in UNUSUAL:
                return UNUSUAL[name]
            case {"texts": list(texts), "object": bool(is_object), **rest} if not rest:
                if all(isinstance(text, str) for text in texts):
                    return np.array(texts, dtype=object if is_object else np.str_)
            case {"array": str(name), **rest} if not rest:
                return self._taken(name)
            case {"tensor": str(name), **rest} if not rest:
                return _torch(self._taken(name))
            case {"turned": str(name), **rest} if not rest:
                if (array := self._taken(name)).ndim > 1:
                    return _torch(array).mT
            case {"complex": str(name), **rest} if not rest:
                pairs = _torch(self._taken(name))
                if pairs.ndim and pairs.shape[-1] == 2 and pairs.is_floating_point():
                    return torch.view_as_complex(pairs)
            case {"object": int(number), **rest} if not rest and 0 <= number < len(self._made):
                self._longest = max(self._longest, self._lengths[number])
                return self._made[number]
        raise FileError(f"a value of the file is of no known kind: {DAMAGED}")

    def _taken(self, name: str) -> NDArray[Any]:
        if name not in self._arrays:
            raise FileError(f"a tensor is missing, or is used twice: {DAMAGED}")
        return self._arrays.pop(name)


def _torch(array: NDArray[Any]) -> Tensor:
    return torch.from_numpy(array.astype(array.dtype.newbyteorder("="), copy=False))


def _random_state(f: Fields) -> RandomState:
    state = RandomState()
    state.set_state(("MT19937", f["key"], f["pos"], f["has_gauss"], f["gauss"]))
    return state


RECIPES["RandomState"] = Recipe(
    RandomState,
    make=_random_state,
    take=lambda state: dict(
        zip(("key", "pos", "has_gauss", "gauss"), state.get_state()[1:], strict=True)
    ),
    key=array("624", kinds="u"),
    pos=whole(0, 624),
    has_gauss=whole(0, 1),
    gauss=number(),
)

"""Damaged and forged model files.

Half of the inputs are damaged as disks and networks do it: bytes flipped, cut off, inserted,
repeated. The other half are forged: values of the header or tensors are replaced, removed or
exchanged, and the digest is made right again, so that only the checks behind it are left. Every
input must give a :class:`qaffde.FileError` of one line, or a model that answers with numbers
(those of a forged model are forged, but none is NaN), within seconds and without unpickling or
starting a process.
"""

import warnings
from collections.abc import Callable, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import Generator
from sklearn.exceptions import NotFittedError

from qaffde.files.format import FileError, pack, unpack
from qaffde.files.model import dumps, loads

HOSTILE: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    1,
    7,
    2**31,
    2**62,
    1e300,
    -0.5,
    "",
    "x",
    "auto",
    "__class__",
    "os.system",
    [],
    {},
    [[[[[[[[[[[[]]]]]]]]]]]],
    {"object": 0},
    {"float": "nan"},
    {"float": "inf"},
    {"dict": {"__class__": "os.system"}},
    {"tuple": [1, 2]},
    {"texts": ["a"], "object": True},
    {"tensor": "missing"},
    "\ud800\n",
)
DTYPES = ("f4", "f8", "i8", "i4", "u1", "?", "f2")


def flip(content: bytes, rng: Generator) -> bytes:
    """Other bytes in up to eight places."""
    damaged = bytearray(content)
    for place in rng.integers(len(content), size=rng.integers(1, 9)):
        damaged[place] ^= int(rng.integers(1, 256))
    return bytes(damaged)


def flip_header(content: bytes, rng: Generator) -> bytes:
    """Other bytes among the first hundreds, where all sizes stand."""
    return flip(content[:400], rng) + content[400:]


def cut(content: bytes, rng: Generator) -> bytes:
    """The first part alone."""
    return content[: rng.integers(len(content))]


def splice(content: bytes, rng: Generator) -> bytes:
    """A part repeated, removed, or put elsewhere."""
    a, b = sorted(rng.integers(len(content), size=2))
    b = min(b, a + 200)
    place = rng.integers(len(content))
    pieces = (content[:place] + content[a:b] + content[place:], content[:a] + content[b:])
    return pieces[rng.integers(2)]


def lie_about_size(content: bytes, rng: Generator) -> bytes:
    """Another length of the header."""
    size = (0, 1, 2**24 + 1, 2**40, 2**63, 2**64 - 1, int(rng.integers(2 * len(content))))
    return int(rng.choice(np.array(size, dtype=np.uint64))).to_bytes(8, "little") + content[8:]


def forge_value(content: bytes, rng: Generator) -> bytes:
    """One value of the header replaced, removed, or exchanged with another; the digest right."""
    header, arrays = unpack(content)
    for _ in range(rng.integers(1, 3)):
        places = list(_places(header))
        parent, key = places[rng.integers(len(places))]
        match rng.integers(3):
            case 0:
                parent[key] = deepcopy(HOSTILE[rng.integers(len(HOSTILE))])
            case 1:
                del parent[key]
            case _:
                other, name = places[rng.integers(len(places))]
                parent[key] = deepcopy(other[name])
    return pack(header, arrays)


def forge_array(content: bytes, rng: Generator) -> bytes:
    """One tensor of another type, shape or content; the digest right."""
    header, arrays = unpack(content)
    if not arrays:
        return forge_value(content, rng)
    names = sorted(arrays)
    name = names[rng.integers(len(names))]
    array = arrays[name]
    match rng.integers(6):
        case 0:
            with np.errstate(all="ignore"):
                arrays[name] = array.astype(DTYPES[rng.integers(len(DTYPES))])
        case 1:
            arrays[name] = array.reshape(-1)[: rng.integers(array.size + 1)]
        case 2:
            arrays[name] = np.resize(array, rng.integers(4, size=rng.integers(4)))
        case 3:
            arrays[name] = _spoilt(array, rng)
        case 4:
            del arrays[name]
        case _:
            other = names[rng.integers(len(names))]
            arrays[name], arrays[other] = arrays[other], array
    return pack(header, arrays)


def _places(node: Any) -> Any:
    """Every parent and key of a tree of JSON."""
    items = node.items() if isinstance(node, dict) else enumerate(node)
    for key, value in items:
        yield node, key
        if isinstance(value, dict | list):
            yield from _places(value)


def _spoilt(array: np.ndarray[Any, Any], rng: Generator) -> np.ndarray[Any, Any]:
    if array.dtype.kind != "f" or not array.size:
        return np.zeros_like(array)
    spoilt = array.copy()
    values = (np.nan, np.inf, -np.inf, -1.0, 0.0, 1e300, -1e300, 1e-300)
    place = rng.integers(spoilt.size)
    with np.errstate(over="ignore", under="ignore"):  # single precision takes 1e300 for infinity
        spoilt.flat[place] = np.array(values[rng.integers(len(values))]).astype(spoilt.dtype)
    return spoilt


Mutation = Callable[[bytes, Generator], bytes]
MUTATIONS: dict[str, Mutation] = {
    "flip": flip,
    "flip header": flip_header,
    "cut": cut,
    "splice": splice,
    "size": lie_about_size,
    "forged value": forge_value,
    "forged tensor": forge_array,
}
FINE = {"refused", "loaded, used", "loaded, unfitted"}
FORGED = ("forged value", "forged tensor")


def mutate(contents: Sequence[bytes], rng: Generator) -> bytes:
    """Mutated content of one of the files."""
    plain = [name for name in MUTATIONS if name not in FORGED]
    names = FORGED if rng.integers(2) else plain
    name = names[rng.integers(len(names))]
    return MUTATIONS[name](contents[rng.integers(len(contents))], rng)


def outcome(content: bytes) -> str:
    """What a content gives: a model, "refused", or whatever should not have happened."""
    try:
        model = loads(content)
    except FileError as error:
        message = str(error)
        return "refused" if "\n" not in message and message.isprintable() else "unclear message"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return f"loaded, {use(model)}"


def use(model: Any) -> str:
    """What a loaded model does with rows: "used", or the error that it raises."""
    rows: Any = np.full((3, getattr(model, "n_features_in_", 1)), 0.5)
    methods = ("score_samples", "predict_log_proba", "transform", "predict", "score")
    answer = next(getattr(model, name) for name in methods if hasattr(model, name))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of rows without names, and of forged numbers
            if getattr(model, "schema_", None) is not None:
                rows = model.schema_.decode(np.zeros_like(rows))
            found = answer(rows)
    except NotFittedError:
        return "unfitted"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "NaN" if np.isnan(found).any() else "used"


def start(folder: Path) -> Callable[[Generator], str]:
    """Files of all estimators, and the attempt that mutates one."""
    from tests.file_models import MODELS, fitted

    contents = [dumps(fitted(name)) for name in MODELS]
    assert {outcome(content) for content in contents} == {"loaded, used"}
    return lambda rng: outcome(mutate(contents, rng))

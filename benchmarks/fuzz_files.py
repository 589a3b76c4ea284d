"""Feed damaged and hostile files to `load`, and see that nothing but one-line errors comes out.

    python -m benchmarks.fuzz_files [--inputs N] [--seed N] [--json FILE]

Half of the inputs are damaged as disks and networks do it: bytes flipped, cut off, inserted,
repeated. The other half are forged: values of the header or tensors are replaced, removed or
exchanged, and the digest is made right again, so that only the checks behind it are left. Every
input must give a :class:`qaffde.FileError` of one line, or a model that can be used (numbers of a
forged model are forged, not wrong), within seconds and without unpickling or starting a process.
"""

import argparse
import json
import resource
import signal
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import Generator
from sklearn.exceptions import NotFittedError

from qaffde.files.format import FileError, pack, unpack
from qaffde.files.model import dumps, loads

SECONDS = 20
"""More than this for one input is a hang, and ends the process."""
WATCHED = ("os.system", "os.exec", "os.posix_spawn", "subprocess.Popen", "pickle.find_class")
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


def mutate(contents: Sequence[bytes], number: int, seed: int = 0) -> tuple[str, bytes]:
    """Input of a number: the name of its mutation, and the mutated content of one of the files."""
    rng = np.random.default_rng([seed, number])
    plain = [name for name in MUTATIONS if name not in FORGED]
    names = FORGED if number % 2 else plain
    name = names[rng.integers(len(names))]
    return name, MUTATIONS[name](contents[rng.integers(len(contents))], rng)


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
    rows = np.full((3, getattr(model, "n_features_in_", 1)), 0.5)
    methods = ("score_samples", "predict_log_proba", "transform")
    answer = next(getattr(model, name) for name in methods if hasattr(model, name))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of rows without names, and of forged numbers
            answer(rows)
    except NotFittedError:
        return "unfitted"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "used"


def run(contents: Sequence[bytes], n_inputs: int, seed: int = 0) -> dict[str, Any]:
    """Counts of outcomes by mutation, the slowest input in seconds, and the growth of memory."""
    for content in contents:
        assert outcome(content) == "loaded, used"
    counts: Counter[tuple[str, str]] = Counter()
    slowest, before = 0.0, _peak_megabytes()
    for number in range(n_inputs):
        name, content = mutate(contents, number, seed)
        start = time.perf_counter()
        signal.alarm(SECONDS)
        counts[name, outcome(content)] += 1
        signal.alarm(0)
        slowest = max(slowest, time.perf_counter() - start)
    return {
        "inputs": n_inputs,
        "files": len(contents),
        "seed": seed,
        "outcomes": {f"{name}: {what}": n for (name, what), n in sorted(counts.items())},
        "slowest_seconds": round(slowest, 3),
        "memory_growth_mb": round(_peak_megabytes() - before, 1),
    }


def _peak_megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _watch(found: list[str]) -> None:
    """Note every event that no loading may cause."""
    sys.addaudithook(lambda event, _: found.append(event) if event.startswith(WATCHED) else None)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line."""
    from tests.file_models import MODELS, fitted

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--inputs", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="file to write the counts to")
    options = parser.parse_args(arguments)

    contents = [dumps(fitted(name)) for name in MODELS]
    events: list[str] = []
    _watch(events)
    result = run(contents, options.inputs, options.seed) | {"events": len(events)}
    print(json.dumps(result, indent=2))
    if options.json is not None:
        options.json.write_text(json.dumps(result, indent=2) + "\n")
    kinds = {what.split(": ", 1)[1] for what in result["outcomes"]}
    if kinds - FINE or events:
        sys.exit("some inputs got through, see above")


if __name__ == "__main__":
    main()

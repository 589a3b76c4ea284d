"""The format of model files: safetensors, with a JSON header and a digest in its metadata.

Everything here treats bytes as hostile: sizes are checked before anything of that size is made,
and whatever is wrong is a :class:`FileError` of one line.
"""

import hashlib
import json
import os
import secrets
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import safetensors
from numpy.typing import NDArray
from safetensors.numpy import save

from qaffde.extras import one_line

Json = dict[str, Any]
Arrays = dict[str, NDArray[Any]]

FORMAT = 2
"""Version of the files that are written and read."""
MAX_BYTES = 1 << 32
MAX_HEADER_BYTES = 1 << 23
DTYPES = {"BOOL": np.dtype("?")} | {
    f"{kind}{8 * size}": np.dtype(f"<{kind.lower()}{size}")
    for kind, sizes in (("F", (2, 4, 8)), ("I", (1, 2, 4, 8)), ("U", (1, 2, 4, 8)))
    for size in sizes
}
"""Types of numbers, by their names in safetensors."""
DAMAGED = "the file is damaged, or was not written by qaffde; save the model again"
CONVERT = "run python tools/convert_model.py OLD NEW in the sources of qaffde"
OLDER = f"if it is older, {CONVERT}"
UNKNOWN = f"not known to this version: update qaffde if the file is newer; {OLDER}"


class FileError(ValueError):
    """A model that cannot be written to a file, or a file that cannot be read as a model."""


def pack(header: Json, arrays: Arrays) -> bytes:
    """Content of a file, from plain values and arrays by name.

    Examples
    --------
    >>> content = pack({"format": 2}, {"x": np.ones(2)})
    >>> unpack(content)
    ({'format': 2}, {'x': array([1., 1.])})
    """
    metadata = {"qaffde": json.dumps(header, allow_nan=False, separators=(",", ":"))}
    _check_room(4 * sum(array.nbytes for array in arrays.values()))
    plain = save(arrays, metadata)
    digest = _digest(*_split(plain, len(plain)))
    content: bytes = save(arrays, metadata | {"digest": digest})
    return content


def unpack(content: bytes, versions: Sequence[int] = (FORMAT,)) -> tuple[Json, Arrays]:
    """Header and arrays of a file's content, once its format and its digest are checked."""
    table, header, data = _read_header(content, len(content), versions)
    if table["__metadata__"].get("digest") != _digest(table, data):
        raise FileError(f"the file's digest is wrong: {DAMAGED}")
    _check_room(2 * len(content))
    try:
        entries = safetensors.deserialize(content)
    except safetensors.SafetensorError as error:
        raise FileError(f"the file's tensors cannot be read ({error}): {DAMAGED}") from None
    return header, {name: _array(entry) for name, entry in entries}


def read_content(file: BinaryIO, n_bytes: int) -> bytes:
    """Content of an open file of a known size; what follows a wrong header is not read."""
    start = file.read(8)
    start += file.read(min(int.from_bytes(start, "little"), MAX_HEADER_BYTES))
    _read_header(start, n_bytes)
    return start + file.read(n_bytes - len(start))


def parse_json(text: str | bytes) -> Json:
    """An object of plain values, each name only once.

    Examples
    --------
    >>> parse_json('{"a": 1, "a": 2}')
    Traceback (most recent call last):
    qaffde.files.format.FileError: the file's header cannot be read (the name 'a' ...
    """
    try:
        value = json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise FileError(f"the file's header cannot be read ({quoted(error)}): {DAMAGED}") from None
    if not isinstance(value, dict):
        raise FileError(f"the file's header is not a JSON object: {DAMAGED}")
    return value


def quoted(text: object) -> str:
    """Text of a file as it may stand in a message: one short line."""
    return one_line(text, 60)


def _check_room(n_bytes: int) -> None:
    """Raise a MemoryError where memory is short: safetensors would end the process, or hang."""
    bytearray(n_bytes + (1 << 22))


def _read_header(
    start: bytes, n_bytes: int, versions: Sequence[int] = (FORMAT,)
) -> tuple[Json, Json, memoryview]:
    """Header of safetensors, that of the model within it, and the bytes that follow.

    `start` is the file of `n_bytes`, or as much of it as the header needs.
    """
    table, data = _split(start, n_bytes)
    metadata = table.get("__metadata__")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("qaffde"), str):
        raise FileError("this is not a model file of qaffde; name a file that model.save wrote")
    header = parse_json(metadata["qaffde"])
    version = header.get("format")
    if not isinstance(version, int) or not 1 <= version < 1000:
        raise FileError(f"the file does not say which format it has: {DAMAGED}")
    if version not in versions:
        raise FileError(
            f"the file has format {version}, written by qaffde {quoted(header.get('version'))}; "
            f"this version reads format {FORMAT}: "
            + ("update qaffde" if version > FORMAT else CONVERT)
        )
    last, said = 0, n_bytes - len(start) + len(data)
    for entry in (entry for name, entry in table.items() if name != "__metadata__"):
        match entry:
            case {"data_offsets": [int(), int(end)]}:
                last = max(last, end)
            case _:
                raise FileError(f"the file's table of tensors is wrong: {DAMAGED}")
    if last != said:
        raise FileError(f"the file's tensors have {last} bytes, not {said}: {DAMAGED}")
    return table, header, data


def _split(start: bytes, n_bytes: int) -> tuple[Json, memoryview]:
    """The safetensors header as it stands in the file, and the bytes that follow."""
    size = int.from_bytes(start[:8], "little")
    if n_bytes < 8 or size > n_bytes - 8:
        raise FileError(
            "the file is cut short, or no safetensors file at all; save the model again"
        )
    if size > MAX_HEADER_BYTES:
        raise FileError(
            f"the file's header of {size} bytes is larger than {MAX_HEADER_BYTES}: {DAMAGED}"
        )
    return parse_json(start[8 : 8 + size]), memoryview(start)[8 + size :]


def _digest(table: Json, data: memoryview) -> str:
    """Digest of all that a file says, but for the digest itself."""
    metadata = {k: v for k, v in table["__metadata__"].items() if k != "digest"}
    said = json.dumps(table | {"__metadata__": metadata}, sort_keys=True)
    state = hashlib.blake2b(said.encode(), digest_size=16)
    state.update(data)
    return state.hexdigest()


def _array(entry: Mapping[str, Any]) -> NDArray[Any]:
    if entry["dtype"] not in DTYPES:
        raise FileError(f"tensors of type {quoted(entry['dtype'])} are not known: {DAMAGED}")
    flat: NDArray[Any] = np.frombuffer(entry["data"], DTYPES[entry["dtype"]])
    if entry["dtype"] == "BOOL":
        flat = flat.view(np.uint8) > 0  # any other byte would be no boolean
    try:
        shaped = flat.reshape(entry["shape"])
    except ValueError:  # more axes than NumPy has, or an empty array of an endless shape
        raise FileError(f"a tensor has shape {quoted(entry['shape'])}: {DAMAGED}") from None
    return np.require(shaped, requirements="W")


def _unique(pairs: list[tuple[str, Any]]) -> Json:
    found: Json = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"the name {name!r} stands twice")
        found[name] = value
    return found


def _refuse(text: str) -> None:
    raise ValueError(f"the number {text} is not finite")


def write_atomically(path: str | os.PathLike[str], content: bytes) -> None:
    """Write a file at once: a reader sees the old or the new."""
    with replacing(path) as file:
        file.write(content)


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """File beside `path`, which takes its place on the disk when nothing went wrong.

    A symbolic link stays, its target is replaced. An existing file keeps its mode, a new one
    follows the umask. Devices and pipes are written into, for they cannot be replaced.
    """
    where = Path(os.path.realpath(path))
    try:
        old = where.stat().st_mode
    except FileNotFoundError:
        old = None
    mode = stat.S_IFREG | 0o666 if old is None else old
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(f"{os.fspath(path)!r} is a directory; name a file in it")
    if not where.parent.is_dir():
        raise FileNotFoundError(f"the directory of {where} does not exist; create it first")
    if not stat.S_ISREG(mode):
        with where.open("wb") as file:
            yield file
        return
    permissions = stat.S_IMODE(mode)
    beside = where.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        with open(beside, "xb", opener=lambda p, flags: os.open(p, flags, permissions)) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if old is not None:
            beside.chmod(permissions)  # which the umask does not change
        beside.replace(where)
    finally:
        beside.unlink(missing_ok=True)

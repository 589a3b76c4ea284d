"""The format of model files: safetensors, with a JSON header and a digest in its metadata.

Everything here treats bytes as hostile: sizes are checked before anything of that size is made,
and whatever is wrong is a :class:`FileError` of one line.
"""

import hashlib
import json
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

Json = dict[str, Any]
Arrays = dict[str, NDArray[Any]]

FORMAT = 2
"""Version of the files that are written; all up to it can be read."""
MAX_BYTES = 1 << 32
MAX_HEADER_BYTES = 1 << 24
MAX_INTEGER = 1 << 63
DTYPES = {
    "BOOL": np.dtype("?"),
    "F16": np.dtype("<f2"),
    "F32": np.dtype("<f4"),
    "F64": np.dtype("<f8"),
    "I8": np.dtype("i1"),
    "I16": np.dtype("<i2"),
    "I32": np.dtype("<i4"),
    "I64": np.dtype("<i8"),
    "U8": np.dtype("u1"),
    "U16": np.dtype("<u2"),
    "U32": np.dtype("<u4"),
    "U64": np.dtype("<u8"),
}
DAMAGED = "the file is damaged, or was not written by qaffde; save the model again"
UNKNOWN = "not known to this version: update qaffde, or save the model again"


class FileError(ValueError):
    """A model that cannot be written to a file, or a file that cannot be read as a model."""


def import_safetensors() -> ModuleType:
    """The package safetensors, or an error that says how to install it."""
    try:
        import safetensors.numpy
    except ImportError as error:
        raise ImportError(
            "model files need safetensors, which is not installed; run: pip install "
            "'qaffde[files]'"
        ) from error
    return safetensors


def pack(header: Json, arrays: Arrays) -> bytes:
    """Content of a file.

    Parameters
    ----------
    header : dict
        Plain values.
    arrays : dict of {str: ndarray}

    Examples
    --------
    >>> content = pack({"format": 1}, {"x": np.ones(2)})
    >>> unpack(content)
    ({'format': 1}, {'x': array([1., 1.])})
    """
    save = import_safetensors().numpy.save
    metadata = {"qaffde": json.dumps(header, allow_nan=False, separators=(",", ":"))}
    digest = _digest(*_split(save(arrays, metadata)))
    content: bytes = save(arrays, metadata | {"digest": digest})
    return content


def unpack(content: bytes) -> tuple[Json, Arrays]:
    """Header and arrays of a file's content.

    Raises
    ------
    FileError
        If it is not a model file, is of a newer format, or is damaged.
    """
    safetensors = import_safetensors()
    table, data = _split(content)
    metadata = table.get("__metadata__")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("qaffde"), str):
        raise FileError("this is not a model file of qaffde; name a file that model.save wrote")
    header = parse_json(metadata["qaffde"])
    _check_version(header)
    if metadata.get("digest") != _digest(table, data):
        raise FileError(f"the file's digest is wrong: {DAMAGED}")
    try:
        entries = safetensors.deserialize(content)
    except safetensors.SafetensorError as error:
        raise FileError(f"the file's tensors cannot be read ({error}): {DAMAGED}") from None
    return header, {name: _array(entry) for name, entry in entries}


def parse_json(text: str | bytes) -> Json:
    """An object of plain values, of bounded numbers, each name only once.

    Examples
    --------
    >>> parse_json('{"a": 1, "a": 2}')
    Traceback (most recent call last):
    qaffde.files.format.FileError: the file's header cannot be read (the name 'a' ...
    """
    try:
        value = json.loads(
            text,
            object_pairs_hook=_unique,
            parse_int=_integer,
            parse_float=_finite,
            parse_constant=_finite,
        )
    except (ValueError, RecursionError) as error:
        raise FileError(f"the file's header cannot be read ({quoted(error)}): {DAMAGED}") from None
    if not isinstance(value, dict):
        raise FileError(f"the file's header is not a JSON object: {DAMAGED}")
    return value


def quoted(text: object) -> str:
    r"""Text of a file as it may stand in a message: one short line of plain characters.

    Examples
    --------
    >>> quoted("grün"), len(quoted(1000 * "a"))
    ('gr\\xfcn', 63)
    """
    line = " ".join(str(text).encode("ascii", "backslashreplace").decode().split())
    return line if len(line) <= 60 else f"{line[:60]}..."


def _split(content: bytes) -> tuple[Json, memoryview]:
    """The safetensors header as it stands in the file, and the bytes of the tensors."""
    size = int.from_bytes(content[:8], "little")
    if len(content) < 8 or size > len(content) - 8:
        raise FileError(
            "the file is cut short, or no safetensors file at all; save the model again"
        )
    if size > MAX_HEADER_BYTES:
        raise FileError(
            f"the file's header of {size} bytes is larger than {MAX_HEADER_BYTES}: {DAMAGED}"
        )
    return parse_json(content[8 : 8 + size]), memoryview(content)[8 + size :]


def _digest(table: Json, data: memoryview) -> str:
    """Digest of all that a file says, but for the digest itself."""
    metadata = {k: v for k, v in table["__metadata__"].items() if k != "digest"}
    said = json.dumps(table | {"__metadata__": metadata}, sort_keys=True)
    state = hashlib.blake2b(said.encode(), digest_size=16)
    state.update(data)
    return state.hexdigest()


def _check_version(header: Json) -> None:
    version = header.get("format")
    if not isinstance(version, int) or version < 1:
        raise FileError(f"the file does not say which format it has: {DAMAGED}")
    if version > FORMAT:
        raise FileError(
            f"the file has format {version}, written by qaffde {quoted(header.get('version'))}; "
            f"this version reads up to format {FORMAT}: update qaffde"
        )


def _array(entry: Mapping[str, Any]) -> NDArray[Any]:
    if entry["dtype"] not in DTYPES:
        raise FileError(f"tensors of type {quoted(entry['dtype'])} are not known: {DAMAGED}")
    flat = np.frombuffer(entry["data"], DTYPES[entry["dtype"]])
    if entry["dtype"] == "BOOL":
        flat = flat.view(np.uint8) > 0  # any other byte would be no boolean
    return np.require(flat.reshape(entry["shape"]), requirements="W")


def _unique(pairs: list[tuple[str, Any]]) -> Json:
    found: Json = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"the name {name!r} stands twice")
        found[name] = value
    return found


def _integer(text: str) -> int:
    if len(text) > 20 or not -MAX_INTEGER <= int(text) < MAX_INTEGER:
        raise ValueError(f"the number {text[:20]}... is too large")
    return int(text)


def _finite(text: str) -> float:
    value = float(text)
    if not np.isfinite(value):
        raise ValueError(f"the number {text[:20]} is not finite")
    return value

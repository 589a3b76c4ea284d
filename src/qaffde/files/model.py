"""Save an estimator to a file, and load it."""

import os
import stat
from typing import Any

from sklearn.base import BaseEstimator

from qaffde._version import __version__
from qaffde.files.format import (
    DAMAGED,
    FORMAT,
    MAX_BYTES,
    FileError,
    pack,
    quoted,
    read_content,
    unpack,
    write_atomically,
)
from qaffde.files.values import RECIPES, Reader, Writer
from qaffde.parameters import OUT_OF_MEMORY, with_own_settings


def save(model: BaseEstimator, path: str | os.PathLike[str]) -> None:
    """Write an estimator, fitted or not, to one safetensors file.

    The file appears, or replaces another, in one piece: a full disk or a killed process leaves
    what was there. What is written has been read back.

    Parameters
    ----------
    model : estimator of qaffde
    path : str or path

    Raises
    ------
    FileError
        If it holds something that files do not, such as an encoder of your own.
    """
    content = dumps(model)
    try:
        loads(content)
    except FileError as error:
        reason = str(error).removesuffix(f": {DAMAGED}")
        raise FileError(
            f"the model would not load again ({reason}); fit it again, or keep it by pickle"
        ) from None
    write_atomically(path, content)


@with_own_settings
def load(
    path: str | os.PathLike[str], kind: type = BaseEstimator, *, max_bytes: int = MAX_BYTES
) -> Any:
    """Read an estimator from a file; no code in the file is run.

    Parameters
    ----------
    path : str or path
        Of a file that :func:`save` wrote.
    kind : type, optional
        What the estimator must be; any class of this package by default.
    max_bytes : int, default=2**32
        Larger files are refused.

    Raises
    ------
    FileError
        If the file is damaged, hostile, too large, of another format, or holds another class.
    """
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise FileError(f"{os.fspath(path)!r} is not a regular file; name a file that save wrote")
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size  # of this file: another may take its place
            if size > max_bytes:
                raise FileError(
                    f"it has {size} bytes, more than max_bytes={max_bytes}; if you trust it, call "
                    "qaffde.load with a larger max_bytes"
                )
            content = read_content(file, size)
        return loads(content, kind)
    except FileError as error:
        raise FileError(f"{os.fspath(path)!r} cannot be loaded: {error}") from None


def dumps(model: BaseEstimator) -> bytes:
    """Content of the file of an estimator."""
    known = {r.kind: name for name, r in RECIPES.items() if issubclass(r.kind, BaseEstimator)}
    if type(model) not in known:
        raise FileError(
            f"files cannot hold a {type(model).__name__}; choose one of "
            f"{', '.join(known.values())}, or keep it by pickle"
        )
    writer = Writer()
    writer.add(model, "model")
    header = {"format": FORMAT, "version": __version__, "objects": writer.objects}
    return pack(header, writer.arrays)


def loads(content: bytes, kind: type = BaseEstimator) -> Any:
    """Estimator of a file's content; see :func:`load`."""
    header, arrays = unpack(content)
    try:
        model = Reader(arrays).make(header.get("objects"))
    except FileError:
        raise
    except (ValueError, TypeError, ArithmeticError, RuntimeError) as error:
        if OUT_OF_MEMORY.search(str(error)):
            raise
        raise FileError(f"what the file says does not fit ({quoted(error)}): {DAMAGED}") from None
    if not isinstance(model, BaseEstimator):
        raise FileError(f"the file holds no estimator: {DAMAGED}")
    if not isinstance(model, kind):
        raise FileError(
            f"the file holds a {type(model).__name__}, not a {kind.__name__}; read it with "
            "qaffde.load"
        )
    return model

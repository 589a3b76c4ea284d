"""Checkpoints: state of an interrupted fit, and whether a new fit may continue from it.

A file has the format of model files (:mod:`qaffde.files.format`): tensors, plain values and a
digest. Nothing in it is code, and reading it takes no more memory than the file.
"""

import hashlib
import os
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor

from qaffde._version import __version__
from qaffde.files.format import FORMAT, pack, quoted, read_content, unpack, write_atomically
from qaffde.files.values import Reader, Writer

State = dict[str, Any]
Fingerprint = dict[str, str]


class CheckpointError(RuntimeError):
    """A checkpoint that cannot be read, or that belongs to another fit."""


class Checkpoint:
    """One file that holds the last good state of a fit.

    Parameters
    ----------
    path : str or path
    every_seconds : float, default=30.0
        Least time between two saves.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     checkpoint = Checkpoint(Path(folder) / "fit.ckpt")
    ...     checkpoint.save({"step": 3}, fingerprint(seed=0))
    ...     checkpoint.load(fingerprint(seed=0))
    {'step': 3}
    """

    def __init__(self, path: str | os.PathLike[str], every_seconds: float = 30.0) -> None:
        self.path = Path(path)
        self._file = Path(os.path.realpath(path))  # a link stays when the file is removed
        self.every_seconds = every_seconds
        self._last_save = time.monotonic()
        self._warned = False
        if not self.path.parent.is_dir():
            raise FileNotFoundError(
                f"the directory of checkpoint {self.path} does not exist; create it first"
            )
        if self._file.exists() and not self._file.is_file():
            raise CheckpointError(
                f"checkpoint {self.path} is a directory, a device or a pipe; name a regular file"
            )

    @property
    def due(self) -> bool:
        """Whether it is time to save again."""
        return time.monotonic() - self._last_save >= self.every_seconds

    def load(self, expected: Fingerprint) -> State | None:
        """State that an interrupted fit left, or None without a file.

        A file that is damaged, or belongs to another fit, is a :class:`CheckpointError`.
        """
        if not self._file.exists():
            return None
        with self.restoring():
            with self._file.open("rb") as file:
                content = read_content(file, os.fstat(file.fileno()).st_size)
            header, arrays = unpack(content)
            saved = Reader(arrays).value(header["checkpoint"])
            found, state = saved["fingerprint"], saved["state"]
            if not isinstance(found, dict) or not isinstance(state, dict):
                raise TypeError("no state of a fit")
        differing = [part for part in expected if found.get(part) != expected[part]]
        if differing:
            raise CheckpointError(
                f"checkpoint {self.path} belongs to another fit: {', '.join(differing)} differ; "
                "call fit with the same data, parameters and random_state to go on from it, or "
                "remove the file (or name another) to start anew"
            )
        return state

    def save(self, state: State, of: Fingerprint) -> None:
        """Replace the file in one piece; a full disk is a warning, once, and no reason to stop."""
        self._last_save = time.monotonic()
        writer = Writer()
        saved = writer.value({"fingerprint": of, "state": state}, "checkpoint")
        header = {"format": FORMAT, "version": __version__, "checkpoint": saved}
        try:
            write_atomically(self.path, pack(header, writer.arrays))
        except OSError as error:
            if not self._warned:
                warnings.warn(
                    f"checkpoint {self.path} cannot be saved ({error}); training goes on, but "
                    "cannot be resumed from here",
                    RuntimeWarning,
                    stacklevel=3,
                )
            self._warned = True

    def remove(self) -> None:
        """Delete the file, if there is one: the fit is over."""
        self._file.unlink(missing_ok=True)

    @contextmanager
    def restoring(self) -> Iterator[None]:
        """Turn errors of reading the file, or of taking up its state, into one with advice."""
        known = (ArithmeticError, AttributeError, LookupError, MemoryError, RuntimeError)
        try:
            yield
        except (*known, TypeError, ValueError) as error:
            reason = quoted(f"{type(error).__name__}: {error}")
            raise CheckpointError(
                f"checkpoint {self.path} cannot be read ({reason}); remove it to start anew"
            ) from None


def fingerprint(**parts: object) -> Fingerprint:
    """Digest of each part of a fit: tensors by content, nested or not, all else by its repr.

    Of tensors beyond 16 MB only evenly spaced rows are read.

    Examples
    --------
    >>> import torch
    >>> fingerprint(data=torch.ones(3)) == fingerprint(data=torch.zeros(3))
    False
    """
    return {name: _blake(_bytes(part)).hex() for name, part in parts.items()}


def _bytes(part: object) -> bytes:
    if isinstance(part, Tensor):
        step = 1 + part.nbytes // (1 << 24)
        rows = (part if part.ndim == 0 else part[::step]).detach().cpu().contiguous()
        return f"{part.dtype}{tuple(part.shape)}".encode() + rows.numpy().tobytes()
    if isinstance(part, Mapping):
        return b"".join(_bytes(name) + _bytes(value) for name, value in part.items())
    if isinstance(part, tuple | list):
        return b"".join(_blake(_bytes(item)) for item in part)
    return repr(part).encode()


def _blake(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=16).digest()

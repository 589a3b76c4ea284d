"""Checkpoints: state of an interrupted fit, and whether a new fit may continue from it.

A file is a magic word, a digest and a payload of tensors and plain values. The payload is read
with ``weights_only=True``, so that no code in a file is ever run, and only once its digest is
right.
"""

import hashlib
import io
import os
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from qaffde.files.atomic import write_atomically

State = dict[str, Any]
Fingerprint = dict[str, str]

MAGIC = b"qaffde-checkpoint-3\n"
DIGEST_SIZE = 16
MAX_HASHED_BYTES = 1 << 24


class CheckpointError(RuntimeError):
    """A checkpoint that cannot be read, or that belongs to another fit."""


class Checkpoint:
    """One file that holds the last good state of a fit.

    Parameters
    ----------
    path : str or path
        Of the file; its directory must exist.
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
        self.every_seconds = every_seconds
        self._last_save = time.monotonic()
        self._warned = False
        if not self.path.parent.is_dir():
            raise FileNotFoundError(
                f"the directory of checkpoint {self.path} does not exist; create it first"
            )

    @classmethod
    def of(cls, where: "Checkpoint | str | os.PathLike[str]") -> "Checkpoint":
        """The checkpoint itself, or that at a path."""
        return where if isinstance(where, Checkpoint) else cls(where)

    @property
    def due(self) -> bool:
        """Whether it is time to save again."""
        return time.monotonic() - self._last_save >= self.every_seconds

    def load(self, expected: Fingerprint) -> State | None:
        """State that an interrupted fit left, or None without a file.

        Raises
        ------
        CheckpointError
            If the file is damaged, is not a checkpoint, or belongs to another fit.
        """
        if (saved := self._read()) is None:
            return None
        differing = [part for part in expected if saved["fingerprint"].get(part) != expected[part]]
        if differing:
            raise CheckpointError(
                f"checkpoint {self.path} belongs to another fit: {', '.join(differing)} differ; "
                "call fit with the same data, parameters and random_state to go on from it, or "
                "remove the file (or name another) to start anew"
            )
        state: State = saved["state"]
        return state

    def peek(self) -> State | None:
        """State in the file, of any fit, or None without a file.

        Raises
        ------
        CheckpointError
            If the file is damaged or is not a checkpoint.
        """
        saved = self._read()
        return None if saved is None else saved["state"]

    def save(self, state: State, of: Fingerprint) -> None:
        """Replace the file in one piece; a full disk is a warning, once, and no reason to stop."""
        self._last_save = time.monotonic()
        buffer = io.BytesIO()
        torch.save({"fingerprint": of, "state": state}, buffer)
        payload = buffer.getvalue()
        try:
            write_atomically(self.path, MAGIC + _blake(payload) + payload)
        except OSError as error:
            self._warn(error)

    def remove(self) -> None:
        """Delete the file, if there is one: the fit is over."""
        self.path.unlink(missing_ok=True)

    def _read(self) -> dict[str, Any] | None:
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return None
        saved: dict[str, Any] = torch.load(io.BytesIO(self._payload(content)), weights_only=True)
        return saved

    def _payload(self, content: bytes) -> bytes:
        if not content.startswith(MAGIC):
            raise CheckpointError(
                f"{self.path} is not a checkpoint of this version; name another file, or "
                "remove it to start anew"
            )
        digest, payload = _split(content[len(MAGIC) :], DIGEST_SIZE)
        if _blake(payload) != digest:
            raise CheckpointError(
                f"checkpoint {self.path} is damaged or cut short; remove it to start anew"
            )
        return payload

    def _warn(self, error: OSError) -> None:
        if not self._warned:
            warnings.warn(
                f"checkpoint {self.path} cannot be saved ({error}); training goes on, but cannot "
                "be resumed from here",
                RuntimeWarning,
                stacklevel=4,
            )
        self._warned = True


def fingerprint(**parts: object) -> Fingerprint:
    """Digest of each part of a fit: tensors by content, nested or not, all else by its repr.

    Of tensors beyond 16 MB only evenly spaced rows are read.

    Examples
    --------
    >>> fingerprint(data=torch.ones(3)) == fingerprint(data=torch.ones(3))
    True
    >>> fingerprint(data=torch.ones(3)) == fingerprint(data=torch.zeros(3))
    False
    """
    return {name: _blake(_bytes(part)).hex() for name, part in parts.items()}


def _bytes(part: object) -> bytes:
    if isinstance(part, Tensor):
        step = 1 + part.nbytes // MAX_HASHED_BYTES
        rows = (part if part.ndim == 0 else part[::step]).detach().cpu().contiguous()
        return f"{part.dtype}{tuple(part.shape)}".encode() + rows.numpy().tobytes()
    if isinstance(part, Mapping):
        return b"".join(_bytes(name) + _bytes(value) for name, value in part.items())
    if isinstance(part, tuple | list):
        return b"".join(_blake(_bytes(item)) for item in part)
    return repr(part).encode()


def _blake(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=DIGEST_SIZE).digest()


def _split(content: bytes, n: int) -> tuple[bytes, bytes]:
    return content[:n], content[n:]

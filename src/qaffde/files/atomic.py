"""Files that appear, or replace others, in one piece."""

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


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

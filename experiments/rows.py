"""Result rows: JSON lines that say how they were made.

A row is on the disk as soon as it is measured, and a line counts once it ends: what an interrupted
run left of its last line is passed over when read and removed by the next append. Processes may
append to one file at a time of their own choosing: an append locks the file.
"""

import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import IO, Any

import torch

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "experiments" / "results"
PACKAGES = ("torch", "numpy", "scipy", "scikit-learn", "qaffde", "zuko", "optuna")

Row = dict[str, Any]


def read_rows(path: Path) -> list[Row]:
    """Read all whole lines; a file that is not there has none."""
    if not path.exists():
        return []
    *lines, _unfinished = path.read_text(encoding="utf-8").split("\n")
    return [_parsed(line, number, path) for number, line in enumerate(lines, 1)]


def append_row(row: Row, path: Path) -> None:
    """Append one line and wait until it is on the disk."""
    line = (json.dumps(row, ensure_ascii=False) + "\n").encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab+") as file:
        _lock(file)
        _drop_unfinished_line(file)
        file.write(line)
        file.flush()
        os.fsync(file.fileno())


def write_rows(rows: Iterable[Row], path: Path) -> None:
    """Start the file anew, each row appended as soon as it is measured."""
    path.unlink(missing_ok=True)
    for row in rows:
        append_row(row, path)


def provenance() -> Row:
    """What a row records of its origin: versions, revision, threads and date."""
    return {
        "versions": _versions(),
        "revision": _revision(),
        "threads": torch.get_num_threads(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def markdown_table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Markdown table, one line for each of `lines`.

    Examples
    --------
    >>> print(markdown_table(["set", "MAE"], [["arc", "0.1"]]))
    | set | MAE |
    | --- | --- |
    | arc | 0.1 |
    """
    rule = ["---"] * len(head)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, rule, *lines))


def _parsed(line: str, number: int, path: Path) -> Row:
    try:
        return json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(
            f"line {number} of {path} is not a row ({error}); correct or remove that line"
        ) from None


def _lock(file: IO[bytes]) -> None:
    """Wait until no other process appends; closing the file lets the next one in."""
    if sys.platform == "win32":
        import msvcrt

        file.seek(0)
        msvcrt.locking(file.fileno(), msvcrt.LK_LOCK, 1)
    else:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX)


def _drop_unfinished_line(file: IO[bytes]) -> None:
    file.seek(0)
    whole = file.read().rfind(b"\n") + 1
    if whole < file.tell():
        file.truncate(whole)


@cache
def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


@cache
def _revision() -> str | None:
    """Commit, marked where the code differs from it; None outside a git repository.

    Asked for once, with the first row: files may change while a run goes on.
    """
    try:
        commit = _git("rev-parse", "HEAD")
        changed = _git("status", "--porcelain", "--", "src", "experiments/*.py")
    except (OSError, subprocess.CalledProcessError):
        return None
    return f"{commit}-dirty" if changed else commit


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

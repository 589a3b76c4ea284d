"""Result rows: JSON lines that say how they were made, and the tables built from them.

A row is on the disk as soon as it is measured, and a line counts once it ends: what an interrupted
run left of its last line is passed over when read and removed by the next append.
"""

import json
import os
import platform
import subprocess
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy
import scipy
import sklearn
import torch

import qaffde

ROOT = Path(__file__).parents[1]
LIBRARIES = (torch, numpy, scipy, sklearn, qaffde)

Row = dict[str, Any]


def read_rows(path: Path) -> list[Row]:
    """Read all whole lines; a file that is not there has none."""
    if not path.exists():
        return []
    *lines, _unfinished = path.read_text(encoding="utf-8").split("\n")
    return [json.loads(line) for line in lines]


def append_row(row: Row, path: Path) -> None:
    """Append one line and wait until it is on the disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    _drop_unfinished_line(path)
    with path.open("ab") as file:
        file.write((json.dumps(row, ensure_ascii=False) + "\n").encode())
        file.flush()
        os.fsync(file.fileno())


def write_rows(rows: Iterable[Row], path: Path) -> None:
    """Start the file anew, each row appended as soon as it is measured."""
    path.unlink(missing_ok=True)
    for row in rows:
        append_row(row, path)


def provenance() -> Row:
    """What a row records of its origin: versions, revision, threads and date."""
    versions = {library.__name__: library.__version__ for library in LIBRARIES}
    return {
        "versions": {"python": platform.python_version(), **versions},
        "revision": REVISION,
        "threads": torch.get_num_threads(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def markdown_table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Markdown table, one line for each of `lines`."""
    rule = ["---"] * len(head)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, rule, *lines))


def _drop_unfinished_line(path: Path) -> None:
    if path.exists():
        whole = path.read_bytes().rfind(b"\n") + 1
        if whole < path.stat().st_size:
            os.truncate(path, whole)


def _revision() -> str | None:
    """Commit, marked where the library differs from it; None outside a git repository."""
    try:
        commit = _git("rev-parse", "HEAD")
        changed = _git("status", "--porcelain", "--", "src")
    except (OSError, subprocess.CalledProcessError):
        return None
    return f"{commit}-dirty" if changed else commit


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


REVISION = _revision()  # of the code that is loaded: files may change while a run goes on

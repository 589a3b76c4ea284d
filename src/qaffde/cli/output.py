"""Output of commands: errors in one line, JSON, tables for people, and progress."""

import json
import math
import os
import re
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import typer
from rich import progress as bars
from rich.console import Console
from rich.table import Table

from qaffde.extras import one_line
from qaffde.streams.blocks import Progress as Report
from qaffde.streams.chunked import print_progress
from qaffde.streams.table import DataError, shortened

FAILED, INTERRUPTED, TERMINATED = 1, 130, 143
MENDABLE = ValueError, TypeError, ArithmeticError, ImportError, OSError, MemoryError, RuntimeError


@contextmanager
def reporting() -> Iterator[None]:
    """Turn what a person can correct into one line and exit code 1; warnings into notes."""
    with warnings.catch_warnings(), _unwinding():
        warnings.showwarning = lambda message, *_, **__: note(shortened(message))
        try:
            yield
        except typer.Exit:
            raise
        except BrokenPipeError:  # who read our output has gone
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(FAILED) from None
        except MENDABLE as error:
            typer.echo(f"error: {message_of(error)}", err=True)
            raise typer.Exit(FAILED) from None
        except KeyboardInterrupt:
            typer.echo("interrupted; nothing was written", err=True)
            raise typer.Exit(INTERRUPTED) from None


def message_of(error: BaseException) -> str:
    """One line of what went wrong."""
    if isinstance(error, OSError) and error.strerror and error.filename:
        return one_line(f"{error.filename}: {error.strerror}")
    if isinstance(error, MemoryError):
        return "there is not enough memory; try --stream, fewer --columns or fewer --features"
    message = one_line(str(error)) or type(error).__name__
    if isinstance(error, DataError):  # which writes options as for Python
        message = re.sub(r"columns=\{'(.*?)': '(.*?)'\}", r"--column \1=\2", message)
        message = re.sub(r"\b(columns|missing|decimal|encoding)=", r"--\1 ", message).rstrip()
    return message


def note(message: str) -> None:
    """Tell a person something, beside the output."""
    typer.echo(f"note: {message}", err=True)


usage = typer.BadParameter
"""Error of a command line that makes no sense, exit code 2."""


@contextmanager
def _unwinding() -> Iterator[None]:
    """Let a SIGTERM unwind as Ctrl-C does, so that nothing stays in temporary folders."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before or signal.SIG_DFL)


def print_facts(facts: Mapping[str, Any], *, as_json: bool) -> None:
    """Names and values, a line each, or one object of JSON."""
    if as_json:
        typer.echo(json.dumps(_plain(facts), allow_nan=False))
        return
    width = max(map(len, facts))
    for name, value in facts.items():
        typer.echo(f"{name:<{width}}  {shown(value)}")


def _plain(value: Any) -> Any:
    """Value as JSON has it; numbers that it lacks become null."""
    match value:
        case Mapping():
            return {str(key): _plain(item) for key, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
        case np.ndarray() | np.generic():
            return _plain(value.tolist())
        case float():
            return value if math.isfinite(value) else None
        case date():
            return value.isoformat()
    return value


def shown(value: Any) -> str:
    """A value as people read it.

    Examples
    --------
    >>> shown(0.123456), shown(np.array([1.0, 2.5])), shown(12000)
    ('0.1235', '1, 2.5', '12,000')
    """
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, np.ndarray | list | tuple):
        return ", ".join(map(shown, value))
    return str(value)


def print_table(title: str, columns: Mapping[str, tuple[str, int]], rows: Any) -> None:
    """Table of numbers by method on standard output.

    `columns` has a heading and the digits for each key of the mappings in `rows`.
    """
    typer.echo(title)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("method", no_wrap=True)
    for heading, _ in columns.values():
        table.add_column(heading, justify="right", no_wrap=True)
    for method, row in rows.items():
        table.add_row(method, *(f"{row[key]:.{digits}f}" for key, (_, digits) in columns.items()))
    console = Console()
    console.print(table, width=None if console.is_terminal else 200)


@contextmanager
def progress(unit: str = "rows") -> Iterator[Report]:
    """Report of what is done, how much of it, and how much there is in all, or None.

    It shows bars on a terminal, else a line every few seconds, on standard error.
    """
    console = Console(stderr=True)
    if not console.is_terminal:
        yield print_progress(partial(typer.echo, err=True), unit)
        return
    columns = (bars.BarColumn(), bars.MofNCompleteColumn(), bars.TimeElapsedColumn())
    with bars.Progress("{task.description}", *columns, console=console, transient=True) as bar:
        tasks: dict[str, Any] = {}

        def report(what: str, done: int, total: int | None) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=total)
            bar.update(tasks[what], completed=done, total=total)

        yield report


def check_output(target: object, *inputs: object) -> None:
    """Reject a file that cannot be written or is an input, before work is put into it."""
    path = Path(str(target)).resolve()
    if str(target) == "-":
        raise usage("this cannot go to standard output; name a file with -o")
    if not path.parent.is_dir():
        raise DataError(f"the folder of {target} does not exist; create it first")
    if path.exists() and not path.is_file():
        raise DataError(f"{target} is not a regular file; name another")
    if not os.access(path.parent, os.W_OK):
        raise DataError(f"{target} cannot be written: no permission for its folder")
    for source in map(str, inputs):
        if path.exists() and os.path.exists(source) and os.path.samefile(path, source):
            raise DataError(f"{target} would replace the input {source}; name another file")

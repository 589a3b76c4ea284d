"""What commands print: JSON, tables for people, and progress."""

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

EVERY_SECONDS = 5.0
"""Between two lines of progress, where there is no terminal."""
Tick = Callable[[int], None]


def print_json(value: Mapping[str, Any]) -> None:
    """One object of JSON on standard output; numbers that JSON lacks become null."""
    typer.echo(json.dumps(_plain(value), allow_nan=False))


def _plain(value: Any) -> Any:
    match value:
        case Mapping():
            return {str(key): _plain(item) for key, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
        case np.ndarray():
            return _plain(value.tolist())
        case np.generic():
            return _plain(value.item())
        case float():
            return value if math.isfinite(value) else None
    return value


def print_facts(facts: Mapping[str, Any]) -> None:
    """Names and values, a line each."""
    width = max(map(len, facts))
    for name, value in facts.items():
        typer.echo(f"{name:<{width}}  {shown(value)}")


def shown(value: Any) -> str:
    """A value as people read it.

    Examples
    --------
    >>> shown(0.123456), shown([1.0, 2.5]), shown(12000)
    ('0.1235', '1, 2.5', '12,000')
    """
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, list | tuple):
        return ", ".join(map(shown, value))
    return str(value)


def print_table(title: str, columns: list[str], rows: list[list[str]]) -> None:
    """Table on standard output; the first column is text, the others are numbers."""
    typer.echo(title)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    console = Console()
    console.print(table, width=None if console.is_terminal else 200)


@contextmanager
def progress(what: str, total: int | None = None, unit: str = "rows") -> Iterator[Tick]:
    """A bar on a terminal, else a line every few seconds, on standard error.

    Yields
    ------
    callable
        To be told how many were done.
    """
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _lines(what, total, unit)
        return
    columns = [TextColumn("{task.description}"), SpinnerColumn(), BarColumn()]
    columns += [MofNCompleteColumn()] if total is not None else []
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda n: bar.update(task, advance=n)


def _lines(what: str, total: int | None, unit: str) -> Tick:
    done, last = 0, time.monotonic()

    def tick(n: int) -> None:
        nonlocal done, last
        done += n
        if time.monotonic() - last >= EVERY_SECONDS:
            last = time.monotonic()
            of = "" if total is None else f" of {total:,}"
            typer.echo(f"{what}: {done:,}{of} {unit}", err=True)

    return tick

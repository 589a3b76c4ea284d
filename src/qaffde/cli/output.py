"""Output of commands: JSON, tables for people, and progress."""

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import typer
from rich import progress as bars
from rich.console import Console
from rich.table import Table

from qaffde.streams.blocks import Progress as Report
from qaffde.streams.chunked import print_progress


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
def progress(unit: str = "rows") -> Iterator[Report]:
    """Bars on a terminal, else a line every few seconds, on standard error.

    Yields
    ------
    callable
        To be told what is done, how much of it, and how much there is in all, or None.
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

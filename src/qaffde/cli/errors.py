"""Errors of commands: one line and an exit code, never a traceback."""

import os
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer

from qaffde.streams.table import DataError, one_line, shortened

FAILED, INTERRUPTED = 1, 130
MENDABLE = (
    *(ValueError, TypeError, ArithmeticError, ImportError, OSError, MemoryError, RuntimeError),
)


@contextmanager
def reporting() -> Iterator[None]:
    """Turn what a person can correct into one line and exit code 1; warnings into notes."""
    with warnings.catch_warnings():
        warnings.showwarning = _note_warning
        try:
            yield
        except typer.Exit:
            raise
        except BrokenPipeError:  # who read our output has gone
            os.dup2(os.open(os.devnull, os.O_WRONLY), _descriptor(sys.stdout))
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
        message = re.sub(r"\b(columns|missing)=", r"--\1 ", message).rstrip()
    return message


def note(message: str) -> None:
    """Tell a person something, beside the output."""
    typer.echo(f"note: {message}", err=True)


def usage(message: str) -> typer.BadParameter:
    """Error of a command line that makes no sense, exit code 2."""
    return typer.BadParameter(message)


def _note_warning(message: Any, *_: Any, **__: Any) -> None:
    note(shortened(message))


def _descriptor(stream: Any) -> int:
    try:
        return int(stream.fileno())
    except (OSError, AttributeError, ValueError):
        return os.open(os.devnull, os.O_WRONLY)

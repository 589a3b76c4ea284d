"""Packages that only some parts of the library need, and how values and text are shown."""

from html import escape
from importlib import import_module
from typing import Any


def import_extra(module: str, extra: str, what: str) -> Any:
    """A module that an extra of qaffde installs; `what` needs it, says the error without it."""
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise ImportError(
            f"{what} {package}, which is not installed; run: pip install 'qaffde[{extra}]'"
        ) from error


class Printed:
    """Value that a notebook shows as ``print`` does."""

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"


def one_line(text: object, most: int | None = None) -> str:
    r"""Text without line ends and with what cannot be printed escaped, at most so long.

    Examples
    --------
    >>> one_line("a\tb\nc\x0f"), one_line("abc", 2)
    ('a b c\\x0f', 'ab...')
    """
    words = " ".join(str(text).split())
    line = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in words)
    return line if most is None or len(line) <= most else f"{line[:most]}..."

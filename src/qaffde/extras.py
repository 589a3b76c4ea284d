"""Packages that only some parts of the library need."""

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

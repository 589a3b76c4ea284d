"""Names of columns."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from qaffde.streams.blocks import Array
from qaffde.streams.table import DataError, made_names

RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?", re.ASCII)


def framed(X: Array, names: Sequence[str] | None) -> Any:
    """Rows with the names that an estimator keeps or expects."""
    if names is None:
        return X
    import pandas as pd

    return pd.DataFrame(X, columns=list(names))


def framed_for(model: Any, X: Array) -> Any:
    """Rows as numbers, as a table that a model takes: its labels, and numbers as they are."""
    schema = getattr(model, "schema_", None)
    if schema is None:
        return framed(X, names_in(model))
    columns = (replace(c, dtype="Categorical" if c.codes else "float64") for c in schema.columns)
    return replace(schema, columns=tuple(columns), library="pandas").decode(X)


def names_of(rows: Any) -> list[str] | None:
    """Names of the columns of a data frame; None where they are not all words."""
    names = list(getattr(rows, "columns", ()))
    return names if names and all(isinstance(name, str) for name in names) else None


def names_in(model: Any) -> list[str] | None:
    """Names of a fitted model's columns, where its fit had them."""
    names = getattr(model, "feature_names_in_", None)
    return None if names is None else [str(name) for name in names]


def column_names(model: Any) -> list[str]:
    """Names of a fitted model's columns, made up where its fit had none."""
    return names_in(model) or made_names(model.n_features_in_)


def find_columns(texts: Sequence[str], names: Sequence[str], label: str) -> list[int]:
    """Numbers of columns that are given as names, numbers or ranges, by commas or one by one.

    A column's name comes before its number; `label` is what messages call the columns' owner.

    Examples
    --------
    >>> find_columns(["b,0"], ["a", "b", "c"], "data")
    [1, 0]
    >>> find_columns(["1-2"], ["a", "b", "c"], "data")
    [1, 2]
    """
    parts: list[str] = []
    for text in texts:
        parts += [text] if text in names else [part.strip() for part in text.split(",")]
    found = [number for part in parts for number in _find(part, names, label)]
    if len(set(found)) < len(found):
        raise DataError(f"the columns {','.join(texts)} name one of them twice")
    return found


def _find(part: str, names: Sequence[str], label: str) -> list[int]:
    if part in names:
        return [list(names).index(part)]
    limits = RANGE.fullmatch(part)
    if limits is not None:
        first, last = int(limits[1]), int(limits[2] or limits[1])
        if first <= last < len(names):
            return list(range(first, last + 1))
    shown = ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
    raise DataError(
        f"{label} has no column {part!r}; its columns are {shown}, or 0 to {len(names) - 1}"
    )

"""Columns that a person picks, and those that a model wants."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from qaffde.cli.data.table import DataError, Table

RANGE = re.compile(r"(\d+)-(\d+)")


@dataclass(frozen=True)
class Selection:
    """Columns of a table that are rows of numbers.

    Parameters
    ----------
    table : Table
    columns : list of int
    weights : int or None
        Column of weights.
    names : list of str or None
        What the columns are called in a model; None where they have no names.
    """

    table: Table
    columns: list[int]
    names: list[str] | None
    weights: int | None = None

    @property
    def numbers(self) -> list[int]:
        """All columns that are needed as numbers."""
        return [*self.columns, *([] if self.weights is None else [self.weights])]


def find_columns(texts: Sequence[str], names: Sequence[str], label: str) -> list[int]:
    """Numbers of columns that are given as names, numbers or ranges, by commas or one by one.

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
        first, last = map(int, limits.groups())
        numbers = list(range(first, min(last, len(names)) + 1))
    else:
        numbers = [int(part)] if re.fullmatch(r"[0-9]{1,9}", part) else []
    if not numbers or numbers[-1] >= len(names):
        raise DataError(f"{label} has no column {part!r}; {_have(names)}")
    return numbers


def _have(names: Sequence[str]) -> str:
    shown = ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
    return f"its columns are {shown}, or 0 to {len(names) - 1}"


def pick_columns(
    table: Table, columns: Sequence[str] | None, weights: str | None = None
) -> Selection:
    """Columns to fit: those picked, or all but the weights."""
    weight = None if weights is None else _one(weights, table)
    if columns:
        chosen = find_columns(columns, table.names, table.label)
    else:
        chosen = [j for j in range(len(table.names)) if j != weight]
    if weight in chosen:
        raise DataError(f"the column {weights!r} of weights is among --columns as well")
    if not chosen:
        raise DataError(f"{table.label} has no column but that of the weights")
    names = [table.names[j] for j in chosen] if table.named else None
    return _numeric(Selection(table, chosen, names, weight))


def _one(text: str, table: Table) -> int:
    found = find_columns([text], table.names, table.label)
    if len(found) > 1:
        raise DataError(f"--weights takes one column, got {text!r}")
    return found[0]


def pick_for_model(table: Table, model: Any, columns: Sequence[str] | None) -> Selection:
    """Columns that a fitted model wants: by name where both have names, else by place."""
    d = int(model.n_features_in_)
    wanted = model_names(model)
    have = (
        find_columns(columns, table.names, table.label)
        if columns
        else list(range(len(table.names)))
    )
    if wanted is not None and table.named:
        places = {table.names[j]: j for j in have}
        missing = [name for name in wanted if name not in places]
        if not missing:
            have = [places[name] for name in wanted]
        elif not columns:
            raise DataError(
                f"{table.label} lacks the model's columns {', '.join(missing)}; say with "
                "--columns which ones stand for them"
            )
    if len(have) != d:
        raise DataError(
            f"the model has {d} columns and {table.label} has {len(have)}; pick them with "
            "--columns"
        )
    return _numeric(Selection(table, have, wanted))


def model_names(model: Any) -> list[str] | None:
    """Names of a model's columns, where its fit had them."""
    names = getattr(model, "feature_names_in_", None)
    return None if names is None else [str(name) for name in names]


def _numeric(selection: Selection) -> Selection:
    table = selection.table
    words = [table.names[j] for j in selection.numbers if not table.numeric[j]]
    if words:
        numbers = [name for name, is_one in zip(table.names, table.numeric, strict=True) if is_one]
        hint = f"--columns {','.join(numbers[:12])}" if numbers else "other data"
        plural = "column is" if len(words) == 1 else "columns are"
        raise DataError(f"{table.label}: {plural} not numeric: {', '.join(words)}; try {hint}")
    return selection

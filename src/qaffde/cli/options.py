"""Arguments that several commands have.

Modules of commands import torch and what needs it inside functions, so that help and mistakes in
arguments need neither.
"""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

from typer import Argument, Option


class Missing(StrEnum):
    """Treatment of rows with missing values."""

    error = "error"
    drop = "drop"
    impute = "impute"
    keep = "keep"


Model = Annotated[Path, Argument(metavar="MODEL", help="File that `qaffde fit` wrote.")]
Data = Annotated[
    str,
    Argument(
        metavar="DATA", help="CSV, TSV, Parquet, Arrow, Feather, NPY or NPZ; - is standard input."
    ),
]
ModelOut = Annotated[Path, Option("--output", "-o", help="Model file to write.")]
TableOut = Annotated[
    str | None,
    Option("--output", "-o", help="File to write, format by suffix; - is standard output."),
]
Picture = Annotated[Path, Option("--output", "-o", help="PNG, SVG or PDF to write.")]
Columns = Annotated[
    list[str] | None,
    Option("--columns", "-c", help="Names, numbers from 0 or ranges such as 0-3, by commas."),
]
KindOf = Annotated[
    list[str] | None,
    Option(
        help="Kind of a column, repeated: age=integer, hour=periodic:24, spend=atom:0, "
        "price=real:0:100, zip=category, or of all: real:0:1. Others are found."
    ),
]
Header = Annotated[
    bool | None, Option("--header/--no-header", help="Whether text has names in its first line.")
]
Decimal = Annotated[
    str | None, Option(help="Decimal sign of text: a point or a comma; a point by default.")
]
Encoding = Annotated[
    str | None, Option(help="Encoding of text, such as latin-1; UTF-8 by default.")
]
MissingFit = Annotated[
    Missing,
    Option(help="Rows with gaps: stop, drop them, fill column means, or keep what they have."),
]
MissingScore = Annotated[
    Missing,
    Option(help="Rows with gaps: stop, drop, fill conditional means, or score what they have."),
]
Json = Annotated[bool, Option("--json", help="Print one JSON object for programs.")]
Seed = Annotated[int, Option(min=0, help="Of all that is random.")]

"""What all commands share: their options, their examples, and models from files."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from qaffde.cli.data.rows import Missing
from qaffde.cli.data.table import DataError
from qaffde.files.estimators import fitted
from qaffde.files.model import load
from qaffde.streams.names import framed as framed

Array = NDArray[np.float64]

Model = Annotated[Path, typer.Argument(metavar="MODEL", help="File that `qaffde fit` wrote.")]
Data = Annotated[
    str,
    typer.Argument(
        metavar="DATA", help="CSV, TSV, Parquet, Arrow, Feather, NPY or NPZ; - is standard input."
    ),
]
ModelOut = Annotated[Path, typer.Option("--output", "-o", help="Model file to write.")]
TableOut = Annotated[
    str | None,
    typer.Option("--output", "-o", help="File to write, format by suffix; - is standard output."),
]
Columns = Annotated[
    list[str] | None,
    typer.Option(
        "--columns", "-c", help="Names, numbers from 0 or ranges such as 0-3, by commas."
    ),
]
Header = Annotated[
    bool | None,
    typer.Option("--header/--no-header", help="Whether text has names in its first line."),
]
MissingFit = Annotated[
    Missing,
    typer.Option("--missing", help="Rows with gaps: stop, drop them, or fill column means."),
]
MissingScore = Annotated[
    Missing,
    typer.Option(
        "--missing", help="Rows with gaps: stop, drop them, or fill the model's conditional mean."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object for programs.")]
Seed = Annotated[int, typer.Option(min=0, help="Of all that is random.")]


def examples(*lines: str) -> str:
    """Epilogue of a command's help; typer keeps lines apart where they are paragraphs."""
    return "\n\n".join(["Examples:", *(f"  {line}" for line in lines)])


def load_model(path: Path, *needs: str) -> Any:
    """Fitted estimator of a file, with the methods that are needed."""
    if path.is_dir() or not path.exists():
        raise DataError(f"{path} does not exist" if not path.exists() else f"{path} is a folder")
    model = load(path)
    if not fitted(model):
        raise DataError(f"{path} holds a {type(model).__name__} that was not fitted")
    for need in ("score_samples", *needs):
        if not hasattr(model, need):
            raise DataError(f"{path} holds a {type(model).__name__}, which has no {need}")
    return model


def filler(model: Any, names: Sequence[str] | None) -> Callable[[Array], Array]:
    """What fills gaps in rows: the exact conditional mean of a model."""
    if not hasattr(model, "impute"):
        raise DataError(
            f"{type(model).__name__} has no conditional mean to fill gaps with; use --missing drop"
        )

    def fill(X: Array) -> Array:
        filled: Array = model.impute(framed(X, names), method="mean")
        return filled

    return fill

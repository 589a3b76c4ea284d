"""Rows with names for their columns."""

from collections.abc import Sequence
from typing import Any

from qaffde.streams.blocks import Array


def framed(X: Array, names: Sequence[str] | None) -> Any:
    """Rows with the names that an estimator keeps or expects."""
    if names is None:
        return X
    try:
        import pandas as pd
    except ImportError as error:
        raise ImportError(
            "columns with names need pandas, which is not installed; run: pip install "
            "'qaffde[data]'"
        ) from error
    return pd.DataFrame(X, columns=list(names))

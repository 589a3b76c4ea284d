"""Log-densities of tables as functions whose operations do not depend on the values of rows."""

from collections.abc import Callable
from typing import Any

import torch

from qaffde.files.format import FileError
from qaffde.nn import (
    AtomColumn,
    Density,
    FactoredMixture,
    PartsDensity,
    TableDensity,
    TensorTrain,
    expand,
)
from qaffde.nn.columns import encode_each
from qaffde.nn.tensor_train import OUT


def of_table(density: TableDensity) -> Callable[[Any], Any]:
    """Log-density of a table; of rows with gaps it is NaN, unless Gaussians integrate them out."""
    whole = expand(density).density
    if isinstance(whole, FactoredMixture) and whole.is_gaussian:
        return lambda x: _with_slope(density, whole.log_prob_gaussian, x)
    complete = _of_parts(density, whole)

    def known(parts: Any) -> Any:
        gap = parts.isnan()
        return torch.where((~gap).all(-1), complete(torch.where(gap, 0.0, parts)), torch.nan)

    return lambda x: _with_slope(density, known, x)


def _with_slope(density: TableDensity, log_prob: Callable[[Any], Any], x: Any) -> Any:
    parts, log_slope = encode_each(density.each(), x)
    return log_prob(parts) + log_slope


def _of_parts(density: TableDensity, whole: PartsDensity) -> Callable[[Any], Any]:
    """Log-density of the parts of columns where none is missing."""
    if not isinstance(whole, FactoredMixture | TensorTrain):
        raise refusal(whole)
    is_train = isinstance(whole, TensorTrain)
    if any(isinstance(column, AtomColumn) for column in density.columns):
        raise FileError(
            f"{'trains' if is_train else 'waves'} over a column with an atom have no ONNX form; "
            "keep the model with save, or fit it with QAFFDE, whose mixture of a table has one"
        )
    if isinstance(whole, TensorTrain) and OUT in whole.places:
        raise FileError(
            "a train of which columns are integrated out has no ONNX form; keep it with save"
        )
    if density.density is whole or not any(part.is_line for part in whole.parts):
        return whole.log_prob_complete
    return density.density.formula(shortcuts=False)  # one polynomial for all components


def refusal(density: Density) -> FileError:
    """Error that says which densities have a form in ONNX."""
    return FileError(
        f"{type(density).__name__} has no ONNX form; QAFFDE, QAFFDESGD and QAFFDETensorTrain have "
        "one (chains, encoders and baselines have none); keep the model with save"
    )

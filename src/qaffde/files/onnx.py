"""Export of `score_samples` to ONNX, in double precision and for any number of rows."""

import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

import torch
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from qaffde.baselines.flows import ZukoDensity
from qaffde.estimators import QAFFDEOutlierDetector
from qaffde.estimators.base import DensityEstimator
from qaffde.files.densities import log_density
from qaffde.files.format import FileError
from qaffde.files.graph import Graph, import_onnx
from qaffde.files.model import write
from qaffde.nn import Density

INPUT, OUTPUT = "X", "log_density"


def export_onnx(model: BaseEstimator, path: str | os.PathLike[str]) -> None:
    """Write `score_samples` of a fitted estimator as an ONNX model.

    Its input "X" are rows of doubles of shape (n, d), any n of at least 1; its output
    "log_density" is of shape (n,).

    Parameters
    ----------
    model : density estimator or QAFFDEOutlierDetector
    path : str or path

    Raises
    ------
    FileError
        If its density has no ONNX form.
    """
    check_is_fitted(model)
    inner = model.estimator_ if isinstance(model, QAFFDEOutlierDetector) else model
    if not isinstance(inner, DensityEstimator):
        raise FileError(
            f"{type(model).__name__} has no log-density to export; export a density estimator"
        )
    density, d = inner.density_, inner.n_features_in_
    has_flow = any(isinstance(part, ZukoDensity) for part in density.modules())
    write(path, traced(density, d) if has_flow else written(density, d))


def written(density: Density, n_columns: int) -> bytes:
    """ONNX model of a density, operation by operation."""
    graph = Graph(n_columns)
    with torch.no_grad():
        output = log_density(density, graph, INPUT)
    return graph.content(output, OUTPUT)


def traced(density: Density, n_columns: int) -> bytes:
    """ONNX model of what torch sees a density do: flows of zuko are too much to write."""
    import_onnx()
    if find_spec("onnxscript") is None:
        raise ImportError(
            "the export of flows needs onnxscript, which is not installed; run: pip install "
            "'qaffde[onnx]'"
        )
    with _quiet():
        program = torch.onnx.export(
            density,
            (torch.zeros(2, n_columns, dtype=torch.float64),),
            dynamo=True,
            dynamic_shapes=({0: torch.export.Dim("n")},),
            input_names=[INPUT],
            output_names=[OUTPUT],
            verbose=False,
        )
    assert program is not None
    content: bytes = program.model_proto.SerializeToString()
    return content


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep what torch's exporter says about itself from the user."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)

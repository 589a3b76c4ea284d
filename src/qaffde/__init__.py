"""Density estimation with quantum adaptive Fourier features."""

from qaffde._version import __version__
from qaffde.estimators import (
    QAFFDE,
    QAFFDESGD,
    FourierFeatures,
    QAFFDEClassifier,
    QAFFDEOutlierDetector,
)
from qaffde.files import FileError, export_onnx, load, save

__all__ = [
    "QAFFDE",
    "QAFFDESGD",
    "FileError",
    "FourierFeatures",
    "QAFFDEClassifier",
    "QAFFDEOutlierDetector",
    "__version__",
    "export_onnx",
    "load",
    "save",
]

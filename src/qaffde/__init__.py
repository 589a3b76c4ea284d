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
from qaffde.selection import ModelSpec, Plan, SelectionPolicy, select, solve, summarize
from qaffde.training import ComputeConfig, TrainingConfig

__all__ = [
    "QAFFDE",
    "QAFFDESGD",
    "ComputeConfig",
    "FileError",
    "FourierFeatures",
    "ModelSpec",
    "Plan",
    "QAFFDEClassifier",
    "QAFFDEOutlierDetector",
    "SelectionPolicy",
    "TrainingConfig",
    "__version__",
    "export_onnx",
    "load",
    "save",
    "select",
    "solve",
    "summarize",
]

"""Density estimation with quantum adaptive Fourier features."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from qaffde._version import __version__

if TYPE_CHECKING:
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
_FILES = ("FileError", "export_onnx", "load", "save")


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that ``qaffde --help`` needs no torch."""
    if name not in __all__:
        raise AttributeError(f"module 'qaffde' has no attribute {name!r}")
    home = import_module("qaffde.files" if name in _FILES else "qaffde.estimators")
    globals()[name] = getattr(home, name)
    return globals()[name]


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])

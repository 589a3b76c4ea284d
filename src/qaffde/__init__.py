"""Density estimation with quantum adaptive Fourier features."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from qaffde._version import __version__

if TYPE_CHECKING:
    from qaffde.choice import fit
    from qaffde.estimators import (
        QAFFDE,
        QAFFDESGD,
        FourierFeatures,
        QAFFDEAutoregressive,
        QAFFDEClassifier,
        QAFFDEDriftDetector,
        QAFFDEOutlierDetector,
        QAFFDERegressor,
        QAFFDETensorTrain,
        compare,
    )
    from qaffde.files import FileError, load, save
    from qaffde.kinds import Atom, Category, Integer, Periodic, Real
    from qaffde.plot import CalibrationDisplay, DensityDisplay
    from qaffde.selection import ModelSpec, Plan, SelectionPolicy, summarize
    from qaffde.selection.selector import select
    from qaffde.selection.solver import solve
    from qaffde.training import ComputeConfig, TensorTrainConfig, TrainingConfig

__all__ = [
    "QAFFDE",
    "QAFFDESGD",
    "Atom",
    "CalibrationDisplay",
    "Category",
    "ComputeConfig",
    "DensityDisplay",
    "FileError",
    "FourierFeatures",
    "Integer",
    "ModelSpec",
    "Periodic",
    "Plan",
    "QAFFDEAutoregressive",
    "QAFFDEClassifier",
    "QAFFDEDriftDetector",
    "QAFFDEOutlierDetector",
    "QAFFDERegressor",
    "QAFFDETensorTrain",
    "Real",
    "SelectionPolicy",
    "TensorTrainConfig",
    "TrainingConfig",
    "__version__",
    "compare",
    "fit",
    "load",
    "save",
    "select",
    "solve",
    "summarize",
]
_HOMES = ("kinds", "estimators", "choice", "files", "selection", "training", "plot")


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that ``qaffde --help`` needs no torch."""
    if name in __all__:
        for home in _HOMES:
            module = import_module(f"qaffde.{home}")
            if name in module.__all__:
                globals()[name] = getattr(module, name)
                return globals()[name]
    raise AttributeError(f"module 'qaffde' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])

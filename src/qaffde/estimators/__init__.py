"""scikit-learn estimators."""

from qaffde.estimators.fourier import FourierFeatures
from qaffde.estimators.qaffde import QAFFDE

__all__ = ["QAFFDE", "FourierFeatures"]

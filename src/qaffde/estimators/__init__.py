"""scikit-learn estimators."""

from qaffde.estimators.calculus import BornEstimator, DerivedDensity
from qaffde.estimators.fourier import FourierFeatures
from qaffde.estimators.qaffde import QAFFDE

__all__ = ["QAFFDE", "BornEstimator", "DerivedDensity", "FourierFeatures"]

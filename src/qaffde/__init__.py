"""Density estimation with quantum adaptive Fourier features."""

from qaffde._version import __version__
from qaffde.estimators import QAFFDE, QAFFDESGD, FourierFeatures, QAFFDEOutlierDetector

__all__ = ["QAFFDE", "QAFFDESGD", "FourierFeatures", "QAFFDEOutlierDetector", "__version__"]

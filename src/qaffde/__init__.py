"""Density estimation with quantum adaptive Fourier features."""

from qaffde._version import __version__
from qaffde.estimators import QAFFDE, FourierFeatures

__all__ = ["QAFFDE", "FourierFeatures", "__version__"]

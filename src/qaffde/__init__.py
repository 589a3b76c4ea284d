"""Density estimation with quantum adaptive Fourier features."""

from qaffde._version import __version__

__all__ = ["__version__"]

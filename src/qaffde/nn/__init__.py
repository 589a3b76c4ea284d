"""Layers: Fourier features, base measures and Born-rule densities as torch modules."""

from qaffde.nn.born import BornDensity, DefensiveDensity, Density, StandardizedDensity
from qaffde.nn.fourier import FourierFeatures
from qaffde.nn.measures import BaseMeasure, BoxMeasure, GaussianMeasure, KernelMeasure

__all__ = [
    "BaseMeasure",
    "BornDensity",
    "BoxMeasure",
    "DefensiveDensity",
    "Density",
    "FourierFeatures",
    "GaussianMeasure",
    "KernelMeasure",
    "StandardizedDensity",
]

"""Layers: Fourier features, base measures and Born-rule densities as torch modules."""

from qaffde.nn.born import (
    BornDensity,
    DefensiveDensity,
    Density,
    StandardizedDensity,
    find_born,
)
from qaffde.nn.fourier import FourierFeatures
from qaffde.nn.measures import BaseMeasure, BoxMeasure, GaussianMeasure, KernelMeasure
from qaffde.nn.mixtures import BornMixture, expand

__all__ = [
    "BaseMeasure",
    "BornDensity",
    "BornMixture",
    "BoxMeasure",
    "DefensiveDensity",
    "Density",
    "FourierFeatures",
    "GaussianMeasure",
    "KernelMeasure",
    "StandardizedDensity",
    "expand",
    "find_born",
]

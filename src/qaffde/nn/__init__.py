"""Layers: Fourier features, base measures and Born-rule densities as torch modules."""

from qaffde.nn.base import Density
from qaffde.nn.calculus.mixture import BornMixture
from qaffde.nn.density import (
    BornDensity,
    DefensiveDensity,
    DensityMatrix,
    StandardizedDensity,
    expand,
    find_born,
)
from qaffde.nn.fourier import FourierFeatures
from qaffde.nn.lenet import LeNet
from qaffde.nn.measures import BaseMeasure, BoxMeasure, GaussianMeasure, KernelMeasure
from qaffde.nn.shear import PolynomialShear
from qaffde.nn.transformed import Encoder, TransformedDensity, decode, encode

__all__ = [
    "BaseMeasure",
    "BornDensity",
    "BornMixture",
    "BoxMeasure",
    "DefensiveDensity",
    "Density",
    "DensityMatrix",
    "Encoder",
    "FourierFeatures",
    "GaussianMeasure",
    "KernelMeasure",
    "LeNet",
    "PolynomialShear",
    "StandardizedDensity",
    "TransformedDensity",
    "decode",
    "encode",
    "expand",
    "find_born",
]

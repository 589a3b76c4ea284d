"""Layers: Fourier features, base measures and Born-rule densities as torch modules."""

from qaffde.nn.base import Density
from qaffde.nn.calculus.mapped import MappedMixture
from qaffde.nn.calculus.mixture import BornMixture
from qaffde.nn.column_basis import CodeBasis, ColumnBasis, WaveBasis
from qaffde.nn.columns import ColumnMap, ColumnMaps
from qaffde.nn.density import (
    BornDensity,
    DefensiveDensity,
    DensityMatrix,
    MappedDensity,
    StandardizedDensity,
    expand,
    find_born,
)
from qaffde.nn.features import (
    BaseMeasure,
    BoxMeasure,
    FourierFeatures,
    GaussianMeasure,
    KernelMeasure,
)
from qaffde.nn.tensor_train import TensorTrain
from qaffde.nn.transformed import Encoder, TransformedDensity, decode, encode

__all__ = [
    "BaseMeasure",
    "BornDensity",
    "BornMixture",
    "BoxMeasure",
    "CodeBasis",
    "ColumnBasis",
    "ColumnMap",
    "ColumnMaps",
    "DefensiveDensity",
    "Density",
    "DensityMatrix",
    "Encoder",
    "FourierFeatures",
    "GaussianMeasure",
    "KernelMeasure",
    "MappedDensity",
    "MappedMixture",
    "StandardizedDensity",
    "TensorTrain",
    "TransformedDensity",
    "WaveBasis",
    "decode",
    "encode",
    "expand",
    "find_born",
]

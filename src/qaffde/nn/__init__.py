"""Layers: Fourier features, base measures and Born-rule densities as torch modules."""

from qaffde.nn.base import Density
from qaffde.nn.calculus.factored import FactoredMixture
from qaffde.nn.calculus.mixture import BornMixture
from qaffde.nn.calculus.parts_measure import FactoredMeasure
from qaffde.nn.chain import Chain, MaskedNetwork
from qaffde.nn.column_basis import CircleBasis, CodeBasis, ColumnBasis, WaveBasis
from qaffde.nn.columns import AtomColumn, CircleColumn, CodeColumn, RealColumn, TableColumn
from qaffde.nn.conditional import BornConditional, BornHead, ConditionalBorn, Target
from qaffde.nn.density import (
    BornDensity,
    DefensiveDensity,
    DensityMatrix,
    StandardizedDensity,
    expand,
    find_born,
)
from qaffde.nn.encoded import TransformedDensity, encode
from qaffde.nn.features import (
    BaseMeasure,
    BoxMeasure,
    FourierFeatures,
    GaussianMeasure,
    KernelMeasure,
)
from qaffde.nn.kernel_mixture import KernelMixture
from qaffde.nn.parts import CircleFactor, CodeFactor, Factor, Part, PartsDensity
from qaffde.nn.table import TableDensity
from qaffde.nn.tensor_train import TensorTrain

__all__ = [
    "AtomColumn",
    "BaseMeasure",
    "BornConditional",
    "BornDensity",
    "BornHead",
    "BornMixture",
    "BoxMeasure",
    "Chain",
    "CircleBasis",
    "CircleColumn",
    "CircleFactor",
    "CodeBasis",
    "CodeColumn",
    "CodeFactor",
    "ColumnBasis",
    "ConditionalBorn",
    "DefensiveDensity",
    "Density",
    "DensityMatrix",
    "Factor",
    "FactoredMeasure",
    "FactoredMixture",
    "FourierFeatures",
    "GaussianMeasure",
    "KernelMeasure",
    "KernelMixture",
    "MaskedNetwork",
    "Part",
    "PartsDensity",
    "RealColumn",
    "StandardizedDensity",
    "TableColumn",
    "TableDensity",
    "Target",
    "TensorTrain",
    "TransformedDensity",
    "WaveBasis",
    "encode",
    "expand",
    "find_born",
]

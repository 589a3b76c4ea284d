"""Recipes of what fitted densities are made of: features, measures, densities, frames."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributions import Transform

from qaffde.baselines.classical import KernelSum, MixtureDensity
from qaffde.files.fields import Fields
from qaffde.files.terms import MAX_FEATURES
from qaffde.files.values import Recipe, attributes
from qaffde.nn import (
    BaseMeasure,
    BornDensity,
    BornMixture,
    BoxMeasure,
    DefensiveDensity,
    Density,
    FourierFeatures,
    GaussianMeasure,
    KernelMeasure,
    PolynomialShear,
    StandardizedDensity,
    TransformedDensity,
)

COLUMNS: dict[type, Callable[[Any], int]] = {
    BoxMeasure: lambda measure: len(measure.lower),
    GaussianMeasure: lambda measure: measure.means.shape[1],
    KernelMeasure: lambda measure: len(measure.bandwidth),
    BornDensity: lambda density: density.features.n_dims,
    BornMixture: lambda density: density.n_dims,
    DefensiveDensity: lambda density: len(density.mean),
    StandardizedDensity: lambda density: len(density.location),
    TransformedDensity: lambda density: n_columns(density.density),
    MixtureDensity: lambda density: density.measure.means.shape[1],
    KernelSum: lambda density: density.Z.shape[1],
}
STANDARD = (BornDensity, DefensiveDensity, MixtureDensity, KernelSum)
"""Densities of standardised rows: wrappers stand in one order, so no chain of them is endless."""


def n_columns(part: BaseMeasure | Density) -> int:
    """Number of columns of a measure or a density."""
    return COLUMNS[type(part)](part)


def _frozen(module: nn.Module) -> nn.Module:
    return module.requires_grad_(False).eval()


def _features(f: Fields) -> nn.Module:
    W, b, a = f.tensor("W", "D", "d"), f.tensor("b", "D"), f.tensor("a", "D")
    f.require(len(b) <= MAX_FEATURES, "W", f"has more than {MAX_FEATURES} rows")
    return _frozen(FourierFeatures(W, b, a))


def _box(f: Fields) -> nn.Module:
    lower, upper = f.tensor("lower", "d"), f.tensor("upper", "d")
    f.require((lower < upper).all(), "lower", "must lie below upper")
    return BoxMeasure(lower, upper)


def _gaussian(f: Fields) -> nn.Module:
    weights, means = f.positive("weights", "K"), f.tensor("means", "K", "d")
    covariances = f.tensor("covariances", "K", "d", "d")
    cholesky = f.cholesky("cholesky", "K", "d", "d")
    positive = torch.linalg.cholesky_ex(covariances).info == 0
    f.require(positive.all(), "covariances", "must be positive definite")
    measure = GaussianMeasure(weights, means, covariances)
    measure.cholesky = cholesky  # to the last digit, whatever machine found it
    return measure


def _kernel(f: Fields) -> nn.Module:
    return KernelMeasure(f.positive("bandwidth", "d"))


def _born(f: Fields) -> nn.Module:
    features, measure = f.item("features", FourierFeatures), f.item("measure", BaseMeasure)
    factor = f.tensor("factor", "r", features.n_features)
    f.require(n_columns(measure) == features.n_dims, "measure", "has other columns")
    return _frozen(BornDensity(features, factor, measure))


def _defensive(f: Fields) -> nn.Module:
    density = f.item("density", BornDensity)
    d = n_columns(density)
    mean, cholesky = f.tensor("mean", d), f.cholesky("cholesky", d, d)
    epsilon = f.number("epsilon", 0, 1)
    defended = DefensiveDensity(density, epsilon, mean, torch.eye(d, dtype=mean.dtype))
    defended.cholesky = cholesky
    return _frozen(defended)


def _standardized(f: Fields) -> nn.Module:
    density = f.item("density", Density)
    f.require(type(density) in STANDARD, "density", "cannot be standardised")
    d = n_columns(density)
    return _frozen(StandardizedDensity(density, f.tensor("location", d), f.positive("scale", d)))


def _transformed(f: Fields) -> nn.Module:
    density, encoder = f.item("density", StandardizedDensity), f.item("encoder", Transform)
    n = len(encoder.scale) if isinstance(encoder, PolynomialShear) else n_columns(density)
    f.require(n == n_columns(density), "encoder", "has other columns")
    return _frozen(TransformedDensity(density, encoder))


def _mixture(f: Fields) -> nn.Module:
    return MixtureDensity(f.item("measure", GaussianMeasure))


def _kernels(f: Fields) -> nn.Module:
    return KernelSum(f.tensor("rows", "n", "d"), f.positive("weight", "n"))


def _rows(density: KernelSum) -> dict[str, Tensor]:
    return {"rows": density.Z, "weight": density.weight}


RECIPES: Mapping[str, Recipe] = {
    "FourierLayer": Recipe(FourierFeatures, attributes("W", "b", "a"), _features),
    "BoxMeasure": Recipe(BoxMeasure, attributes("lower", "upper"), _box),
    "GaussianMeasure": Recipe(
        GaussianMeasure, attributes("weights", "means", "covariances", "cholesky"), _gaussian
    ),
    "KernelMeasure": Recipe(KernelMeasure, attributes("bandwidth"), _kernel),
    "BornDensity": Recipe(BornDensity, attributes("features", "factor", "measure"), _born),
    "DefensiveDensity": Recipe(
        DefensiveDensity, attributes("density", "epsilon", "mean", "cholesky"), _defensive
    ),
    "StandardizedDensity": Recipe(
        StandardizedDensity, attributes("density", "location", "scale"), _standardized
    ),
    "TransformedDensity": Recipe(
        TransformedDensity, attributes("density", "encoder"), _transformed
    ),
    "MixtureDensity": Recipe(MixtureDensity, attributes("measure"), _mixture),
    "KernelSum": Recipe(KernelSum, _rows, _kernels),
}
"""Modules that a file may hold."""

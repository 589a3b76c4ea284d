"""Recipes of fitted densities: features, measures, densities, sums of terms, frames."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributions import Transform

from qaffde.baselines.classical import KernelSum, MixtureDensity
from qaffde.files.fields import Fields
from qaffde.files.values import Recipe, attributes, without_fields
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
from qaffde.nn.calculus.base_laws import Law, NormalLaw, UniformLaw
from qaffde.nn.calculus.polynomial import (
    Coefficients,
    IntegratedCoefficients,
    SquaredCoefficients,
    TrigonometricForm,
)
from qaffde.nn.calculus.terms import Term

MAX_FEATURES = 1 << 15
"""Scoring makes a square matrix of this size."""
MAX_FREQUENCY = 1e7
"""A density of one column is a series of about as many terms."""
MAX_COEFFICIENT = 1e100
"""Squares of sums of coefficients are numbers too."""
MAX_INTEGRATIONS = 256

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


def _sum_of_terms(f: Fields) -> nn.Module:
    terms = f.items("terms", Term)
    f.require(len({term.n_dims for term in terms}) == 1, "terms", "have different columns")
    known = f.get("log_mass") is not None
    return BornMixture(terms, f.tensor("log_mass") if known else None)


def _term(f: Fields) -> Term:
    form = f.item("form", TrigonometricForm)
    d = form.W.shape[1]
    coefficient, law = f.tensor("log_coefficient"), f.item("law", Law)
    return Term(coefficient, law, f.tensor("offset", d), f.cholesky("scale", d, d), form)


def _form(f: Fields) -> TrigonometricForm:
    coefficients = f.item("coefficients", Coefficients)
    H = _n_frequencies(coefficients)
    W = f.tensor("W", H, "d")
    f.require(W.abs().max() <= MAX_FREQUENCY, "W", "holds frequencies beyond measure")
    return TrigonometricForm(W, f.tensor("b", H), coefficients)


def _squared(f: Fields) -> SquaredCoefficients:
    F = f.item("F", Tensor)
    fits = F.ndim == 2 and 0 < F.numel() and F.shape[1] <= MAX_FEATURES
    f.require(fits, "F", f"has shape {tuple(F.shape)}")
    f.require(F.dtype in (torch.float64, torch.complex128), "F", f"is of type {F.dtype}")
    size = float(F.abs().max())
    f.require(1 / MAX_COEFFICIENT < size < MAX_COEFFICIENT, "F", "is zero or beyond measure")
    return SquaredCoefficients(F)


def _integrated(f: Fields) -> IntegratedCoefficients:
    source, depth = f.item("source", Coefficients), 0
    inner = source
    while isinstance(inner, IntegratedCoefficients):
        inner, depth = inner.source, depth + 1
    f.require(depth < MAX_INTEGRATIONS, "source", "is integrated too often")
    return IntegratedCoefficients(
        source, f.item("law", Law), f.tensor("W", _n_frequencies(source), "k")
    )


def _n_frequencies(coefficients: Coefficients) -> int:
    if isinstance(coefficients, IntegratedCoefficients):
        return len(coefficients.W)
    assert isinstance(coefficients, SquaredCoefficients)
    return coefficients.F.shape[1]


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
    "BornMixture": Recipe(
        BornMixture,
        lambda m: {"terms": m.terms, "log_mass": vars(m).get("log_mass")},
        _sum_of_terms,
    ),
    "Term": Recipe(Term, attributes("log_coefficient", "law", "offset", "scale", "form"), _term),
    "TrigonometricForm": Recipe(TrigonometricForm, attributes("W", "b", "coefficients"), _form),
    "SquaredCoefficients": Recipe(SquaredCoefficients, attributes("F"), _squared),
    "IntegratedCoefficients": Recipe(
        IntegratedCoefficients, attributes("source", "law", "W"), _integrated
    ),
    "UniformLaw": without_fields(UniformLaw),
    "NormalLaw": without_fields(NormalLaw),
}
"""Parts of densities that a file may hold."""

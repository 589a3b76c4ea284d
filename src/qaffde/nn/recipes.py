"""Recipes of fitted densities: features, measures, densities, sums of terms."""

import math
from functools import partial
from typing import Any

import torch
from torch import Tensor

from qaffde import nn
from qaffde.files import fields as check
from qaffde.files.fields import Fields, item, number, optional, positive, reals
from qaffde.files.values import RECIPES, Recipe
from qaffde.nn.calculus.base_laws import Law, NormalLaw, UniformLaw
from qaffde.nn.calculus.polynomial import (
    Coefficients,
    IntegratedCoefficients,
    SquaredCoefficients,
    TrigonometricForm,
)
from qaffde.nn.calculus.terms import Term

MAX_FREQUENCY = 1e7
"""A density of one column is a series of about as many terms."""
MAX_COEFFICIENT = 1e100
"""Squares of sums of coefficients are numbers too."""


def charge_gram(f: Fields) -> None:
    """Account for the Gram matrices of a density: several at once, or K one after the other."""
    n_components = f.sizes_of(f["measure"]).get("K", 1)
    f.charge(max(32, 4 * n_components) * f.sizes["D"] ** 2)


def _charge_pairs(f: Fields) -> None:
    """Account for the matrices B and E of a polynomial, of complex numbers."""
    f.charge(32 * f.sizes["H"] ** 2)


def _born(f: Fields) -> nn.BornDensity:
    charge_gram(f)
    return nn.BornDensity(**f)


def _box(f: Fields) -> nn.BoxMeasure:
    f.require((f["lower"] < f["upper"]).all(), "lower", "must lie below upper")
    return nn.BoxMeasure(**f)


def _gaussian(f: Fields) -> nn.GaussianMeasure:
    C = f["covariances"]
    definite = torch.linalg.cholesky_ex(C).info == 0
    f.require(definite.all(), "covariances", "must be positive definite")
    symmetric = torch.allclose(C, C.mT, rtol=1e-6, atol=1e-9)
    f.require(symmetric, "covariances", "must be symmetric")
    return nn.GaussianMeasure(**f)


def _defensive(f: Fields) -> nn.DefensiveDensity:
    C = f.pop("cholesky")
    density = nn.DefensiveDensity(**f, covariance=torch.eye(len(C), dtype=C.dtype))
    density.cholesky = C  # to the last digit
    return density


def _column_map(f: Fields) -> nn.ColumnMap:
    knots, values, (lower, upper) = f["knots"], f["values"], f["ends"]
    for name, part in (("knots", knots), ("values", values)):
        f.require((part.diff() > 0).all(), name, "must rise")
    f.require((f["tails"] >= 0).all(), "tails", "must not be negative")
    f.require((f["inset"] >= 0).all(), "inset", "must not be negative")
    if len(knots):
        f.require(lower < knots[0] and knots[-1] < upper, "ends", "must lie outside the knots")
    else:
        f.require(f["ends"].isinf().all(), "ends", "need knots")
    return nn.ColumnMap(**f)


def _column_maps(f: Fields) -> nn.ColumnMaps:
    f.agree("columns", "d", len(f["columns"]))
    return nn.ColumnMaps(**f)


@check.parametrized
def _knots(f: Fields, name: str, value: Any, *, above: float = -math.inf) -> None:
    """Two finite doubles or more, or none."""
    item(Tensor)(f, name, value)
    if len(value):
        reals("K", most=MAX_COEFFICIENT)(f, name, value)
        f.require(len(value) > 1 and (value > above).all(), name, "is out of range")
    else:
        f.agree(name, "K", 0)
        f.require(value.dtype == torch.float64 and value.ndim == 1, name, "is of another type")


def _form(f: Fields) -> TrigonometricForm:
    f.require(f["W"].abs().max() <= MAX_FREQUENCY, "W", "holds frequencies beyond measure")
    f.charge(2 * f.sizes["H"] ** 2)  # to integrate it, over and over
    return TrigonometricForm(**f)


def _squared(f: Fields) -> SquaredCoefficients:
    _charge_pairs(f)
    return SquaredCoefficients(**f)


def _integrated(f: Fields) -> IntegratedCoefficients:
    _charge_pairs(f)
    return IntegratedCoefficients(**f)


def _factor(f: Fields, name: str, F: Any) -> None:
    is_complex = isinstance(F, Tensor) and F.is_complex()
    reals("r", "H", dtype=torch.complex128 if is_complex else torch.float64)(f, name, F)
    fits = 1 / MAX_COEFFICIENT < F.abs().max() < MAX_COEFFICIENT
    f.require(fits, name, "is zero or beyond measure")


def _standardized(f: Fields) -> nn.StandardizedDensity:
    check_axes(f, "scale", f.get("axes"), f.get("noise"))
    return nn.StandardizedDensity(**f)


def check_axes(f: Fields, name: str, axes: Any, noise: Any) -> None:
    """Complain about units (q,) of d columns unless axes lead from one to the other."""
    if axes is None:
        f.agree(name, "d", f.sizes["q"])
        f.require(noise is None, "noise", "is of no direction")


def _factors(f: Fields, name: str, factor: Any) -> None:
    """Factor of a density matrix, or of those of classes."""
    is_batch = isinstance(factor, Tensor) and factor.ndim > 2
    _limited(*("C" if is_batch else ""), "r", "D")(f, name, factor)


def _old_classes(f: Fields) -> nn.DefensiveDensity:
    """Densities of classes as format 2 first had them."""
    epsilon, measure, born = f.pop("epsilon"), f["measure"], _born(f)
    return nn.DefensiveDensity(born, epsilon, measure.means[0], measure.covariances[0])


_limited = partial(reals, most=MAX_COEFFICIENT)
_features = item(nn.FourierFeatures, d="d", D="D")
_measure = item(nn.BaseMeasure, d="d")
_units = {
    "location": reals("d"),
    "scale": positive("q"),
    "axes": optional(reals("d", "q")),
    "noise": optional(positive()),
}

RECIPES |= {
    # Read, but no longer written.
    "Projection": Recipe(Fields, lambda f: f, **_units),
    "ClassBorn": Recipe(
        nn.DefensiveDensity,
        _old_classes,
        features=_features,
        measure=item(nn.GaussianMeasure, d="d"),
        factor=_factors,
        epsilon=number(0, 1),
    ),
    "ClassDensity": Recipe(
        nn.StandardizedDensity,
        lambda f: nn.StandardizedDensity(f["born"], **f["coder"]),
        coder=item(Fields, d="d", q="q"),
        born=item(nn.DefensiveDensity, q="d", C="C"),
    ),
    "FourierLayer": Recipe(
        nn.FourierFeatures, W=_limited("D", "d"), b=_limited("D"), a=_limited("D")
    ),
    "BoxMeasure": Recipe(nn.BoxMeasure, _box, lower=reals("d"), upper=reals("d")),
    "GaussianMeasure": Recipe(
        nn.GaussianMeasure,
        _gaussian,
        weights=positive("K"),
        means=reals("K", "d"),
        covariances=reals("K", "d", "d"),
    ),
    "KernelMeasure": Recipe(nn.KernelMeasure, bandwidth=positive("d")),
    "BornDensity": Recipe(
        nn.BornDensity, _born, features=_features, measure=_measure, factor=_factors
    ),
    "DefensiveDensity": Recipe(
        nn.DefensiveDensity,
        _defensive,
        density=item(nn.BornDensity, d="d", C="C"),
        epsilon=number(0, 1),
        mean=reals("d"),
        cholesky=check.cholesky("d", "d"),
    ),
    "StandardizedDensity": Recipe(
        nn.StandardizedDensity,
        _standardized,
        None,
        ("density", "location", "scale"),
        density=item(nn.BornDensity | nn.DefensiveDensity, q="d", C="C"),
        **_units,
    ),
    "ColumnMap": Recipe(
        nn.ColumnMap,
        _column_map,
        knots=_knots(),
        values=_knots(),
        slopes=_knots(above=0.0),
        tails=reals(2),
        ends=reals(2, finite=False),
        inset=reals(2),
    ),
    "ColumnMaps": Recipe(
        nn.ColumnMaps,
        _column_maps,
        lambda maps: {"columns": list(maps.columns)},
        columns=check.items(item(nn.ColumnMap), least=1),
    ),
    "MappedDensity": Recipe(
        nn.MappedDensity,
        density=item(nn.StandardizedDensity, d="d"),
        maps=item(nn.ColumnMaps, d="d"),
    ),
    "MappedMixture": Recipe(
        nn.MappedMixture, density=item(nn.BornMixture, d="d"), maps=item(nn.ColumnMaps, d="d")
    ),
    "BornMixture": Recipe(
        nn.BornMixture,
        None,
        lambda m: {"terms": m.terms, "log_mass": vars(m).get("log_mass")},
        terms=check.items(item(Term, d="d"), least=1),
        log_mass=optional(reals()),
    ),
    "Term": Recipe(
        Term,
        log_coefficient=reals(),
        law=item(Law),
        offset=reals("d"),
        scale=check.cholesky("d", "d"),
        form=item(TrigonometricForm, d="d"),
    ),
    "TrigonometricForm": Recipe(
        TrigonometricForm,
        _form,
        coefficients=item(Coefficients, H="H"),
        W=reals("H", "d"),
        b=reals("H"),
    ),
    "SquaredCoefficients": Recipe(SquaredCoefficients, _squared, F=_factor),
    "IntegratedCoefficients": Recipe(
        IntegratedCoefficients,
        _integrated,
        source=item(Coefficients, H="H"),
        law=item(Law),
        W=reals("H", "k"),
    ),
    "UniformLaw": Recipe(UniformLaw),
    "NormalLaw": Recipe(NormalLaw),
}

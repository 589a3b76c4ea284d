"""Recipes of fitted densities: features, measures, densities, sums of terms."""

from typing import Any

import torch
from torch import Tensor

from qaffde import nn
from qaffde.files.fields import (
    Fields,
    items,
    number,
    optional,
    tensor,
)
from qaffde.files.values import RECIPES, Recipe, must
from qaffde.nn.calculus.base_laws import (
    Law,
    NormalLaw,
    PartLaw,
    PointLaw,
    ProductLaw,
    UniformLaw,
    WrappedLaw,
)
from qaffde.nn.calculus.polynomial import (
    Coefficients,
    IntegratedCoefficients,
    SquaredCoefficients,
    TrigonometricForm,
)
from qaffde.nn.calculus.terms import Term


def charge_gram(f: Fields) -> None:
    """Account for the Gram matrices of a density: several at once, or K one after the other."""
    n_components = f.sizes_of(f["measure"]).get("K", 1)
    f.charge(max(32, 4 * n_components) * f.sizes["D"] ** 2)


def _charge_pairs(f: Fields) -> None:
    """Account for the matrices B and E of a polynomial, of complex numbers."""
    f.charge(32 * f.sizes["H"] ** 2)


def check_axes(f: Fields) -> None:
    """Complain about units (q,) of d columns unless axes lead from one to the other."""
    if f["axes"] is None:
        f.agree("location", "d", f.sizes["q"])
        f.require(f["noise"] is None, "noise", "is of no direction")


def _factor(f: Fields, name: str, factor: Any) -> None:
    """Factor of a density matrix, or of those of classes."""
    is_batch = isinstance(factor, Tensor) and factor.ndim > 2
    tensor("C r D, limited" if is_batch else "r D, limited")(f, name, factor)


def _coefficients(f: Fields, name: str, F: Any) -> None:
    is_complex = isinstance(F, Tensor) and F.is_complex()
    dtype = torch.complex128 if is_complex else torch.float64
    tensor("r H, limited, not zero", dtype)(f, name, F)


def _defensive(f: Fields) -> nn.DefensiveDensity:
    C = f.pop("cholesky")
    density = nn.DefensiveDensity(**f, covariance=torch.eye(len(C), dtype=C.dtype))
    density.cholesky = C  # to the last digit
    return density


def _check_term(f: Fields) -> None:
    """Complain about a polynomial of fewer columns; others are from outside."""
    f.require(f["form"].W.shape[1] >= len(f["offset"]), "form", "has too few columns")


def _check_average(f: Fields) -> None:
    _charge_pairs(f)
    if isinstance(f["law"], ProductLaw):
        f.agree("law", "k", len(f["law"].laws))


RECIPES |= {
    "FourierLayer": Recipe(nn.FourierFeatures, W="D d, limited", b="D, limited", a="D, limited"),
    "BoxMeasure": Recipe(
        nn.BoxMeasure,
        must("lower", lambda f: (f["lower"] < f["upper"]).all(), "must lie below upper"),
        lower="d",
        upper="d",
    ),
    "GaussianMeasure": Recipe(
        nn.GaussianMeasure,
        weights="K, positive",
        means="K d, empty",
        covariances="K d d, definite, symmetric, empty",
    ),
    "KernelMeasure": Recipe(nn.KernelMeasure, bandwidth="d, positive"),
    "BornDensity": Recipe(
        nn.BornDensity,
        charge_gram,
        features=(nn.FourierFeatures, "d D"),
        measure=(nn.BaseMeasure, "d"),
        factor=_factor,
    ),
    "DefensiveDensity": Recipe(
        nn.DefensiveDensity,
        make=_defensive,
        density=(nn.BornDensity, "d C"),
        epsilon=number(0, 1),
        mean="d",
        cholesky="d d, triangular",
    ),
    "KernelDensity": Recipe(
        nn.KernelMixture,
        location="d",
        axes="d d, limited",
        log_weights="K",
        centers="K d, limited",
        widths="K, positive",
    ),
    "StandardizedDensity": Recipe(
        nn.StandardizedDensity,
        check_axes,
        density=(nn.BornDensity | nn.DefensiveDensity, "q=d C"),
        location="d",
        scale="q, positive",
        axes=optional("d q"),
        noise=optional(", positive"),
    ),
    "BornMixture": Recipe(
        nn.BornMixture,
        take=lambda m: {"terms": m.terms, "log_mass": vars(m).get("log_mass")},
        terms=items((Term, "d"), least=1),
        log_mass=optional(""),
    ),
    "Term": Recipe(
        Term,
        _check_term,
        log_coefficient="",
        law=Law,
        offset="d, empty",
        scale="d d, triangular, empty",
        form=TrigonometricForm,
    ),
    "TrigonometricForm": Recipe(
        TrigonometricForm,
        lambda f: f.charge(2 * f.sizes["H"] ** 2),  # to integrate it, over and over
        coefficients=(Coefficients, "H"),
        W="H c, frequencies, empty",
        b="H",
    ),
    "SquaredCoefficients": Recipe(SquaredCoefficients, _charge_pairs, F=_coefficients),
    "IntegratedCoefficients": Recipe(
        IntegratedCoefficients,
        _check_average,
        source=(Coefficients, "H"),
        law=Law | ProductLaw,
        W="H k",
    ),
    "ProductLaw": Recipe(ProductLaw, laws=items(PartLaw, tuple, least=1)),
    "PointLaw": Recipe(PointLaw, points="m, limited", masses="m, not negative"),
    "WrappedLaw": Recipe(WrappedLaw, mean=", limited", deviation=", positive"),
    "UniformLaw": Recipe(UniformLaw),
    "NormalLaw": Recipe(NormalLaw),
}

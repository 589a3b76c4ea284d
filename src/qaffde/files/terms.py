"""Recipes of the calculus: sums of terms, their trigonometric forms and laws."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from qaffde.files.fields import Fields
from qaffde.files.values import Recipe, attributes, without_fields
from qaffde.nn import BornMixture
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
"""Parts of the calculus that a file may hold."""

"""Recipes of fitted densities: features, measures, densities, sums of terms."""

import math
from functools import partial
from typing import Any

import torch
from torch import Tensor

from qaffde import nn
from qaffde.files import fields as check
from qaffde.files.fields import Fields, checked, item, number, optional, positive, reals
from qaffde.files.values import RECIPES, Recipe
from qaffde.nn.calculus.base_laws import Law, NormalLaw, UniformLaw
from qaffde.nn.calculus.polynomial import (
    Coefficients,
    IntegratedCoefficients,
    SquaredCoefficients,
    TrigonometricForm,
)
from qaffde.nn.calculus.terms import Term
from qaffde.nn.parts import LINE, MAX_DEVIATION, Part
from qaffde.parameters import check_choice

MAX_FREQUENCY = 1e7
"""A density of one column is a series of about as many terms."""
ROUNDING = 1e-9
"""Of the logarithm of a sum of masses."""
MAX_FUNCTIONS = 1024
"""Of one part of a table."""
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


def _real_column(f: Fields) -> nn.RealColumn:
    if "map" in f:  # in format 2 at first
        return f["map"]
    f.require_all(MAP)
    knots, values, (lower, upper) = f["knots"], f["values"], f["ends"]
    for name, part in (("knots", knots), ("values", values)):
        f.require((part.diff() > 0).all(), name, "must rise")
    f.require((f["tails"] >= 0).all(), "tails", "must not be negative")
    f.require((f["inset"] >= 0).all(), "inset", "must not be negative")
    if len(knots):
        f.require(lower < knots[0] and knots[-1] < upper, "ends", "must lie outside the knots")
    else:
        f.require(f["ends"].isinf().all(), "ends", "need knots")
    return nn.RealColumn(**f)


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


def _code_factor(f: Fields) -> nn.CodeFactor:
    total = f["log_mass"].logsumexp(1)
    f.require((total.abs() < ROUNDING).all(), "log_mass", "does not sum to one")
    return nn.CodeFactor(**f)


def _circle_factor(f: Fields) -> nn.CircleFactor:
    f.require((f["deviation"] <= MAX_DEVIATION).all(), "deviation", "is out of range")
    return nn.CircleFactor(**f)


def _factored(f: Fields) -> nn.FactoredMixture:
    lines, factors = f["lines"], f["factors"]
    n_lines = sum(part.is_line for part in f["parts"])
    kinds = [part for part in f["parts"] if not part.is_line]
    fits = [factor.part for factor in factors] == kinds
    f.require(fits, "factors", "are not those of the parts")
    f.require((0 if lines is None else lines.n_dims) == n_lines, "lines", "are not the parts")
    if lines is not None:
        f.agree("lines", "K", len(lines.terms))
    f.require(f["log_weights"].max().isfinite(), "log_weights", "leave nothing")
    return nn.FactoredMixture(**f)


def _table(f: Fields) -> nn.TableDensity:
    density, columns = f["density"], f["columns"]
    parts = tuple(part for column in columns for part in column.parts)
    if isinstance(density, nn.PartsDensity):
        f.require(parts == density.parts, "columns", "are not those of the parts")
    else:
        f.require(all(part.is_line for part in parts), "columns", "are not real")
        f.require(len(columns) == f.sizes_of(density).get("d"), "columns", "are not all")
    f.agree("columns", "d", len(columns))
    return nn.TableDensity(density, columns)


def _mapped(f: Fields) -> nn.TableDensity:
    """Densities behind maps as format 2 first had them."""
    f["columns"] = list(f.pop("maps"))
    if isinstance(f["density"], nn.BornMixture):
        lines, one = f["density"], torch.zeros(1, dtype=torch.float64)
        level = one.expand(len(lines.terms)).clone()
        f["density"] = nn.FactoredMixture([LINE] * len(f["columns"]), level, lines, [])
    return _table(f)


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


def _codes(f: Fields) -> nn.CodeBasis:
    f.require(abs(float(f["masses"].sum()) - 1) < 1e-6, "masses", "must have sum one")
    f.charge(8 * f["n_functions"] ** 2 * len(f["masses"]))
    return nn.CodeBasis(**f)


def _waves(f: Fields) -> nn.WaveBasis:
    f.charge(64 * f["n_functions"] ** 3)
    (u, v) = knots = f["knots"]
    rises = (knots.diff() > 0).all() and u[0] == v[0] == 0 and u[-1] == v[-1] == 1
    f.require(rises, "knots", "must rise from 0 to 1")
    return nn.WaveBasis(**f)


def _circle(f: Fields) -> nn.CircleBasis:
    f.charge(64 * f["n_functions"] ** 3)
    return nn.CircleBasis(**f)


def _train(f: Fields) -> nn.TensorTrain:
    """A train whose shapes fit each other and whose mass is one."""
    places, bond = f["places"], f["start"].shape[1]
    d = sum(place >= 0 for place in places)
    f.require(sorted(p for p in places if p >= 0) == list(range(d)), "places", "are not all")
    f.agree("places", "q", d)
    for name in ("mixers", "loadings", "bases"):
        f.require(len(f[name]) == len(places), name, "are not as many as places")
    for W, V, basis in zip(f["mixers"], f["loadings"], f["bases"], strict=True):
        fits = W.ndim == 2 and len(W) == bond and V.shape == (W.shape[1], basis.n_functions)
        f.require(fits, "mixers", "do not fit each other")
        bond = W.shape[1]
        f.charge(64 * bond**2)
    f.require(len(f["end"]) == bond, "end", "does not fit")
    train = nn.TensorTrain(**f).requires_grad_(False)
    f.require(abs(float(train.log_mass())) < 1e-6, "end", "does not give mass one")
    return train


def _matrix(f: Fields, name: str, value: Any) -> None:
    item(Tensor)(f, name, value)
    f.require(value.ndim == 2 and value.numel(), name, "is not a matrix")
    reals(*value.shape, most=MAX_COEFFICIENT)(f, name, value)


def _parts_of(train: nn.TensorTrain) -> dict[str, Any]:
    return {
        "mixers": [W.detach() for W in train.mixers],
        "loadings": [V.detach() for V in train.loadings],
        "bases": list(train.bases),
        "places": train.places,
        "start": train.start,
        "end": train.end.detach(),
    }


_limited = partial(reals, most=MAX_COEFFICIENT)
_features = item(nn.FourierFeatures, d="d", D="D")
_measure = item(nn.BaseMeasure, d="d")
_units = {
    "location": reals("d"),
    "scale": positive("q"),
    "axes": optional(reals("d", "q")),
    "noise": optional(positive()),
}

MAP = {
    "knots": _knots(),
    "values": _knots(),
    "slopes": _knots(above=0.0),
    "tails": reals(2),
    "ends": reals(2, finite=False),
    "inset": reals(2),
}
"""Fields of the map of a real column."""

RECIPES |= {
    # Read, but no longer written.
    "ColumnMap": Recipe(Fields, _real_column, **MAP),
    "ColumnMaps": Recipe(Fields, lambda f: tuple(f["columns"]), columns=item(list)),
    "MappedDensity": Recipe(Fields, _mapped, density=item(nn.Density), maps=item(tuple)),
    "MappedMixture": Recipe(Fields, _mapped, density=item(nn.BornMixture), maps=item(tuple)),
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
    "Part": Recipe(
        Part, kind=checked(check_choice, choices=("line", "circle", "codes")), size=check.whole(0)
    ),
    "CodeFactor": Recipe(nn.CodeFactor, _code_factor, log_mass=reals("K", "C", finite=False)),
    "CircleFactor": Recipe(
        nn.CircleFactor, _circle_factor, mean=reals("K"), deviation=positive("K")
    ),
    "FactoredMixture": Recipe(
        nn.FactoredMixture,
        _factored,
        lambda m: {
            "parts": m.parts,
            "log_weights": m.log_weights,
            "lines": m.lines,
            "factors": list(m.factors),
        },
        parts=check.items(item(Part), tuple, least=1),
        log_weights=reals("K", finite=False),
        lines=optional(item(nn.BornMixture, c="d")),
        factors=check.items(item(nn.Factor, K="K")),
    ),
    "WaveBasis": Recipe(
        nn.WaveBasis, _waves, n_functions=check.whole(1, MAX_FUNCTIONS), knots=reals(2, "J")
    ),
    "CircleBasis": Recipe(nn.CircleBasis, _circle, n_functions=check.whole(1, MAX_FUNCTIONS)),
    "CodeBasis": Recipe(
        nn.CodeBasis, _codes, masses=positive("C"), n_functions=check.whole(1, MAX_FUNCTIONS)
    ),
    "TensorTrain": Recipe(
        nn.TensorTrain,
        _train,
        _parts_of,
        mixers=check.items(_matrix, least=1),
        loadings=check.items(_matrix, least=1),
        bases=check.items(item(nn.ColumnBasis), least=1),
        places=check.items(check.whole(-1)),
        start=_matrix,
        end=_matrix,
    ),
    "RealColumn": Recipe(
        nn.RealColumn,
        _real_column,
        lambda column: {name: getattr(column, name) for name in MAP},
        (),
        map=item(nn.RealColumn),
        **MAP,
    ),
    "CircleColumn": Recipe(nn.CircleColumn, period=number(0), start=number()),
    "CodeColumn": Recipe(
        nn.CodeColumn, size=check.whole(), first=check.whole(-(2**53)), has_order=item(bool)
    ),
    "AtomColumn": Recipe(nn.AtomColumn, value=number(), rest=item(nn.RealColumn)),
    "TableDensity": Recipe(
        nn.TableDensity,
        _table,
        lambda table: {"density": table.density, "columns": list(table.columns)},
        density=item(nn.PartsDensity | nn.StandardizedDensity),
        columns=check.items(item(nn.TableColumn), least=1),
    ),
    "UniformLaw": Recipe(UniformLaw),
    "NormalLaw": Recipe(NormalLaw),
}

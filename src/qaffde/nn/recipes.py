"""Recipes of fitted densities: features, measures, densities, sums of terms."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributions import Transform, transforms

from qaffde.files.fields import Fields
from qaffde.files.format import quoted
from qaffde.files.values import RECIPES, Recipe, attributes, without_fields
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
    LeNet,
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
from qaffde.nn.class_density import ClassBorn, ClassDensity, ImageCoder, Projection
from qaffde.nn.shear import MAX_DEGREE

MAX_FEATURES = 1 << 15
"""Scoring makes a square matrix of this size."""
MAX_FREQUENCY = 1e7
"""A density of one column is a series of about as many terms."""
MAX_COEFFICIENT = 1e100
"""Squares of sums of coefficients are numbers too."""
MAX_INTEGRATIONS = 256
MAX_CHAIN = 256
MAX_SIZE = 1 << 16
"""Most channels, pixels a side, filters or codes of a network in a file."""

COLUMNS: dict[type, Callable[[Any], int]] = {
    BoxMeasure: lambda measure: len(measure.lower),
    GaussianMeasure: lambda measure: measure.means.shape[1],
    KernelMeasure: lambda measure: len(measure.bandwidth),
    BornDensity: lambda density: density.features.n_dims,
    BornMixture: lambda density: density.n_dims,
    DefensiveDensity: lambda density: len(density.mean),
    StandardizedDensity: lambda density: len(density.location),
    TransformedDensity: lambda density: n_columns(density.density),
}
STANDARD = (BornDensity, DefensiveDensity)
"""Densities of standardized rows: wrappers stand in one order, so no chain of them is endless."""


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
    f.require(type(density) in STANDARD, "density", "cannot be standardized")
    d = n_columns(density)
    return _frozen(StandardizedDensity(density, f.tensor("location", d), f.positive("scale", d)))


def _transformed(f: Fields) -> nn.Module:
    density, encoder = f.item("density", StandardizedDensity), f.item("encoder", Transform)
    n = len(encoder.scale) if isinstance(encoder, PolynomialShear) else n_columns(density)
    f.require(n == n_columns(density), "encoder", "has other columns")
    return _frozen(TransformedDensity(density, encoder))


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


def _projection(f: Fields) -> Projection:
    location, scale = f.tensor("location", "d"), f.positive("scale", "q")
    if f.get("axes") is None:
        f.require(len(location) == len(scale), "scale", "is not of all columns")
        f.require(f.get("noise") is None, "noise", "is of no direction")
        return Projection(location, scale)
    axes = f.tensor("axes", "d", "q")
    noise = None if f.get("noise") is None else f.positive("noise")
    return Projection(location, scale, axes, noise)


def _lenet(f: Fields) -> LeNet:
    shape, filters = f.item("image_shape", tuple), f.item("n_filters", tuple)
    sizes = (*shape, *filters, f.count("n_codes"))
    good = all(isinstance(size, int) and 0 < size <= MAX_SIZE for size in sizes)
    f.require(good and (len(shape), len(filters)) == (3, 2), "image_shape", "is wrong")
    state = f.item("state", dict)
    f.require(
        all(isinstance(part, Tensor) and part.isfinite().all() for part in state.values()),
        "state",
        "holds no finite tensors",
    )
    n_numbers = sum(part.numel() for part in state.values())
    inner = filters[1] * (shape[1] // 4) * (shape[2] // 4)
    least = 25 * filters[0] * (shape[0] + filters[1]) + inner * sizes[-1]
    f.require(0 < least <= n_numbers, "state", "is smaller than its network")
    dropout = f.number("dropout")
    f.require(0 <= dropout < 1, "dropout", "is out of range")
    network = LeNet(shape, sizes[-1], filters, dropout).to(next(iter(state.values())).dtype)
    try:
        network.load_state_dict(state)
    except RuntimeError as error:
        f.complain("state", f"does not fit ({quoted(error)})")
    return network


def _lenet_fields(network: LeNet) -> dict[str, Any]:
    return {
        **attributes("image_shape", "n_codes", "n_filters")(network),
        "dropout": network.dropout.p,
        "state": dict(network.state_dict()),
    }


def _coder(f: Fields) -> ImageCoder:
    location, scale = f.tensor("location", "d"), f.positive("scale", "d")
    encoder, shape = f.item("encoder", LeNet), f.item("shape", tuple)
    f.require(shape == encoder.image_shape, "shape", "is not the encoder's")
    return ImageCoder(encoder, location.float(), scale.float(), shape)


def _coder_fields(coder: ImageCoder) -> dict[str, Any]:
    units = {"location": coder.location.double(), "scale": coder.scale.double()}
    return {**units, "encoder": coder.encoder, "shape": coder.shape}


def _class_born(f: Fields) -> ClassBorn:
    features, measure = f.item("features", FourierFeatures), f.item("measure", GaussianMeasure)
    f.require(n_columns(measure) == features.n_dims, "measure", "has other columns")
    factor = f.tensor("factor", "C", "r", features.n_features)
    born = ClassBorn(features, factor, measure, f.number("epsilon", 0, 1))
    born.factor = nn.Parameter(factor, requires_grad=False)  # to the last digit
    return born


def _class_density(f: Fields) -> ClassDensity:
    coder, born = f.item("coder", (Projection, ImageCoder)), f.item("born", ClassBorn)
    q = coder.n_components if isinstance(coder, Projection) else coder.encoder.n_codes
    f.require(q == born.features.n_dims, "coder", "has other coordinates than the densities")
    return ClassDensity(coder, born)


def _affine(f: Fields) -> Transform:
    event_dim = f.item("event_dim", int)
    f.require(0 <= event_dim <= 1, "event_dim", "is out of range")
    loc, scale = _shift(f, "loc"), _shift(f, "scale")
    return transforms.AffineTransform(loc, scale, event_dim=event_dim)


def _shift(f: Fields, name: str) -> Tensor | float:
    """A number, or finite ones for each column."""
    value = f.get(name)
    if not isinstance(value, Tensor):
        return f.number(name)
    f.require(value.is_floating_point() and value.ndim <= 1, name, "is not a vector")
    f.require(value.isfinite().all(), name, "is not finite")
    return value


def _composed(f: Fields) -> Transform:
    parts = f.items("parts", Transform)
    nested = any(isinstance(part, transforms.ComposeTransform) for part in parts)
    f.require(0 < len(parts) <= MAX_CHAIN and not nested, "parts", "are none, too many or nested")
    return transforms.ComposeTransform(parts)


def _shear(f: Fields) -> Transform:
    location, scale = f.tensor("location", "d"), f.positive("scale", "d")
    d = len(scale)
    order, powers = f.whole("order", "d"), f.whole("powers", "M", "d")
    f.require(order.sort()[0].equal(torch.arange(d)), "order", "is not an order of the columns")
    f.require(0 <= powers.min() and powers.sum(1).max() <= MAX_DEGREE, "powers", "are wrong")
    coefficients = f.tensor("coefficients", "d", "M")
    place = order.argsort()  # of a column in the order
    latest = torch.where(powers > 0, place, -1).amax(1)  # of a monomial's columns
    later = (latest[None] >= place[:, None]) & (coefficients != 0)
    f.require(not later.any(), "coefficients", "are of columns that come later")
    return PolynomialShear(order, powers, coefficients, location, scale)


def count_columns(coder: Projection | ImageCoder) -> int:
    """Number of columns of the rows that a coder takes."""
    if isinstance(coder, Projection):
        return len(coder.location)
    assert coder.shape is not None
    return int(torch.Size(coder.shape).numel())


RECIPES |= {
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
    "Projection": Recipe(
        Projection, attributes("location", "scale", "axes", "noise"), _projection
    ),
    "LeNet": Recipe(LeNet, _lenet_fields, _lenet),
    "ImageCoder": Recipe(ImageCoder, _coder_fields, _coder),
    "ClassBorn": Recipe(
        ClassBorn, attributes("features", "factor", "measure", "epsilon"), _class_born
    ),
    "ClassDensity": Recipe(ClassDensity, attributes("coder", "born"), _class_density),
    "PolynomialShear": Recipe(
        PolynomialShear,
        attributes("order", "powers", "coefficients", "location", "scale"),
        _shear,
    ),
    "AffineTransform": Recipe(
        transforms.AffineTransform,
        lambda t: {"loc": t.loc, "scale": t.scale, "event_dim": t.event_dim},
        _affine,
    ),
    "ExpTransform": without_fields(transforms.ExpTransform),
    "SigmoidTransform": without_fields(transforms.SigmoidTransform),
    "TanhTransform": without_fields(transforms.TanhTransform),
    "ComposeTransform": Recipe(transforms.ComposeTransform, attributes("parts"), _composed),
    "InverseTransform": Recipe(
        type(transforms.ExpTransform().inv),
        lambda t: {"transform": t.inv},
        lambda f: f.item("transform", Transform).inv,
    ),
}

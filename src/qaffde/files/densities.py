"""Log-densities as ONNX graphs.

Each class of densities says which operations its log-density is made of; constants that need an
inverse, a determinant or a Gram matrix are computed here, once.
"""

import math
from functools import singledispatch

import numpy as np
import torch
from torch import Tensor, nn

from qaffde.baselines.classical import KernelSum, MixtureDensity
from qaffde.baselines.flows import LOG_SCALE_BOUND, MaskedMixture
from qaffde.baselines.planar import PlanarDensity
from qaffde.files.format import FileError
from qaffde.files.graph import Graph
from qaffde.nn import (
    BaseMeasure,
    BornDensity,
    BornMixture,
    BoxMeasure,
    DefensiveDensity,
    Density,
    GaussianMeasure,
    KernelMeasure,
    PolynomialShear,
    StandardizedDensity,
    TransformedDensity,
)
from qaffde.nn.calculus.base_laws import UniformLaw
from qaffde.nn.calculus.polynomial import SquaredCoefficients, TrigonometricForm
from qaffde.nn.calculus.terms import Term

LOG_2PI = math.log(2 * math.pi)
NO_FORM = (
    "{} has no ONNX form; fit another estimator (those with an encoder, but for "
    "the shear, have none), or keep the model with save"
)


@singledispatch
def log_density(density: Density, g: Graph, x: str) -> str:
    """Add the log-density of rows `x` to a graph; the name of its value, of shape (n,)."""
    raise FileError(NO_FORM.format(type(density).__name__))


@log_density.register
def _(density: StandardizedDensity, g: Graph, x: str) -> str:
    far = torch.finfo(torch.float64).max ** 0.25
    z = g("Div", g("Sub", x, density.location), density.scale)
    inner = log_density(density.density, g, g("Clip", z, -far, far))
    return g("Sub", inner, density.scale.log().sum())


@log_density.register
def _(density: TransformedDensity, g: Graph, x: str) -> str:
    shear = density.encoder
    if not isinstance(shear, PolynomialShear):
        raise FileError(NO_FORM.format(type(density).__name__))
    u = g("Div", g("Sub", x, shear.location), shear.scale)
    powers = g("Pow", g("Unsqueeze", u, [1]), shear.powers.double())  # (n, M, d)
    bend = g("MatMul", g.row_sum(powers, "ReduceProd"), shear.coefficients.T)
    return log_density(density.density, g, g("Sub", x, bend))


@log_density.register
def _(density: DefensiveDensity, g: Graph, x: str) -> str:
    inner = g("Add", log_density(density.density, g, x), math.log1p(-density.epsilon))
    broad = log_gaussian(g, x, density.mean, density.cholesky)
    return g.log_sum(inner, g("Add", broad, math.log(density.epsilon)))


@log_density.register
def _(density: BornDensity, g: Graph, x: str) -> str:
    features = density.features
    phi = g("Mul", g("Cos", affine(g, x, features.W, features.b)), features.a)
    born = g.row_sum(g("MatMul", phi, density.factor.T), "ReduceSumSquare")
    log_born = g("Sub", g("Log", born), density.log_normalizer())
    return g("Add", log_born, log_base(density.measure, g, x))


@log_density.register
def _(density: BornMixture, g: Graph, x: str) -> str:
    terms = [log_term(g, x, term) for term in density.terms]
    return g("Sub", g.log_sum(*terms), density.log_mass)


@log_density.register
def _(density: MixtureDensity, g: Graph, x: str) -> str:
    return log_base(density.measure, g, x)


@log_density.register
def _(density: KernelSum, g: Graph, x: str) -> str:
    rows, weight = density.Z.numpy(), density.weight.numpy()
    gaps = g("Sub", g("Unsqueeze", x, [1]), rows)  # (n, m, d)
    squares = g("Mul", g.row_sum(gaps, "ReduceSumSquare"), -0.5)
    log_weight = np.log(weight / weight.sum()) - 0.5 * rows.shape[1] * LOG_2PI
    return g.log_row_sum(g("Add", squares, log_weight))


@log_density.register
def _(density: PlanarDensity, g: Graph, x: str) -> str:
    directions, slope = density.directions()
    log_det = []
    for u, w, b, s in zip(directions, density.w, density.b, slope, strict=True):
        t = g("Tanh", affine(g, x, w[None], b[None]))  # (n, 1)
        t2 = g("Mul", t, t)
        log_det.append(g("Log", g("Add", t2, g("Mul", s, g("Sub", 1.0, t2)))))
        x = g("Add", x, g("Mul", t, u))
    total = g.row_sum(g("Concat", *log_det, axis=-1))
    return g("Add", total, log_normal(g, x, density.n_dims))


@log_density.register
def _(density: MaskedMixture, g: Graph, x: str) -> str:
    d, K = density.n_dims, density.n_components
    ones = g("Add", g("Mul", g("Slice", x, [0], [1], [1]), 0.0), 1.0)  # (n, 1)
    output = network(g, density.network, g("Concat", x, ones, axis=-1))
    parameters = g("Reshape", output, [-1, d, 3, K])
    logits, mean, raw = (g("Gather", parameters, part, axis=2) for part in range(3))  # (n, d, K)
    bound = g("Add", g("Div", g("Abs", raw), LOG_SCALE_BOUND), 1.0)
    log_scale = g("Div", raw, bound)
    standard = g("Mul", g("Sub", g("Unsqueeze", x, [-1]), mean), g("Exp", g("Neg", log_scale)))
    log_kernel = g("Sub", g("Mul", g("Mul", standard, standard), -0.5), log_scale)
    log_terms = g.log_row_sum(g("Add", logits, log_kernel))
    log_parts = g("Sub", log_terms, g.log_row_sum(logits))  # (n, d)
    return g("Sub", g.row_sum(log_parts), 0.5 * d * LOG_2PI)


def network(g: Graph, layers: nn.Module, x: str) -> str:
    """Add a masked network of SiLU units."""
    for layer in layers.children():
        if isinstance(layer, nn.SiLU):
            x = g("Div", x, g("Add", g("Exp", g("Neg", x)), 1.0))
        else:
            mask, weight, bias = (getattr(layer, name) for name in ("mask", "weight", "bias"))
            x = affine(g, x, mask * weight, bias)
    return x


@singledispatch
def log_base(measure: BaseMeasure, g: Graph, x: str) -> str:
    """Add the log-density of a base measure."""
    raise FileError(f"{type(measure).__name__} has no ONNX form")


@log_base.register
def _(measure: BoxMeasure, g: Graph, x: str) -> str:
    log_volume = (measure.upper - measure.lower).log().sum()
    return inside(g, x, measure.lower, measure.upper, -float(log_volume))


@log_base.register
def _(measure: GaussianMeasure, g: Graph, x: str) -> str:
    parts = zip(measure.weights, measure.means, measure.cholesky, strict=True)
    return g.log_sum(*(g("Add", log_gaussian(g, x, m, L), w.log()) for w, m, L in parts))


@log_base.register
def _(measure: KernelMeasure, g: Graph, x: str) -> str:
    return g("Mul", g.row_sum(x), 0.0)


def log_term(g: Graph, x: str, term: Term) -> str:
    """Add the logarithm of one term of a sum."""
    u = g("MatMul", g("Sub", x, term.offset), torch.linalg.inv(term.scale).T)
    log_volume = float(term.scale.diagonal().abs().log().sum())
    if isinstance(term.law, UniformLaw):
        edge = torch.full_like(term.offset, 1 + 1e-12)
        base = inside(g, u, -edge, edge, -term.n_dims * math.log(2))
    else:
        base = log_normal(g, u, term.n_dims)
    log_prefactor = g("Add", base, float(term.log_coefficient) - log_volume)
    return g("Add", log_prefactor, g("Log", form_values(g, u, term.form)))


def form_values(g: Graph, u: str, form: TrigonometricForm) -> str:
    """Add the values of a trigonometric polynomial, by its factor or by its blocks."""
    theta = affine(g, u, form.W, form.b)
    c, s = g("Cos", theta), g("Sin", theta)
    coefficients = form.coefficients
    if isinstance(coefficients, SquaredCoefficients):
        F = coefficients.F.T
        y = g("MatMul", c, F.real)
        if F.is_complex():
            y = g("Sub", y, g("MatMul", s, F.imag))
        return g.row_sum(y, "ReduceSumSquare")
    P, Q, X = coefficients.pairs._blocks
    q = g("Add", _quadratic(g, c, P, c), _quadratic(g, s, Q, s))
    q = q if X is None else g("Sub", q, g("Mul", _quadratic(g, c, X, s), 2.0))
    return g("Max", q, 0.0)


def _quadratic(g: Graph, left: str, matrix: Tensor, right: str) -> str:
    return g.row_sum(g("Mul", g("MatMul", left, matrix), right))


def inside(g: Graph, x: str, lower: Tensor, upper: Tensor, log_value: float) -> str:
    """Add a constant inside a box and −∞ outside, edges included."""
    above = g("GreaterOrEqual", x, lower)
    below = g("LessOrEqual", x, upper)
    both = g("Cast", g("And", above, below), to=g.onnx.TensorProto.DOUBLE)
    everywhere = g("Greater", g.row_sum(both, "ReduceMin"), 0.5)
    return g("Where", everywhere, log_value, -math.inf)


def log_gaussian(g: Graph, x: str, mean: Tensor, cholesky: Tensor) -> str:
    """Add the log-density of a Gaussian."""
    whitened = g("MatMul", g("Sub", x, mean), torch.linalg.inv(cholesky).T)
    return g("Sub", log_normal(g, whitened, len(mean)), cholesky.diagonal().log().sum())


def log_normal(g: Graph, u: str, d: int) -> str:
    """Add the log-density of the standard normal, finite however far out."""
    most = torch.finfo(torch.float64).max / 2
    square = g("Min", g.row_sum(u, "ReduceSumSquare"), most)
    return g("Sub", g("Mul", square, -0.5), 0.5 * d * LOG_2PI)


def affine(g: Graph, x: str, W: Tensor, b: Tensor) -> str:
    """Add Wx + b, of shape (n, D)."""
    return g("Add", g("MatMul", x, W.T), b)

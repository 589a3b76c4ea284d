r"""A shear by polynomials that straightens columns which bend with others.

Made for the set `arc`, and harmful where modes lie apart, it is a trial of the comparisons and not
a part of the package: `docs/reproduction.md` has what it did on each set.

All regressions of one column on polynomials of others are parts of one Gram matrix of monomials,
since a column is a monomial too; folds of rows have Gram matrices that add up, so that held-out
errors of every degree and every order of the columns cost no further pass over the rows.
"""

import math
from dataclasses import dataclass
from itertools import combinations_with_replacement
from math import comb
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Transform, constraints

from qaffde import QAFFDESGD

MAX_DEGREE = 8
MAX_TERMS, ROWS_PER_TERM = 300, 20
N_FOLDS = 5
LEAST_BEND = 0.01
"""Share of the variance that a line leaves, which a polynomial must explain on held-out rows."""
LEAST_REST = 1e-6
"""Share of its variance that must be left of a column: of a function of others nothing is."""
RIDGE = 1e-9
"""Share of its own square that is added to every monomial's: columns may be copies."""
BLOCK_ROWS = 10_000


class ShearedSGD(QAFFDESGD):
    """QAFFDESGD with ``transformation="shear"``: a :class:`PolynomialShear` fitted to the rows."""

    def fit(self, X: Any, y: None = None, sample_weight: Any = None) -> Self:
        """Fit the shear, and the density behind it."""
        if self.transformation != "shear":
            return super().fit(X, y, sample_weight)
        rows = torch.as_tensor(np.asarray(X, dtype=np.float64))
        weight = torch.ones(len(rows)) if sample_weight is None else torch.as_tensor(sample_weight)
        self.transformation = fit_shear(rows, weight, rows.mean(0), rows.std(0))
        try:
            return super().fit(X, y, sample_weight)
        finally:
            self.transformation = "shear"


class PolynomialShear(Transform):
    r"""Take from each column a polynomial of the columns before it, in some order π.

    .. math:: z_j = x_j - f_j\bigl(x_{\pi(1)}, \ldots, x_{\pi(k - 1)}\bigr), \qquad j = \pi(k)

    The Jacobian is triangular, with ones on its diagonal, so that volumes stay as they are, and
    the inverse is exact: columns are found again one after the other. A banana becomes an
    ellipse, of which a Gaussian is a better base measure.

    Parameters
    ----------
    order : Tensor of shape (d,)
        π, a permutation of the columns.
    powers : Tensor of shape (M, d)
        Exponents of the monomials, whole numbers.
    coefficients : Tensor of shape (d, M)
        Of f in the monomials of (x − location) / scale. Those of a monomial with a column that
        is not before the one it is taken from must be zero.
    location, scale : Tensors of shape (d,)

    Examples
    --------
    >>> order, powers = torch.tensor([1, 0]), torch.tensor([[0, 2]])
    >>> parabola = PolynomialShear(
    ...     order, powers, torch.tensor([[0.25], [0.0]]), torch.zeros(2), torch.ones(2)
    ... )
    >>> parabola(torch.tensor([[5.0, 4.0]]))
    tensor([[1., 4.]])
    >>> parabola.inv(torch.tensor([[1.0, 4.0]]))
    tensor([[5., 4.]])
    """

    domain = codomain = constraints.real_vector
    bijective = True

    def __init__(
        self, order: Tensor, powers: Tensor, coefficients: Tensor, location: Tensor, scale: Tensor
    ) -> None:
        super().__init__()
        self.order, self.powers, self.coefficients = order, powers, coefficients
        self.location, self.scale = location, scale

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """Zeros of shape (...)."""
        return x.new_zeros(x.shape[:-1])

    def _call(self, x: Tensor) -> Tensor:
        return x - self._bend(x)

    def _inverse(self, z: Tensor) -> Tensor:
        x = z.clone()
        for j in self.order.tolist():
            x[..., j] = z[..., j] + self._bend(x)[..., j]  # sees the columns before alone
        return x

    def _bend(self, x: Tensor) -> Tensor:
        """Polynomial that f subtracts, of shape (..., d)."""
        u = (x - self.location) / self.scale
        return monomials(u, self.powers) @ self.coefficients.T


@dataclass(frozen=True)
class Regression:
    """One column by a polynomial of others.

    Attributes
    ----------
    errors : Tensor of shape (F,)
        Sum of squared errors in each fold, of the fit to the others.
    terms, coefficients : Tensors of shape (p,)
        Numbers of the monomials, and their coefficients fitted to all folds.
    """

    errors: Tensor
    terms: Tensor
    coefficients: Tensor

    @property
    def error(self) -> float:
        """Of all folds."""
        return float(self.errors.sum())


def fit_shear(X: Tensor, weight: Tensor, location: Tensor, scale: Tensor) -> PolynomialShear:
    """Shear that subtracts from columns a polynomial of the others.

    The column that bends most, by the share of its variance that a polynomial explains on
    held-out rows beyond a line, is the last of the order; then the others are looked at without
    it. Where none bends any more, the rest stay as they are: to tilt columns is left to the
    density.

    Parameters
    ----------
    X, weight : Tensors of shapes (n, d), (n,)
    location, scale : Tensors of shape (d,)
        Units in which the columns are of the same size.

    Examples
    --------
    >>> generator = torch.Generator().manual_seed(0)
    >>> x = torch.randn(1000, 2, generator=generator, dtype=torch.float64)
    >>> x[:, 0] += x[:, 1] ** 2
    >>> fit_shear(x, torch.ones(1000), x.mean(0), x.std(0))(x)[:, 0].var() < 1.1
    tensor(True)
    """
    d = X.shape[1]
    powers = _powers(d, len(X))
    grams = fold_grams((X - location) / scale, weight, powers)
    rest, last = list(range(d)), []
    coefficients = X.new_zeros(d, len(powers))
    while len(rest) > 1:
        bends = {j: bend(grams, powers, j, [k for k in rest if k != j]) for j in rest}
        j = max(bends, key=lambda k: bends[k][0])
        gain, best = bends[j]
        if gain < LEAST_BEND:
            break
        coefficients[j, best.terms] = best.coefficients * scale[j]
        rest.remove(j)
        last.append(j)
    order = torch.tensor(rest + last[::-1])
    used = coefficients.any(0)
    used[0] = True  # the constant: at least one monomial
    return PolynomialShear(order, powers[used], coefficients[:, used], location, scale)


def bend(
    grams: Tensor, powers: Tensor, column: int, others: list[int]
) -> tuple[float, Regression]:
    """Share of the held-out error of a line that the best polynomial takes away, and that one.

    It is none unless every fold sees it: a few rows far out may have most of the squares.
    """
    foreign = [k for k in range(powers.shape[1]) if k not in others]
    allowed = powers[:, foreign].sum(1) == 0
    degree = powers.sum(1)
    target = int(((degree == 1) & (powers[:, column] == 1)).nonzero())
    fits = [
        regress(grams, target, (allowed & (degree <= p)).nonzero()[:, 0])
        for p in range(1, int(degree.max()) + 1)
    ]
    line, best = fits[0], min(fits, key=lambda fit: fit.error)
    nothing_left = best.error < LEAST_REST * float(grams[:, target, target].sum())
    if nothing_left or (best.errors > line.errors).any():
        return 0.0, best
    return 1 - best.error / line.error, best


def regress(grams: Tensor, target: int, terms: Tensor) -> Regression:
    """Least squares of one monomial by others, from the Gram matrices (F, M, M) of the folds."""
    total = grams.sum(0)
    errors = []
    for held_out in grams:
        beta = _solve(total - held_out, target, terms)
        cross, square = held_out[terms, target], held_out[terms][:, terms]
        errors.append(held_out[target, target] - 2 * beta @ cross + beta @ square @ beta)
    return Regression(torch.stack(errors), terms, _solve(total, target, terms))


def fold_grams(U: Tensor, weight: Tensor, powers: Tensor) -> Tensor:
    """Weighted Gram matrices of the monomials of rows, one for each fold, (F, M, M)."""
    grams = []
    for fold in range(N_FOLDS):
        rows, w = U[fold::N_FOLDS], weight[fold::N_FOLDS]
        gram = U.new_zeros(len(powers), len(powers))
        for part, share in zip(rows.split(BLOCK_ROWS), w.split(BLOCK_ROWS), strict=True):
            phi = monomials(part, powers)
            gram += phi.T @ (share.to(phi)[:, None] * phi)
        grams.append(gram)
    return torch.stack(grams)


def _solve(gram: Tensor, target: int, terms: Tensor) -> Tensor:
    size = gram.diagonal()[terms].clamp(min=torch.finfo(gram.dtype).tiny).sqrt()
    scaled = gram[terms][:, terms] / (size[:, None] * size)
    scaled.diagonal().add_(RIDGE)
    return torch.linalg.solve(scaled, gram[terms, target] / size) / size


def _powers(d: int, n: int) -> Tensor:
    """Exponents of all monomials of d columns up to the highest degree that n rows allow."""
    most = min(MAX_TERMS, max(d + 1, n // ROWS_PER_TERM))
    degree = max(p for p in range(1, MAX_DEGREE + 1) if p == 1 or comb(d + p, p) <= most)
    chosen = [c for p in range(degree + 1) for c in combinations_with_replacement(range(d), p)]
    return torch.tensor([[c.count(j) for j in range(d)] for c in chosen])


def monomials(u: Tensor, powers: Tensor) -> Tensor:
    """Products of powers of the columns of u (..., d), of shape (..., M).

    Examples
    --------
    >>> monomials(torch.tensor([[2.0, 3.0]]), torch.tensor([[0, 0], [1, 1], [0, 2]]))
    tensor([[1., 6., 9.]])
    """
    factors = []
    for column, exponents in zip(u.unbind(-1), powers.T, strict=True):
        ladder = torch.stack([column**k for k in range(int(exponents.max()) + 1)], -1)
        factors.append(ladder[..., exponents])
    return math.prod(factors[1:], start=factors[0])

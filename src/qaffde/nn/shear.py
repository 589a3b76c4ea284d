"""A shear by polynomials: the invertible map that straightens what bends."""

import math
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Transform, constraints

MAX_DEGREE = 8


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

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, PolynomialShear) and all(
            torch.equal(getattr(self, name), getattr(other, name))
            for name in ("order", "powers", "coefficients", "location", "scale")
        )

    __hash__ = Transform.__hash__


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

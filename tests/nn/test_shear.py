"""The polynomial shear: what it takes away, its Jacobian and its inverse."""

import pytest
import torch

from qaffde.nn import PolynomialShear
from qaffde.nn.shear import monomials

GENERATOR = torch.Generator().manual_seed(0)
POWERS = torch.tensor([[0, 0, 0], [0, 2, 0], [1, 1, 0], [0, 3, 0]])


def shear():
    """Columns in the order 1, 0, 2."""
    coefficients = torch.tensor([[1.0, 0.5, 0.0, -0.2], [0.3, 0, 0, 0], [0, 0.1, 0.7, 0]])
    location, scale = torch.tensor([0.2, -1.0, 3.0]), torch.tensor([1.5, 2.0, 0.5])
    parts = (coefficients, location, scale)
    return PolynomialShear(torch.tensor([1, 0, 2]), POWERS, *(part.double() for part in parts))


def points(n=50):
    return 3 * torch.randn(n, 3, generator=GENERATOR, dtype=torch.float64)


def test_it_takes_polynomials_of_columns_before():
    x = points()
    u, v = (x[:, 0] - 0.2) / 1.5, (x[:, 1] + 1) / 2
    expected = torch.stack(
        [
            x[:, 0] - (1 + 0.5 * v**2 - 0.2 * v**3),
            x[:, 1] - 0.3,
            x[:, 2] - (0.1 * v**2 + 0.7 * u * v),
        ],
        1,
    )
    torch.testing.assert_close(shear()(x), expected)


def test_the_inverse_is_exact():
    x = points()
    torch.testing.assert_close(shear().inv(shear()(x)), x)
    torch.testing.assert_close(shear()(shear().inv(x)), x)


def test_volumes_stay():
    x = points(5)
    for row in x:
        jacobian = torch.autograd.functional.jacobian(shear(), row)
        assert float(torch.linalg.det(jacobian)) == pytest.approx(1)
    assert shear().log_abs_det_jacobian(x, shear()(x)).tolist() == [0.0] * 5


def test_equal_shears_are_equal():
    other = shear()
    assert other == shear()
    other.coefficients[0, 0] += 1
    assert other != shear()
    assert shear() != torch.distributions.ExpTransform()


def test_monomials_are_products():
    u = points(4)
    expected = torch.stack([(row ** POWERS.double()).prod(1) for row in u])
    torch.testing.assert_close(monomials(u, POWERS), expected)

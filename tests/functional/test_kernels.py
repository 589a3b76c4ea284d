"""The Gaussian kernel against scikit-learn's, and its mass against quadrature."""

import math

import numpy as np
import pytest
import torch
from sklearn.metrics.pairwise import rbf_kernel

from qaffde import functional as QF

GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(40, 2, generator=GENERATOR, dtype=torch.float64)
Y = torch.randn(30, 2, generator=GENERATOR, dtype=torch.float64)


@pytest.mark.parametrize("h", [0.1, 0.7, 5.0])
def test_kernel_is_the_rbf_kernel_of_scikit_learn(h):
    expected = rbf_kernel(X, Y, gamma=1 / (2 * h**2))
    kernel = QF.gaussian_kernel(X, Y, torch.tensor(h, dtype=torch.float64))
    np.testing.assert_allclose(kernel, expected, rtol=1e-9, atol=1e-14)


def test_each_column_has_its_own_bandwidth():
    h = torch.tensor([0.5, 3.0], dtype=torch.float64)
    expected = rbf_kernel(X / h, Y / h, gamma=0.5)
    np.testing.assert_allclose(QF.gaussian_kernel(X, Y, h), expected, rtol=1e-9, atol=1e-14)


def test_kernel_is_symmetric_positive_and_one_on_the_diagonal():
    kernel = QF.gaussian_kernel(X, X, torch.tensor(0.7, dtype=torch.float64))
    assert torch.allclose(kernel, kernel.T, rtol=0, atol=1e-14)
    assert torch.allclose(kernel.diagonal(), torch.ones(40, dtype=torch.float64))
    assert torch.linalg.eigvalsh(kernel).min() > -1e-12


def test_kernel_of_bandwidth_h_is_the_square_of_that_of_root_two_h():
    h = torch.tensor(0.7, dtype=torch.float64)
    wide = QF.gaussian_kernel(X, Y, math.sqrt(2) * h)
    assert torch.allclose(wide.square(), QF.gaussian_kernel(X, Y, h))


@pytest.mark.parametrize("h", [0.3, [0.3, 1.2]])
def test_mass_is_the_integral_of_the_kernel(h, legendre):
    h = torch.tensor(h, dtype=torch.float64)
    points, weights = legendre([-12.0, -12.0], [12.0, 12.0], 200)
    mass = QF.gaussian_kernel(torch.zeros(1, 2, dtype=torch.float64), points, h)[0] @ weights
    assert QF.log_kernel_mass(h, 2).exp().item() == pytest.approx(mass.item(), rel=1e-8)


def test_kernel_does_not_lose_digits_far_from_zero():
    h = torch.tensor(1.0, dtype=torch.float64)
    points = X.round(decimals=3)
    far = QF.gaussian_kernel(points + 1e6, points + 1e6, h)
    assert torch.allclose(far, QF.gaussian_kernel(points, points, h), rtol=0, atol=1e-8)

"""Analytic gradients against finite differences."""

import pytest
import torch
from torch.autograd import gradcheck

from qaffde import functional as QF
from tests.gram_reference import gram_matrix

GENERATOR = torch.Generator().manual_seed(0)


def numbers(*shape, shift=0.0):
    noise = torch.rand(*shape, generator=GENERATOR, dtype=torch.float64)
    return (noise + shift).requires_grad_()


def covariance_of(A):
    return A @ A.T + torch.eye(2, dtype=A.dtype)


def cholesky_of(A):
    return torch.linalg.cholesky(covariance_of(A))


X, W, B, A = numbers(4, 2), numbers(5, 2), numbers(5), numbers(5)
LOWER, UPPER, MEAN, ROOT = numbers(2, shift=-2.0), numbers(2, shift=1.0), numbers(2), numbers(2, 2)
INSIDE = torch.zeros(3, 2, dtype=torch.float64)
GRADIENTS = {
    "gamma": (QF.gamma_from_bandwidth, (numbers(2, shift=0.5),)),
    "kernel mass": (lambda h: QF.log_kernel_mass(h, 2), (numbers(2, shift=0.5),)),
    "kernel": (lambda x, h: QF.gaussian_kernel(x, x + 1, h), (X, numbers(2, shift=0.5))),
    "features": (QF.fourier_features, (X, W, B, A)),
    "features, amplitudes alone": (
        lambda a: QF.fourier_features(X.detach(), W.detach(), B.detach(), a),
        (A,),
    ),
    "box density": (lambda lo, up: QF.log_box_density(INSIDE, lo, up), (LOWER, UPPER)),
    "box pairs": (QF.box_pair_characteristics, (W, B, LOWER, UPPER)),
    "box characteristic": (
        lambda w, lo, up: torch.view_as_real(QF.box_characteristic(w, lo, up)),
        (W, LOWER, UPPER),
    ),
    "gaussian density": (
        lambda x, mean, root: QF.log_gaussian_density(x, mean, cholesky_of(root)),
        (X, MEAN, ROOT),
    ),
    "gaussian pairs": (
        lambda w, b, mean, root: QF.gaussian_pair_characteristics(w, b, mean, covariance_of(root)),
        (W, B, MEAN, ROOT),
    ),
    "gaussian characteristic": (
        lambda w, mean, root: torch.view_as_real(
            QF.gaussian_characteristic(w, mean, covariance_of(root))
        ),
        (W, MEAN, ROOT),
    ),
    "gram reference": (
        lambda w, b, a, lo, up: gram_matrix(
            w, b, a, lambda omega: QF.box_characteristic(omega, lo, up)
        ),
        (W, B, A, LOWER, UPPER),
    ),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradient(name):
    function, inputs = GRADIENTS[name]
    assert gradcheck(function, inputs)


def test_features_without_gradients_do_not_overwrite_their_arguments():
    parts = [part.detach().clone() for part in (X, W, B, A)]
    before = [part.clone() for part in parts]
    QF.fourier_features(*parts)
    assert all(torch.equal(x, y) for x, y in zip(parts, before, strict=True))

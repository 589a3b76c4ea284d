"""Closed-form Gram matrices against the characteristic function and against quadrature."""

from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from qaffde import functional as QF
from tests.gram_reference import gram_matrix

DOUBLE = torch.float64
LOWER, UPPER = torch.tensor([-1.0, 0.5], dtype=DOUBLE), torch.tensor([2.0, 1.5], dtype=DOUBLE)
MEAN = torch.tensor([0.5, -1.0], dtype=DOUBLE)
CHOLESKY = torch.tensor([[0.8, 0.0], [0.3, 0.5]], dtype=DOUBLE)
COVARIANCE = CHOLESKY @ CHOLESKY.T
REACH = torch.tensor([7.0, 5.0], dtype=DOUBLE)
LAWS = {
    "box": (
        partial(QF.box_characteristic, lower=LOWER, upper=UPPER),
        partial(QF.box_pair_characteristics, lower=LOWER, upper=UPPER),
        partial(QF.log_box_density, lower=LOWER, upper=UPPER),
        (LOWER, UPPER),
    ),
    "gaussian": (
        partial(QF.gaussian_characteristic, mean=MEAN, covariance=COVARIANCE),
        partial(QF.gaussian_pair_characteristics, mean=MEAN, covariance=COVARIANCE),
        partial(QF.log_gaussian_density, mean=MEAN, cholesky=CHOLESKY),
        (MEAN - REACH, MEAN + REACH),
    ),
}


def frequencies(n_features, d=2, seed=0, scale=2.0):
    generator = torch.Generator().manual_seed(seed)
    W = scale * torch.randn(n_features, d, generator=generator, dtype=DOUBLE)
    b = 6 * torch.rand(n_features, generator=generator, dtype=DOUBLE)
    return W, b, 0.2 + torch.rand(n_features, generator=generator, dtype=DOUBLE)


def gram_by_pairs(W, b, a, pairs):
    return 0.5 * torch.outer(a, a) * pairs(W, b)


@pytest.mark.parametrize("law", LAWS)
def test_density_integrates_to_one(law, legendre):
    _, _, log_density, ends = LAWS[law]
    points, weights = legendre(*ends, 120)
    assert (log_density(points).exp() @ weights).item() == pytest.approx(1, abs=1e-10)


@pytest.mark.parametrize("law", LAWS)
def test_characteristic_function_is_its_integral(law, legendre):
    characteristic, _, log_density, ends = LAWS[law]
    omega = 6 * torch.randn(20, 2, generator=torch.Generator().manual_seed(0), dtype=DOUBLE)
    points, weights = legendre(*ends, 160)
    waves = torch.exp(1j * (omega @ points.T))
    expected = waves @ (log_density(points).exp() * weights).to(waves.dtype)
    assert torch.allclose(characteristic(omega), expected, atol=1e-10)
    assert torch.allclose(characteristic(-omega), expected.conj(), atol=1e-10)
    assert torch.allclose(characteristic(0 * omega).real, torch.ones(20, dtype=DOUBLE))


@pytest.mark.parametrize("law", LAWS)
def test_pairs_equal_the_reference(law):
    characteristic, pairs, _, _ = LAWS[law]
    W, b, a = frequencies(40)
    W[0] = 0
    W[3] = W[2]
    reference = gram_matrix(W, b, a, characteristic)
    assert torch.allclose(gram_by_pairs(W, b, a, pairs), reference, rtol=0, atol=1e-13)


@pytest.mark.parametrize("law", LAWS)
def test_gram_is_the_integral_of_products(law, legendre):
    _, pairs, log_density, ends = LAWS[law]
    W, b, a = frequencies(15)
    points, weights = legendre(*ends, 160)
    phi = QF.fourier_features(points, W, b, a)
    expected = phi.T @ (phi * (log_density(points).exp() * weights)[:, None])
    assert torch.allclose(gram_by_pairs(W, b, a, pairs), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("d", [1, 3, 7])
def test_gram_in_other_dimensions_equals_the_reference(d):
    W, b, a = frequencies(20, d)
    ends = torch.linspace(-1, 0, d, dtype=DOUBLE), torch.linspace(1, 2, d, dtype=DOUBLE)
    reference = gram_matrix(W, b, a, partial(QF.box_characteristic, lower=ends[0], upper=ends[1]))
    pairs = partial(QF.box_pair_characteristics, lower=ends[0], upper=ends[1])
    assert torch.allclose(gram_by_pairs(W, b, a, pairs), reference, rtol=0, atol=1e-13)


@given(seed=st.integers(0, 10_000), n=st.integers(1, 30), scale=st.floats(1e-3, 50.0))
@settings(max_examples=30, deadline=None)
@pytest.mark.parametrize("law", LAWS)
def test_gram_is_symmetric_and_positive(law, seed, n, scale):
    G = gram_by_pairs(*frequencies(n, seed=seed, scale=scale), LAWS[law][1])
    assert torch.allclose(G, G.T, rtol=0, atol=1e-12)
    assert torch.linalg.eigvalsh(G).min() > -1e-12 * G.trace()
    assert (G.diagonal() >= 0).all()


@pytest.mark.parametrize("law", LAWS)
def test_gram_has_single_precision(law):
    characteristic, pairs, _, _ = LAWS[law]
    W, b, a = frequencies(10)
    reference = gram_matrix(W, b, a, characteristic)
    single = {key: value.float() for key, value in pairs.keywords.items()}
    G = gram_by_pairs(W.float(), b.float(), a.float(), partial(pairs.func, **single))
    assert G.dtype == torch.float32
    assert torch.allclose(G.double(), reference, atol=1e-5)


def test_box_density_is_zero_outside_and_holds_its_edges():
    X = torch.stack([LOWER, UPPER, UPPER + 1e-9, LOWER - 1e-9, torch.full_like(LOWER, 1e300)])
    log_p = QF.log_box_density(X, LOWER, UPPER)
    assert torch.allclose(log_p[:2].exp(), torch.full((2,), 1 / 3, dtype=DOUBLE))
    assert (log_p[2:] == -torch.inf).all()


def test_gaussian_density_is_torch_s_and_finite_at_any_distance():
    X = torch.randn(30, 2, generator=torch.Generator().manual_seed(0), dtype=DOUBLE)
    law = torch.distributions.MultivariateNormal(MEAN, scale_tril=CHOLESKY)
    assert torch.allclose(QF.log_gaussian_density(X, MEAN, CHOLESKY), law.log_prob(X))
    far = QF.log_gaussian_density(1e300 * X, MEAN, CHOLESKY)
    assert far.isfinite().all()


def test_gaussian_densities_of_several_components():
    X = torch.randn(30, 2, generator=torch.Generator().manual_seed(0), dtype=DOUBLE)
    both = QF.log_gaussian_density(
        X, torch.stack([MEAN, -MEAN]), torch.stack([CHOLESKY, 2 * CHOLESKY])
    )
    assert torch.allclose(both[0], QF.log_gaussian_density(X, MEAN, CHOLESKY))
    assert torch.allclose(both[1], QF.log_gaussian_density(X, -MEAN, 2 * CHOLESKY))


@given(seed=st.integers(0, 10_000), n=st.integers(1, 20), rank=st.integers(1, 20))
@settings(max_examples=30, deadline=None)
def test_eigenpairs_invert_on_the_range(seed, n, rank):
    generator = torch.Generator().manual_seed(seed)
    A = torch.randn(n, min(n, rank), generator=generator, dtype=DOUBLE)
    G = A @ A.T
    U, lam = QF.range_eigenpairs(G, 1e-6)
    root = (U * lam.rsqrt()) @ U.T
    assert torch.allclose(root, root.T)
    assert torch.allclose(root @ G @ root, U @ U.T, atol=1e-7)
    assert U.shape == (n, len(lam))
    assert len(lam) <= min(n, rank)


def test_the_range_ends_at_the_tolerance():
    G = torch.diag(torch.tensor([1.0, 1e-3, 1e-5], dtype=DOUBLE))
    assert [len(QF.range_eigenpairs(G, tol)[1]) for tol in (1e-6, 1e-4, 1e-2)] == [3, 2, 1]


def test_whitened_features_are_orthonormal(legendre):
    _, pairs, log_density, ends = LAWS["box"]
    parts = frequencies(12)
    U, lam = QF.range_eigenpairs(gram_by_pairs(*parts, pairs), 1e-6)
    points, weights = legendre(*ends, 100)
    e = QF.fourier_features(points, *parts) @ U * lam.rsqrt()
    products = e.T @ (e * (log_density(points).exp() * weights)[:, None])
    assert torch.allclose(products, torch.eye(len(lam), dtype=DOUBLE), atol=1e-7)

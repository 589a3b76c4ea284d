"""Coefficients of trigonometric polynomials against sums written out."""

import math

import pytest
import torch

from qaffde.nn.calculus.base_laws import NormalLaw, UniformLaw
from qaffde.nn.calculus.integrals import legendre
from qaffde.nn.calculus.polynomial import (
    IntegratedCoefficients,
    Pairs,
    SquaredCoefficients,
    merged_frequencies,
)

H, RANK = 7, 5


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def factor(kind, rank=RANK, seed=0):
    dtype = torch.complex128 if kind == "complex" else torch.float64
    return torch.randn(rank, H, generator=generator(seed), dtype=dtype)


def phases(n=200, seed=1):
    return 2 * math.pi * torch.rand(n, H, generator=generator(seed), dtype=torch.float64)


def naive(F, theta):
    return (torch.exp(1j * theta) @ F.to(torch.complex128).T).real.square().sum(1)


both = pytest.mark.parametrize("kind", ["real", "complex"])


@both
def test_squared_form_is_the_sum_of_squares(kind):
    F, theta = factor(kind), phases()
    torch.testing.assert_close(SquaredCoefficients(F)(theta), naive(F, theta))


@both
@pytest.mark.parametrize("n", [1, 200])
def test_pairs_are_the_same_polynomial(kind, n):
    F, theta = factor(kind), phases(n)
    pairs = SquaredCoefficients(F).pairs
    torch.testing.assert_close(pairs.of_waves(theta.cos(), theta.sin()), naive(F, theta))
    z = torch.exp(1j * theta)
    B, E = (part.to(z) for part in (pairs.B, pairs.E))
    written_out = torch.einsum("nh,hg,ng->n", z.conj(), B, z) + torch.einsum(
        "nh,hg,ng->n", z, E, z
    )
    torch.testing.assert_close(written_out.real, naive(F, theta))


@both
@pytest.mark.parametrize("law", [UniformLaw(), NormalLaw()])
def test_integrated_form_is_the_mean_over_the_law(kind, law):
    F, theta = factor(kind), phases(20)
    W = torch.randn(H, 1, generator=generator(2), dtype=torch.float64)
    v, weight = legendre(80, -torch.tensor(law.reach), torch.tensor(law.reach))
    weight = weight * law.log_density(v[:, None]).exp()
    expected = sum(w * naive(F, theta + x * W[:, 0]) for w, x in zip(weight, v, strict=True))
    integrated = IntegratedCoefficients(SquaredCoefficients(F), law, W)
    torch.testing.assert_close(integrated(theta), expected, rtol=0, atol=1e-9)
    assert integrated.bound == SquaredCoefficients(F).bound


@both
@pytest.mark.parametrize("rank", [1, 2, 5, 20])
def test_bounds_hold(kind, rank):
    F = factor(kind, rank)
    loose = F.abs().square().sum(0).sqrt().sum() ** 2  # the trace in place of the eigenvalue
    assert naive(F, phases(20_000)).max() <= SquaredCoefficients(F).bound <= loose * (1 + 1e-8)


def test_bound_of_one_row_is_reached():
    F = factor("complex", rank=1)
    at_peak = naive(F, -F.angle())
    assert SquaredCoefficients(F).bound == pytest.approx(at_peak.item(), rel=1e-8)


@both
def test_a_frequency_without_weight_does_no_harm(kind):
    F = factor(kind)
    F[:, 2] = 0
    assert naive(F, phases()).max() <= SquaredCoefficients(F).bound < math.inf


def test_repeated_frequencies_are_merged():
    g = generator(3)
    W = torch.randn(4, 2, generator=g, dtype=torch.float64)[[0, 1, 0, 2, 1, 3]]
    b, L = torch.randn(6, generator=g).double(), torch.randn(2, 6, generator=g).double()
    x = torch.randn(50, 2, generator=g, dtype=torch.float64)
    expected = torch.cos(x @ W.T + b) @ L.T
    merged_W, merged_b, F = merged_frequencies(W, b, L)
    assert F.shape == (2, 4)
    found = (torch.exp(1j * (x @ merged_W.T + merged_b)) @ F.T).real
    torch.testing.assert_close(found, expected)


def test_single_frequencies_stay_as_they_are():
    W, b, L = torch.arange(3.0)[:, None], torch.ones(3), torch.ones(2, 3)
    assert all(a is b for a, b in zip(merged_frequencies(W, b, L), (W, b, L), strict=True))


def test_pairs_need_not_be_positive():
    minus = Pairs(-torch.ones(1, 1), torch.zeros(1, 1))
    assert minus.of_waves(torch.ones(1, 1), torch.zeros(1, 1)).item() == -1

"""Every map of frequencies: sizes, seeds, symmetry, and the kernel it approximates."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from qaffde import functional as QF
from qaffde.functional.fourier import _half_lattice

DOUBLE = torch.float64
PAIRED = ["paired", "orthogonal", "sobol", "lattice"]
SPREAD = torch.tensor([1.0, 3.0], dtype=DOUBLE)
POINTS = torch.randn(100, 2, generator=torch.Generator().manual_seed(1), dtype=DOUBLE) * SPREAD
H = 0.5 * SPREAD


def draw(kind, n_features, h=H, period=None, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return QF.FREQUENCIES[kind](n_features, h, 16 * h if period is None else period, generator)


def kernel_error(kind, n_features, h=H, seed=0):
    period = POINTS.amax(0) - POINTS.amin(0) + 8 * h
    phi = QF.fourier_features(POINTS, *draw(kind, n_features, h, period, seed))
    error = (phi @ phi.T).square() - QF.gaussian_kernel(POINTS, POINTS, h)
    return error.square().mean().sqrt().item()


def mean_error(kind, n_features, seeds=4):
    return np.mean([kernel_error(kind, n_features, seed=seed) for seed in range(seeds)])


@pytest.mark.parametrize("d", [1, 2, 3, 5])
@pytest.mark.parametrize(
    ("kind", "asked", "given_"),
    [("random", 7, 7), *((k, 7, 6) for k in PAIRED[:3]), ("lattice", 7, 7), ("lattice", 8, 7)],
)
def test_shapes(kind, asked, given_, d):
    W, b, a = draw(kind, asked, torch.ones(d, dtype=DOUBLE))
    assert (W.shape, b.shape, a.shape) == ((given_, d), (given_,), (given_,))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", QF.FREQUENCIES)
def test_dtype_is_that_of_the_bandwidth(kind, dtype):
    assert {part.dtype for part in draw(kind, 9, torch.ones(2, dtype=dtype))} == {dtype}


@pytest.mark.parametrize("kind", QF.FREQUENCIES)
def test_seeds_reproduce_and_differ(kind):
    first, second, other = (draw(kind, 10, seed=seed)[0] for seed in (0, 0, 1))
    assert torch.equal(first, second)
    assert torch.equal(first, other) == (kind == "lattice")


@pytest.mark.parametrize("kind", [kind for kind in QF.FREQUENCIES if kind != "lattice"])
def test_a_generator_advances(kind):
    generator = torch.Generator().manual_seed(0)
    first, second = (QF.FREQUENCIES[kind](10, H, H, generator)[0] for _ in range(2))
    assert not torch.equal(first, second)


@pytest.mark.parametrize("kind", PAIRED)
def test_pairs_have_norm_one_everywhere(kind):
    phi = QF.fourier_features(100 * POINTS, *draw(kind, 50))
    assert torch.allclose(phi.square().sum(1), torch.ones(len(POINTS), dtype=DOUBLE), rtol=1e-12)


def test_random_features_have_norm_one_on_average():
    phi = QF.fourier_features(POINTS, *draw("random", 4000))
    assert torch.allclose(phi.square().sum(1), torch.ones(100, dtype=DOUBLE), atol=0.1)


@pytest.mark.parametrize("kind", [kind for kind in QF.FREQUENCIES if kind != "lattice"])
def test_error_falls_as_the_root_of_the_number_of_features(kind):
    assert mean_error(kind, 1024) < mean_error(kind, 64) / 16**0.4


def test_lattice_error_falls_faster_than_any_power():
    coarse, middle, fine = (kernel_error("lattice", n) for n in (21, 101, 401))
    assert middle < coarse / 10
    assert fine < middle / 1000


def test_sobol_beats_random_in_two_dimensions():
    assert mean_error("sobol", 1024) < 0.3 * mean_error("random", 1024)


@pytest.mark.parametrize("kind", QF.FREQUENCIES)
def test_each_column_has_its_own_bandwidth(kind):
    one = torch.ones(2, dtype=DOUBLE)
    W, *rest = draw(kind, 20, H)
    standard, *same = draw(kind, 20, one)
    assert torch.allclose(W * H, standard)
    assert all(torch.equal(x, y) for x, y in zip(rest, same, strict=True))


@pytest.mark.parametrize("h", [[0.5, 1.5], [1.5, 1.5], [4.0, 0.8]])
@pytest.mark.parametrize("kind", QF.FREQUENCIES)
def test_squared_inner_products_are_the_anisotropic_kernel(kind, h):
    assert kernel_error(kind, 3000, torch.tensor(h, dtype=DOUBLE)) < 0.03


@pytest.mark.parametrize("kind", ["random", "paired", "orthogonal", "sobol"])
def test_frequencies_have_the_spectrum_of_the_wider_kernel(kind):
    W = draw(kind, 8000)[0]
    gamma = 1 / (2 * H.square())
    scaled = W / gamma.sqrt()
    assert torch.allclose(scaled.T @ scaled / len(W), torch.eye(2, dtype=DOUBLE), atol=0.06)
    assert torch.allclose(scaled.pow(4).mean(0), torch.full((2,), 3.0, dtype=DOUBLE), rtol=0.1)


def test_orthogonal_blocks_are_orthogonal_with_chi_lengths():
    W = draw("orthogonal", 12000, torch.full((3,), math.sqrt(0.5), dtype=DOUBLE))[0][:6000]
    blocks = W.reshape(-1, 3, 3)
    products = blocks @ blocks.mT
    off_diagonal = products - torch.diag_embed(products.diagonal(dim1=1, dim2=2))
    assert off_diagonal.abs().max() < 1e-12
    assert W.norm(dim=1).mean().item() == pytest.approx(math.sqrt(8 / math.pi), rel=0.02)


def wrapped_kernel(X, Y, h, period, images=7):
    """Sum over the images of k_{γ/2}, whose square is k_γ, divided by its value at zero."""
    shifts = itertools.product(range(-images, images + 1), repeat=X.shape[1])
    offsets = [torch.tensor(shift, dtype=DOUBLE) * period for shift in shifts]
    wide = math.sqrt(2) * h
    at_zero = sum(QF.gaussian_kernel(0 * X[:1], offset[None], wide) for offset in offsets)
    return sum(QF.gaussian_kernel(X, Y + offset, wide) for offset in offsets) / at_zero


@pytest.mark.parametrize(("h", "period"), [([0.6], [4.0]), ([0.6, 0.9], [4.0, 5.0])])
def test_lattice_is_exact_for_the_wrapped_kernel(h, period):
    h, period = torch.tensor(h, dtype=DOUBLE), torch.tensor(period, dtype=DOUBLE)
    X = POINTS[:20, : len(h)]
    phi = QF.fourier_features(X, *draw("lattice", 601, h, period))
    assert torch.allclose(phi @ phi.T, wrapped_kernel(X, X, h, period), rtol=0, atol=1e-10)


def test_lattice_repeats_after_its_period():
    period = torch.tensor([3.0, 5.0], dtype=DOUBLE)
    parts = draw("lattice", 101, H, period)
    first, again = (QF.fourier_features(POINTS + k * period, *parts) for k in (0, 2))
    assert torch.allclose(first, again, rtol=0, atol=1e-12)


def test_lattice_amplitudes_are_positive_and_fall():
    W, _, a = draw("lattice", 101)
    cosines = a[1:51]
    assert (a > 0).all()
    assert (cosines.diff() <= 1e-15).all()
    assert len(torch.unique(torch.cat([W[1:51], -W[1:51]]), dim=0)) == 100


@given(
    n=st.integers(1, 60),
    weight=st.lists(st.floats(0.2, 5.0), min_size=1, max_size=3),
)
@settings(max_examples=40, deadline=None)
def test_half_lattice_holds_the_shortest_vectors(n, weight):
    weight = torch.tensor(weight, dtype=DOUBLE)
    lengths = (_half_lattice(n, weight) * weight).square().sum(1)
    reach = math.ceil(lengths.max().sqrt().item() / weight.min().item()) + 1
    cube = torch.cartesian_prod(*[torch.arange(-reach, reach + 1)] * len(weight))
    every = (cube.reshape(-1, len(weight)) * weight).square().sum(1).sort().values
    shortest = every[1::2][:n]  # without the origin, one of each pair
    assert torch.allclose(lengths, shortest)

"""Algorithm 2: one pass over batches, and two readings that have mass one."""

import pytest
import torch

from qaffde.nn import BoxMeasure, FourierFeatures, GaussianMeasure, KernelMeasure
from qaffde.training.closed_form import (
    SPECTRUM_WIDENING,
    density_matrix,
    read_density,
    row_batches,
)

DOUBLE = torch.float64
GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(50, 2, generator=GENERATOR, dtype=DOUBLE)
WEIGHT = torch.rand(50, generator=GENERATOR, dtype=DOUBLE)
H = torch.tensor([0.5, 0.8], dtype=DOUBLE)
FEATURES = FourierFeatures.draw("sobol", 30, H)
BOX = BoxMeasure(X.amin(0), X.amax(0))
GAUSSIAN = GaussianMeasure(
    torch.ones(1, dtype=DOUBLE), torch.zeros(1, 2, dtype=DOUBLE), torch.eye(2, dtype=DOUBLE)[None]
)
MEASURES = {"box": BOX, "gaussian": GAUSSIAN}


def rho():
    return density_matrix(FEATURES, row_batches(X, WEIGHT))


def read(measurement, measure, rank=1.0, min_trace=1.0):
    options = {"rank": rank, "min_trace": min_trace, "tolerance": 1e-9}
    return read_density(measurement, FEATURES, rho(), measure, **options)


def naive_density_matrix():
    phi = FEATURES(X)
    return sum(w * torch.outer(row, row) for w, row in zip(WEIGHT, phi, strict=True))


@pytest.mark.parametrize("batch_size", [1, 7, 50, 1000])
def test_density_matrix_is_a_loop_of_outer_products(batch_size):
    batched = density_matrix(FEATURES, row_batches(X, WEIGHT, batch_size))
    assert torch.allclose(batched, naive_density_matrix(), rtol=0, atol=1e-13)
    assert batched.trace().item() == pytest.approx(WEIGHT.sum().item())


def test_density_matrix_of_single_precision_features_is_double():
    single = FourierFeatures(FEATURES.W.float(), FEATURES.b.float(), FEATURES.a.float())
    total = density_matrix(single, row_batches(X.float(), WEIGHT.float(), 7))
    assert total.dtype == DOUBLE
    assert torch.allclose(total, naive_density_matrix(), atol=1e-5)


def test_density_matrix_takes_a_stream():
    stream = ((x[None], w[None]) for x, w in zip(X, WEIGHT, strict=True))
    assert torch.allclose(density_matrix(FEATURES, stream), naive_density_matrix())


@pytest.mark.parametrize("rank", [1, 5, 1.0])
@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("measurement", SPECTRUM_WIDENING)
def test_readings_are_normalised(measurement, measure, rank):
    density = read(measurement, MEASURES[measure], rank)
    with torch.no_grad():
        assert density.log_normalizer().item() == pytest.approx(0, abs=1e-8)
    assert rank == 1.0 or density.rank == rank


def test_direct_reading_is_the_density_matrix_itself():
    factor = read("direct", BOX).factor.detach()
    expected = rho() / torch.trace(rho() @ BOX.gram(FEATURES))
    assert torch.allclose(factor.T @ factor, expected, rtol=0, atol=1e-12)


def test_square_root_reading_is_whitened_on_both_sides():
    factor = read("square_root", GAUSSIAN).factor.detach()
    lam, U = torch.linalg.eigh(GAUSSIAN.gram(FEATURES))
    keep = lam > 1e-9 * lam[-1]
    root = U[:, keep] / lam[keep].sqrt() @ U[:, keep].T
    expected = root @ rho() @ root
    ratio = factor.T @ factor / torch.trace(factor.T @ factor)
    assert torch.allclose(ratio, expected / expected.trace(), rtol=0, atol=1e-8)


def test_outcomes_of_the_square_root_measurement_have_probability_one(legendre):
    points, weights = legendre(BOX.lower, BOX.upper, 80)
    density = read("square_root", BOX)
    with torch.no_grad():
        assert (density(points).exp() @ weights).item() == pytest.approx(1, abs=1e-8)


@pytest.mark.parametrize("measurement", SPECTRUM_WIDENING)
def test_rank_is_chosen_by_the_trace(measurement):
    ranks = [read(measurement, BOX, "auto", share).rank for share in (0.3, 0.9, 0.999)]
    assert ranks == sorted(set(ranks))


def test_kernel_reading_of_the_mean_state_keeps_its_trace():
    options = {"rank": 1.0, "min_trace": 1.0, "tolerance": 1e-9}
    density = read_density("direct", FEATURES, rho() / WEIGHT.sum(), KernelMeasure(H), **options)
    assert density.factor.square().sum().item() == pytest.approx(1)

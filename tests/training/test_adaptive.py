"""Algorithm 1: it lowers the held-out error, or leaves the start as it was."""

import math

import pytest
import torch

from qaffde.nn import FourierFeatures
from qaffde.training.adaptive import fit_adaptive_features, is_paired, pair_kernel, sample_pairs

QUICK = {"n_pairs": 2000, "n_epochs": 20, "batch_size": 250}
H = torch.tensor([0.4, 0.8], dtype=torch.float64)


def data(n=1000, seed=0):
    return torch.randn(n, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def draw(kind, n_features=60, *, squared=True, **options):
    return FourierFeatures.draw(kind, n_features, H if squared else H / math.sqrt(2), **options)


def error(features, X, *, squared=True, near_share=0.5):
    generator = torch.Generator().manual_seed(77)
    pairs = H * sample_pairs(X / H, 5000, near_share, generator)
    phi = features(pairs)
    inner = (phi[:, 0] * phi[:, 1]).sum(1)
    return ((inner.square() if squared else inner) - pair_kernel(pairs, H)).square().mean()


@pytest.mark.parametrize("squared", [True, False])
@pytest.mark.parametrize("kind", ["random", "paired", "sobol", "lattice"])
def test_lowers_the_error_on_new_data(kind, squared):
    start = draw(kind, squared=squared)
    learned = fit_adaptive_features(start, data(), H, squared=squared, **QUICK)
    new = data(seed=1)
    assert error(learned, new, squared=squared) < 0.5 * error(start, new, squared=squared)


def test_pairs_stay_pairs_and_the_kernel_at_zero_is_one():
    learned = fit_adaptive_features(draw("sobol"), data(), H, **QUICK)
    assert is_paired(learned)
    assert torch.allclose(learned(data()).square().sum(1), torch.ones(1000, dtype=torch.float64))


def test_near_pairs_are_what_teaches_many_dimensions():
    X = torch.randn(1000, 8, generator=torch.Generator().manual_seed(0))
    h = torch.full((8,), 0.3)
    near = h * sample_pairs(X / h, 2000, 1.0, torch.Generator().manual_seed(1))

    def near_error(near_share):
        start = FourierFeatures.draw("sobol", 100, h)
        options = {"n_pairs": 2000, "n_epochs": 20, "near_share": near_share}
        features = fit_adaptive_features(start, X, h, **options)
        phi = features(near)
        return ((phi[:, 0] * phi[:, 1]).sum(1).square() - pair_kernel(near, h)).square().mean()

    assert near_error(0.25) < 0.3 * near_error(0.0)


@pytest.mark.parametrize("kind", ["random", "sobol"])
@pytest.mark.parametrize("rate", [1e3, 1e37])
def test_keeps_the_start_if_training_does_not_help(kind, rate):
    start = draw(kind, 200)
    options = {"n_pairs": 500, "n_epochs": 2, "learning_rate": rate}
    kept = fit_adaptive_features(start, data(), H, **options)
    for name in ("W", "b", "a"):
        assert torch.equal(getattr(kept, name), getattr(start, name))


@pytest.mark.parametrize("rate", [0.01, 1e3])
def test_result_is_frozen_and_the_start_untouched(rate):
    start = draw("random", learnable=True)
    before = start.W.detach().clone()
    options = {"n_pairs": 500, "n_epochs": 2, "learning_rate": rate}
    learned = fit_adaptive_features(start, data(), H, **options)
    assert not list(learned.parameters())
    assert not learned(data()).requires_grad
    assert learned.W.dtype == start.W.dtype
    assert torch.equal(start.W, before)


@pytest.mark.parametrize("kind", ["random", "sobol"])
def test_a_far_offset_changes_nothing(kind):
    X, offset, start = data(), torch.tensor([1e4, -1e5], dtype=torch.float64), draw(kind)
    moved = FourierFeatures(start.W, start.b - start.W @ offset, start.a)
    here = fit_adaptive_features(start, X, H, **QUICK)
    there = fit_adaptive_features(moved, X + offset, H, **QUICK)
    assert error(there, X + offset) == pytest.approx(error(here, X).item(), rel=0.2)


def test_seeds_reproduce_and_nothing_global_moves():
    state = torch.get_rng_state()

    def fit(seed=None):
        generator = None if seed is None else torch.Generator().manual_seed(seed)
        options = {"n_pairs": 500, "n_epochs": 2, "generator": generator}
        return fit_adaptive_features(draw("sobol"), data(), H, **options)

    assert torch.equal(fit(3).W, fit(3).W)
    assert torch.equal(fit().W, fit(0).W)
    assert not torch.equal(fit(3).W, fit(4).W)
    assert torch.equal(torch.get_rng_state(), state)

"""Metrics against naive loops, closed forms and bad input."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from experiments.metrics import (
    METRICS,
    density_metrics,
    excess_nll,
    excess_nll_standard_error,
    mean_absolute_error,
    spearman,
)
from experiments.targets import EqualGaussians

TRUE = np.array([-1.0, -2.0, -3.5, -0.5, -7.0])
ESTIMATE = np.array([-1.5, -1.8, -3.0, -0.4, -9.0])
log_densities = arrays(np.float64, 6, elements=st.floats(-50, 5))


def gaussian(variance):
    return EqualGaussians("gaussian", np.zeros((1, 1)), np.full((1, 1, 1), variance))


def test_naive_loops():
    pairs = list(zip(TRUE, ESTIMATE, strict=True))
    errors = [abs(np.exp(p) - np.exp(q)) for p, q in pairs]
    ratios = [p - q for p, q in pairs]
    mean = sum(ratios) / 5
    variance = sum((ratio - mean) ** 2 for ratio in ratios) / 4
    assert mean_absolute_error(TRUE, ESTIMATE) == pytest.approx(sum(errors) / 5)
    assert excess_nll(TRUE, ESTIMATE) == pytest.approx(mean)
    assert excess_nll_standard_error(TRUE, ESTIMATE) == pytest.approx((variance / 5) ** 0.5)


def test_spearman_by_the_formula_of_rank_differences():
    log_p_est = [-1.5, -1.8, -0.3, -0.4, -9.0]
    d = np.array([3, 2, 1, 4, 0]) - np.array([2, 1, 4, 3, 0])
    assert spearman(TRUE, log_p_est) == pytest.approx(1 - 6 * np.sum(d**2) / (5 * 24))


@given(log_p=log_densities)
def test_truth_has_no_error(log_p):
    assert mean_absolute_error(log_p, log_p) == 0
    assert excess_nll(log_p, log_p) == 0
    assert excess_nll_standard_error(log_p, log_p) == 0


@given(log_p=log_densities, log_q=log_densities, shift=st.integers(-3, 3))
def test_a_wrong_normaliser_moves_the_excess_only(log_p, log_q, shift):
    moved = log_q + shift
    assert excess_nll(log_p, moved) == pytest.approx(excess_nll(log_p, log_q) - shift, abs=1e-9)
    assert excess_nll_standard_error(log_p, moved) == pytest.approx(
        excess_nll_standard_error(log_p, log_q), abs=1e-9
    )


def test_spearman_sees_ranks_only():
    assert spearman(TRUE, 3 * TRUE - 100) == pytest.approx(1)
    assert spearman(TRUE, -TRUE) == pytest.approx(-1)


def test_excess_estimates_the_divergence_with_the_stated_error():
    """KL(N(0, 1) ‖ N(0, v)) = (log v + 1/v - 1)/2; over many draws the z-scores are standard."""
    true, model, divergence = gaussian(1.0), gaussian(1.5), (np.log(1.5) + 1 / 1.5 - 1) / 2
    z = []
    for seed in range(200):
        X = true.sample(500, random_state=seed)
        log_p = true.log_prob(X), model.log_prob(X)
        z.append((excess_nll(*log_p) - divergence) / excess_nll_standard_error(*log_p))
    assert abs(np.mean(z)) < 0.25
    assert 0.85 < np.std(z) < 1.15


def test_pairing_removes_the_noise_of_the_entropy():
    true, model = gaussian(1.0), gaussian(1.05)
    X = true.sample(500, random_state=0)
    log_p_true = true.log_prob(X)
    unpaired = np.std(log_p_true) / np.sqrt(500)
    assert excess_nll_standard_error(log_p_true, model.log_prob(X)) < unpaired / 10


def test_zero_estimated_density_is_an_infinite_excess():
    log_p_est = np.append(ESTIMATE[:-1], -np.inf)
    metrics = density_metrics(TRUE, log_p_est)
    assert metrics["excess_nll"] == np.inf
    assert metrics["excess_nll_standard_error"] == np.inf
    assert metrics["mean_absolute_error"] == pytest.approx(
        np.mean(np.abs(np.exp(TRUE) - np.exp(log_p_est)))
    )
    assert metrics["spearman"] == pytest.approx(spearman(TRUE, ESTIMATE))


def test_density_too_large_for_a_float_is_an_infinite_error():
    assert mean_absolute_error(TRUE, ESTIMATE + 1000) == np.inf


def test_density_metrics_is_all_of_them_as_floats():
    metrics = density_metrics(list(TRUE), ESTIMATE.astype(np.float32))
    assert list(metrics) == list(METRICS)
    assert all(type(value) is float for value in metrics.values())
    assert metrics == {
        name: metric(TRUE, ESTIMATE.astype(np.float32)) for name, metric in METRICS.items()
    }


@pytest.mark.parametrize("metric", [*METRICS.values(), density_metrics])
@pytest.mark.parametrize(
    ("log_p_true", "log_p_est", "message"),
    [
        (TRUE, ESTIMATE[:-1], r"vectors of one length, got shapes \(5,\) and \(4,\)"),
        (TRUE, ESTIMATE[:, None], r"vectors of one length, got shapes \(5,\) and \(5, 1\)"),
        (TRUE[:, None], ESTIMATE[:, None], "vectors of one length"),
        (-1.0, -2.0, "vectors of one length"),
        ([-1.0], [-2.0], "at least two points, got 1"),
        ([-1.0, -np.inf], [-1.0, -2.0], "log_p_true must be finite"),
        ([-1.0, np.nan], [-1.0, -2.0], "log_p_true must be finite"),
        ([-1.0, -2.0], [-1.0, np.nan], "log_p_est must not be NaN"),
        ([-1.0, -2.0], [-1.0, np.inf], "log_p_est must not be NaN or \\+inf"),
    ],
)
def test_bad_input(metric, log_p_true, log_p_est, message):
    with pytest.raises(ValueError, match=message):
        metric(log_p_true, log_p_est)

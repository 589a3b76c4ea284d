"""Precision, device and rows at a time."""

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_info, threadpool_limits

from qaffde import QAFFDE, QAFFDESGD, ComputeConfig, Real, TrainingConfig, parameters
from qaffde import functional as QF
from qaffde.baselines import KDE
from qaffde.nn import Density, FourierFeatures
from qaffde.parameters import DOUBLE

X = np.random.default_rng(0).normal(size=(3000, 3))
OPTIONS = {"n_features": 100, "bandwidth": 0.5, "base_measure": "gaussian", "random_state": 0}
SINGLE = ComputeConfig(dtype="float32")


def test_blocks_fill_the_cache():
    assert DOUBLE.rows(1000) == 2**23 // 8000
    assert SINGLE.rows(1000) == 2**23 // 4000
    assert DOUBLE.rows(1) == parameters.MAX_ROWS
    assert DOUBLE.rows(10**9) == parameters.MIN_ROWS
    assert ComputeConfig(batch_size=7).rows(1000) == 7


def test_rows_are_copied_only_if_they_must_be():
    rows = X.copy()
    assert np.shares_memory(DOUBLE.exact(rows).numpy(), rows)
    assert np.shares_memory(DOUBLE.tensor(DOUBLE.exact(rows)).numpy(), rows)
    rows.flags.writeable = False
    exact = SINGLE.exact(rows)
    assert exact.dtype == torch.float64
    assert not np.shares_memory(exact.numpy(), rows)
    assert SINGLE.tensor(exact).dtype == torch.float32


def test_features_are_converted_in_a_copy():
    features = FourierFeatures.draw("sobol", 16, torch.ones(2).double())
    assert DOUBLE.module(features) is features
    assert SINGLE.module(features).W.dtype == torch.float32
    assert features.W.dtype == torch.float64


def test_single_precision_sums_in_double():
    double = QAFFDE(**OPTIONS).fit(X)
    single = QAFFDE(**OPTIONS, compute=SINGLE).fit(X)
    assert single.sums_.rho.dtype == torch.float64
    assert torch.equal(single.sums_.rho, single.sums_.rho.T)
    error = (single.sums_.rho - double.sums_.rho).abs().max() / double.sums_.rho.abs().max()
    assert 0 < error < 1e-6
    scores, expected = single.score_samples(X), double.score_samples(X)
    assert scores.dtype == np.float64
    np.testing.assert_allclose(scores, expected, rtol=0, atol=0.01)
    assert np.abs(scores - expected).max() > 0


def test_gradient_descent_scores_in_single_precision_too():
    model = QAFFDESGD(**OPTIONS, training=TrainingConfig(max_iter=5), ridge=0.01).fit(X)
    expected = model.score_samples(X)
    scores = model.set_params(compute=SINGLE).score_samples(X)
    np.testing.assert_allclose(scores, expected, rtol=0, atol=0.01)
    assert np.abs(scores - expected).max() > 0


def test_in_single_precision_no_row_falls_over_the_edge_of_its_box():
    rng = np.random.default_rng(1)
    for low, high in np.sort(rng.uniform(-3, 3, size=(5, 2))):
        rows = rng.uniform(low, high, size=(300, 1))
        rows[:10], rows[10:20] = low, high
        model = QAFFDE(20, 0.2 * (high - low), columns=Real(low, high), random_state=0).fit(rows)
        expected = model.score_samples(rows)
        model.set_params(compute=SINGLE)
        np.testing.assert_allclose(model.score_samples(rows), expected, rtol=0, atol=1e-3)
        edges = [model.score_samples(rows[k : k + 1])[0] for k in (0, 10)]
        np.testing.assert_allclose(edges, expected[[0, 10]], rtol=0, atol=1e-3)


def test_behind_an_encoder_rows_are_scored_as_they_are():
    encoder = torch.distributions.AffineTransform(1.0, 2.0)
    short = TrainingConfig(max_iter=2)
    model = QAFFDESGD(**OPTIONS, transformation=encoder, training=short, ridge=0.01).fit(X)
    expected = model.score_samples(X)
    assert np.array_equal(model.set_params(compute=SINGLE).score_samples(X), expected)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtype": "float16"}, "dtype='float16' is not known; choose one of float64, float32"),
        ({"device": "nowhere"}, "device='nowhere' cannot be used here; take 'cpu'"),
        ({"device": "meta"}, "device='meta' cannot be used here; take 'cpu'"),
        ({"device": None}, "device=None must be a name, such as 'cpu' or 'cuda:0'"),
        ({"device": torch.device("cpu")}, "must be a name, such as 'cpu' or 'cuda:0'"),
    ],
)
def test_what_cannot_be_computed_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        ComputeConfig(**options)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is such a device here")
def test_a_device_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match="device='cuda' cannot be used here; take 'cpu'"):
        ComputeConfig(device="cuda")


@pytest.mark.parametrize("batch_size", [0, 2.5, "many"])
def test_rows_at_a_time_are_a_number(batch_size):
    with pytest.raises(ValueError, match=r"batch_size=.* must be a whole number"):
        ComputeConfig(batch_size=batch_size)


@pytest.mark.parametrize("rows", [X[:1], X[:1].astype(np.float32), X[:1].tolist(), X[:50:10]])
def test_few_rows_score_as_many_do(rows):
    model = QAFFDE(**OPTIONS).fit(X)
    expected = model.score_samples(X)[:50:10][: len(rows)]
    np.testing.assert_allclose(model.score_samples(rows), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (np.full((1, 3), np.inf), "infinity"),
        (np.zeros((1, 2)), "2 features"),
        (np.zeros((0, 3)), "0 sample"),
        (np.zeros(3), "1D array"),
    ],
)
def test_the_short_way_lets_nothing_bad_through(rows, message):
    with pytest.raises(ValueError, match=message):
        QAFFDE(**OPTIONS).fit(X).score_samples(rows)


def test_gaps_are_integrated_out():
    model, row = QAFFDE(**OPTIONS).fit(X), X[:1].copy()
    row[0, 0] = np.nan
    expected = model.marginal([1, 2]).score_samples(X[:1, 1:])
    np.testing.assert_allclose(model.score_samples(row), expected, rtol=0, atol=1e-9)


def test_limits_of_threads_are_kept(monkeypatch):
    seen = []
    update = QF.add_rank_update

    def watched(rho, phi):
        seen.extend(pool["num_threads"] for pool in threadpool_info())
        seen.append(torch.get_num_threads())
        update(rho, phi)

    monkeypatch.setattr(QF, "add_rank_update", watched)
    with threadpool_limits(1):
        QAFFDE(**OPTIONS).fit(X)
    assert set(seen) == {1}


@pytest.mark.parametrize(("large", "wanted"), [(2**26, 1), (1, 2)])
def test_scores_of_few_rows_take_one_thread(monkeypatch, large, wanted):
    seen = []

    class Watched(Density):
        def log_prob(self, x):
            seen.append(torch.get_num_threads())
            return torch.zeros(len(x), dtype=x.dtype)

    monkeypatch.setattr("qaffde.estimators.base.LARGE_SCORE", large)
    monkeypatch.setattr(parameters, "free_processors", lambda: 8)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        model = KDE(bandwidth=1.0).fit(X)
        model.density_ = Watched()
        model.score_samples(X)
        assert set(seen) == {wanted}
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_methods_are_guarded_once():
    for method in (QAFFDE.marginal, QAFFDE.save, QAFFDE.score_samples, QAFFDE.modes):
        assert not hasattr(method.__wrapped__, "__wrapped__")

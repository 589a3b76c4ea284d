"""Rows that must not ruin a fit, or that are refused for the right reason."""

import warnings

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_info

from qaffde import (
    QAFFDE,
    QAFFDESGD,
    QAFFDEClassifier,
    QAFFDEOutlierDetector,
    SelectionPolicy,
    parameters,
)

ESTIMATORS = [QAFFDE, QAFFDESGD]


def normal(n, d, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d))


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("d", [1, 2, 5])
def test_one_corrupt_row_costs_the_others_a_tenth_of_a_nat_at_most(estimator, d):
    X, new = normal(400, d), normal(5000, d, seed=1)
    clean = estimator(random_state=0).fit(X).score(new)
    for far in (1e3, 1e6, 1e9):
        corrupt = estimator(random_state=0).fit(np.vstack([X, np.full((1, d), far)]))
        assert corrupt.score(new) > clean - 0.1, far


def test_one_gaussian_is_wide_enough_for_a_corrupt_row():
    """Beside its squares those of the others round away, and no covariance was left."""
    X = np.vstack([normal(53, 3), np.full((1, 3), -1e9)])
    model = QAFFDE(6, 0.7, base_measure="gaussian", random_state=0).fit(X)
    assert np.isfinite(model.score_samples(X)).all()
    assert model.probability(-np.inf, np.inf) == pytest.approx(1)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_near_copies_of_a_column_among_forty_are_fitted(estimator):
    X = normal(1500, 39)
    near = X[:, :1] + 1e-6 * normal(1500, 1, seed=2)
    assert np.isfinite(estimator(random_state=0).fit(np.c_[X, near]).score(np.c_[X, near]))


X = normal(200, 2)
REFUSED = {
    "around 1e\\+14 and differ by": X + 1e14,
    "variance underflows; multiply": X * 1e-200,
    "variance overflows; divide": X * 1e200,
    "constant column": np.c_[X, np.ones(200)],
    "copies of each other": np.c_[X, X[:, 0]],
}


@pytest.mark.parametrize("reason", REFUSED)
def test_the_reason_of_a_refusal_is_the_right_one(reason):
    with pytest.raises(ValueError, match=reason):
        QAFFDE().fit(REFUSED[reason])


@pytest.mark.parametrize("far", [1e13, 1e100, 1e308])
def test_a_value_beyond_all_others_is_refused(far):
    with pytest.raises(ValueError, match=r"leave their rows out|overflows"):
        QAFFDE().fit(np.vstack([X, [[far, 0.0]]]))


@pytest.mark.parametrize("estimator", [QAFFDE, QAFFDEClassifier])
def test_a_bandwidth_that_no_column_can_see_is_refused(estimator):
    rows, y = np.vstack([X, [[1e14, 0.0]]]) * [1.0, 1e14], np.arange(201) % 2
    with pytest.raises(ValueError, match=r"standard deviations of its column|leave their rows"):
        estimator(bandwidth=0.7).fit(rows, y)


def test_a_classifier_refuses_weights_whose_sum_overflows():
    with pytest.raises(ValueError, match="sum of sample_weight"):
        QAFFDEClassifier().fit(X, np.arange(200) % 2, sample_weight=np.full(200, 1e307))


def test_weights_whose_sum_overflows_are_refused():
    with pytest.raises(ValueError, match="sum of sample_weight"):
        QAFFDE().fit(X, sample_weight=np.full(200, 1e307))


def test_a_detector_says_that_all_rows_are_the_same():
    with pytest.raises(ValueError, match="all 100 rows are the same"):
        QAFFDEOutlierDetector().fit(np.ones((100, 2)))


@pytest.mark.filterwarnings("ignore:time_limit has ended the training")
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_a_search_that_time_has_ended_says_so(estimator):
    with pytest.warns(ConvergenceWarning, match="time_limit has ended the search"):
        model = estimator(time_limit=1e-3, random_state=0).fit(normal(2000, 2))
    assert np.isfinite(model.score(X))


def test_no_limit_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        QAFFDE(random_state=0).fit(X)


@pytest.fixture
def seen(monkeypatch):
    """Numbers of threads that a fit runs on."""
    found, select = [], QAFFDE._plan

    def watched(self, *args, **kwargs):
        found.append(torch.get_num_threads())
        found.extend(pool["num_threads"] for pool in threadpool_info())
        return select(self, *args, **kwargs)

    monkeypatch.setattr(QAFFDE, "_plan", watched)
    return found


def test_a_small_fit_runs_on_one_thread_and_puts_the_others_back(seen):
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        QAFFDE(policy=SelectionPolicy(few_rows=10**6)).fit(X)
        assert set(seen) == {1}
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("free", [1, 3])
def test_a_large_fit_takes_what_is_free(seen, free, monkeypatch):
    monkeypatch.setattr(parameters, "LARGE_FIT", 100)
    monkeypatch.setattr(parameters, "free_processors", lambda: free)
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        QAFFDE(policy=SelectionPolicy(few_rows=10**6)).fit(X)
    finally:
        torch.set_num_threads(before)
    assert seen[0] == free


@pytest.mark.parametrize(
    ("load", "allowed", "free"), [(0.1, 4, 4), (2.6, 4, 1), (0, 2, 2), (9, 4, 1)]
)
def test_free_processors_are_those_allowed_less_the_load(load, allowed, free, monkeypatch):
    monkeypatch.setattr(parameters.joblib, "cpu_count", lambda: allowed)
    monkeypatch.setattr(parameters.os, "getloadavg", lambda: (load, 0, 0), raising=False)
    assert parameters.free_processors() == free

"""Rows that must not ruin a fit, or that are refused for the right reason."""

import warnings

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_info

import qaffde
from qaffde import (
    QAFFDE,
    QAFFDESGD,
    QAFFDEClassifier,
    QAFFDEOutlierDetector,
    QAFFDERegressor,
    QAFFDETensorTrain,
    SelectionPolicy,
    TensorTrainConfig,
    TrainingConfig,
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


@pytest.mark.parametrize("d", [1, 6])
def test_a_corrupt_row_does_not_end_the_training_of_a_train(d):
    """Knots that single precision takes for one made the loss NaN."""
    X, new = normal(400, d), normal(5000, d, seed=1)
    training = TensorTrainConfig(max_steps=100)
    clean, *corrupt = (
        QAFFDETensorTrain(training=training, random_state=0).fit(rows).score(new)
        for rows in (X, *(np.vstack([X, np.full((1, d), far)]) for far in (1e3, 1e9)))
    )
    assert min(corrupt) > clean - 0.1


FAR = pytest.mark.parametrize("far", [1e3, 1e6, 1e12])


@FAR
@pytest.mark.parametrize("given", [{"method": "auto"}, {"method": "generative"}])
@pytest.mark.parametrize("n_components", [None, 2])
def test_a_corrupt_row_costs_a_classifier_little(far, given, n_components):
    """It had 50 % of the others right."""
    X, new = normal(400, 3) * [3, 2, 0.1], normal(2000, 3, seed=1) * [3, 2, 0.1]
    y, wanted = X[:, 0] + 0.3 * X[:, 1] > 0, new[:, 0] + 0.3 * new[:, 1] > 0
    model = QAFFDEClassifier(n_components=n_components, random_state=0, **given)
    clean = model.fit(X, y).predict_log_proba(new)
    X[0] = far * np.array([3, 2, 0.1])
    found = model.fit(X, y).predict_log_proba(new)
    rows = np.arange(2000), wanted.astype(int)
    assert found[rows].mean() > clean[rows].mean() - 0.1


@FAR
@pytest.mark.parametrize("place", ["X", "y", "an integer y"])
def test_a_corrupt_row_costs_a_regressor_little(far, place):
    """A row of 1e6 left the mean of all others for each of them, and cost seven nats."""
    X, new = normal(300, 2), normal(2000, 2, seed=1)
    noise = 0.3 * normal(2300, 1, seed=2)[:, 0]
    y, wanted, target = X[:, 0] + noise[:300], new[:, 0] + noise[300:], "auto"
    if place == "an integer y":
        y, wanted, target = np.round(2 * y), np.round(2 * wanted), "integer"
    training = TrainingConfig(max_steps=300)
    model = QAFFDERegressor(n_members=2, target=target, training=training, random_state=0)
    clean = model.fit(X, y).log_likelihood(new, wanted).mean()
    (X if place == "X" else y)[0] = far
    assert model.fit(X, y).log_likelihood(new, wanted).mean() > clean - 0.1
    assert np.isfinite(model.predict(np.full((1, 2), 1e300))).all()


@pytest.mark.parametrize("shift", [1e6, 1e9, 1e12])
def test_a_regressor_keeps_the_digits_of_y(shift):
    """In single precision, y of 1e9 that differ by one are the same."""
    X, small = normal(200, 1), TrainingConfig(max_steps=100)
    y = X[:, 0] + 0.3 * normal(200, 1, seed=1)[:, 0]
    model = QAFFDERegressor(n_members=2, training=small, random_state=0)
    plain = model.fit(X, y).log_likelihood(X, y).mean()
    moved = model.fit(X, y + shift).log_likelihood(X, y + shift).mean()
    assert moved == pytest.approx(plain, abs=0.1)


def test_a_distribution_of_y_far_away_is_zero_or_one():
    """Beyond what the normal law holds, masses of both sides of a component vanish."""
    X = normal(50, 1)
    density = QAFFDERegressor(n_members=2, training=TrainingConfig(max_steps=3), random_state=0)
    found = density.fit(X, X[:, 0]).predict_distribution(X[:1])
    assert found.cdf(torch.tensor([-1e200], dtype=torch.float64)) == 0
    assert found.cdf(torch.tensor([1e200], dtype=torch.float64)) == pytest.approx(1)


@pytest.mark.parametrize("unit", [1e-300, 1e-200, 1e200, 1e300])
def test_a_regressor_takes_any_unit(unit):
    """Squares of its columns and of y may be more or less than float64 holds."""
    X, small = normal(100, 2), TrainingConfig(max_steps=20)
    y = X[:, 0]
    model = QAFFDERegressor(n_members=2, training=small, random_state=0)
    plain = model.fit(X, y).predict_interval(X)
    assert model.score(X, y) == pytest.approx(
        model.fit(unit * X, unit * y).score(unit * X, unit * y), abs=0.01
    )
    mean, deviation = model.predict(unit * X, return_std=True)
    assert np.isfinite(mean).all()
    assert (np.isfinite(deviation) & (deviation > 0)).all()
    np.testing.assert_allclose(
        model.fit(unit * X, unit * y).predict_interval(unit * X), unit * plain, rtol=1e-2
    )


REGRESSIONS = {
    "y lies around 1e\\+16 and differs by": ([1.0, 2.0, 3.0], [1e16, 1e16 + 2, 1e16 + 4]),
    "y is so large": ([1.0, 2.0, 3.0], [1.7e308, 1.7e308, 0.0]),
    "column 0 of X is so large": ([1.7e308, 1.7e308, 0.0], [1.0, 2.0, 3.0]),
}


@pytest.mark.parametrize("reason", REGRESSIONS)
def test_what_float64_cannot_hold_is_refused_by_a_regressor(reason):
    X, y = REGRESSIONS[reason]
    with pytest.raises(ValueError, match=reason):
        QAFFDERegressor(random_state=0).fit(np.array(X)[:, None], y)


def test_a_classifier_takes_a_constant_of_any_size():
    """The rounding of its mean was its distance from it, and more than squares can hold."""
    rows, y = normal(35, 2), np.arange(35) % 2
    wanted = QAFFDEClassifier(10, random_state=0).fit(np.c_[rows, np.ones(35)], y)
    found = QAFFDEClassifier(10, random_state=0).fit(np.c_[rows, np.full(35, -1.7e308)], y)
    np.testing.assert_allclose(
        found.predict_proba(np.c_[rows, np.full(35, -1.7e308)]),
        wanted.predict_proba(np.c_[rows, np.ones(35)]),
    )


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


@pytest.mark.parametrize("far", [1e3, 1e6, 1e9])
@pytest.mark.parametrize("d", [1, 2, 6])
def test_a_corrupt_row_is_an_outlier_to_the_detector_that_was_fitted_to_it(d, far):
    """Its own component of the base measure vouched for it in every fold."""
    X = normal(400, d)
    X[0] = far
    detector = QAFFDEOutlierDetector(random_state=0).fit(X)
    assert detector.predict(X[:1]) == -1
    assert detector.out_of_fold_scores_[0] < detector.offset_


def test_a_choice_between_estimators_says_that_columns_are_constant():
    with pytest.raises(ValueError, match="constant column: 0, 1"):
        qaffde.fit(np.ones((100, 2)))


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
    monkeypatch.setattr("qaffde.estimators.base.LARGE_FIT", 100)
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

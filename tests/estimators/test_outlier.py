"""The outlier detector: scikit-learn's checks, its offset, and outliers among its own rows."""

import time

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.metrics import roc_auc_score
from sklearn.utils.estimator_checks import parametrize_with_checks

from qaffde import QAFFDE, QAFFDEOutlierDetector, load
from qaffde.estimators.base import DensityEstimator

RNG = np.random.default_rng(0)
INLIERS = RNG.normal(size=(400, 2)) @ [[1.0, 0.9], [0.0, 0.3]]
OUTLIERS = RNG.uniform(-6, 6, size=(40, 2))
X = np.concatenate([INLIERS[:200], OUTLIERS[:20]])
SMALL = QAFFDE(60, "scott", base_measure="gaussian", random_state=0)


class Gaussian(DensityEstimator):
    """A density estimator without a density matrix: its folds are fits."""

    fits = 0

    def fit(self, X, y=None, sample_weight=None):
        rows, weight, _ = self._validated(X, sample_weight)
        type(self).fits += 1
        self.mean_ = np.average(rows, axis=0, weights=weight)
        self.std_ = rows.numpy().std(0)
        return self

    def score_samples(self, X):
        return -0.5 * (((np.asarray(X) - self.mean_) / self.std_) ** 2).sum(1)


@parametrize_with_checks([QAFFDEOutlierDetector(SMALL)])
def test_scikit_learn(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def detector():
    return QAFFDEOutlierDetector(SMALL, random_state=0).fit(X)


def test_outliers_are_told_from_inliers(detector):
    fresh = np.concatenate([INLIERS[200:], OUTLIERS[20:]])
    is_outlier = np.arange(len(fresh)) >= 200
    assert roc_auc_score(is_outlier, -detector.score_samples(fresh)) > 0.93


def test_default_is_a_gaussian_and_a_kernel_estimate(tmp_path):
    detector = QAFFDEOutlierDetector(random_state=0).fit(INLIERS[:60])
    assert [model.n_kernels for model in detector.estimator_] == [1, 512]
    scores = [model.score_samples(X) for model in detector.estimator_]
    middle, spread = detector.units_.T
    expected = ((np.array(scores).T - middle) / spread).mean(1)
    np.testing.assert_allclose(detector.score_samples(X), expected)
    detector.save(tmp_path / "detector")
    np.testing.assert_array_equal(
        load(tmp_path / "detector").score_samples(X), detector.score_samples(X)
    )
    np.testing.assert_array_equal(detector.predict([[0.0, 0.0], [9.0, -9.0]]), [1, -1])


def test_auto_keeps_its_rate_of_false_alarms():
    rng = np.random.default_rng(1)
    for d in (1, 5):
        train, fresh = rng.normal(size=(2, 2000, d))
        detector = QAFFDEOutlierDetector(SMALL, random_state=0).fit(train)
        assert 0.003 < (detector.predict(fresh) == -1).mean() < 0.02


@pytest.mark.parametrize("contamination", [0.05, 0.3, 0.5])
def test_contamination_is_the_share_of_training_rows(contamination):
    detector = QAFFDEOutlierDetector(SMALL, contamination=contamination).fit(X)
    assert (detector.predict(X) == -1).sum() == round(contamination * len(X))


def test_a_cluster_of_outliers_does_not_vouch_for_itself():
    rows = np.concatenate([INLIERS[:200], [5, -5] + 0.01 * RNG.normal(size=(10, 2))])
    density = clone(SMALL).fit(rows)
    detector = QAFFDEOutlierDetector(SMALL, contamination=0.05, random_state=0).fit(rows)
    assert (detector.predict(rows[200:]) == -1).all()
    assert detector.score_samples(rows[200:]).max() < density.score_samples(rows[200:]).min() - 1


def test_rows_left_out_are_scored_by_the_density_without_them():
    detector = QAFFDEOutlierDetector(SMALL, contamination=0.1, random_state=0).fit(X)
    left_out = detector.out_of_fold_scores_ <= np.quantile(detector.out_of_fold_scores_, 0.05)
    np.testing.assert_allclose(
        detector.out_of_fold_scores_[left_out], detector.score_samples(X[left_out]), atol=0.5
    )
    assert detector.estimator_.sums_.weight == len(X) - np.ceil(0.1 * len(X))


def test_other_densities_are_fitted_to_folds():
    Gaussian.fits = 0
    detector = QAFFDEOutlierDetector(Gaussian(), contamination=0.1, random_state=0).fit(X)
    assert Gaussian.fits == 2 + 2 * 5
    assert np.abs(detector.estimator_.std_ - INLIERS.std(0)).max() < 0.3


def test_columns_that_only_outliers_move_are_kept():
    rows = np.c_[INLIERS[:100], np.zeros(100)]
    rows = np.concatenate([rows, RNG.normal(5, 1, size=(5, 3))])
    detector = QAFFDEOutlierDetector(SMALL, contamination=0.05, random_state=0).fit(rows)
    assert (detector.predict([[0.0, 0.0, 0.0], [0.0, 0.0, 9.0]]) == [1, -1]).all()


def test_constant_columns_tell_what_is_new():
    rows = np.c_[INLIERS[:100], np.zeros(100)]
    detector = QAFFDEOutlierDetector(random_state=0).fit(rows)
    usual, new = detector.score_samples([[0.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    assert new < usual - 1


def test_a_frequent_row_is_no_outlier_of_its_fold():
    rows = np.concatenate([np.tile([[2.5, 2.5]], (50, 1)), INLIERS[:100]])
    detector = QAFFDEOutlierDetector(random_state=0).fit(rows)
    alone = QAFFDEOutlierDetector(random_state=0).fit(rows[49:])
    assert detector.out_of_fold_scores_[0] > np.quantile(detector.out_of_fold_scores_, 0.2)
    assert alone.out_of_fold_scores_[0] < np.quantile(alone.out_of_fold_scores_, 0.2)


def test_an_empty_list_of_estimators_is_refused():
    with pytest.raises(ValueError, match=r"estimator=\[\] has no density; give one or more"):
        QAFFDEOutlierDetector([]).fit(X)


def test_it_is_a_detector_of_pyod():
    pytest.importorskip("pyod.models.base", reason="PyOD is not installed")
    from qaffde.pyod import PyODDetector

    model = PyODDetector(contamination=0.1, random_state=0).fit(X)
    detector = QAFFDEOutlierDetector(random_state=0).fit(X)
    np.testing.assert_array_equal(model.decision_scores_, -detector.out_of_fold_scores_)
    np.testing.assert_array_equal(model.decision_function(X), -detector.score_samples(X))
    np.testing.assert_array_equal(model.labels_, model.decision_scores_ > model.threshold_)
    assert model.labels_.sum() == len(X) // 10
    assert roc_auc_score(np.arange(len(X)) >= 200, model.decision_scores_) > 0.9


def test_weights_count_as_copies():
    weight = np.r_[np.full(200, 2.0), np.ones(20)]
    weighted = QAFFDEOutlierDetector(SMALL, random_state=0).fit(X, sample_weight=weight)
    assert weighted.estimator_.sums_.weight > 300
    plain = QAFFDEOutlierDetector(SMALL, random_state=0).fit(X, sample_weight=np.ones(220))
    unweighted = QAFFDEOutlierDetector(SMALL, random_state=0).fit(X)
    np.testing.assert_array_equal(plain.score_samples(X), unweighted.score_samples(X))


def test_frames_are_checked_by_name():
    frame = pd.DataFrame(X, columns=["height", "weight"])
    detector = QAFFDEOutlierDetector(SMALL, random_state=0).fit(frame)
    assert list(detector.feature_names_in_) == ["height", "weight"]
    with pytest.raises(ValueError, match="feature names should match"):
        detector.predict(frame[["weight", "height"]])


def test_seeds_reproduce():
    first, second = (QAFFDEOutlierDetector(SMALL, random_state=3).fit(X) for _ in range(2))
    assert first.offset_ == second.offset_


@pytest.mark.parametrize("contamination", [0, 0.6, "low", None, True, np.nan])
def test_contamination_is_checked(contamination):
    with pytest.raises(ValueError, match=r'contamination=.* must be "auto" or a number in \(0, '):
        QAFFDEOutlierDetector(contamination=contamination).fit(X)


def test_a_failed_refit_changes_nothing():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 2))
    detector = QAFFDEOutlierDetector(SMALL, random_state=0).fit(X)
    expected = detector.decision_function(X)
    with pytest.raises(ValueError, match="constant column"):
        detector.fit(np.c_[rng.normal(size=(100, 2)), np.ones(100)])
    assert detector.n_features_in_ == 2
    np.testing.assert_array_equal(detector.decision_function(X), expected)


class Timed(Gaussian):
    """One with a limit."""

    def __init__(self, time_limit=None):
        self.time_limit = time_limit


def test_fits_share_the_time(monkeypatch):
    limits = []
    fit = Gaussian.fit
    monkeypatch.setattr(
        Timed, "fit", lambda self, *a, **k: limits.append(self.time_limit) or fit(self, *a, **k)
    )
    QAFFDEOutlierDetector(Timed(), time_limit=60.0, random_state=0).fit(X)
    assert limits[:6] == [pytest.approx(5, abs=0.5)] * 6
    assert limits[6:] == [pytest.approx(10, abs=1)] * 6  # for the first half took hardly any
    with pytest.raises(ValueError, match="time_limit=0"):
        QAFFDEOutlierDetector(SMALL, time_limit=0).fit(X)


@pytest.mark.parametrize(("seconds", "n_fits"), [(1.0, 12), (8.0, 6)])
@pytest.mark.filterwarnings("ignore:time_limit leaves none")
def test_the_second_fit_is_left_out_where_the_first_took_most_of_the_time(
    monkeypatch, seconds, n_fits
):
    clock, limits = [0.0], []
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])

    def fit(self, X, y=None, sample_weight=None):
        clock[0] += seconds
        limits.append(self.time_limit)
        return Gaussian.fit(self, X, sample_weight=sample_weight)

    monkeypatch.setattr(Timed, "fit", fit)
    found = QAFFDEOutlierDetector(Timed(), time_limit=60.0, random_state=0).fit(X)
    assert len(limits) == n_fits
    assert clock[0] <= 60.0
    assert np.isfinite(found.out_of_fold_scores_).all()


def test_progress_is_printed_only_if_asked(capsys):
    QAFFDEOutlierDetector(SMALL, random_state=0).fit(X)
    assert capsys.readouterr().out == ""
    QAFFDEOutlierDetector(SMALL, verbose=True, random_state=0).fit(X)
    out = capsys.readouterr().out
    assert "fit of all rows" in out
    assert "likely rows of 220" in out
    assert "sums of all rows" in out


def test_without_pyod_its_interface_says_what_to_install(monkeypatch):
    from qaffde import pyod

    monkeypatch.setattr(pyod, "BaseDetector", object)
    with pytest.raises(ImportError, match="pip install pyod"):
        pyod.PyODDetector()

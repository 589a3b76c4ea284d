"""Drift of rows: level, power, kinds of columns, streams."""

import pickle

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.utils.estimator_checks import parametrize_with_checks

from benchmarks import two_samples as benchmark
from qaffde import Integer, Periodic, QAFFDEDriftDetector

FAST = {"n_permutations": 199, "n_features": 16, "random_state": 0}


def table(seed, n=400, **changes):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    x[rng.random(n) < changes.get("gaps", 0.1)] = np.nan
    words = changes.get("words", ["red", "green", "blue"])
    return pd.DataFrame(
        {
            "x": x + changes.get("shift", 0.0),
            "k": rng.poisson(changes.get("rate", 2.0), size=n),
            "word": rng.choice(words, size=n),
            "hour": rng.vonmises(changes.get("hour", 0.0), 2.0, size=n) * 12 / np.pi,
        }
    )


@parametrize_with_checks([QAFFDEDriftDetector(n_permutations=19, n_features=4)])
def test_scikit_learn(estimator, check):
    check(estimator)


COLUMNS = {"hour": Periodic(24.0), "k": Integer()}


@pytest.fixture(scope="module")
def detector():
    return QAFFDEDriftDetector(COLUMNS, **FAST).fit(table(0, 800))


@pytest.mark.parametrize("case", benchmark.NULLS)
def test_p_values_are_uniform_without_drift(case):
    draw, n, m = benchmark.NULLS[case]
    n, m, trials = min(n, 2500), min(m, 250), 150
    found = []
    for seed in range(trials):
        rng = np.random.default_rng(seed)
        detector = QAFFDEDriftDetector(n_permutations=99, n_features=8, random_state=seed)
        found.append(detector.fit(draw(rng, n)).update(draw(rng, m)).p_value_)
    spread = np.array(found) - np.random.default_rng(0).random(trials) / 100
    assert stats.kstest(spread, "uniform").pvalue > 1e-3


@pytest.mark.parametrize("other", benchmark.ALTERNATIVES)
def test_alternatives_are_found(other):
    rng = np.random.default_rng(1)
    detector = QAFFDEDriftDetector(**FAST).fit(benchmark.normal(rng, 3000))
    assert detector.update(other(rng, 3000)).p_value_ == 1 / 200


@pytest.mark.parametrize(
    ("column", "changes"),
    [
        ("x", {"shift": 0.5}),
        ("x", {"gaps": 0.3}),
        ("k", {"rate": 3.0}),
        ("word", {"words": ["red", "green", "violet"]}),
        ("hour", {"hour": 0.7}),
    ],
)
def test_the_column_that_moved(detector, column, changes):
    detector.forget().update(table(1, **changes))
    moved = detector.feature_names_in_[detector.column_p_values_ <= 0.05]
    assert list(moved) == [column]
    assert detector.p_value_ <= 0.05


def test_update_and_forget_are_additive(detector):
    new = table(2, 300, shift=0.2)
    whole = detector.forget().update(new)
    expected, statistic = whole._new.sum(0), whole.statistic_
    parts = detector.forget().update(new[:100]).update(new[100:])
    assert np.allclose(parts._new.sum(0), expected, rtol=1e-5, atol=1e-3)
    assert parts.n_new_ == 300
    assert parts.statistic_ == pytest.approx(statistic, abs=0.3)  # of other permutations
    assert parts.forget(keep=50).n_new_ == 50
    assert np.isnan(parts.forget().p_value_)


def test_score_changes_nothing(detector):
    detector.forget()
    same, moved = (detector.score(table(3, shift=s)) for s in (0.0, 1.0))
    assert detector.n_new_ == 0
    assert moved > same + 2


def test_groups_wait_for_enough_rows():
    rng = np.random.default_rng(0)
    detector = QAFFDEDriftDetector(**FAST).fit(rng.normal(size=(5000, 2)))
    assert detector.group_size_ == 3
    assert detector.update(rng.normal(size=(2, 2))).n_new_ == 0
    assert detector.update(rng.normal(size=(2, 2))).n_new_ == 3


def test_streams_are_read_as_arrays_are(tmp_path):
    frame, new = table(0, 700), table(1, 500, shift=0.5)
    frame.to_parquet(tmp_path / "rows.parquet")
    from qaffde.streams import chunks

    source = chunks(tmp_path / "rows.parquet", missing="keep")
    streamed = QAFFDEDriftDetector(COLUMNS, **FAST).fit(source)
    held = QAFFDEDriftDetector(COLUMNS, **FAST).fit(frame)
    assert streamed.update(new).p_value_ == held.update(new).p_value_ == 1 / 200
    once = QAFFDEDriftDetector(COLUMNS, **FAST).fit(iter([frame[:300], frame[300:]]))
    assert once.n_reference_ == 700


def test_pickles(detector):
    again = pickle.loads(pickle.dumps(detector.forget().update(table(4))))
    assert again.p_value_ == detector.p_value_


def test_a_constant_column_may_move():
    x = np.ones((300, 1))
    detector = QAFFDEDriftDetector(**FAST).fit(x)
    assert detector.update(x).p_value_ == 1
    assert detector.forget().update(x + 1e-3).p_value_ == 1 / 200


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"n_features": 0}, "n_features"),
        ({"n_permutations": -1}, "n_permutations"),
    ],
)
def test_bad_parameters(bad, message):
    with pytest.raises(ValueError, match=message):
        QAFFDEDriftDetector(**bad).fit(np.zeros((5, 1)))


def test_other_columns_are_refused(detector):
    with pytest.raises(ValueError, match="word"):
        detector.update(table(0).drop(columns="word"))

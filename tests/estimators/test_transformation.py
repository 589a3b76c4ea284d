"""Estimators whose columns have maps: updates, plans, files, ends."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone

from qaffde import QAFFDE, QAFFDESGD, QAFFDEOutlierDetector, Real, load

N = 1500


def table(n=N, seed=0):
    rng = np.random.default_rng(seed)
    age = rng.gamma(9, 5, n)
    return np.column_stack([age, np.exp(0.02 * age + rng.normal(size=n)), rng.beta(1, 3, n)])


X, FRESH = table(), table(seed=1)
BOUNDS = [Real(), Real(0), Real(0, 1)]
SMALL = {"n_features": 40, "base_measure": 2, "bandwidth": 1.0, "random_state": 0}


@pytest.fixture(scope="module", params=[QAFFDE, QAFFDESGD])
def model(request):
    return request.param(**SMALL, columns=BOUNDS, transformation="normal").fit(X)


def test_maps_raise_the_likelihood(model):
    plain = type(model)(**SMALL, transformation=None).fit(X)
    assert model.score(FRESH) > plain.score(FRESH) + 0.2


def test_nothing_lies_beyond_the_ends(model):
    inf = np.inf
    assert model.probability([-inf, -inf, -inf], [inf, 0, inf]) == 0
    assert model.probability([-inf, -inf, 1], [inf, inf, inf]) == 0
    rows = [[40, -1, 0.5], [40, 2, 1.01], [40, 2, 1.0], [40, 0, 0]]
    assert np.isfinite(model.score_samples(rows)).tolist() == [False, False, True, True]
    draws = model.sample(2000, random_state=0)
    assert (draws[:, 1] >= 0).all()
    assert ((draws[:, 2] >= 0) & (draws[:, 2] <= 1)).all()
    assert model.marginal([2]).ppf([0, 1]).tolist() == [0, 1]


def test_one_row_scores_as_many(model):
    alone = np.concatenate([model.score_samples(row[None]) for row in FRESH[:20]])
    np.testing.assert_allclose(alone, model.score_samples(FRESH)[:20], rtol=1e-9)


def test_the_calculus_of_the_estimator(model):
    given = model.condition({1: 2.0})
    joint = model.marginal([1]).score_samples([[2.0]]) + given.score_samples(FRESH[:5][:, [0, 2]])
    rows = FRESH[:5].copy()
    rows[:, 1] = 2.0
    np.testing.assert_allclose(model.score_samples(rows), joint, rtol=1e-7)
    np.testing.assert_allclose(
        model.conditional_score_samples(rows, [1]), given.score_samples(rows[:, [0, 2]])
    )
    rows[:, 2] = np.nan
    drawn = model.impute(rows, random_state=0)
    assert ((drawn[:, 2] > 0) & (drawn[:, 2] < 1)).all()
    mean = model.impute(rows[:2], method="mean")
    expected = model.condition({0: rows[0, 0], 1: 2.0}).mean()
    np.testing.assert_allclose(mean[0, 2], expected[0], rtol=1e-5)
    draws = model.sample(40_000, random_state=0)
    error = draws.std(0) / 200
    assert (np.abs(model.mean() - draws.mean(0)) < 5 * error).all()
    assert model.hdr_level(0.5) > model.hdr_level(0.9)


def test_files_pickles_and_copies(model, tmp_path):
    pytest.importorskip("safetensors")
    expected = model.score_samples(FRESH)
    model.save(tmp_path / "model.qaffde")
    for twin in (load(tmp_path / "model.qaffde"), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(twin.score_samples(FRESH), expected)
        assert twin.plan_.matches(model.plan_)
        assert str(twin.plan_) == str(model.plan_)
    given = model.condition({0: 40.0})
    given.save(tmp_path / "given.qaffde")
    rows = FRESH[:, 1:]
    np.testing.assert_array_equal(
        load(tmp_path / "given.qaffde").score_samples(rows), given.score_samples(rows)
    )


def test_onnx(model, tmp_path):
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    rows = np.concatenate([FRESH, [[40, -1, 0.5], [40, 0, 1], [1e6, 1e9, 0.5]]])
    for found, columns in ((model, slice(None)), (model.marginal([1, 2]), slice(1, None))):
        found.to_onnx(tmp_path / "model.onnx")
        session = runtime.InferenceSession(tmp_path / "model.onnx")
        inputs = np.ascontiguousarray(rows[:, columns])
        (log_p,) = session.run(None, {"X": inputs})
        np.testing.assert_allclose(log_p, found.score_samples(inputs), rtol=1e-9)


def test_a_plan_is_used_again(model):
    again = type(model)(plan=model.plan_, random_state=0).fit(X)
    assert again.plan_ is model.plan_
    np.testing.assert_allclose(again.score_samples(FRESH), model.score_samples(FRESH), rtol=1e-6)
    assert "column 1 " in str(model.plan_)
    assert "from 0 to 1" in str(model.plan_)


def test_parameters_are_cloned_and_set(model):
    twin = clone(model).set_params(transformation=None, columns="auto")
    assert clone(model).get_params()["transformation"] == "normal"
    assert twin.fit(X[:100]).plan_.columns is None


def test_parts_of_a_fit_with_one_plan_add_up():
    whole = QAFFDE(**SMALL, transformation="normal").fit(X)
    parts = [QAFFDE(plan=whole.plan_).fit(part) for part in (X[:500], X[500:])]
    parts[0].merge(parts[1])
    np.testing.assert_allclose(parts[0].score_samples(FRESH), whole.score_samples(FRESH))
    stream = QAFFDE(plan=whole.plan_)
    for part in np.split(X, 3):
        stream.partial_fit(part)
    np.testing.assert_allclose(stream.score_samples(FRESH), whole.score_samples(FRESH))
    other = QAFFDE(**SMALL, transformation="normal").fit(FRESH)
    with pytest.raises(ValueError, match="different plans"):
        whole.merge(other)


def test_only_bounds_are_ends_of_rows_that_are_still_to_come():
    stream = QAFFDE(**SMALL, transformation="normal").partial_fit(X)
    stream.partial_fit(np.array([[-5.0, -3.0, 2.0], [30.0, 1.0, 0.5]]))
    assert np.isfinite(stream.score_samples([[-5.0, -3.0, 2.0]])).all()
    closed = QAFFDE(**SMALL, columns=BOUNDS, transformation="normal").partial_fit(X)
    with pytest.raises(ValueError, match=r"1 rows have values that the plan holds for impossible"):
        closed.partial_fit(np.array([[-5.0, -3.0, 0.5], [30.0, 1.0, 0.5]]))


def test_chunks_give_the_maps_of_rows_in_memory():
    options = {**SMALL, "transformation": "normal", "columns": BOUNDS}
    whole, parts = QAFFDE(**options).fit(X), QAFFDE(**options).fit(iter(np.split(X, 3)))
    assert [*map(str, parts.plan_.columns)] == [*map(str, whole.plan_.columns)]
    np.testing.assert_allclose(
        parts.plan_.columns[1].knots, whole.plan_.columns[1].knots, rtol=1e-12
    )


def test_bounds_of_one_column_leave_the_others_their_base():
    rng = np.random.default_rng(0)
    rows = np.column_stack([rng.normal(size=(800, 3)), rng.gamma(2, size=800)])
    model = QAFFDE(40, columns=[*3 * [Real(None, None)], Real(0, None)], random_state=0).fit(rows)
    assert model.base_measure_ != "box"
    assert model.plan_.columns is not None
    assert np.isfinite(model.score_samples([[50.0, 0.0, 0.0, 1.0]])).all()
    assert model.probability(4 * [-np.inf], [*3 * [np.inf], 0]) == 0


@pytest.mark.parametrize("kind", [QAFFDE, QAFFDESGD])
def test_one_known_end_of_few_columns_leaks_nothing(kind):
    """The box that it had made of both columns left 1/(n + 1) of the mass beyond the end."""
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=500), rng.lognormal(size=500)])
    model = kind(columns=[Real(), Real(lower=0)], random_state=0).fit(X)
    assert model.probability([-np.inf, -np.inf], [np.inf, 0]) == 0
    assert model.score_samples([[0.0, -1e-9]]) == -np.inf
    assert np.isfinite(model.score_samples([[60.0, 1.0]])).all()


def test_a_box_with_known_ends_leaks_nothing():
    rows = np.random.default_rng(0).random((800, 2))
    model = QAFFDE(40, columns=Real(0, 1), bandwidth=0.2).fit(rows)
    assert model.base_measure_ == "box"
    assert model.probability(0, 1) == pytest.approx(1, abs=1e-9)
    assert model.score_samples([[-0.1, 0.5]]) == -np.inf


def test_outliers_behind_maps():
    detector = QAFFDEOutlierDetector(QAFFDE(**SMALL, transformation="normal"), random_state=0)
    found = detector.fit(X).predict([[45, 2.5, 0.2], [45, 2.5, 5.0], [45, 1e6, 0.2]])
    assert found.tolist() == [1, -1, -1]

"""QAFFDETensorTrain: calculus, files, kinds of columns, and scikit-learn's checks."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

import qaffde
from qaffde import QAFFDETensorTrain, Real, TensorTrainConfig
from tests.rings import ring
from tests.two_sample import energy_p_value

QUICK = TensorTrainConfig(max_steps=30, bond=6, n_functions=6)


@pytest.fixture(scope="module")
def model() -> QAFFDETensorTrain:
    training = TensorTrainConfig(max_steps=600, bond=24, n_functions=16)
    return QAFFDETensorTrain(training=training, random_state=0).fit(ring(3000, 0))


@parametrize_with_checks([QAFFDETensorTrain(training=QUICK)])
def test_scikit_learn(estimator, check):
    check(estimator)


def test_beats_independent_columns(model):
    test = ring(2000, 1)
    alone = sum(model.marginal([k]).score(test[:, [k]]) for k in range(3))
    assert model.score(test) > alone + 0.8


def test_mass_is_one_after_training(model):
    """The mass of a plane by a grid, that of all columns by its closed form."""
    axis = np.linspace(-2.5, 2.5, 401)
    plane = np.stack(np.meshgrid(axis, axis), -1).reshape(-1, 2)
    density = np.exp(model.marginal([0, 1]).score_samples(plane))
    assert density.sum() * (axis[1] - axis[0]) ** 2 == pytest.approx(1, abs=1e-3)
    assert abs(float(model.density_.density.log_mass())) < 1e-10
    assert model.probability(-np.inf, np.inf) == pytest.approx(1, abs=1e-12)


def test_calculus_agrees_with_itself(model):
    x = ring(20, 2)
    given = model.conditional_score_samples(x, [1])
    joint, marginal = model.score_samples(x), model.marginal([1]).score_samples(x[:, [1]])
    np.testing.assert_allclose(given + marginal, joint, atol=1e-8)
    conditional = model.condition({1: x[0, 1]})
    assert conditional.score_samples(x[:1, [0, 2]])[0] == pytest.approx(given[0], abs=1e-8)
    first = model.marginal([0])
    assert first.cdf(first.ppf([0.2, 0.7])[:, None]) == pytest.approx([0.2, 0.7], abs=1e-9)
    box = model.probability([-1, -np.inf, 0], [0, np.inf, 1])
    other = model.cdf([[0, np.inf, 1]]) - model.cdf([[-1, np.inf, 1]])
    other -= model.cdf([[0, np.inf, 0]]) - model.cdf([[-1, np.inf, 0]])
    assert box == pytest.approx(other[0], abs=1e-12)


def test_moments_are_those_of_draws(model):
    drawn = model.sample(20_000, random_state=0)
    np.testing.assert_allclose(model.mean(), drawn.mean(0), atol=0.03)
    np.testing.assert_allclose(model.covariance(), np.cov(drawn.T), atol=0.03)
    filled = model.impute([[0.9, np.nan, np.nan]], method="mean")
    np.testing.assert_allclose(filled[0, 1:], model.condition({0: 0.9}).mean(), atol=1e-6)


def test_draws_are_like_the_rows(model):
    assert energy_p_value(model.sample(500, random_state=1), ring(500, 3)) > 0.001
    log_p = model.score_samples(model.sample(4000, random_state=2))
    assert np.mean(log_p >= model.hdr_level(0.5, random_state=3)) == pytest.approx(0.5, abs=0.04)


def test_files_and_pickle(model, tmp_path):
    x = ring(50, 4)
    model.save(tmp_path / "train.qaffde")
    for again in (qaffde.load(tmp_path / "train.qaffde"), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(again.score_samples(x), model.score_samples(x))
    part = model.marginal([2, 0])
    part.save(tmp_path / "part.qaffde")
    again = qaffde.load(tmp_path / "part.qaffde")
    np.testing.assert_allclose(again.score_samples(x[:, :2]), part.score_samples(x[:, :2]))
    first, _, last = model.density_.density.places
    with pytest.raises(qaffde.FileError, match="no ONNX form"):
        model.marginal([first, last]).to_onnx(tmp_path / "train.onnx")


def test_bounds_hold(tmp_path):
    X = np.random.default_rng(0).exponential(size=(500, 2))
    model = QAFFDETensorTrain(columns=Real(lower=0), training=QUICK, random_state=0).fit(X)
    assert model.probability(-np.inf, [0, np.inf]) == 0
    assert (model.sample(100, random_state=0) > 0).all()


def test_kinds_of_columns():
    """A category and an hour that depend on each other, and an amount that is often zero."""
    rng = np.random.default_rng(0)
    city = rng.choice(["Bern", "Cali", "Oslo"], 1500, p=[0.5, 0.3, 0.2])
    hour = (np.where(city == "Cali", 23, 8) + 2 * rng.normal(size=1500)) % 24
    rain = np.where(rng.random(1500) < 0.4, 0.0, rng.exponential(size=1500))
    X = pd.DataFrame({"city": city, "hour": hour, "rain": rain})
    kinds = {"hour": "periodic:24", "rain": "atom:0"}
    training = TensorTrainConfig(max_steps=300, bond=12, n_functions=9)
    model = QAFFDETensorTrain(columns=kinds, training=training, random_state=0).fit(X)
    shares = np.exp(
        model.marginal(["city"]).score_samples(pd.DataFrame({"city": ["Bern", "Cali"]}))
    )
    np.testing.assert_allclose(shares, [0.5, 0.3], atol=0.07)
    night = model.condition({"hour": 23.5}).marginal(["city"])
    assert np.exp(night.score_samples(pd.DataFrame({"city": ["Cali"]})))[0] > 0.9
    drawn = model.sample(500, random_state=0)
    assert set(drawn["city"]) <= {"Bern", "Cali", "Oslo"}
    assert (drawn["rain"] == 0).mean() == pytest.approx(0.4, abs=0.1)


def test_gaps_at_fit_and_score(model):
    X = ring(400, 0)
    X[::3, 1] = np.nan
    gappy = QAFFDETensorTrain(training=QUICK, random_state=0).fit(X)
    assert np.isfinite(gappy.score_samples(X)).all()
    row = np.array([[0.5, np.nan, 0.2]])
    assert model.score_samples(row) == pytest.approx(
        model.marginal([0, 2]).score_samples(row[:, [0, 2]]), abs=1e-9
    )


@pytest.mark.filterwarnings("ignore:time_limit has ended")
def test_a_time_limit_shortens_the_training():
    model = QAFFDETensorTrain(time_limit=0.2, random_state=0).fit(ring(2000, 0))
    assert model.history_.steps[-1] < 500


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"bond": 0}, "bond=0 must be a whole number of at least 1"),
        ({"rank": 2.5}, "rank=2.5"),
        ({"time_limit": -1}, "time_limit=-1"),
        ({"training": 3}, "training=3"),
        ({"columns": Real(0, 1)}, "column 0|outside|beyond"),
    ],
)
def test_bad_parameters(parameters, message):
    with pytest.raises((ValueError, TypeError), match=message):
        QAFFDETensorTrain(**parameters).fit(ring(50, 0))

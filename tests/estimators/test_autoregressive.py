"""QAFFDEAutoregressive: calculus of the first columns, kinds, files, and scikit-learn's checks."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

import qaffde
from qaffde import QAFFDEAutoregressive, Real, TrainingConfig
from qaffde.training.chain import BATCH, MOST_STEPS, PASSES, ChainSizes, usual_steps
from tests.rings import ring
from tests.two_sample import energy_p_value

QUICK = TrainingConfig(max_steps=40, learning_rate=3e-3)


@pytest.fixture(scope="module")
def model() -> QAFFDEAutoregressive:
    return QAFFDEAutoregressive(random_state=0).fit(ring(3000, 0))


@parametrize_with_checks([QAFFDEAutoregressive(training=QUICK, width=16)])
def test_scikit_learn(estimator, check):
    check(estimator)


def test_beats_a_mixture_of_three_gaussians(model):
    from sklearn.mixture import GaussianMixture

    test = ring(2000, 1)
    mixture = GaussianMixture(3, random_state=0).fit(ring(3000, 0))
    assert model.score(test) > mixture.score(test) + 0.1


def test_mass_is_one_after_training(model):
    axis = np.linspace(-2.5, 2.5, 401)
    plane = np.stack(np.meshgrid(axis, axis), -1).reshape(-1, 2)
    density = np.exp(model.marginal([0, 1]).score_samples(plane))
    assert density.sum() * (axis[1] - axis[0]) ** 2 == pytest.approx(1, abs=1e-3)


def test_calculus_of_the_first_columns(model):
    x = ring(20, 2)
    given = model.conditional_score_samples(x, [0, 1])
    marginal = model.marginal([1, 0]).score_samples(x[:, [1, 0]])
    np.testing.assert_allclose(given + marginal, model.score_samples(x), atol=1e-8)
    last = model.condition({0: x[0, 0], 1: x[0, 1]})
    assert last.score_samples(x[:1, [2]])[0] == pytest.approx(given[0], abs=1e-8)
    assert last.cdf(last.ppf([0.2, 0.7])[:, None]) == pytest.approx([0.2, 0.7], abs=1e-9)
    filled = model.impute([[*x[0, :2], np.nan]], method="mean")
    assert filled[0, 2] == pytest.approx(last.mean()[0], abs=1e-6)
    share = (model.sample(20_000, random_state=0)[:, 0] < 0.3).mean()
    assert model.probability({0: (None, 0.3)}) == pytest.approx(share, abs=0.015)


@pytest.mark.parametrize(
    "ask",
    [
        lambda m: m.marginal([1]),
        lambda m: m.condition({2: 0.0}),
        lambda m: m.mean(),
        lambda m: m.covariance(),
        lambda m: m.cdf([[0.0, 0.0, 0.0]]),
        lambda m: m.probability(-1, 1),
        lambda m: m.score_samples([[np.nan, 0.0, 0.0]]),
        lambda m: m.impute([[np.nan, 0.0, 0.0]]),
    ],
)
def test_the_rest_is_refused_and_names_who_has_it(model, ask):
    with pytest.raises(ValueError, match=r"first columns only.*QAFFDETensorTrain"):
        ask(model)


def test_order_of_the_columns():
    X = pd.DataFrame(ring(600, 0), columns=["x", "y", "z"])
    model = QAFFDEAutoregressive(["z", "x", "y"], training=QUICK, random_state=0).fit(X)
    assert model.condition({"z": 0.5}).sample(3, random_state=0).columns.tolist() == ["x", "y"]
    with pytest.raises(ValueError, match="first columns only"):
        model.condition({"x": 0.5})
    with pytest.raises(ValueError, match="must have all 3 columns"):
        QAFFDEAutoregressive(["z", "x"]).fit(X)


def test_draws_are_like_the_rows(model):
    assert energy_p_value(model.sample(500, random_state=1), ring(500, 3)) > 0.001
    log_p = model.score_samples(model.sample(4000, random_state=2))
    assert np.mean(log_p >= model.hdr_level(0.5, random_state=3)) == pytest.approx(0.5, abs=0.04)


def test_files_and_pickle(model, tmp_path):
    x = ring(50, 4)
    model.save(tmp_path / "chain.qaffde")
    for again in (qaffde.load(tmp_path / "chain.qaffde"), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(again.score_samples(x), model.score_samples(x))
    part = model.condition({0: 0.3})
    part.save(tmp_path / "part.qaffde")
    again = qaffde.load(tmp_path / "part.qaffde")
    np.testing.assert_array_equal(again.score_samples(x[:, 1:]), part.score_samples(x[:, 1:]))
    with pytest.raises(qaffde.FileError, match="no ONNX form"):
        model.to_onnx(tmp_path / "chain.onnx")


def test_kinds_of_columns(tmp_path):
    """A category and an hour that depend on each other, an amount that is often zero, an age."""
    rng = np.random.default_rng(0)
    city = rng.choice(["Bern", "Cali", "Oslo"], 1500, p=[0.5, 0.3, 0.2])
    hour = (np.where(city == "Cali", 23, 8) + 2 * rng.normal(size=1500)) % 24
    rain = np.where(rng.random(1500) < 0.4, 0.0, rng.exponential(size=1500))
    age = rng.poisson(np.where(rain > 0, 20, 40))
    X = pd.DataFrame({"city": city, "hour": hour, "rain": rain, "age": age})
    kinds = {"hour": "periodic:24", "rain": "atom:0"}
    model = QAFFDEAutoregressive(columns=kinds, random_state=0).fit(X)
    shares = np.exp(
        model.marginal(["city"]).score_samples(pd.DataFrame({"city": ["Bern", "Cali"]}))
    )
    np.testing.assert_allclose(shares, [0.5, 0.3], atol=0.07)
    night = model.condition({"city": "Cali"})
    assert night.probability({"hour": (19, 3)}) > 0.9
    dry, wet = (model.condition({"city": "Bern", "hour": 8, "rain": r}) for r in (0, 1))
    assert dry.mean()[0] == pytest.approx(40, abs=4)
    assert wet.mean()[0] == pytest.approx(20, abs=4)
    drawn = model.sample(500, random_state=0)
    assert set(drawn["city"]) <= {"Bern", "Cali", "Oslo"}
    assert (drawn["rain"] == 0).mean() == pytest.approx(0.4, abs=0.1)
    model.save(tmp_path / "table.qaffde")
    again = qaffde.load(tmp_path / "table.qaffde")
    np.testing.assert_array_equal(again.score_samples(X), model.score_samples(X))


def test_bounds_hold():
    X = np.random.default_rng(0).exponential(size=(500, 2))
    columns = Real(lower=0)
    model = QAFFDEAutoregressive(columns=columns, training=QUICK, random_state=0).fit(X)
    assert model.probability({0: (None, 0)}) == 0
    assert (model.sample(100, random_state=0) > 0).all()


def test_gaps_at_fit_are_refused():
    X = ring(100, 0)
    X[::3, 1] = np.nan
    with pytest.raises(ValueError, match=r"NaN"):
        QAFFDEAutoregressive(training=QUICK).fit(X)


@pytest.mark.filterwarnings("ignore:time_limit has ended")
def test_a_time_limit_shortens_the_training():
    model = QAFFDEAutoregressive(time_limit=0.3, random_state=0).fit(ring(2000, 0))
    assert model.history_.steps[-1] < 1000


def test_sizes_grow_with_the_rows():
    given = {"width": "auto", "n_components": 4, "n_functions": 5, "rank": 2}
    few, many, most = (ChainSizes.for_rows(n, **given) for n in (1000, 100_000, 10**7))
    assert (few.width, few.n_components, few.n_functions, few.n_waves) == (64, 4, 5, 8)
    assert few.width < many.width <= most.width == 256
    assert few.n_waves < many.n_waves < most.n_waves == 32
    assert ChainSizes.for_rows(10**7, **given | {"width": 8}).width == 8
    assert usual_steps(1000) == 1000 < usual_steps(100_000) < usual_steps(1_000_000)
    assert usual_steps(1_000_000) * BATCH >= (PASSES - 1) * 1_000_000
    assert usual_steps(10**9) == MOST_STEPS


def test_a_given_size_is_that_of_the_densities():
    model = QAFFDEAutoregressive(n_components=3, n_functions=1, width=8, training=QUICK)
    chain = model.fit(ring(200, 0)).density_.density
    assert (chain.shape, chain.network.width) == ((3, 1, 2), 8)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"width": 0}, "width=0 must be a whole number of at least 1"),
        ({"rank": 2.5}, "rank=2.5"),
        ({"dropout": 1.5}, "dropout=1.5"),
        ({"training": 3}, "training=3"),
        ({"time_limit": -1}, "time_limit=-1"),
        ({"order": [0, 0, 1]}, "name a column twice"),
    ],
)
def test_bad_parameters(parameters, message):
    with pytest.raises(ValueError, match=message):
        QAFFDEAutoregressive(**parameters).fit(ring(50, 0))

"""QAFFDERegressor: distributions of y given a table."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

from qaffde import Periodic, QAFFDERegressor, Real, TrainingConfig

SHORT = TrainingConfig(max_steps=300, weight_decay=0.01)


def small(**parameters):
    given = {"n_members": 2, "n_hidden": 16, "random_state": 0, "training": SHORT}
    return QAFFDERegressor(**{**given, **parameters})


RANDOM = {
    "check_sample_weight_equivalence_on_dense_data": "training draws batches of rows",
}


@parametrize_with_checks(
    [small(training=TrainingConfig(max_steps=60), n_functions=3, n_members=1)],
    expected_failed_checks=lambda estimator: RANDOM,
)
def test_scikit_learn(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def table():
    """A table whose y is known but for noise: heteroscedastic, two-sided where c is "x"."""
    rng = np.random.default_rng(0)
    n = 1500
    frame = pd.DataFrame(
        {"a": rng.normal(size=n), "c": rng.choice(list("xyz"), n), "h": rng.uniform(0, 24, n)}
    )
    side = np.where(frame["c"] == "x", rng.choice([-1, 1], n), 0)
    y = side + 0.5 * frame["a"] + np.sin(2 * np.pi * frame["h"] / 24) + 0.1 * rng.normal(size=n)
    frame.loc[rng.random(n) < 0.05, "a"] = np.nan
    return frame, y.to_numpy()


@pytest.fixture(scope="module")
def fitted(table):
    frame, y = table
    model = small(columns={"h": Periodic(24)}, training=TrainingConfig(max_steps=1000))
    return model.fit(frame[:1200], y[:1200])


def test_the_likelihood_is_near_the_true_one(table, fitted):
    frame, y = table[0][1200:], table[1][1200:]
    whole = frame["a"].notna()
    rest = y - 0.5 * frame["a"] - np.sin(2 * np.pi * frame["h"] / 24)
    noise = np.exp(-0.5 * (rest / 0.1) ** 2) / (0.1 * np.sqrt(2 * np.pi))
    sides = [np.exp(-0.5 * ((rest + s) / 0.1) ** 2) / (0.1 * np.sqrt(2 * np.pi)) for s in (-1, 1)]
    truth = np.log(np.where(frame["c"] == "x", sum(sides) / 2, noise))
    excess = truth[whole] - fitted.log_likelihood(frame, y)[whole]
    assert 0 < excess.mean() < 0.4  # a normal law of each row has about 1 where c is "x"


def test_intervals_cover_what_they_say(table, fitted):
    report = fitted.calibration(table[0][1200:], table[1][1200:])
    assert np.abs(report["coverage"] - report["levels"]).max() < 0.1
    assert 0 < report["crps"] < 0.5
    low, high = fitted.predict_interval(table[0][1200:], 0.9).T
    inside = (low <= table[1][1200:]) & (table[1][1200:] <= high)
    assert inside.mean() == pytest.approx(report["coverage"][17], abs=1e-3)


def test_all_answers_are_those_of_one_distribution(table, fitted):
    rows = table[0][1200:1210]
    density = fitted.predict_distribution(rows)
    mean, deviation = fitted.predict(rows, return_std=True)
    np.testing.assert_allclose(fitted.predict(rows), mean)
    np.testing.assert_allclose(density.mean, mean, rtol=1e-6, atol=1e-6)
    draws = fitted.sample(rows, 1000, random_state=0)
    assert draws.shape == (10, 1000)
    np.testing.assert_allclose(draws.mean(1), mean, atol=5 * (deviation / 1000**0.5).max())
    median = fitted.predict_quantile(rows, 0.5)
    np.testing.assert_allclose(density.cdf(torch.tensor(median)), 0.5, atol=1e-8)
    assert fitted.predict_quantile(rows, [0.1, 0.9]).shape == (10, 2)
    log_p = density.log_prob(torch.tensor(mean))
    np.testing.assert_allclose(fitted.log_likelihood(rows, mean), log_p, rtol=1e-6)


def test_outputs_are_a_chain():
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (600, 1))
    first = x[:, 0] + rng.choice([-1.0, 1.0], 600)
    y = np.column_stack([first, first**2]) + 0.1 * rng.normal(size=(600, 2))
    model = small(training=TrainingConfig(max_steps=800)).fit(x, y)
    assert model.predict(x[:5]).shape == (5, 2)
    assert model.predict_interval(x[:5]).shape == (5, 2, 2)
    draws = model.sample(x[:1], 500, random_state=0)[0]
    assert draws.shape == (500, 2)
    tied = np.abs(draws[:, 1] - draws[:, 0] ** 2)
    assert np.median(tied) < 0.3  # the second output is that of the first, not of x alone
    alone = small(training=TrainingConfig(max_steps=800)).fit(x, y[:, 1])
    chain = model.log_likelihood(x, y).mean()
    first_only = small(training=TrainingConfig(max_steps=800)).fit(x, y[:, 0])
    apart = first_only.log_likelihood(x, y[:, 0]) + alone.log_likelihood(x, y[:, 1])
    assert chain > apart.mean() + 0.3


@pytest.mark.parametrize(
    ("target", "y"),
    [
        (Real(0), np.exp(np.linspace(-1, 1, 60))),
        ("integer", np.arange(60) // 5),
        (Periodic(24), np.linspace(0, 47, 60)),
    ],
    ids=["positive", "integer", "periodic"],
)
def test_kinds_of_y(target, y):
    x = np.linspace(-1, 1, 60)[:, None]
    model = small(target=target).fit(x, y)
    assert np.isfinite(model.log_likelihood(x, y)).all()
    median = model.predict_quantile(x, 0.5)
    if isinstance(target, Real):
        assert (median > 0).all()
        assert model.log_likelihood(x[:1], [-1.0]) == -np.inf
    if target == "integer":
        assert (median == median.round()).all()


def test_an_encoder_is_trained_and_left_alone():
    encoder = torch.nn.Sequential(torch.nn.Linear(1, 8), torch.nn.Tanh())
    before = [p.clone() for p in encoder.parameters()]
    x = np.linspace(-1, 1, 100)[:, None]
    model = small(encoder=encoder).fit(x, np.sin(3 * x[:, 0]))
    assert model.score(x, np.sin(3 * x[:, 0])) > 0.8
    assert all(torch.equal(a, b) for a, b in zip(before, encoder.parameters(), strict=True))


def test_the_seed_decides():
    x = np.linspace(-1, 1, 50)[:, None]
    first, second = (small().fit(x, x[:, 0] ** 2).predict(x) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    other = clone(small()).set_params(random_state=1).fit(x, x[:, 0] ** 2).predict(x)
    assert not np.array_equal(first, other)


X = np.zeros((10, 2)) + np.arange(10)[:, None]
BAD = {
    "y too long": ({}, X, np.zeros(11), "10 rows, but y 11"),
    "y not finite": ({}, X, np.full(10, np.nan), "NaN"),
    "negative y": ({"target": Real(0)}, X, np.arange(10) - 5.0, "not real, at least 0"),
    "half an integer": ({"target": "integer"}, X, np.arange(10) / 2, "not integer"),
    "a category": ({"target": "category"}, X, np.arange(10), "QAFFDEClassifier"),
    "too many kinds": ({"target": ["real", "real"]}, X, np.arange(10), "2 kinds for 1 outputs"),
    "no members": ({"n_members": 0}, X, np.arange(10), "n_members=0"),
    "no module": ({"encoder": 3}, X, np.arange(10), "torch module"),
    "two outputs": (
        {"encoder": torch.nn.Linear(2, 2)},
        X,
        np.zeros((10, 2)),
        "one output",
    ),
}


@pytest.mark.parametrize(("parameters", "X", "y", "message"), BAD.values(), ids=BAD)
def test_bad_input(parameters, X, y, message):
    with pytest.raises(ValueError, match=message):
        small(**parameters).fit(X, y)


def test_bad_questions(fitted, table):
    with pytest.raises(ValueError, match="between 0 and 1"):
        fitted.predict_quantile(table[0][:2], 1.5)
    with pytest.raises(ValueError, match="coverage"):
        fitted.predict_interval(table[0][:2], 2)
    with pytest.raises(ValueError, match="outputs"):
        fitted.log_likelihood(table[0][:2], [1.0])

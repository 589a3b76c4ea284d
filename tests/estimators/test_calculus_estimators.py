"""The scikit-learn face of the calculus."""

import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import kstest
from sklearn.base import clone

from qaffde import QAFFDE
from qaffde.estimators import DerivedDensity

BASES = ("box", "gaussian", 2)


def rows(n=400):
    rng = np.random.default_rng(0)
    a = rng.normal(size=n)
    return np.column_stack([a, 0.8 * a + 0.4 * rng.normal(size=n), rng.gamma(3, size=n)])


@pytest.fixture(scope="module", params=BASES)
def model(request):
    frame = pd.DataFrame(rows(), columns=["a", "b", "c"])
    return QAFFDE(
        n_features=60,
        bandwidth=0.4,
        base_measure=request.param,
        random_state=0,
    ).fit(frame)


def frame(X, model):
    return pd.DataFrame(X, columns=model.feature_names_in_)


def test_names_and_numbers_agree(model):
    by_name, by_number = model.marginal(["c", "a"]), model.marginal([2, 0])
    assert list(by_name.feature_names_in_) == ["c", "a"]
    X = frame(rows(20)[:, [2, 0]], by_name)
    np.testing.assert_array_equal(by_name.score_samples(X), by_number.score_samples(X))


def test_chain_rule(model):
    X = frame(rows(30), model)
    marginal = model.marginal(["b"])
    whole = model.conditional_score_samples(X, ["b"]) + marginal.score_samples(X[["b"]])
    np.testing.assert_allclose(whole, model.score_samples(X), atol=1e-9)


def test_many_conditions(model):
    X = frame(rows(5), model)
    conditionals = model.condition({"b": X["b"].to_numpy()})
    found = [c.score_samples(X[["a", "c"]].iloc[[i]])[0] for i, c in enumerate(conditionals)]
    np.testing.assert_allclose(found, model.conditional_score_samples(X, ["b"]), atol=1e-7)
    one = model.condition({1: float(X["b"].iloc[0])})
    assert isinstance(one, DerivedDensity)
    assert list(one.feature_names_in_) == ["a", "c"]


def test_derived_density_has_every_operation(model):
    derived = model.marginal(["a", "b"]).condition({"a": 0.5})
    assert derived.n_features_in_ == 1
    quantiles = derived.ppf([0.1, 0.5, 0.9])[:, None]
    np.testing.assert_allclose(derived.cdf(frame(quantiles, derived)), [0.1, 0.5, 0.9], atol=1e-9)
    inside = derived.probability(quantiles[0], quantiles[2])
    np.testing.assert_allclose(inside, 0.8, atol=1e-9)
    assert derived.mean().shape == (1,)
    assert derived.covariance().shape == (1, 1)
    assert derived.sample(4, random_state=0).shape == (4, 1)


def test_probabilities_say_their_error(model):
    exact = model.marginal(["a"]).probability(-1, 1, return_error=True)
    assert exact == (model.marginal(["a"]).probability(-1, 1), 0.0)
    X = model.sample(20_000, random_state=0).to_numpy()
    value, error = model.probability(-1, 2, return_error=True)
    assert value == model.probability(-1, 2)
    assert abs(value - ((X > -1) & (X < 2)).all(1).mean()) < 0.015 + error
    values, errors = model.cdf(frame(X[:3], model), return_error=True)
    assert values.shape == errors.shape == (3,)
    assert (errors < 0.01).all()


def test_conditionals_far_away_answer_or_refuse(model):
    conditional = model.condition({"a": 1e4, "b": 1e4})
    q = conditional.ppf([0.1, 0.5, 0.9])
    assert (np.diff(q) > 0).all()
    np.testing.assert_allclose(conditional.cdf(frame(q[:, None], conditional)), [0.1, 0.5, 0.9])
    assert conditional.hdr_level(0.5) < conditional.hdr_level(0.1)
    X = frame([[1e4, 1e4, q[1]]], model)
    expected = conditional.score_samples(frame(q[1:2, None], conditional))
    np.testing.assert_allclose(model.conditional_score_samples(X, ["a", "b"]), expected)
    gap = frame([[1e4, 1e4, np.nan]], model)
    np.testing.assert_allclose(model.impute(gap, method="mean").iloc[0, 2:], conditional.mean())
    far = 1e12 * gap
    for call in (
        lambda: model.condition({"a": 1e16}),
        lambda: model.impute(far),
        lambda: model.impute(far, method="mean"),
        lambda: model.conditional_score_samples(far.fillna(0), ["a", "b"]),
    ):
        with pytest.raises(ValueError, match="standard deviations from the data"):
            call()


def test_samples(model):
    X = model.sample(2000, random_state=0).to_numpy()
    np.testing.assert_array_equal(X, model.sample(2000, random_state=0))
    assert not np.array_equal(X, model.sample(2000, random_state=1))
    for column, name in enumerate("abc"):
        marginal = model.marginal([name])
        cdf = lambda x, m=marginal: m.cdf(frame(x[:, None], m))  # noqa: E731
        assert kstest(X[:, column], cdf).pvalue > 1e-3


def test_moments_are_those_of_draws(model):
    sample = model.sample(40_000, random_state=0).to_numpy()
    np.testing.assert_allclose(model.mean(), sample.mean(0), atol=0.06)
    np.testing.assert_allclose(model.covariance(), np.cov(sample.T), rtol=0.1, atol=0.08)


def test_imputed_mean_is_the_conditional_mean(model):
    X = rows(6)
    X[0, 1] = X[1, 2] = X[2, 0] = X[2, 1] = np.nan
    X[3] = np.nan
    filled = model.impute(frame(X, model), method="mean").to_numpy()
    kept = ~np.isnan(X)
    np.testing.assert_array_equal(filled[kept], X[kept])
    conditional = model.condition({"c": X[2, 2]})
    np.testing.assert_allclose(filled[2, :2], conditional.mean(), atol=1e-8)
    np.testing.assert_allclose(filled[3], model.mean(), atol=1e-8)


def test_imputed_draws_follow_the_conditional(model):
    X = np.full((1500, 3), np.nan)
    X[:, 0] = 0.5
    X[:, 2] = 2.0
    filled = model.impute(frame(X, model), random_state=0).to_numpy()
    conditional = model.condition({"a": 0.5, "c": 2.0})
    cdf = lambda x: conditional.cdf(frame(x[:, None], conditional))  # noqa: E731
    assert kstest(filled[:, 1], cdf).pvalue > 1e-3
    np.testing.assert_array_equal(filled, model.impute(frame(X, model), random_state=0))


def test_diagnostics(model):
    assert 0 < model.purity() <= 1
    assert model.purity() >= 1 / model.effective_rank() - 1e-12
    assert 1 <= model.effective_rank() <= model.rank_ + 1e-9
    np.testing.assert_allclose(model.effective_rank(), np.exp(model.von_neumann_entropy()))


def test_a_pure_state_has_purity_one():
    model = QAFFDE(n_features=20, bandwidth=0.5, base_measure="gaussian", rank=1).fit(rows())
    np.testing.assert_allclose([model.purity(), model.effective_rank()], 1.0)


@pytest.mark.parametrize(("n", "n_empty"), [(8, 0), (1, 1)])
def test_diagnostics_of_equal_states(n, n_empty, model, monkeypatch):
    lam = torch.cat([torch.full((n,), 1 / n), torch.zeros(n_empty)]).double()
    monkeypatch.setattr(type(model), "_spectrum", lambda self: lam)
    assert model.purity() == pytest.approx(1 / n)
    assert model.von_neumann_entropy() == pytest.approx(np.log(n))
    assert model.effective_rank() == pytest.approx(n)


def test_pickle_and_clone(model):
    derived = model.marginal(["a"])
    X = frame(rows(5)[:, :1], derived)
    derived.cdf(X)
    for copy in (pickle.loads(pickle.dumps(derived)), clone(derived).fit(X)):
        np.testing.assert_array_equal(copy.score_samples(X), derived.score_samples(X))


BAD = {
    "unknown name": (lambda m: m.marginal(["z"]), "'z' is not known; the columns are a, b, c"),
    "unknown number": (lambda m: m.marginal([3]), "column 3 is not known"),
    "negative number": (lambda m: m.marginal([-1]), "column -1 is not known"),
    "no number": (lambda m: m.marginal([0.5]), "must be a number or a name"),
    "twice": (lambda m: m.marginal(["a", 0]), "twice"),
    "none": (lambda m: m.marginal([]), "at least one"),
    "all given": (lambda m: m.condition({0: 1, 1: 1, 2: 1}), "no column is left"),
    "all given rows": (lambda m: m.conditional_score_samples(rows(2), [0, 1, 2]), "no column"),
    "no dict": (lambda m: m.condition([0]), "is a dict"),
    "NaN condition": (lambda m: m.condition({0: np.nan}), "finite"),
    "unequal": (lambda m: m.condition({0: [1.0, 2.0], 1: [1.0, 2.0, 3.0]}), "equally many"),
    "NaN end": (lambda m: m.probability(np.nan, 1), "NaN"),
    "order": (lambda m: m.probability([0, 2, 0], 1), "column 1 has 2.0 > 1.0"),
    "width": (lambda m: m.probability([0, 0], 1), "each of 3 columns"),
    "NaN cdf": (lambda m: m.cdf([[0, np.nan, 0]]), "NaN"),
    "wide cdf": (lambda m: m.cdf([[0.0, 0.0]]), "2 features"),
    "ppf": (lambda m: m.ppf(0.5), "one column"),
    "level": (lambda m: m.marginal([0]).ppf(1.5), "between 0 and 1"),
    "method": (lambda m: m.impute(rows(2), method="mode"), "method='mode'"),
    "count": (lambda m: m.sample(0), "n_samples=0"),
}


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
@pytest.mark.parametrize("case", BAD)
def test_bad_input(model, case):
    call, message = BAD[case]
    with pytest.raises(ValueError, match=message):
        call(model)


OPERATIONS = {
    "marginal": lambda m: m.marginal([0]),
    "condition": lambda m: m.condition({0: 0.0}),
    "probability": lambda m: m.probability(0, 1),
    "sample": lambda m: m.sample(),
    "mean": lambda m: m.mean(),
    "purity": lambda m: m.purity(),
}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_kernel_base_says_which_to_use(operation):
    model = QAFFDE(n_features=20, bandwidth=0.5, base_measure="kernel").fit(rows(50))
    with pytest.raises(ValueError, match="'box', 'gaussian' or 'mixture'"):
        OPERATIONS[operation](model)


def test_zero_density_is_no_condition():
    model = QAFFDE(n_features=20, bandwidth=0.5, base_measure="box").fit(rows(50))
    born = DerivedDensity(model.density_.density.density)
    with pytest.raises(ValueError, match="density is zero"):
        born.condition({0: 100.0})


def test_the_distribution_function_of_one_column_takes_numbers_and_lists():
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"x": rng.normal(size=300), "age": rng.poisson(40, 300)})
    age = QAFFDE(random_state=0).fit(table).marginal(["age"])
    both = age.cdf(pd.DataFrame({"age": [38, 41]}))
    np.testing.assert_array_equal(age.cdf([38, 41]), both)
    assert np.isscalar(age.cdf(38))
    assert age.cdf(38) == both[0]
    assert age.cdf(38, return_error=True) == (both[0], 0)

"""The scikit-learn transformer: its checks, its kernel, its messages."""

import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import gaussian_kde
from sklearn.base import clone
from sklearn.linear_model import RidgeClassifier
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from qaffde.estimators.fourier import FEATURES, FourierFeatures, median_distance
from qaffde.parameters import generator_from
from qaffde.selection.bandwidth import scott, silverman

X = np.random.default_rng(0).normal(size=(300, 2)) * [1.0, 2.0]
H = 0.7
BAD_INPUT = {
    "n_features=0 must be a whole number": {"n_features": 0},
    "n_features=2.5 must be a whole number": {"n_features": 2.5},
    "n_features=True must be a whole number": {"n_features": True},
    "bandwidth='wide' is not known; choose one of scott, silverman, median": {"bandwidth": "wide"},
    r"bandwidth=-1.0 must be .* a positive number": {"bandwidth": -1.0},
    "bandwidth=nan must be": {"bandwidth": np.nan},
    r"bandwidth=\[1, 2, 3\] must be .* for each of the 2 columns": {"bandwidth": [1, 2, 3]},
    "features='fourier' is not known; choose one of random, .*, adaptive": {"features": "fourier"},
    "squared='yes' must be True or False": {"squared": "yes"},
    "'seed' cannot be used to seed": {"random_state": "seed"},
}


def kernel_error(transformer, points=X):
    phi = transformer.fit_transform(points)
    inner = phi @ phi.T
    approximation = inner**2 if transformer.squared else inner
    kernel = rbf_kernel(points / transformer.bandwidth_, gamma=0.5)
    return np.sqrt(np.mean((approximation - kernel) ** 2))


@parametrize_with_checks([FourierFeatures(), FourierFeatures(features="random", squared=False)])
def test_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.parametrize("squared", [True, False])
@pytest.mark.parametrize("features", FEATURES)
def test_inner_products_approximate_the_kernel(features, squared):
    options = {"features": features, "squared": squared, "bandwidth": H, "random_state": 0}
    assert kernel_error(FourierFeatures(1000, **options)) < 0.05


@pytest.mark.parametrize("squared", [True, False])
@pytest.mark.parametrize("features", ["random", "orthogonal", "sobol", "lattice"])
def test_error_falls_with_the_number_of_features(features, squared):
    def error(n_features):
        options = {"features": features, "squared": squared, "bandwidth": [H, 2 * H]}
        return np.mean(
            [
                kernel_error(FourierFeatures(n_features, random_state=s, **options))
                for s in range(3)
            ]
        )

    coarse, middle, fine = error(50), error(400), error(3200)
    assert middle < 0.7 * coarse
    assert fine < 0.3 * coarse


def test_learning_lowers_the_error():
    drawn, learned = (
        kernel_error(FourierFeatures(100, features=features, bandwidth=H, random_state=0))
        for features in ("sobol", "adaptive")
    )
    assert learned < 0.5 * drawn


def test_not_squared_is_the_rbf_sampler_with_gamma():
    transformer = FourierFeatures(4000, bandwidth=H, squared=False, random_state=0)
    phi = transformer.fit_transform(X)
    np.testing.assert_allclose(phi @ phi.T, rbf_kernel(X, gamma=1 / (2 * H**2)), atol=0.02)


@pytest.mark.parametrize("message", BAD_INPUT)
def test_bad_input(message):
    with pytest.raises(ValueError, match=message):
        FourierFeatures(**BAD_INPUT[message]).fit(X)


def test_too_many_columns_for_a_lattice():
    with pytest.raises(ValueError, match="'lattice' is for up to 4 columns and X has 5; use 'so"):
        FourierFeatures(features="lattice").fit(np.eye(5))


def test_overflowing_variance():
    with pytest.raises(ValueError, match="so large that their variance overflows"):
        FourierFeatures().fit([[1e200], [-1e200]])


@pytest.mark.parametrize("features", FEATURES)
def test_seeds_reproduce(features):
    options = {"features": features, "n_features": 10}
    first, second, other = (
        FourierFeatures(random_state=seed, **options).fit_transform(X) for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, second)
    assert (features == "lattice") == np.array_equal(first, other)


def test_no_seed_differs_and_leaves_global_state_alone():
    numpy_state, torch_state = np.random.get_state()[1].copy(), torch.get_rng_state()  # noqa: NPY002
    first, second = (FourierFeatures().fit_transform(X) for _ in range(2))
    assert not np.array_equal(first, second)
    np.testing.assert_array_equal(np.random.get_state()[1], numpy_state)  # noqa: NPY002
    assert torch.equal(torch.get_rng_state(), torch_state)


def test_generators_follow_random_state():
    def number(random_state):
        return torch.rand(1, generator=generator_from(random_state)).item()

    state = np.random.RandomState(0)
    assert number(0) == number(np.random.RandomState(0)) == number(state)
    assert number(0) != number(1)
    assert number(state) != number(0)
    assert number(None) != number(None)


@pytest.mark.parametrize("kind", ["random", "sobol", "adaptive"])
def test_large_offsets_do_not_cost_digits(kind):
    def inner(offset):
        options = {"n_features": 200, "features": kind, "bandwidth": H, "random_state": 0}
        phi = FourierFeatures(**options).fit_transform(np.round(X, 4) + offset)
        return phi @ phi.T

    np.testing.assert_allclose(inner(1e9), inner(0), atol=1e-4 if kind == "adaptive" else 1e-5)


def test_rules_of_thumb_are_those_of_scipy():
    kde = gaussian_kde(X.T)
    assert scott(300, 2) == pytest.approx(kde.scotts_factor())
    assert silverman(300, 2) == pytest.approx(kde.silverman_factor())
    for rule, factor in {"scott": scott, "silverman": silverman}.items():
        h = FourierFeatures(bandwidth=rule).fit(X).bandwidth_
        np.testing.assert_allclose(h, factor(300, 2) * X.std(0))


def test_median_rule_is_the_median_distance():
    distances = [np.linalg.norm(X[i] - X[j]) for i in range(300) for j in range(i)]
    h = FourierFeatures(bandwidth="median").fit(X).bandwidth_
    np.testing.assert_allclose(h, np.median(distances))
    assert median_distance(np.zeros((5, 2)), torch.Generator()) == 1


@pytest.mark.parametrize("bandwidth", ["scott", "silverman", "median"])
@pytest.mark.parametrize("value", [0.1, 1e-200])
def test_constant_columns_are_harmless(bandwidth, value):
    constant = np.c_[X[:, :1], np.full(300, value)]
    phi = FourierFeatures(bandwidth=bandwidth, random_state=0).fit_transform(constant)
    assert np.isfinite(phi).all()
    assert np.ptp(phi, axis=0).min() > 0


@pytest.mark.parametrize(
    ("features", "n_features", "given"),
    [("random", 7, 7), ("sobol", 7, 6), ("sobol", 1, 2), ("lattice", 8, 7), ("lattice", 1, 1)],
)
def test_number_of_features(features, n_features, given):
    transformer = FourierFeatures(n_features, features=features).fit(X)
    assert transformer.transform(X).shape == (300, given)
    assert len(transformer.get_feature_names_out()) == given


@pytest.mark.parametrize("features", ["random", "paired"])
def test_paired_features_have_length_one_and_random_ones_on_average(features):
    phi = FourierFeatures(2000, features=features, random_state=0).fit_transform(X)
    np.testing.assert_allclose((phi**2).sum(1), 1, atol=1e-12 if features == "paired" else 0.15)


def test_float32_stays_float32_and_is_computed_in_float64():
    transformer = FourierFeatures(random_state=0).fit(X)
    single = transformer.transform(X.astype(np.float32))
    assert single.dtype == np.float32
    double = transformer.transform(X.astype(np.float32).astype(np.float64))
    np.testing.assert_array_equal(single, double.astype(np.float32))


def test_pandas_names_and_output():
    frame = pd.DataFrame(X, columns=["height", "weight"], index=np.arange(300) + 7)
    transformer = FourierFeatures(4, random_state=0).set_output(transform="pandas")
    phi = transformer.fit_transform(frame)
    assert list(transformer.feature_names_in_) == ["height", "weight"]
    assert list(phi.columns) == [f"fourierfeatures{i}" for i in range(4)]
    assert list(phi.index) == list(frame.index)
    with pytest.raises(ValueError, match="feature names should match"):
        transformer.transform(frame[["weight", "height"]])


def test_pipeline_learns_what_a_line_cannot():
    ring = np.linalg.norm(X / [1, 2], axis=1) < 1
    model = make_pipeline(FourierFeatures(squared=False, random_state=0), RidgeClassifier())
    assert model.fit(X[:200], ring[:200]).score(X[200:], ring[200:]) > 0.9
    assert RidgeClassifier().fit(X[:200], ring[:200]).score(X[200:], ring[200:]) < 0.75


def test_clone_and_pickle():
    transformer = FourierFeatures(20, bandwidth=[H, H], features="orthogonal", random_state=3)
    phi = transformer.fit_transform(X)
    np.testing.assert_array_equal(clone(transformer).fit_transform(X), phi)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(transformer)).transform(X), phi)


def test_rows_at_the_ends_of_float64_have_features():
    model = FourierFeatures(8, random_state=0).fit(np.random.default_rng(0).normal(size=(50, 2)))
    phi = model.transform([[1e308, -1e308], [0.0, 1e-308]])
    assert np.isfinite(phi).all()


def test_bandwidths_whose_square_underflows_are_refused():
    rows = 1e-161 * np.random.default_rng(0).normal(size=(7, 4))
    with pytest.raises(ValueError, match="bring columns to a common scale"):
        FourierFeatures(8, random_state=0).fit(rows)

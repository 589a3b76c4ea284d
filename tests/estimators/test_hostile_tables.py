"""Tables that are hard to fit: kinds, gaps and frames give finite answers or messages."""

import numpy as np
import polars as pl
import pytest

from qaffde import (
    QAFFDE,
    Atom,
    Periodic,
    QAFFDETensorTrain,
    Real,
    SelectionPolicy,
    TensorTrainConfig,
    load,
)

QUICK = SelectionPolicy(table_iterations=10, mixture_sizes=(2,))
FITS = {
    "mixture": lambda columns: QAFFDE(columns=columns, policy=QUICK, random_state=0),
    "train": lambda columns: QAFFDETensorTrain(
        columns=columns, training=TensorTrainConfig(max_steps=5, bond=4), random_state=0
    ),
}


@pytest.fixture(params=FITS)
def fit(request):
    """Fit a table with some columns' kinds."""
    return lambda X, columns="auto": FITS[request.param](columns).fit(X)


def test_ends_are_not_rounded(fit):
    """In single precision 0.1 is larger, and a row at the end would be impossible."""
    X = 0.1 + np.random.default_rng(0).random((60, 2))
    X[0, 0], X[1, 1] = 0.1, np.nan
    model = fit(X, {0: Real(lower=0.1)})
    assert np.isfinite(model.score_samples(X)).all()
    assert model.probability({0: (None, 0.1)}) == 0


@pytest.mark.parametrize("n", [120, 400])
@pytest.mark.parametrize("far", [1e3, 1e9])
def test_one_corrupt_row_costs_little(fit, n, far):
    rng = np.random.default_rng(0)
    X, rest = np.column_stack([rng.normal(size=n), rng.integers(0, 3, n)]), rng.normal(size=1000)
    X[0, 0] = far
    alone = fit(X[1:], {1: "category"}).marginal([0]).score(rest[:, None])
    assert fit(X, {1: "category"}).marginal([0]).score(rest[:, None]) > alone - 0.1


RNG = np.random.default_rng(0)
PLAIN, GAPS = RNG.normal(size=(30, 2)), np.where(np.arange(30) % 2, np.nan, 1.0)
REFUSED = {
    "underflow": (1e-320 * PLAIN, {1: "category"}, "differ by so little"),
    "a variance of few digits": (3e-159 * PLAIN, {1: "category"}, "differ by so little"),
    "digits": (1e16 + PLAIN, {1: "category"}, "lie around 1e"),
    "ends too close": (PLAIN, lambda: {0: Real(1e20, np.nextafter(1e20, 2e20))}, "too close"),
    "ends around denormal numbers": (PLAIN, lambda: {0: Real(0, 5e-324)}, "too close"),
    "ends too far apart": (PLAIN, lambda: {0: Real(-1e308, 1e308)}, "too far apart"),
    "a period below rounding": (PLAIN, {0: Periodic(1e-26)}, "no place|to have a place"),
    "integers of 1e200": (0 * PLAIN + 1e200, {0: "integer"}, "too large to count"),
    "integers that are missing": (
        np.column_stack([PLAIN[:, 0], np.full(30, np.nan)]),
        {1: "integer"},
        "column 1 has no value at all",
    ),
    "one value whose double overflows": (
        np.column_stack([np.full(30, 1.7e308), np.arange(30) % 3]),
        {1: "category"},
        "variance overflows",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_float64_cannot_hold_is_refused(fit, case):
    X, columns, message = REFUSED[case]
    with pytest.raises(ValueError, match=message):
        fit(X, columns() if callable(columns) else columns)


ONE = {"any": (-1e200, Real()), "at an end": (0.0, Real(0, 7e16)), "far": (1e22, Real(lower=0))}


@pytest.mark.parametrize("n", [1, 9])
@pytest.mark.parametrize("case", ONE)
def test_a_column_with_one_value_is_held(fit, case, n):
    value, kind = ONE[case]
    X = np.column_stack([PLAIN, np.where(np.arange(30) < n, value, np.nan)])
    model = fit(X, {2: kind})
    assert np.isfinite(model.score_samples(X)).all()
    assert np.isfinite(model.impute(X, method="mean")).all()


@pytest.mark.parametrize("labels", [[0.5, 1.0], [1e45, 0.0]])
def test_labels_of_polars_may_be_whole_or_not(fit, labels):
    X = pl.DataFrame({"a": RNG.choice(labels, 30), "b": PLAIN[:, 0]})
    draws = fit(X, {"a": "category"}).sample(20, random_state=0)
    assert draws.schema == X.schema
    assert set(draws["a"]) <= set(labels)


@pytest.mark.parametrize("far", [1e160, 1e300])
def test_rows_whose_squares_overflow_are_not_added(far):
    """They made all later scores NaN."""
    X = np.where(np.arange(60).reshape(30, 2) % 7, PLAIN, np.nan)
    model = FITS["mixture"]("auto").fit(X)
    before = model.score_samples(X)
    with pytest.raises(ValueError, match=r"row 0, .* so far from all others"):
        model.partial_fit(np.array([[far, 0.0], [0.0, 1.0]]))
    np.testing.assert_array_equal(model.score_samples(X), before)


def test_values_nearer_to_an_end_than_a_share_of_the_unit_can_be(fit):
    """Divided by the distance of the next knot they were zero, and scored NaN."""
    X = np.column_stack([PLAIN, np.abs(PLAIN[:, 0]) * 1e90])
    model = fit(X, {2: Real(lower=0)})
    assert not np.isnan(model.score_samples([[0.0, 0.0, 1e-300]])).any()


def test_a_variance_that_overflows_is_refused(fit):
    X = np.column_stack([PLAIN, np.where(np.arange(30) % 3, -2.6e154, PLAIN[:, 1])])
    marginal = fit(X, {2: Atom(-2.6e154)}).marginal([2])
    with pytest.raises(ValueError, match="variance of a column overflows"):
        marginal.covariance()


def test_a_table_of_one_component_is_saved(tmp_path):
    """Its covariances are shrunk by nothing, which files took for a mistake."""
    X = np.column_stack([RNG.normal(size=300), RNG.integers(0, 3, 300)])
    model = QAFFDE(columns={1: "integer"}, random_state=0).fit(X)
    assert model.plan_.base == "gaussian"
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(
        load(tmp_path / "model").score_samples(X), model.score_samples(X)
    )


@pytest.mark.parametrize("n_labels", [1, 2, 3])
def test_fewer_different_rows_than_components_are_fitted(n_labels):
    """Clusters of k-means were more than the different rows, and it warned."""
    X = np.arange(60)[:, None] % n_labels * np.ones(2)
    model = QAFFDE(columns=["category", "integer"], random_state=0).fit(X)
    assert -2 < model.score(X) <= 1e-12
    assert set(model.sample(50, random_state=0)[:, 0]) <= set(X[:, 0])

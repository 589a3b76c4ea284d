"""QAFFDE as scikit-learn users meet it: units, seeds, bandwidths, bounds, awkward data."""

import pickle
from functools import cache

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from qaffde import QAFFDE, Real, SelectionPolicy
from qaffde.functional import FREQUENCIES

RNG = np.random.default_rng(0)
X = np.concatenate([RNG.normal(size=(300, 2)), [3, 1] + 0.5 * RNG.normal(size=(200, 2))])
FRAME = pd.DataFrame(X, columns=["height", "weight"])
FIXED = {"n_features": 40, "bandwidth": 0.5, "base_measure": "box", "random_state": 0}
VARIANTS = {
    "auto": {},
    "box": {"base_measure": "box"},
    "gaussian": {"base_measure": "gaussian", "measurement": "direct"},
    "mixture": {"base_measure": "mixture", "bandwidth": "scott"},
    "kernel": {"base_measure": "kernel", "features": "sobol"},
}


def fitted(variant="auto", rows=X, **options):
    options = {"n_features": 60, "random_state": 0} | VARIANTS[variant] | options
    return QAFFDE(**options).fit(rows)


@cache
def plain_scores(variant):
    """Scores of a fit in the units as they are, and its bandwidth."""
    model = fitted(variant)
    return model.score_samples(X), model.bandwidth_


# Units


@pytest.mark.parametrize("scale", [(100, 1), (1e-9, 1e9)])
@pytest.mark.parametrize("variant", VARIANTS)
def test_units_change_nothing_but_the_jacobian(variant, scale):
    (scores, bandwidth), scaled = plain_scores(variant), fitted(variant, X * scale)
    expected = scores - np.log(scale).sum()
    np.testing.assert_allclose(scaled.score_samples(X * scale), expected, rtol=0, atol=1e-9)
    np.testing.assert_allclose(scaled.bandwidth_, bandwidth * scale)


@pytest.mark.parametrize("variant", VARIANTS)
def test_an_offset_changes_nothing(variant):
    shifted = fitted(variant, X + 1e6)
    difference = shifted.score_samples(X + 1e6) - plain_scores(variant)[0]
    np.testing.assert_allclose(difference, 0, atol=1e-6)


def test_single_precision_rows_are_those_of_double_precision():
    single = X.astype(np.float32)
    from_single, from_double = (fitted(rows=rows) for rows in (single, single.astype(float)))
    np.testing.assert_array_equal(from_single.score_samples(X), from_double.score_samples(X))
    assert from_single.score_samples(single).dtype == np.float64


@pytest.mark.parametrize(
    "rows",
    [
        X.tolist(),
        np.asfortranarray(X),
        X[::-1],
        np.repeat(X, 2, axis=1)[:, ::2],
        X.astype(object),
        torch.tensor(X),
    ],
    ids=["list", "fortran", "reversed", "strided", "object", "tensor"],
)
def test_rows_in_any_container(rows):
    plain, model = QAFFDE(**FIXED).fit(X), QAFFDE(**FIXED).fit(rows)
    np.testing.assert_allclose(model.score_samples(X), plain.score_samples(X), rtol=1e-9)
    np.testing.assert_allclose(
        np.sort(plain.score_samples(rows)), np.sort(plain.score_samples(X)), rtol=1e-9
    )


def test_rows_that_cannot_be_written_are_read_without_a_warning():
    frozen = X.copy()
    frozen.flags.writeable = False
    model = QAFFDE(**FIXED).fit(frozen)
    np.testing.assert_array_equal(model.score_samples(frozen), model.score_samples(X))


def test_rows_are_left_alone():
    rows, weight = X.copy(), np.ones(len(X))
    QAFFDE(**FIXED).fit(rows, sample_weight=weight).score_samples(rows)
    np.testing.assert_array_equal(rows, X)
    np.testing.assert_array_equal(weight, 1)


# The scikit-learn interface


def test_frames_are_arrays_with_names():
    framed, plain = QAFFDE(**FIXED).fit(FRAME), QAFFDE(**FIXED).fit(X)
    np.testing.assert_array_equal(framed.score_samples(FRAME), plain.score_samples(X))
    assert list(framed.feature_names_in_) == ["height", "weight"]
    assert framed.n_features_in_ == 2
    assert not hasattr(plain, "feature_names_in_")


@pytest.mark.parametrize("method", ["score_samples", "score"])
def test_names_are_checked_when_scoring(method):
    model = QAFFDE(**FIXED).fit(FRAME)
    with pytest.raises(ValueError, match="feature names should match"):
        getattr(model, method)(FRAME[["weight", "height"]])
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        getattr(model, method)(X)


def test_score_is_the_mean_log_likelihood():
    model = QAFFDE(**FIXED).fit(X)
    assert isinstance(model.score(X), float)
    assert model.score(X) == pytest.approx(model.score_samples(X).mean())
    assert model.score(np.concatenate([X, X])) == pytest.approx(model.score(X))


def test_fit_returns_the_model_and_ignores_y():
    model = QAFFDE(**FIXED)
    assert model.fit(X, np.ones(len(X))) is model
    np.testing.assert_array_equal(model.score_samples(X), QAFFDE(**FIXED).fit(X).score_samples(X))


def test_parameters_are_stored_as_given_and_survive_a_fit():
    given = FIXED | {
        "bandwidth": [0.5, 1],
        "columns": [Real(None, 9), Real(-9)],
        "rank": 0.5,
    }
    model = QAFFDE(**given)
    before = dict(model.get_params())
    assert all(model.get_params()[name] is value for name, value in given.items())
    model.fit(X)
    assert model.get_params() == before
    assert clone(model).get_params() == before


@pytest.mark.parametrize("variant", VARIANTS)
def test_pickles_score_the_same(variant):
    model = fitted(variant)
    copied = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(copied.score_samples(X), model.score_samples(X))
    assert copied.get_params() == model.get_params()


def test_clone_forgets_and_refit_replaces():
    model = QAFFDE(**FIXED).fit(X)
    assert not hasattr(clone(model), "density_")
    model.fit(X[:, :1])
    assert model.n_features_in_ == 1
    assert model.score_samples(X[:, :1]).shape == (500,)


def test_grid_search_finds_a_bandwidth():
    search = GridSearchCV(QAFFDE(**FIXED), {"bandwidth": [0.4, 5.0]}, cv=3).fit(X)
    assert search.best_params_ == {"bandwidth": 0.4}


def test_fitted_attributes():
    model = fitted("box", rank=7)
    assert model.rank_ == 7
    assert model.base_measure_ == "box"
    assert model.n_fourier_features_ == 59
    assert model.sums_.rho.shape == (59, 59)
    assert model.sums_.weight == model.sums_.count == len(X)
    assert model.sums_.rho.trace().item() == pytest.approx(model.sums_.weight)
    assert not any(parameter.requires_grad for parameter in model.density_.parameters())


def test_effective_count_is_kish_s():
    weight = np.arange(1.0, 501)
    model = QAFFDE(**FIXED).fit(X, sample_weight=weight)
    assert model.sums_.weight == pytest.approx(weight.sum())
    assert model.sums_.count == pytest.approx(weight.sum() ** 2 / (weight**2).sum())


# Randomness


@pytest.mark.parametrize("features", [*FREQUENCIES, "adaptive"])
def test_seeds_reproduce(features):
    options = FIXED | {"features": features, "n_features": 10}
    first, second, other = (
        QAFFDE(**options | {"random_state": seed}).fit(X).score_samples(X) for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, second)
    assert np.array_equal(first, other) == (features == "lattice")


@pytest.mark.parametrize("variant", VARIANTS)
def test_untuned_fits_reproduce(variant):
    first, second = (fitted(variant, random_state=3).score_samples(X) for _ in range(2))
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("random_state", [None, 0])
def test_global_random_state_is_left_alone(random_state):
    numpy_state, torch_state = np.random.get_state()[1].copy(), torch.get_rng_state()  # noqa: NPY002
    dtype, threads = torch.get_default_dtype(), torch.get_num_threads()
    fitted(random_state=random_state).score_samples(X)
    np.testing.assert_array_equal(np.random.get_state()[1], numpy_state)  # noqa: NPY002
    assert torch.equal(torch.get_rng_state(), torch_state)
    assert (torch.get_default_dtype(), torch.get_num_threads()) == (dtype, threads)


# Bandwidths


@pytest.mark.parametrize("base_measure", ["auto", "box", "kernel"])
def test_rules_of_thumb(base_measure):
    factors = {"scott": 500 ** (-1 / 6), "silverman": 500 ** (-1 / 6)}  # equal in two dimensions
    for rule, factor in factors.items():
        model = QAFFDE(**FIXED | {"bandwidth": rule, "base_measure": base_measure}).fit(X)
        np.testing.assert_allclose(model.bandwidth_, factor * X.std(0))


@pytest.mark.parametrize(
    ("rule", "factor"),
    [("scott", lambda n: n ** (-1 / 5)), ("silverman", lambda n: (0.75 * n) ** (-1 / 5))],
)
def test_rules_of_thumb_in_one_dimension_with_weights(rule, factor):
    column, weight = X[:, 0], np.arange(1.0, 501)
    model = QAFFDE(**FIXED | {"bandwidth": rule}).fit(column[:, None], sample_weight=weight)
    mean = np.average(column, weights=weight)
    deviation = np.sqrt(np.average((column - mean) ** 2, weights=weight))
    count = weight.sum() ** 2 / (weight**2).sum()
    np.testing.assert_allclose(model.bandwidth_, factor(count) * deviation)


@pytest.mark.parametrize("bandwidth", [0.3, [0.3, 0.9], np.array([0.3, 0.9]), (0.3,), 2])
def test_bandwidths_in_numbers(bandwidth):
    model = QAFFDE(**FIXED | {"bandwidth": bandwidth}).fit(X)
    np.testing.assert_allclose(model.bandwidth_, np.broadcast_to(bandwidth, 2))


@pytest.mark.parametrize("variant", ["box", "kernel"])
def test_held_out_likelihood_finds_a_sensible_bandwidth(variant):
    rows = RNG.normal(size=(2000, 1))
    model = fitted(variant, rows, features="auto")
    assert 0.05 < model.bandwidth_[0] < 0.6


# Bounds and far points


def test_bounds_are_hard_edges():
    rows = np.random.default_rng(0).uniform(size=(1000, 1))
    model = QAFFDE(60, columns=Real(0, 1), random_state=0).fit(rows)
    inside, outside = (
        np.exp(model.score_samples(edge)) for edge in ([[0.0], [1.0]], [[-1e-9], [1 + 1e-9]])
    )
    np.testing.assert_allclose(inside, 1, atol=0.3)
    assert outside.max() < 2e-3
    assert model.base_measure_ == "box"


@pytest.mark.parametrize("given", [{"base_measure": "box"}, {"transformation": "normal"}, {}])
def test_a_known_end_is_an_edge_and_an_open_one_is_left_to_the_data(given):
    """A box ends with the rows, and leaves a background beyond; a map goes on."""
    rows = np.random.default_rng(0).exponential(size=(2000, 1))
    model = QAFFDE(100, columns=Real(0, None), **given, random_state=0).fit(rows)
    below, edge, last, above = np.exp(
        model.score_samples([[-1e-9], [0.0], rows.max(0), rows.max(0) + 1e-9])
    )
    assert edge == pytest.approx(1, abs=0.2)
    if "base_measure" in given:
        assert 0 < below < 1e-3
        assert above < 0.5 * last
    else:
        assert below == 0
        assert above == pytest.approx(last, rel=1e-3)


def test_bounds_for_each_column():
    model = QAFFDE(**FIXED | {"columns": [Real(-9, 9), Real(None, 20)]}).fit(X)
    log_p = model.score_samples([[-9, 0], [-9.01, 0], [0, 20], [0, 20.01], [0, X[:, 1].min() - 1]])
    background = np.log(1 / 501) - np.log(2 * np.pi * 4 * X.std(0).prod())
    assert (log_p[[1, 3, 4]] < background).all()


@pytest.mark.parametrize("background", [1e-12, 0.01, "auto"])
@pytest.mark.parametrize("base_measure", ["box", "gaussian", 2])
def test_log_density_is_finite_everywhere(base_measure, background):
    policy = SelectionPolicy(background=background)
    model = QAFFDE(**FIXED | {"base_measure": base_measure, "policy": policy}).fit(X)
    far = np.outer([1e3, 1e6, 1e150, 1e300], [1, -1])
    log_p = model.score_samples(far)
    assert np.isfinite(log_p).all()
    assert (np.diff(log_p) <= 0).all()


@pytest.mark.parametrize(("scale", "far"), [(1.0, 1.7e308), (1e-9, 1e300)])
def test_log_density_is_finite_where_standardised_rows_overflow(scale, far):
    model = QAFFDE(**FIXED | {"bandwidth": "scott"}).fit(scale * X)
    assert np.isfinite(model.score_samples([[far, 0.0], [far, -far]])).all()


# Awkward data


@pytest.mark.parametrize("base_measure", ["auto", "box", "gaussian", "mixture", "kernel"])
@pytest.mark.parametrize("n", [2, 3, 5, 9, 20])
def test_few_rows(n, base_measure):
    rows = X[:n]
    model = QAFFDE(base_measure=base_measure, random_state=0).fit(rows)
    assert np.isfinite(model.score_samples(X)).all()
    assert (model.bandwidth_ > 0).all()


@pytest.mark.parametrize(("d", "n"), [(1, 300), (10, 300), (50, 300), (50, 30)])
def test_columns_from_one_to_fifty(d, n):
    rng = np.random.default_rng(0)
    model = QAFFDE(random_state=0).fit(rng.normal(size=(n, d)))
    entropy = d * 0.5 * np.log(2 * np.pi * np.e)
    fresh = model.score(rng.normal(size=(2000, d)))
    assert -entropy - 0.2 * d < fresh < -entropy + 0.02 * d + 0.05


def test_duplicated_rows_leave_a_sensible_density():
    rng = np.random.default_rng(0)
    rows, fresh = rng.normal(size=(400, 2)), rng.normal(size=(2000, 2))
    model = QAFFDE(100, random_state=0).fit(np.repeat(rows, 5, axis=0))
    assert model.score(fresh) > -np.log(2 * np.pi * np.e) - 0.3


def test_a_spike_among_continuous_rows():
    rows = np.concatenate([np.zeros((300, 1)), np.random.default_rng(0).normal(size=(300, 1))])
    log_p = QAFFDE(random_state=0).fit(rows).score_samples([[0.0], [1.0], [-1.0], [50.0]])
    assert np.isfinite(log_p).all()
    assert log_p[0] > log_p[1:3].max() > log_p[3]


def test_order_of_rows_does_not_decide_how_they_are_modelled():
    rng = np.random.default_rng(0)
    modes = rng.normal(size=(20_000, 1), scale=0.3) + rng.choice([-3, 3], size=(20_000, 1))
    rows = np.concatenate([np.zeros((10_000, 1)), modes])
    first, second = (QAFFDE(100, random_state=0).fit(r) for r in (rows, rng.permutation(rows)))
    assert first.score(modes) == pytest.approx(second.score(modes), abs=0.05)


@pytest.mark.parametrize("share", [0.5, 0.002])
def test_a_binary_column(share):
    indicator = np.arange(500) < share * 500
    model = QAFFDE(random_state=0).fit(np.c_[X[:, 0], indicator])
    assert np.isfinite(model.bandwidth_).all()
    assert np.isfinite(model.score_samples([[0.0, 0.0], [0.0, 0.5], [0.0, 1.0]])).all()


@pytest.mark.parametrize("column", ["constant", "copy"])
def test_a_bandwidth_smooths_what_the_messages_say_it_smooths(column):
    rows = np.c_[X[:, 0], np.ones(500) if column == "constant" else X[:, 0]]
    model = QAFFDE(**FIXED | {"base_measure": "kernel"}).fit(rows)
    assert model.score_samples(rows).max() < 2  # not a spike: the exact KDE stays below −1.6


@pytest.mark.parametrize("spread", [1, 10, 1000])
def test_outliers_leave_a_sensible_centre(spread):
    rng = np.random.default_rng(0)
    rows, fresh = rng.normal(size=(2000, 2)), rng.normal(size=(2000, 2))
    rows[:20] = spread * rng.standard_cauchy(size=(20, 2))
    model = QAFFDE(200, random_state=0).fit(rows)
    assert model.score_samples([[0.0, 0.0]])[0] == pytest.approx(-np.log(2 * np.pi), abs=0.5)
    assert model.score(fresh) > -np.log(2 * np.pi * np.e) - 0.3

"""What every target promises: registry, seeds, types, shapes and messages."""

import pickle

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from experiments.targets import PLANAR, TARGETS, get_target, random_gmm

every_target = pytest.mark.parametrize(
    "target", [*TARGETS.values(), random_gmm(1), random_gmm(3, scale=0.2)], ids=repr
)


def test_registry():
    assert PLANAR == (
        "arc",
        "bimodal_l",
        "binomial",
        "potential_1",
        "potential_2",
        "potential_3",
        "potential_4",
        "star_eight",
        "swiss_roll",
    )
    assert tuple(TARGETS) == PLANAR
    for name in PLANAR:
        assert get_target(name).name == name
        assert get_target(name).n_dims == 2
        assert name in repr(get_target(name))


def test_unknown_targets_are_named():
    with pytest.raises(ValueError, match="unknown target 'moons'; choose one of arc, "):
        get_target("moons")


@every_target
def test_shapes_and_types(target):
    X = target.sample(300, random_state=0)  # more than one block
    log_p = target.log_prob(X)
    assert X.shape == (300, target.n_dims)
    assert log_p.shape == (300,)
    assert X.dtype == log_p.dtype == target.support.dtype == np.float64
    assert np.isfinite(log_p).all()
    assert target.support.shape == (target.n_dims, 2)
    lower, upper = target.support.T
    assert ((lower < X) & (upper > X)).all()


@every_target
def test_log_prob_does_not_depend_on_the_batch_nor_change_it(target):
    X = target.sample(600, random_state=0)
    given_X = X.copy()
    one_by_one = np.concatenate([target.log_prob(row[None]) for row in X])
    np.testing.assert_allclose(target.log_prob(X), one_by_one, rtol=1e-12)
    np.testing.assert_array_equal(X, given_X)


@every_target
def test_log_prob_takes_any_array(target):
    X = target.sample(3, random_state=0).astype(np.float32)
    expected = target.log_prob(X)
    for same in (X.tolist(), pd.DataFrame(X), np.asfortranarray(X)):
        np.testing.assert_array_equal(target.log_prob(same), expected)


@every_target
def test_seeds(target):
    first = target.sample(10, random_state=7)
    np.testing.assert_array_equal(first, target.sample(10, random_state=np.int64(7)))
    np.testing.assert_array_equal(first, target.sample(10, np.random.default_rng(7)))
    assert not np.allclose(first, target.sample(10, random_state=8))
    assert not np.allclose(target.sample(10), target.sample(10))


@every_target
def test_generators_advance_and_reproduce(target):
    generator, twin = np.random.default_rng(0), np.random.default_rng(0)
    first, second = (target.sample(10, generator) for _ in range(2))
    assert not np.allclose(first, second)
    np.testing.assert_array_equal(first, target.sample(10, twin))
    np.testing.assert_array_equal(second, target.sample(10, twin))


@every_target
def test_global_random_state_is_left_alone(target):
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    target.sample(10, random_state=0)
    target.sample(10)
    np.testing.assert_array_equal(before, np.random.get_state()[1])  # noqa: NPY002


@every_target
def test_pickle(target):
    X = target.sample(5, random_state=0)
    copy = pickle.loads(pickle.dumps(target))
    np.testing.assert_array_equal(copy.log_prob(X), target.log_prob(X))
    np.testing.assert_array_equal(copy.sample(5, random_state=0), X)


@given(X=arrays(np.float64, (4, 2), elements=st.floats(-1e200, 1e200)))
def test_log_prob_is_a_number_or_minus_infinity(X):
    for target in TARGETS.values():
        assert (target.log_prob(X) < 1).all()


@pytest.mark.parametrize(
    ("X", "message"),
    [
        ([[1.0, 2.0, 3.0]], "arc has 2 columns, X has 3"),
        ([1.0, 2.0], "Expected 2D array, got 1D array"),
        ([[1.0, np.nan]], "Input X contains NaN"),
        ([[1.0, np.inf]], "Input X contains infinity"),
        (np.empty((0, 2)), "0 sample"),
        ([["a", "b"]], "could not convert string"),
    ],
)
def test_bad_points(X, message):
    with pytest.raises(ValueError, match=message):
        TARGETS["arc"].log_prob(X)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((0,), ValueError, "n_samples == 0, must be >= 1"),
        ((-3,), ValueError, "n_samples == -3, must be >= 1"),
        ((2.5,), TypeError, "n_samples must be an instance of int, not float"),
        ((5, "seed"), TypeError, "SeedSequence expects int"),
        ((5, -1), ValueError, "non-negative"),
    ],
)
def test_bad_sample_arguments(arguments, error, message):
    with pytest.raises(error, match=message):
        TARGETS["arc"].sample(*arguments)

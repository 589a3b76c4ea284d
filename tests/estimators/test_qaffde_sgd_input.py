"""QAFFDESGD behind transforms, on awkward rows, and with bad input."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from torch.distributions import AffineTransform, ExpTransform, StickBreakingTransform

from qaffde import QAFFDESGD, Real, SelectionPolicy, TrainingConfig
from tests.sgd_models import FIXED, SHORT, X, fitted

pytestmark = pytest.mark.usefixtures("short_search")

# Transforms


POSITIVE = np.exp(X / 3)


def test_a_transform_in_front_is_a_change_of_variables():
    through = fitted(POSITIVE, transformation=ExpTransform().inv)
    codes = np.log(POSITIVE)
    plain = fitted(codes)
    expected = plain.score_samples(codes) - codes.sum(1)
    np.testing.assert_allclose(through.score_samples(POSITIVE), expected)
    draws = through.sample(20, random_state=0)
    np.testing.assert_allclose(draws, np.exp(plain.sample(20, random_state=0)))


@pytest.mark.parametrize("transform", [AffineTransform(1.0, 2.0), ExpTransform()])
def test_models_with_a_transform_can_be_cloned_and_pickled(transform):
    model = clone(
        QAFFDESGD(**FIXED, transformation=transform, training=TrainingConfig(**SHORT))
    ).fit(POSITIVE)
    twin = pickle.loads(pickle.dumps(model))
    expected = model.score_samples(POSITIVE)
    np.testing.assert_array_equal(twin.score_samples(POSITIVE), expected)


ENCODERS = {
    "choose one of auto, normal": {"transformation": "log"},
    "None, or a torch.distributions.Transform": {"transformation": 3},
    "gives no finite code, or log-determinant, for .* rows, the first is row 0": {
        "transformation": ExpTransform().inv
    },
    r"turns rows of shape \(300, 2\) into \(300, 3\).*the shape stays": {
        "transformation": StickBreakingTransform()
    },
}


@pytest.mark.parametrize("message", ENCODERS)
def test_encoders_that_cannot_be(message):
    with pytest.raises(ValueError, match=f"(?s){message}"):
        fitted(np.vstack([[[-1.0, -1.0]], X[1:]]), **ENCODERS[message])


def test_rows_outside_the_domain_of_the_encoder_are_impossible():
    model = fitted(POSITIVE, transformation=ExpTransform().inv)
    scores = model.score_samples([[-1.0, 1.0], [1.0, 1.0]])
    assert scores[0] == -np.inf
    assert np.isfinite(scores[1])


def test_the_calculus_behind_an_encoder_is_refused():
    model = fitted(transformation=AffineTransform(0.0, 2.0))
    with pytest.raises((TypeError, ValueError), match=r"behind a transform|TransformedDensity"):
        model.marginal([0])


# Rows


@pytest.mark.parametrize("n", [2, 5, 9, 30])
def test_few_rows_are_enough(n):
    options = {"ridge": 0.1} if n == 30 else {}
    model = QAFFDESGD(random_state=0, **options).fit(X[:n])
    assert np.isfinite(model.score_samples(X)).all()
    assert model.sample(3, random_state=0).shape == (3, 2)


@pytest.mark.parametrize("d", [1, 3, 8])
def test_any_number_of_columns(d):
    rows = np.random.default_rng(0).normal(size=(60, d))
    model = QAFFDESGD(n_features=20, random_state=0).fit(rows)
    truth = -0.5 * (rows**2).sum(1) - 0.5 * d * np.log(2 * np.pi)
    assert model.score(rows) > truth.mean() - 0.5 * d
    assert model.sample(3, random_state=0).shape == (3, d)


def test_rows_of_which_one_has_nearly_all_the_weight():
    weight = np.r_[1.0, np.full(19, 1e-6)]
    model = QAFFDESGD(n_features=20, random_state=0).fit(X[:20], sample_weight=weight)
    assert np.isfinite(model.score_samples(X)).all()


def test_copies_of_few_rows_are_few_rows():
    model = QAFFDESGD(random_state=0).fit(np.repeat(X[:4], 20, axis=0))
    assert np.isfinite(model.score_samples(X)).all()


def test_far_points_have_finite_scores():
    far = np.array([[1e300, 0.0], [-1e12, 1e12], [1e5, -1e5]])
    assert np.isfinite(fitted().score_samples(far)).all()
    assert np.isfinite(fitted(base_measure="box").score_samples(far)).all()


SHARE = r"must be a number in \(0, 1\)"
WHOLE = "must be a whole number of at least 1"
BAD = {
    "constant column: 1.*drop it": {"rows": np.c_[X[:, 0], np.ones(300)]},
    "columns 0 and 1 are copies of each other": {"rows": X[:, [0, 0]]},
    "variance overflows; divide the columns first": {"rows": 1e200 * X},
    "kinds of columns or gaps .NaN. has no Fourier": {"rows": np.where(X > 4, np.nan, X)},
    "minimum of 2": {"rows": X[:1]},
    "Negative values in data passed to `sample_weight`": {"sample_weight": -np.ones(300)},
    "n_features=1 must be a whole number of at least 2": {"n_features": 1},
    "bandwidth='wide' is not known; choose one of auto, scott, silverman": {"bandwidth": "wide"},
    "bandwidth=-1 must be one of auto, scott, silverman, a positive number": {"bandwidth": -1},
    "rank=0 must be a whole number": {"rank": 0},
    "features='fourier' is not known": {"features": "fourier"},
    "base_measure='ball' is not known; choose one of auto, box, gaussian, mixture, kernel$": {
        "base_measure": "ball"
    },
    "known ends are those of a box, but base_measure='gaussian'": {
        "columns": Real(-9, 9),
        "transformation": None,
    },
    f"ridge=0 {SHARE} or": {"ridge": 0},
    f"ridge=1.5 {SHARE}": {"ridge": 1.5},
    "time_limit=-1 must be a positive number or None": {"time_limit": -1},
    "time_limit='long' must be a positive number or None": {"time_limit": "long"},
    "base_measure=0 must be": {"base_measure": 0},
    "base_measure=200 Gaussians are too many for 300 rows": {"base_measure": 200},
    "plan=3 must be a Plan": {"plan": 3},
    "checkpoint needs a random_state": {
        "training": {"checkpoint": "fit"},
        "random_state": None,
    },
    "learn_features is for classifiers": {"training": {"learn_features": True}},
}
SETTINGS = {
    "solver='newton' is not known; choose one of lbfgs, adam$": {"solver": "newton"},
    "initialization='zero' is not known; choose one of closed_form, random": {
        "initialization": "zero"
    },
    f"max_iter=0 {WHOLE}": {"max_iter": 0},
    f"max_steps=2.5 {WHOLE}": {"max_steps": 2.5},
    f"batch_size=None {WHOLE}": {"batch_size": None},
    "learning_rate=-1 must be a positive number": {"learning_rate": -1},
    "clip_norm=0 must be a positive number or None": {"clip_norm": 0},
    "weight_decay=-1 must be a number of at least 0": {"weight_decay": -1},
    f"validation_fraction=1 {SHARE}": {"validation_fraction": 1},
    f"patience=0 {WHOLE}": {"patience": 0},
    f"dropout=1 {SHARE}": {"dropout": 1},
    "augment=3 must be callable": {"augment": 3},
}


@pytest.mark.parametrize("message", BAD)
def test_bad_input(message):
    with pytest.raises((ValueError, TypeError), match=f"(?s){message}"):
        fitted(**BAD[message])


@pytest.mark.parametrize("message", SETTINGS)
def test_bad_settings_of_a_training(message):
    with pytest.raises(ValueError, match=message):
        TrainingConfig(**SETTINGS[message])


@pytest.mark.parametrize("name", ["background", "tolerance"])
def test_bad_settings_of_a_policy(name):
    with pytest.raises(ValueError, match=f"{name}=0 {SHARE}"):
        SelectionPolicy(**{name: 0})


def test_the_directory_of_a_checkpoint_must_exist(tmp_path):
    with pytest.raises(FileNotFoundError, match="does not exist; create it first"):
        fitted(training={"checkpoint": tmp_path / "nowhere" / "fit"})

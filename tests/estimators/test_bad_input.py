"""Bad input: every case with the message that says what was given and what to do."""

from functools import partial

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array

from qaffde import QAFFDE, QAFFDESGD, QAFFDEClassifier, Real, SelectionPolicy

RNG = np.random.default_rng(0)
X = RNG.normal(size=(100, 2))
FRAME = pd.DataFrame(X, columns=["height", "weight"])
ONES = np.ones(100)


def changed(value, rows=X):
    copy = rows.copy()
    copy.flat[7] = value
    return copy


def fit(rows=X, sample_weight=None, **options):
    options = {"n_features": 20, "random_state": 0} | options
    return lambda: QAFFDE(**options).fit(rows, sample_weight=sample_weight)


def score(rows, method="score_samples", fitted_on=X):
    model = QAFFDE(20, 0.5, base_measure="box").fit(fitted_on)
    return lambda: getattr(model, method)(rows)


ROWS = {
    "gaps": (fit(changed(np.nan)), "kinds of columns or gaps .NaN. has no Fourier feat"),
    "infinity": (fit(changed(np.inf)), "Input X contains infinity or a value too large"),
    "one dimension": (fit(X[:, 0]), r"Expected 2D array, got 1D array.*Reshape your data"),
    "three dimensions": (fit(X[None]), "Found array with dim 3, while dim <= 2 is required"),
    "strings": (fit([["a", "b"], ["c", "d"]]), "could not convert string to float: 'a'"),
    "objects": (fit([[{}, 1], [2, 3]]), "must be a string or a real number, not 'dict'"),
    "ragged": (fit([[1, 2], [3]]), "inhomogeneous shape"),
    "no rows": (fit(X[:0]), r"0 sample\(s\) \(shape=\(0, 2\)\) while a minimum of 2"),
    "one row": (fit(X[:1]), r"1 sample\(s\) \(shape=\(1, 2\)\) while a minimum of 2"),
    "no columns": (fit(X[:, :0]), r"0 feature\(s\) \(shape=\(100, 0\)\) while a minimum of 1"),
    "complex": (fit(1j * X), "Complex data not supported"),
    "sparse": (fit(csr_array(X)), r"Sparse data was passed.*Use '\.toarray\(\)'"),
    "huge values": (fit(1e307 * X), "variance overflows; divide the columns first"),
    "constant column": (
        fit(np.c_[X[:, 0], ONES]),
        "constant column: 1.*drop it, or smooth it with .*bandwidth as a number",
    ),
    "constant column of a frame": (
        fit(FRAME.assign(weight=3.5)),
        "constant column: 'weight'.*drop it",
    ),
    "constant columns": (fit(np.ones((100, 2)), bandwidth="scott"), r"constant column: 0, 1\."),
    "repeated column": (
        fit(X[:, [0, 0]]),
        "columns 0 and 1 are copies of each other.*drop one, or smooth them with .*bandwidth as a "
        "number",
    ),
    "repeated column of a frame": (
        fit(FRAME.assign(weight=2.2 * FRAME.height + 7)),
        "columns 'height' and 'weight' are copies of each other up to units",
    ),
    "lattice in many columns": (
        fit(RNG.normal(size=(100, 5)), features="lattice"),
        "'lattice' is for up to 4 columns and X has 5; use 'sobol' or",
    ),
}
WEIGHTS = {
    "negative": (fit(sample_weight=-ONES), "Negative values in data passed to `sample_weight`"),
    "zero": (fit(sample_weight=0 * ONES), "must contain at least one non-zero number"),
    "all but one zero": (
        fit(sample_weight=np.eye(100)[3]),
        "fewer than two rows have a positive sample_weight; a density needs at least two",
    ),
    "too few": (
        fit(sample_weight=ONES[1:]),
        r"sample_weight.shape == \(99,\), expected \(100,\)",
    ),
    "NaN": (fit(sample_weight=changed(np.nan, ONES)), "Input sample_weight contains NaN"),
    "infinity": (fit(sample_weight=changed(np.inf, ONES)), "sample_weight contains infinity"),
    "two columns": (fit(sample_weight=X), "Sample weights must be 1D array or scalar, got 2D"),
    "words": (fit(sample_weight=["heavy"] * 100), "could not convert string to float: 'heavy'"),
}
SCORES = {
    "not fitted": (lambda: QAFFDE().score_samples(X), "not fitted yet. Call 'fit'"),
    "mean, not fitted": (lambda: QAFFDE().score(X), "not fitted yet. Call 'fit'"),
    "width": (score(X[:, :1]), "X has 1 features, but QAFFDE is expecting 2"),
    "mean, width": (score(X[:, :1], "score"), "X has 1 features, but QAFFDE is expecting 2"),
    "one dimension": (score(X[0]), r"Expected 2D array, got 1D array.*Reshape your data"),
    "no rows": (score(X[:0]), r"0 sample\(s\).*minimum of 1"),
    "order of names": (
        score(FRAME[["weight", "height"]], fitted_on=FRAME),
        "feature names should match.*must be in the same order",
    ),
    "unknown name": (
        score(FRAME.rename(columns={"height": "length"}), fitted_on=FRAME),
        "unseen at fit time:.*length.*now missing:.*height",
    ),
}
CHOICES = (
    "must be one of auto, scott, silverman, a positive number, or one positive number for each"
)
RANK = r'must be a whole number of at least 1, a share of the features in \(0, 1\], or "auto"'
PAIR = r"must be a pair \(lower, upper\) or one pair for each of the 2 columns; None in a pair"
PARAMETERS = {
    "features='fourier' is not known; choose one of auto, .*, adaptive": {"features": "fourier"},
    "features=None is not known": {"features": None},
    "base_measure='sphere' is not known; choose one of auto, box": {"base_measure": "sphere"},
    "measurement='weak' is not known; choose one of direct, square_root": {"measurement": "weak"},
    "bandwidth='wide' is not known; choose one of auto, scott, silverman": {"bandwidth": "wide"},
    f"bandwidth=-1.0 {CHOICES} of the 2 columns": {"bandwidth": -1.0},
    f"bandwidth=0 {CHOICES}": {"bandwidth": 0},
    rf"bandwidth=1e\+308 {CHOICES} of the 2 columns, between 1e-150 and 1e\+150": {
        "bandwidth": 1e308
    },
    f"bandwidth=1e-308 {CHOICES}": {"bandwidth": 1e-308},
    f"bandwidth=nan {CHOICES}": {"bandwidth": np.nan},
    f"bandwidth=None {CHOICES}": {"bandwidth": None},
    rf"bandwidth=\[1, 2, 3\] {CHOICES} of the 2 columns": {"bandwidth": [1, 2, 3]},
    rf"bandwidth=\[\[1, 2\]\] {CHOICES}": {"bandwidth": [[1, 2]]},
    rf"bandwidth=\[1, -1\] {CHOICES}": {"bandwidth": [1, -1]},
    'n_features=0 must be a whole number of at least 2 or "auto"': {"n_features": 0},
    "n_features=1.5 must be a whole number": {"n_features": 1.5},
    "n_features=True must be a whole number": {"n_features": True},
    "n_features='many' must be a whole number": {"n_features": "many"},
    "base_measure=0 must be a whole number of at least 1": {"base_measure": 0},
    "base_measure=True is not known": {"base_measure": True},
    "base_measure=2.5 is not known": {"base_measure": 2.5},
    "base_measure=101 Gaussians are too many for 100 rows": {"base_measure": 101},
    "plan='auto' must be a Plan: the plan_ of a fit, or what select returns": {"plan": "auto"},
    f"rank=0 {RANK}": {"rank": 0},
    f"rank=2.5 {RANK}": {"rank": 2.5},
    f"rank='x' {RANK}": {"rank": "x"},
    f"rank=True {RANK}": {"rank": True},
    f"rank=None {RANK}": {"rank": None},
    "columns has 3 kinds for 2 columns": {"columns": [Real(-9, 9)] * 3},
    "column 0: 'box' is not a kind of column": {"columns": "box"},
    "columns=3 must be 'auto', None, a kind": {"columns": 3},
    r"column 0 has 1.30.* in row 3 \(and \d+ rows more.*real, -1 to 1; widen its ends, or drop": {
        "columns": Real(-1, 1)
    },
    "known ends are those of a box, but base_measure='gaussian' and transformation=None": {
        "columns": Real(-9, 9),
        "base_measure": "gaussian",
        "transformation": None,
    },
    "transformation='log' is not known; choose one of auto, normal": {"transformation": "log"},
    "'seed' cannot be used to seed": {"random_state": "seed"},
    "Seed must be between": {"random_state": -1},
}
POLICIES = {
    r"min_trace=0 must be a number in \(0, 1\]": {"min_trace": 0},
    r"min_trace='x' must be a number in \(0, 1\]": {"min_trace": "x"},
    "background=2 must be a number": {"background": 2},
    "background=0 must be a number": {"background": 0},
    "background=1 must be a number": {"background": 1},
    "tolerance=-1 must be a number": {"tolerance": -1},
    "tolerance=1 must be a number": {"tolerance": 1},
}
CASES = {
    f"{kind}: {name}": case
    for kind, cases in {"rows": ROWS, "weights": WEIGHTS, "scores": SCORES}.items()
    for name, case in cases.items()
}
CASES |= {message: (fit(**options), message) for message, options in PARAMETERS.items()}
CASES |= {
    message: (partial(SelectionPolicy, **options), message)
    for message, options in POLICIES.items()
}


@pytest.mark.parametrize("case", CASES)
def test_bad_input(case):
    call, message = CASES[case]
    with pytest.raises((ValueError, TypeError), match=f"(?s){message}"):
        call()


@pytest.mark.parametrize(
    ("rows", "fitted_on", "message"),
    [
        (X, FRAME, "X does not have valid feature names, but QAFFDE was fitted with"),
        (FRAME, X, "X has feature names, but QAFFDE was fitted without"),
    ],
    ids=["names lost", "names found"],
)
def test_names_that_come_and_go_are_a_warning(rows, fitted_on, message):
    with pytest.warns(UserWarning, match=message):
        score(rows, fitted_on=fitted_on)()


@pytest.mark.parametrize("parameter", ["n_features", "rank", "base_measure"])
def test_an_array_for_a_number_is_named(parameter):
    with pytest.raises(ValueError, match=f"^{parameter}="):
        QAFFDE(**{parameter: np.array([1, 2])}).fit(X)


def test_an_array_for_a_number_of_a_policy_is_named():
    with pytest.raises(ValueError, match=r"^background="):
        SelectionPolicy(background=np.array([1, 2]))


def test_parameters_are_checked_when_fitting_only():
    QAFFDE(n_features=-1, bandwidth="wide", rank="x").set_params(measurement=7)


def test_a_failed_fit_leaves_the_model_unfitted():
    model = QAFFDE(rank=0)
    with pytest.raises(ValueError, match="rank=0"):
        model.fit(X)
    with pytest.raises(ValueError, match="not fitted yet"):
        model.score_samples(X)


@pytest.mark.parametrize(
    ("estimator", "name"),
    [
        (QAFFDE, "policy"),
        (QAFFDE, "compute"),
        (QAFFDESGD, "policy"),
        (QAFFDESGD, "compute"),
        (QAFFDESGD, "training"),
        (QAFFDEClassifier, "policy"),
        (QAFFDEClassifier, "training"),
    ],
)
def test_configurations_that_are_none_are_refused(estimator, name):
    X = np.random.default_rng(0).normal(size=(20, 2))
    with pytest.raises(ValueError, match=rf"{name}=\{{.*must be a .*Config|{name}=\{{.*Policy"):
        estimator(**{name: {"max_steps": 3}}).fit(X, X[:, 0] > 0)

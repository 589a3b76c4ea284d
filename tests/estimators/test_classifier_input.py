"""Bad input to the classifier: every case with the message that says what to do."""

import numpy as np
import pytest
import torch

from qaffde import QAFFDE, QAFFDEClassifier, SelectionPolicy, TrainingConfig

RNG = np.random.default_rng(0)
X = RNG.normal(size=(100, 4))
y = np.arange(100) % 2
ONES = np.ones(100)
GRADIENT = {"method": "gradient", "max_steps": 2}
ENCODED = {**GRADIENT, "encoder": torch.nn.Linear(4, 2)}
SETTINGS = set(TrainingConfig.__dataclass_fields__)
CONSTANTS = set(SelectionPolicy.__dataclass_fields__) - {"rank"}  # rank is the estimator's


def make(**options):
    """A classifier of parameters, training settings and constants of the policy."""
    training = {name: options.pop(name) for name in options.keys() & SETTINGS}
    policy = {name: options.pop(name) for name in options.keys() & CONSTANTS}
    return QAFFDEClassifier(
        training=TrainingConfig(**training), policy=SelectionPolicy(**policy), **options
    )


def fit(rows=X, labels=y, sample_weight=None, **options):
    options = {"n_features": 10, "random_state": 0} | options
    return lambda: make(**options).fit(rows, labels, sample_weight=sample_weight)


def partial_fit(rows=X, labels=y, classes=(0, 1), **options):
    return lambda: QAFFDEClassifier(10, 1.0, **options).partial_fit(rows, labels, classes)


def later(rows, labels, **options):
    model = QAFFDEClassifier(10, 1.0).partial_fit(X, y, classes=[0, 1])
    return lambda: model.partial_fit(rows, labels, **options)


def score(rows, method="predict"):
    model = QAFFDEClassifier(10, 1.0).fit(X, y)
    return lambda: getattr(model, method)(rows)


def shaped(shape):
    encoder = torch.nn.Linear(4, 2)
    encoder.image_shape = shape
    return {**GRADIENT, "encoder": encoder}


class Wrong(torch.nn.Module):
    def forward(self, x):
        return x.sum()


ROWS = {
    "NaN": (fit(np.where(X > 2, np.nan, X)), "Input X contains NaN"),
    "one dimension": (fit(X[:, 0]), "Expected 2D array, got 1D array"),
    "one row": (fit(X[:1], y[:1]), r"1 sample\(s\)"),
    "no labels": (fit(labels=None), "requires y to be passed"),
    "too few labels": (fit(labels=y[1:]), "inconsistent numbers of samples"),
    "numbers for labels": (fit(labels=X[:, 0]), "Unknown label type: continuous"),
    "one class": (fit(labels=np.full(100, "a")), r"only the class \['a'\].*at least two classes"),
    "one class with weight": (fit(sample_weight=y), r"only the class \[1\]"),
    "negative weight": (fit(sample_weight=-ONES), "Negative values in data passed"),
    "too few weights": (fit(sample_weight=ONES[1:]), r"sample_weight.shape == \(99,\)"),
}
PARTS = {
    "no classes": (partial_fit(classes=None), "classes must be passed on the first call"),
    "one class": (
        partial_fit(labels=0 * y, classes=[0]),
        r"only the class \[0\].*named",
    ),
    "unknown label": (partial_fit(labels=y + 1), r"labels \[2\] that are not among the classes"),
    "unknown label later": (later(X, y + 5), r"labels \[5, 6\] that are not among"),
    "other classes later": (later(X, y, classes=[0, 2]), "is not the same as on last call"),
    "other width later": (later(X[:, :2], y), "X has 2 features, but QAFFDEClassifier is expect"),
    "balanced": (partial_fit(class_weight="balanced"), "needs all rows at once; give a dict"),
}
SCORES = {
    "not fitted": (lambda: QAFFDEClassifier().predict(X), "not fitted yet. Call 'fit'"),
    "width": (score(X[:, :2]), "X has 2 features, but QAFFDEClassifier is expecting 4"),
    "infinity": (score([[np.inf, 0, 0, 0]], "log_density"), "Input X contains infinity"),
}
PARAMETERS = {
    "n_features=1 must be a whole number of at least 2": {"n_features": 1},
    "bandwidth=-1 must be one of auto, a positive number": {"bandwidth": -1},
    "rank=0 must be a whole number": {"rank": 0},
    "features='lattice' is not known; choose one of auto, random": {"features": "lattice"},
    "method='sgd' is not known; choose one of auto, generative, .* gradient": {"method": "sgd"},
    "time_limit=0 must be a positive number": {"time_limit": 0},
    'n_components=0 must be a whole number of at least 1 or "auto"': {"n_components": 0},
    "class_ridge=2 must be a number": {"class_ridge": 2},
    "background=0 must be a number": {"background": 0},
    "tolerance=1 must be a number": {"tolerance": 1},
    "dropout=1 must be a number": {**GRADIENT, "dropout": 1},
    "dropout='some' must be a number": {**GRADIENT, "dropout": "some"},
    'dropout needs method="gradient"': {"dropout": 0.5},
    "validation_fraction=1 must be a number": {"validation_fraction": 1},
    "max_steps=0 must be a whole number": {"max_steps": 0},
    "learning_rate=-1 must be a positive number": {"learning_rate": -1},
    "learning_rate='fast' must be a positive number": {"learning_rate": "fast"},
    "batch_size=0 must be a whole number": {"batch_size": 0},
    r"priors=\[1.0\] must be 2 numbers of sum one": {"priors": [1.0]},
    r"priors=\[0.5, 0.6\] must be 2 numbers of sum one": {"priors": [0.5, 0.6]},
    r"priors=\[1.5, -0.5\] must be 2 numbers": {"priors": [1.5, -0.5]},
    "priors='even' must be 2 numbers": {"priors": "even"},
    "checkpoint needs a random_state": {**GRADIENT, "checkpoint": "x", "random_state": None},
    'encoder needs method="gradient"': {"encoder": torch.nn.Linear(4, 2)},
    'learn_features needs method="gradient"': {"learn_features": True},
    'checkpoint needs method="gradient"': {"checkpoint": "x"},
    'augment needs method="gradient"': {"augment": abs},
    "augment needs an encoder": {**GRADIENT, "augment": abs},
    "encoder=3 must be a torch module": {**GRADIENT, "encoder": 3},
    "augment=3 must be callable as": {**ENCODED, "augment": 3},
    r"image_shape=\(1, 2, 3\) must be .* of product 4": shaped((1, 2, 3)),
    r"image_shape=4 must be \(channels, height, width\) of product 4": shaped(4),
    r"encoder cannot take rows of 4 columns.*image_shape=\(channels": {
        **GRADIENT,
        "encoder": torch.nn.Conv2d(1, 1, 3),
    },
    "plan=3 must be a Plan: the plan_ of a fit": {"plan": 3},
    r"encoder must return codes of shape \(n, k\), got \(\)": {**GRADIENT, "encoder": Wrong()},
    "one positive number for each of the 2 columns": {**ENCODED, "bandwidth": [1, 2, 3]},
}
CASES = {
    f"{kind}: {name}": case
    for kind, cases in {"rows": ROWS, "parts": PARTS, "scores": SCORES}.items()
    for name, case in cases.items()
}
CASES |= {message: (fit(**options), message) for message, options in PARAMETERS.items()}


@pytest.mark.parametrize("case", CASES)
def test_bad_input(case):
    call, message = CASES[case]
    with pytest.raises((ValueError, TypeError), match=f"(?s){message}"):
        call()


def test_plans_of_other_models():
    density = QAFFDE(10, 1.0, random_state=0).fit(X).plan_
    with pytest.raises(ValueError, match=r"the plan is one of closed_form; .* needs classifier"):
        QAFFDEClassifier(plan=density).fit(X, y)
    plan = QAFFDEClassifier(10, 1.0).fit(X, y).plan_
    with pytest.raises(ValueError, match="the plan is one of 4 columns, but X has 2"):
        QAFFDEClassifier(plan=plan).fit(X[:, :2], y)
    with pytest.raises(ValueError, match=r"the plan is one of classifier; .* needs closed_form"):
        QAFFDE(plan=plan).fit(X)


@pytest.mark.parametrize("given", ["method", "plan"])
def test_gradient_training_adds_no_rows(given):
    model = QAFFDEClassifier(10, 1.0, method="gradient", training=TrainingConfig(max_steps=2))
    if given == "plan":
        model = QAFFDEClassifier(plan=model.fit(X, y).plan_)
    assert not hasattr(model, "partial_fit")
    with pytest.raises(AttributeError, match="no attribute 'partial_fit'") as error:
        model.partial_fit(X, y, classes=[0, 1])
    assert "fit again with all rows" in str(error.value.__cause__)


def test_constant_columns_and_copies_are_no_reason_to_stop():
    rows = np.c_[X[:, [0, 0]], ONES, 1e6 * ONES]
    model = QAFFDEClassifier(20, 1.0, n_components=None).fit(rows, y)
    assert np.isfinite(model.log_density(rows)).all()


def test_few_rows_need_no_choice():
    model = QAFFDEClassifier(random_state=0).fit([[0.0], [0.1], [3.0], [3.1]], list("aabb"))
    assert model.plan_.trials == ()
    assert list(model.predict([[0.05], [3.05]])) == ["a", "b"]

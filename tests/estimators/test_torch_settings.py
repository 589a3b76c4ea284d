"""Estimators under torch settings of their caller, and masked arrays."""

from contextlib import contextmanager
from functools import cache

import numpy as np
import pytest
import torch

import qaffde
from qaffde import (
    QAFFDE,
    QAFFDESGD,
    QAFFDEClassifier,
    QAFFDEOutlierDetector,
    QAFFDERegressor,
    QAFFDETensorTrain,
    SelectionPolicy,
    TensorTrainConfig,
    TrainingConfig,
)


@contextmanager
def double_precision():
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


SETTINGS = {
    "double precision": double_precision,
    "inference mode": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "meta": lambda: torch.device("meta"),
}
X = np.random.default_rng(0).normal(size=(120, 2))
GAPS = np.where(X < 1.5, X, np.nan)
LABELS = (X[:, 0] > 0).astype(int)
FIXED = {"n_features": 24, "bandwidth": 0.5, "random_state": 0}
SHORT = {
    "policy": SelectionPolicy(mixture_sizes=(1, 2), judge_iterations=5),
    "training": TrainingConfig(max_iter=10),
}
OPERATIONS = {
    "score": lambda m: m.score_samples(X),
    "sample": lambda m: m.sample(5, random_state=0),
    "mean": lambda m: m.mean(),
    "quantiles": lambda m: m.condition({0: 0.5}).ppf([0.1, 0.9]),
    "probability": lambda m: m.probability(-1, 1),
    "impute": lambda m: m.impute([[np.nan, 1.0]], random_state=0),
    "update": lambda m: m.partial_fit(X[:9]).score_samples(X),
}
FITS = {
    "QAFFDE": lambda: QAFFDE(base_measure="gaussian", **FIXED).fit(X),
    "QAFFDESGD": lambda: QAFFDESGD(**FIXED, **SHORT).fit(X),
    "detector": lambda: QAFFDEOutlierDetector(QAFFDE(**FIXED), random_state=0).fit(X),
    "classifier": lambda: QAFFDEClassifier(n_features=16, random_state=0).fit(X, LABELS),
    "regressor": lambda: QAFFDERegressor(
        n_members=2, training=TrainingConfig(max_steps=3), random_state=0
    ).fit(X, X[:, 0]),
    "train": lambda: QAFFDETensorTrain(
        training=TensorTrainConfig(max_steps=3), random_state=0
    ).fit(GAPS),
    "table": lambda: QAFFDE(policy=SelectionPolicy(mixture_sizes=(2,)), random_state=0).fit(GAPS),
}


def answer(model):
    asked = ("predict_proba", "score_samples", "predict")
    return next(getattr(model, name) for name in asked if hasattr(model, name))(X)


@cache
def usual_answer(kind):
    return answer(FITS[kind]())


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("kind", FITS)
def test_fits_do_not_see_the_settings(kind, setting, tmp_path):
    expected = usual_answer(kind)
    with SETTINGS[setting]():
        model = FITS[kind]()
        inside = answer(model)
        model.save(tmp_path / "model")
        loaded = qaffde.load(tmp_path / "model")
        again = answer(loaded)
    error = 1e-6 if setting == "double precision" else 1e-9  # training takes numbers with it
    for found in (inside, again, answer(model), answer(loaded)):
        np.testing.assert_allclose(found, expected, rtol=error, atol=error)


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_operations_do_not_see_the_settings(operation, setting):
    expected = OPERATIONS[operation](FITS["QAFFDE"]())
    model = FITS["QAFFDE"]()
    with SETTINGS[setting]():
        found = OPERATIONS[operation](model)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


MASKED = np.ma.masked_greater(X, 1.5)
MASKED_CALLS = {
    "fit": lambda m: QAFFDE().fit(MASKED),
    "weights": lambda m: QAFFDE().fit(X, sample_weight=np.ma.masked_less(np.arange(120.0), 3)),
    "score": lambda m: m.score_samples(MASKED),
    "cdf": lambda m: m.cdf(MASKED),
    "impute": lambda m: m.impute(X=MASKED),
    "condition": lambda m: m.condition({0: np.ma.masked_greater([1.0, 2.0], 1.5)}),
    "detector": lambda m: QAFFDEOutlierDetector(m).fit(MASKED),
    "classifier": lambda m: QAFFDEClassifier().fit(MASKED, LABELS),
    "regressor": lambda m: QAFFDERegressor().fit(X, MASKED[:, 0]),
    "train": lambda m: QAFFDETensorTrain().fit(MASKED),
    "choice": lambda m: qaffde.fit(MASKED, time_limit=0.01),
}


@pytest.mark.parametrize("call", MASKED_CALLS)
def test_masked_values_are_refused(call):
    with pytest.raises(ValueError, match="masked values"):
        MASKED_CALLS[call](FITS["QAFFDE"]())


def test_an_array_with_an_empty_mask_is_an_array():
    model = FITS["QAFFDE"]()
    found = model.score_samples(np.ma.masked_greater(X, 99))
    np.testing.assert_array_equal(found, model.score_samples(X))

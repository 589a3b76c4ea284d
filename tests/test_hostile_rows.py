"""Hostile arrays through every public method: a finite answer or a message, never NaN.

``make faults FAULTS=large`` tries 10,000; QAFFDE_HOSTILE_ROWS says how many are tried here.
"""

import inspect
import itertools
import os
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

arrays = pytest.importorskip(
    "benchmarks.faults.arrays", reason="lives in the repository, not in the package"
)
pytest.importorskip("safetensors", reason="model files need the extra 'files'")

from qaffde import QAFFDE  # noqa: E402

FINE = {"answered", "answered, in part", "refused"}
N_CASES = int(os.environ.get("QAFFDE_HOSTILE_ROWS", "30"))
PLAIN = arrays.Case("gaussian", *np.random.default_rng(0).normal(size=(2, 30, 2)))


@settings(max_examples=N_CASES, deadline=None, suppress_health_check=list(HealthCheck))
@given(arrays.cases())
def test_an_answer_or_a_message(tmp_path_factory, case):
    assert arrays.outcome(case, tmp_path_factory.getbasetemp()) in FINE


@pytest.mark.parametrize("name", arrays.ESTIMATORS)
def test_plain_rows_are_answered(name, tmp_path):
    assert arrays.outcome(replace(PLAIN, estimator=name), tmp_path).startswith("answered")


@pytest.mark.parametrize("name", ["gaussian", "classifier", "detector", "regressor"])
def test_every_public_method_is_asked(name, tmp_path, monkeypatch):
    kind, asked = type(arrays.ESTIMATORS[name]()), set()
    methods = {
        m for m in dir(kind) if not m.startswith("_") and inspect.isfunction(getattr(kind, m))
    }

    def recording(method):
        def called(self, *args, **kwargs):
            asked.add(method)
            return original(self, *args, **kwargs)

        original = getattr(kind, method)
        return called

    for method in methods:
        monkeypatch.setattr(kind, method, recording(method))
    for d, n in itertools.product((1, 2), (28, 29, 30)):
        asked_rows = PLAIN.asked[:n, :d]
        case = replace(PLAIN, estimator=name, rows=PLAIN.rows[:, :d], asked=asked_rows)
        arrays.outcome(case, tmp_path)
    unasked = {m for m in methods - asked if not m.startswith(("get_", "set_"))}
    assert unasked <= {"to_onnx", "fit_predict"}


def test_cases_are_hostile_and_many_are_answered(tmp_path):
    cases = arrays.drawn(0, 60)
    rows = [case.rows for case in cases]
    assert all(np.isfinite(X).all() for X in rows)
    assert any(np.abs(X).max() > 1e100 for X in rows)
    assert any(0 < np.ptp(X, axis=0).min() < 1e-100 for X in rows)
    assert any((np.ptp(X, axis=0) == 0).any() for X in rows)
    quick = [case for case in cases if case.estimator == "features"]
    assert {arrays.outcome(case, tmp_path) for case in quick} <= FINE


WRONG = {
    "NaN": lambda *_: np.full(30, np.nan),
    "infinity": lambda *_: np.full(30, np.inf),
    "no density at a row of the fit": lambda *_: np.full(30, -np.inf),
    "an error of NumPy": lambda *_: np.linalg.inv(np.zeros((2, 2))),
    "an error without a message": lambda *_: (_ for _ in ()).throw(ValueError),
}


@pytest.mark.parametrize("answer", WRONG.values(), ids=WRONG)
def test_wrong_answers_are_found(answer, tmp_path, monkeypatch):
    monkeypatch.setattr(QAFFDE, "score_samples", answer)
    said = arrays.outcome(PLAIN, tmp_path)
    assert said.startswith("gaussian: score_samples ")


@pytest.mark.parametrize("base", ["gaussian", "box", 2])
def test_conditional_densities_far_away(base):
    """No density is left there: −inf, whatever overflows on the way."""
    model = QAFFDE(12, 0.7, base_measure=base, random_state=0).fit(
        np.random.default_rng(0).normal(size=(50, 3))
    )
    far = np.array([[0.0, 1e308, 0.0], [0.0, 1e200, 1e200], [0.0, -1e308, 1e308]])
    assert (model.conditional_score_samples(far, [0]) == -np.inf).all()
    assert (model.condition({0: 0.0}).score_samples(far[:, 1:]) == -np.inf).all()


def test_rows_far_beyond_the_others_keep_their_mass():
    """Frequencies are huge in the units of the base there, and so are their squares."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(35, 4))
    X[:2] *= [1.0, 1.0, 1.0, 1e11]
    model = QAFFDE(12, "silverman", base_measure=2, random_state=0).fit(X)
    assert np.isfinite(model.score_samples(X)).all()
    assert model.probability(-np.inf, np.inf) == pytest.approx(1)
    assert np.isfinite(model.mean()).all()
    assert ((model.cdf(X) >= 0) & (model.cdf(X) <= 1)).all()

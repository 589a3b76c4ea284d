"""Hostile arrays through every public method: a finite answer or a message, never NaN.

``make faults FAULTS=large`` tries 10,000; QAFFDE_HOSTILE_ROWS says how many are tried here.
"""

import inspect
import itertools
import os
import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

arrays = pytest.importorskip(
    "benchmarks.faults.arrays", reason="lives in the repository, not in the package"
)

from qaffde import QAFFDE  # noqa: E402
from qaffde.nn import BornMixture  # noqa: E402

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


@pytest.mark.parametrize("name", ["gaussian", "classifier", "detector", "drift", "regressor"])
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


@pytest.mark.parametrize("scale", [1e-130, 1e130])
def test_densities_beyond_float64_have_no_inner_products(scale):
    """Of tiny columns they overflow, and infinity less infinity is NaN; of huge ones they are 0.

    They were NaN, and logarithms of zero.
    """
    X = np.random.default_rng(0).normal(size=(30, 3)) * scale
    models = [QAFFDE(6, "scott", base_measure="box", random_state=k).fit(X) for k in (0, 1)]
    for name in ("inner_product", "l2_distance", "cauchy_schwarz_divergence"):
        own = models[0] if name == "inner_product" else models[1]
        with pytest.raises(ValueError, match="too high or too low for float64"):
            getattr(models[0], name)(own)
    assert np.isfinite(models[0].kl_divergence(models[1], n_samples=50, random_state=0))


def test_modes_and_derivatives_where_there_is_no_density():
    """Walks to saddles leave a box; derivatives far away are no numbers."""
    line = np.random.default_rng(0).normal(size=2)
    model = QAFFDE(6, "scott", base_measure="box", random_state=0).fit(np.stack([line] * 3, 1))
    assert np.isfinite(model.modes(n_samples=5, random_state=0).points).all()
    model = QAFFDE(6, 0.7, base_measure="gaussian", random_state=0)
    model.fit(np.random.default_rng(0).normal(size=(50, 2)))
    with pytest.raises(ValueError, match="row 1 is so far from the data"):
        model.score_function([[0.0, 0.0], [1e300, -1e300]])


def test_high_frequencies_are_integrated_by_draws():
    """A rule of 1,371,908 nodes would take 14 TB, one of 20,000 minutes."""
    X = np.random.default_rng(0).normal(size=(40, 2))
    X[0] = 1e5
    models = [QAFFDE(6, 0.7, base_measure="gaussian", random_state=0).fit(X[k:]) for k in (0, 0)]
    start = time.process_time()
    assert np.isfinite(models[0].entropy(n_samples=50, random_state=0))
    assert models[0].inner_product(models[1]) > 0
    assert time.process_time() - start < 10


def test_filled_gaps_are_numbers(monkeypatch):
    """A conditional mean behind a map with heavy tails overflows far away."""
    model = QAFFDE(6, 0.7, base_measure="gaussian", random_state=0)
    model.fit(np.random.default_rng(0).normal(size=(50, 2)))
    fill = BornMixture.fill
    monkeypatch.setattr(BornMixture, "fill", lambda *given: fill(*given) * 1e308 * 1e308)
    with pytest.raises(ValueError, match="row 1 cannot be filled"):
        model.impute([[0.0, 0.0], [1.0, np.nan]], method="mean")

"""Distances, entropies and information of fitted densities, against formulas of the normal law."""

import dataclasses
import math

import numpy as np
import pandas as pd
import pytest

from qaffde import QAFFDE, compare
from qaffde.estimators import DensityComparison

N, CORRELATION = 4000, 0.6
NORMAL = {"n_features": 2, "bandwidth": 50.0, "base_measure": "gaussian", "random_state": 0}
"""A kernel so wide that the density is its base, one Gaussian."""


def normal_rows(d=2, shift=0.0, seed=0):
    X = np.random.default_rng(seed).normal(size=(N, d))
    X[:, 0] = (
        CORRELATION * X[:, -1] + math.sqrt(1 - CORRELATION**2) * X[:, 0] if d > 1 else X[:, 0]
    )
    return X + shift


@pytest.fixture(scope="module")
def pair():
    settings = {"n_features": 32, "bandwidth": 0.4, "base_measure": "gaussian", "random_state": 0}
    return [QAFFDE(**settings).fit(normal_rows(2, shift)) for shift in (0.0, 0.5)]


def test_compare_prints_a_table_and_is_immutable(pair):
    found = compare(*pair)
    assert isinstance(found, DensityComparison)
    text = str(found)
    assert text.count("\n") == 8
    assert f"{found.l2_distance:.6g}" in text
    assert not any(found.errors.values())  # two columns: closed forms and quadratures
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.l2_distance = 0.0


def test_compare_is_made_of_its_parts(pair):
    a, b = pair
    found = compare(a, b)
    pp, qq, pq = found.square, found.other_square, found.inner_product
    assert found.l2_distance == a.l2_distance(b) == pytest.approx(math.sqrt(pp + qq - 2 * pq))
    divergence = -math.log(pq / math.sqrt(pp * qq))
    assert a.cauchy_schwarz_divergence(b) == pytest.approx(divergence)
    assert a.renyi_entropy() == found.renyi_entropy == pytest.approx(-math.log(pp))
    assert a.inner_product(b) == pytest.approx(b.inner_product(a), rel=1e-12)
    assert found.kl_divergence > 0
    assert a.kl_divergence(a) == 0


def test_kl_divergence_by_draws_agrees_with_quadrature():
    d = 3
    a, b = (QAFFDE(**NORMAL).fit(normal_rows(d, shift, seed=3)) for shift in (0.0, 0.3))
    given = [model.marginal([0, 1, 2]) for model in (a, b)]
    value, error = given[0].kl_divergence(given[1], random_state=0, return_error=True)
    m, C = given[0].mean() - given[1].mean(), given[1].covariance()
    own = given[0].covariance()
    truth = m @ np.linalg.solve(C, m) / 2 + (np.trace(np.linalg.solve(C, own)) - d) / 2
    truth += (np.linalg.slogdet(C)[1] - np.linalg.slogdet(own)[1]) / 2
    assert 0 < error < 0.1
    assert abs(value - truth) < error + 0.01


def test_entropy_and_information_of_a_normal_law():
    model = QAFFDE(**NORMAL).fit(normal_rows())
    C = model.covariance()
    log_det = np.linalg.slogdet(C)[1]
    assert model.entropy() == pytest.approx(1 + math.log(2 * math.pi) + log_det / 2, abs=0.01)
    assert model.renyi_entropy() == pytest.approx(math.log(4 * math.pi) + log_det / 2, abs=0.01)
    r = C[0, 1] ** 2 / C[0, 0] / C[1, 1]
    information = -math.log(1 - r) / 2
    assert model.mutual_information([0], [1]) == pytest.approx(information, abs=0.01)


def test_quadratic_information_is_an_integral(pair):
    model = pair[0]
    one, two = model.marginal([0]), model.marginal([1])

    def squared(rows):
        p = np.exp(model.score_samples(rows))
        q = np.exp(one.score_samples(rows[:, :1]) + two.score_samples(rows[:, 1:]))
        return (p - q) ** 2 / p

    found = model.mutual_information([0], [1], kind="quadratic")
    assert found == pytest.approx(model.expectation(squared), rel=1e-5)
    rng = np.random.default_rng(0)
    apart = QAFFDE(**NORMAL).fit(np.column_stack([rng.normal(size=N), rng.gamma(9, size=N)]))
    assert apart.mutual_information([0], [1], kind="quadratic") < 1e-3 * found


def test_expectations(pair):
    model = pair[0]
    assert model.expectation(lambda x: x[:, 0] * x[:, 1] ** 2) == pytest.approx(
        model.expectation(lambda x: x[:, 1] * x[:, 0] ** 2, columns=[1, 0])
    )
    assert model.expectation(lambda x: x[:, 0], columns=[1]) == pytest.approx(model.mean()[1])
    t = np.array([[0.5, -0.3]])
    wave = model.expectation(lambda x: np.cos(x @ t[0]), return_error=True)
    assert wave[1] == 0
    assert model.characteristic_function(t)[0].real == pytest.approx(wave[0], abs=1e-9)


def test_density_matrices_on_one_plan(pair):
    a = pair[0]
    b = QAFFDE(plan=a.plan_).fit(normal_rows(2, 0.5))
    assert a.fidelity(a) == pytest.approx(1)
    assert a.trace_distance(a) == pytest.approx(0, abs=1e-12)
    fidelity, distance = a.fidelity(b), a.trace_distance(b)
    assert 1 - math.sqrt(fidelity) <= distance <= math.sqrt(1 - fidelity)  # Fuchs, van de Graaf
    assert fidelity == pytest.approx(b.fidelity(a))
    with pytest.raises(ValueError, match="plan of the first"):
        a.fidelity(pair[1])


def test_fidelity_is_that_of_the_definition(pair):
    import torch

    from qaffde.nn import find_born

    a, b = pair[0], QAFFDE(plan=pair[0].plan_).fit(normal_rows(2, 0.5))
    born = [find_born(model.density_) for model in (a, b)]
    lam, U = torch.linalg.eigh(born[0].measure.gram(born[0].features))
    root = (U * lam.clamp(min=0).sqrt()) @ U.T
    states = [(root @ x.factor.T @ x.factor @ root).numpy() for x in born]
    states = [state / np.trace(state) for state in states]
    values, vectors = np.linalg.eigh(states[0])
    half = (vectors * np.sqrt(values.clip(0))) @ vectors.T
    middle = np.linalg.eigvalsh(half @ states[1] @ half).clip(0)
    assert a.fidelity(b) == pytest.approx(np.sqrt(middle).sum() ** 2, rel=1e-6)
    difference = np.abs(np.linalg.eigvalsh(states[0] - states[1])).sum() / 2
    assert a.trace_distance(b) == pytest.approx(difference, rel=1e-9)


def mixed_frame(seed, shift=0.0):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "size": rng.normal(shift, size=500),
            "color": rng.choice(["red", "green"], size=500, p=[0.7, 0.3]),
        }
    )


def test_tables_by_draws_where_columns_have_maps():
    a, b = (QAFFDE(random_state=0).fit(mixed_frame(0, shift)) for shift in (0.0, 1.0))
    found = compare(a, b, random_state=0)
    assert found.kl_divergence > 0.2
    colors = compare(a.marginal(["color"]), b.marginal(["color"]))
    assert colors.errors["inner_product"] == 0  # exact: no map
    assert colors.l2_distance < 0.1
    assert a.l2_distance(b) == pytest.approx(found.l2_distance, abs=0.05)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (lambda a: "model", "no fitted density"),
        (lambda a: a.marginal([0]), "2 and 1 columns"),
    ],
)
def test_bad_pairs(pair, other, message):
    with pytest.raises((TypeError, ValueError), match=message):
        compare(pair[0], other(pair[0]))


def test_names_must_agree():
    frame = pd.DataFrame(normal_rows(2), columns=["a", "b"])
    a, b = (QAFFDE(**NORMAL).fit(x) for x in (frame, frame[["b", "a"]]))
    with pytest.raises(ValueError, match="one order"):
        a.l2_distance(b)
    assert a.l2_distance(b.marginal(["a", "b"])) < 0.01


def test_waves_that_overflow_are_refused():
    X = 1e3 * np.random.default_rng(0).normal(size=(200, 2))
    model = QAFFDE(50, bandwidth=300.0, base_measure="gaussian", random_state=0).fit(X)
    assert np.isfinite(model.characteristic_function([[1e3, 1e3]])).all()
    with pytest.raises(ValueError, match=r"t·x overflows in float64; take a smaller one"):
        model.characteristic_function([[1e308, 1e308]])

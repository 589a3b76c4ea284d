"""Classification by a flow that is conditional on the class."""

import numpy as np
import pytest
from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis
from sklearn.utils.estimator_checks import parametrize_with_checks

pytest.importorskip("zuko", reason="flows need the extra 'flows'")

from experiments.models.classifier import FlowClassifier
from experiments.models.made import MADE
from experiments.models.planar import Planar
from experiments.models.predecessors import IAF
from qaffde.baselines import MAF, NSF, RealNVP
from qaffde.training import TrainingConfig

SHORT = {
    "training": TrainingConfig(max_steps=400, batch_size=128, learning_rate=1e-2, patience=20)
}
TINY = {"training": TrainingConfig(max_steps=2)}
RNG = np.random.default_rng(0)
LABELS = np.array(["left", "right", "up"])
CENTRES = np.array([[-2.0, 0.0], [2.0, 0.0], [0.0, 3.0]])


def rows(codes, seed):
    noise = np.random.default_rng(seed).normal(size=(len(codes), 2)) * [1.0, 0.5]
    return CENTRES[codes] + noise


CODES = RNG.choice(3, 2000, p=[0.6, 0.3, 0.1])
X, y = rows(CODES, 1), LABELS[CODES]
FLOWS = {
    "MADE": MADE(1, 16, 1, **SHORT),
    "MAF": MAF(2, 16, 1, **SHORT),
    "RealNVP": RealNVP(2, 16, 1, **SHORT),
}


@pytest.fixture(scope="module")
def fitted():
    return {name: FlowClassifier(flow, random_state=0).fit(X, y) for name, flow in FLOWS.items()}


@pytest.mark.parametrize("name", FLOWS)
def test_as_good_as_the_true_model_s_classifier(name, fitted):
    fresh = rows(CODES, 2)
    oracle = QuadraticDiscriminantAnalysis().fit(X, y)
    assert fitted[name].score(fresh, y) > oracle.score(fresh, y) - 0.02
    error = fitted[name].predict_proba(fresh) - oracle.predict_proba(fresh)
    assert np.abs(error).mean() < 0.04


@pytest.mark.parametrize("name", FLOWS)
def test_each_class_has_a_density_of_mass_one(name, fitted):
    axis = np.linspace(-12, 12, 161)
    grid = np.stack(np.meshgrid(axis, axis), -1).reshape(-1, 2)
    mass = np.exp(fitted[name].log_density(grid)).sum(0) * (axis[1] - axis[0]) ** 2
    assert mass == pytest.approx(np.ones(3), abs=1e-3)


@pytest.mark.parametrize("name", FLOWS)
def test_draws_of_a_class_lie_in_its_place(name, fitted):
    for label, centre in zip(LABELS, CENTRES, strict=True):
        draws = fitted[name].sample(500, label, random_state=0)
        assert draws.mean(0) == pytest.approx(centre, abs=0.35)


def test_posterior_is_bayes_rule(fitted):
    model = fitted["MADE"]
    joint = np.exp(model.log_density(X)) * model.class_prior_
    assert np.allclose(model.predict_proba(X), joint / joint.sum(1, keepdims=True))
    assert model.class_prior_ == pytest.approx(np.bincount(CODES) / len(CODES))


def test_weights_move_the_prior():
    weight = np.where(y == "up", 9.0, 1.0)
    flow = MADE(1, 4, 1, **TINY)
    model = FlowClassifier(flow, random_state=0).fit(X, y, sample_weight=weight)
    assert model.class_prior_ == pytest.approx(np.bincount(CODES, weight) / weight.sum())


@pytest.mark.parametrize("flow", [None, IAF(1, 4, 1, **TINY), NSF(1, 4, 1, 3, **TINY)])
def test_other_flows_take_a_context_too(flow, monkeypatch):
    monkeypatch.setattr("experiments.models.classifier.MAF", lambda: MAF(1, 4, 1, **TINY))
    model = FlowClassifier(flow, random_state=0).fit(X, y)
    assert model.predict(X[:5]).shape == (5,)


def test_the_flow_that_is_given_stays_unfitted(fitted):
    assert "density_" not in vars(FLOWS["MADE"])


def test_a_planar_flow_takes_no_context():
    with pytest.raises(ValueError, match="planar flow takes no context; use MADE, MAF, RealNVP"):
        FlowClassifier(Planar(**TINY)).fit(X, y)


def test_an_unknown_label_is_named(fitted):
    with pytest.raises(ValueError, match=r"label='down' is not known; choose one of .*left"):
        fitted["MADE"].sample(3, "down")


CHEAP = TrainingConfig(max_steps=60, batch_size=32, learning_rate=0.05)
CLASSIFIER = FlowClassifier(MADE(1, 8, 1, training=CHEAP))
WEIGHTS = {
    "check_sample_weight_equivalence_on_dense_data": "batches of repeated and of weighted rows "
    "differ, and so do the steps taken on them"
}


@parametrize_with_checks([CLASSIFIER], expected_failed_checks=lambda estimator: WEIGHTS)
def test_scikit_learn_classifier(estimator, check):
    check(estimator)

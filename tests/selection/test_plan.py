"""Plans: printed, frozen, given back to estimators, kept in files; the three functions."""

import copy
import pickle
import re
from dataclasses import FrozenInstanceError, fields
from functools import partial
from html import escape

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone

import qaffde
from qaffde import (
    QAFFDE,
    QAFFDESGD,
    ComputeConfig,
    ModelSpec,
    Real,
    SelectionPolicy,
    TrainingConfig,
    select,
    solve,
    summarize,
)
from qaffde.parameters import DOUBLE, generator_from
from qaffde.selection import search
from qaffde.selection.plan import Plan, Trial
from qaffde.selection.sources import as_source

RNG = np.random.default_rng(0)
X = np.concatenate([RNG.normal(size=(300, 2)), [3, 1] + 0.5 * RNG.normal(size=(200, 2))])
NEW = np.concatenate([RNG.normal(size=(100, 2)), [3, 1] + 0.5 * RNG.normal(size=(90, 2))])
NEW = NEW[(NEW > X.min(0)).all(1) & (NEW < X.max(0)).all(1)]
SHORT = {"training": TrainingConfig(max_iter=10), "policy": SelectionPolicy(judge_iterations=5)}
MAKE = {
    "closed_form": lambda **options: QAFFDE(**{"n_features": 40, "random_state": 0} | options),
    "likelihood": lambda **options: QAFFDESGD(
        time_limit=None,
        **{"n_features": 40, "base_measure": "gaussian", "random_state": 0} | SHORT | options,
    ),
}
OTHER = {"closed_form": "likelihood", "likelihood": "closed_form"}
methods = pytest.mark.parametrize("method", MAKE)


@pytest.fixture(scope="module")
def models():
    return {method: make().fit(X) for method, make in MAKE.items()}


def same_plans(first, second):
    """Whether all fields agree, the trials too."""
    plain = [f.name for f in fields(Plan) if f.name not in ("measure", "features")]
    for name in plain:
        one, two = getattr(first, name), getattr(second, name)
        if not (torch.equal(one, two) if isinstance(one, torch.Tensor) else one == two):
            return False
    return first.matches(second)


# Printing


@methods
def test_a_plan_prints_as_a_table_of_what_was_chosen_and_from_what(models, method):
    plan = models[method].plan_
    lines = str(plan).splitlines()
    assert plan._repr_html_() == f"<pre>{escape(str(plan))}</pre>"  # in a notebook
    assert lines[0] == f"Plan ({method.replace('_', ' ')}, selected on 500 rows)"
    said = dict(line.split(maxsplit=1) for line in lines[2:6])
    assert lines[1].split(maxsplit=2) == ["base", "measure", plan.base]
    width = ", ".join(f"{number:.4g}" for number in models[method].bandwidth_)
    assert said["bandwidth"] == width
    assert said["features"] == str(plan.features.n_features)
    assert said["rank"] == str(plan.rank)
    assert ("measurement" in said) == (method == "closed_form")
    assert ("ridge" in said) == (method == "likelihood")
    head = next(i for i, line in enumerate(lines) if "held-out log-likelihood" in line)
    assert len(lines) - head - 1 == len(plan.trials) > 3
    for line, trial in zip(lines[head + 1 :], plan.trials, strict=True):
        assert line.startswith(f"  {trial.name}")
        assert f"{trial.n_rows:,}" in line
        assert f"{trial.log_likelihood:.5f}" in line
        assert line.endswith("chosen") == trial.chosen
    assert plan.base_measure in repr(plan)


@methods
def test_trials_name_all_that_was_tried(models, method):
    """Base measure, bandwidths, ridge and features, or that a base measure is left alone."""
    pattern = r"(box|gaussian|mixture of \d+(, shrinkage [\d.]+)?), bandwidth [^a-z]+, "
    pattern += r"ridge [\d.]+/n(, 40 features)?" if method == "likelihood" else "40 features"
    names = [trial.name for trial in models[method].plan_.trials]
    assert all(re.fullmatch(pattern, name) for name in names), names
    assert any(name.endswith("40 features") for name in names)
    tried = {(trial.name, trial.n_rows) for trial in models[method].plan_.trials}
    assert len(tried) == len(names)


def test_a_plan_without_a_search_has_no_trials():
    plan = QAFFDE(40, 0.5, base_measure="box").fit(X).plan_
    assert plan.trials == ()
    assert "held-out" not in str(plan)


@methods
def test_trials_are_in_the_units_of_the_data(models, method):
    scaled = MAKE[method]().fit(1000 * X)
    for plain, large in zip(models[method].plan_.trials, scaled.plan_.trials, strict=True):
        expected = plain.log_likelihood - 2 * np.log(1000)
        assert large.log_likelihood == pytest.approx(expected, abs=1e-3)


@methods
def test_the_best_trials_are_near_the_score_of_the_fit(models, method):
    plan = models[method].plan_
    best = max(trial.log_likelihood for trial in plan.trials)
    assert best == pytest.approx(models[method].score(NEW), abs=0.3)


# Immutable


@methods
@pytest.mark.parametrize("name", ["rank", "bandwidth", "trials", "measure"])
def test_a_plan_is_frozen(models, method, name):
    with pytest.raises(FrozenInstanceError):
        setattr(models[method].plan_, name, None)


def test_policies_trials_and_settings_are_frozen():
    values = {
        SelectionPolicy(): "rank",
        ComputeConfig(): "dtype",
        TrainingConfig(): "solver",
        ModelSpec(): "rank",
        Trial("box", 10, 0.0): "name",
    }
    for value, name in values.items():
        with pytest.raises(FrozenInstanceError):
            setattr(value, name, 1)


# Given back


@pytest.fixture
def no_search(monkeypatch):
    """Whoever searches fails."""

    def refuse(*args, **kwargs):
        raise AssertionError("a candidate was judged")

    monkeypatch.setattr(search.Search, "scores", refuse)
    monkeypatch.setattr(search.Search, "mixture", property(refuse))
    monkeypatch.setattr(search.Search, "measure", refuse)


@methods
@pytest.mark.usefixtures("no_search")
def test_a_given_plan_searches_nothing(models, method):
    plan = models[method].plan_
    model = MAKE[method](plan=plan, n_features=7, bandwidth=99.0).fit(NEW)
    assert model.plan_ is plan
    np.testing.assert_array_equal(model.bandwidth_, models[method].bandwidth_)
    assert np.isfinite(model.score_samples(X)).all()


def test_a_given_plan_is_a_warm_start(models):
    warm = copy.deepcopy(models["closed_form"]).set_params(warm_start=True).fit(NEW)
    given = QAFFDE(plan=models["closed_form"].plan_).fit(NEW)
    assert torch.equal(given.sums_.rho, warm.sums_.rho)
    assert (given.sums_.weight, given.sums_.count) == (warm.sums_.weight, warm.sums_.count)
    np.testing.assert_array_equal(given.score_samples(X), warm.score_samples(X))


@methods
def test_the_plan_of_a_fit_gives_that_fit_again(models, method):
    again = MAKE[method](plan=models[method].plan_).fit(X)
    np.testing.assert_allclose(again.score_samples(X), models[method].score_samples(X), atol=1e-6)


@methods
def test_a_given_plan_begins_a_stream(models, method):
    model = MAKE[method](plan=models[method].plan_)
    if method == "likelihood":
        assert not hasattr(model, "partial_fit")
        return
    for part in np.array_split(NEW, 3):
        model.partial_fit(part)
    whole = MAKE[method](plan=models[method].plan_).fit(NEW)
    np.testing.assert_allclose(model.score_samples(X), whole.score_samples(X), atol=1e-9)
    merged = copy.deepcopy(models[method]).merge(whole)
    assert merged.sums_.weight == len(X) + len(NEW)


@methods
def test_rows_of_other_width_are_refused(models, method):
    model = MAKE[method](plan=models[method].plan_)
    with pytest.raises(ValueError, match="the plan is one of 2 columns, but X has 1"):
        model.fit(X[:, :1])
    assert not hasattr(model, "plan_")


@methods
def test_plans_of_the_other_method_are_refused(models, method):
    model = MAKE[method](plan=models[OTHER[method]].plan_)
    with pytest.raises(ValueError, match=f"one of {OTHER[method]}; this estimator needs {method}"):
        model.fit(X)


@methods
@pytest.mark.parametrize("plan", ["auto", 3, {"rank": 2}, ModelSpec()])
def test_what_is_not_a_plan_is_refused(method, plan):
    with pytest.raises(ValueError, match="must be a Plan: the plan_ of a fit"):
        MAKE[method](plan=plan).fit(X)


def test_rows_beyond_the_ends_of_a_given_plan_are_refused():
    plan = QAFFDE(40, 0.5, base_measure="box").fit(X).plan_
    with pytest.raises(ValueError, match=r"outside the ends of the plan.*the first is row 0"):
        QAFFDE(plan=plan).fit(X + 100)


# Kept


@methods
def test_a_plan_survives_a_pickle(models, method):
    plan = models[method].plan_
    twin = pickle.loads(pickle.dumps(plan))
    assert same_plans(twin, plan)
    assert str(twin) == str(plan)


@methods
@pytest.mark.parametrize("given", [False, True], ids=["found", "given"])
def test_a_plan_survives_a_model_file(models, method, given, tmp_path):
    pytest.importorskip("safetensors", reason="model files need the extra 'files'")
    model = models[method]
    if given:
        model = MAKE[method](plan=model.plan_).fit(NEW)
    model.save(tmp_path / "model")
    loaded = qaffde.load(tmp_path / "model")
    assert same_plans(loaded.plan_, model.plan_)
    assert str(loaded.plan_) == str(model.plan_)
    again = MAKE[method](plan=loaded.plan_).fit(NEW)
    expected = MAKE[method](plan=model.plan_).fit(NEW)
    np.testing.assert_array_equal(again.score_samples(X), expected.score_samples(X))
    if given:
        assert same_plans(loaded.plan, model.plan)


# Parameters and the fitted state


CHANGES = {
    "n_features": 9,
    "bandwidth": 5.0,
    "rank": 1,
    "features": "random",
    "base_measure": 3,
    "columns": Real(-99, 99),
    "policy": SelectionPolicy(min_trace=0.5, background=0.5, tolerance=0.1),
    "random_state": 7,
}
OWN = {
    "closed_form": {"measurement": "direct", "warm_start": True},
    "likelihood": {"ridge": 0.5, "time_limit": 1.0, "training": TrainingConfig(max_iter=1)},
}


@methods
@pytest.mark.parametrize("read", [False, True], ids=["unread", "read"])
def test_set_params_changes_no_score(method, read):
    model, twin = (MAKE[method](bandwidth=0.5, base_measure="gaussian") for _ in range(2))
    for one in (model, twin):
        one.fit(X)
        if method == "closed_form" and not read:
            one.partial_fit(NEW)
    for name, value in (CHANGES | OWN[method]).items():
        model.set_params(**{name: value})
        np.testing.assert_array_equal(model.score_samples(X), twin.score_samples(X))
    model.set_params(plan=QAFFDE(9, 2.0, base_measure="gaussian").fit(X).plan_)
    np.testing.assert_array_equal(model.score_samples(X), twin.score_samples(X))
    np.testing.assert_array_equal(model.bandwidth_, twin.bandwidth_)
    assert (model.rank_, model.base_measure_) == (twin.rank_, twin.base_measure_)


def test_set_params_changes_no_update():
    options = {"features": "sobol", "base_measure": "gaussian", "random_state": 0}
    model, twin = (QAFFDE(40, 0.5, **options) for _ in range(2))
    for one in (model, twin):
        one.fit(X)
    model.set_params(rank=1, bandwidth=9.0, measurement="direct", policy=CHANGES["policy"])
    for one in (model, twin):
        one.partial_fit(NEW).forget(X[:50])
    np.testing.assert_array_equal(model.score_samples(X), twin.score_samples(X))


@methods
def test_clones_keep_plans_and_settings(models, method):
    plan = models[method].plan_
    given = {"plan": plan, "policy": SelectionPolicy(few_rows=5)}
    given["compute"] = ComputeConfig(batch_size=100)
    if method == "likelihood":
        given["training"] = TrainingConfig(max_iter=10)
    model = MAKE[method](**given)
    copied = clone(model)
    for name, value in given.items():
        found = getattr(copied, name)
        assert same_plans(found, value) if name == "plan" else found == value
    assert not hasattr(copied, "plan_")
    expected = model.fit(NEW).score_samples(X)
    np.testing.assert_array_equal(copied.fit(NEW).score_samples(X), expected)


# Three functions


def as_tensor(rows):
    return torch.as_tensor(np.asarray(rows))


@pytest.mark.parametrize("weight", [None, RNG.integers(1, 4, 500)], ids=["equal", "weights"])
def test_three_functions_are_the_closed_form(weight):
    seed = generator_from(0).initial_seed()
    plan = select(summarize(X, weight, random_state=0), seed=seed)
    density = solve(plan, X, weight)
    model = QAFFDE(random_state=0).fit(X, sample_weight=weight)
    assert plan.trials
    with torch.no_grad():
        scores = density.log_prob(as_tensor(NEW))
    assert plan.base == model.plan_.base
    np.testing.assert_allclose(scores, model.score_samples(NEW), atol=1e-9)


def test_three_functions_are_maximum_likelihood():
    options = {"n_features": 40, "bandwidth": 1.0, "base_measure": "gaussian", "ridge": 0.01}
    plan = select(summarize(X), ModelSpec(method="likelihood", **options))
    density = solve(plan, X, training=SHORT["training"])
    model = QAFFDESGD(**options, training=SHORT["training"], random_state=0).fit(X)
    with torch.no_grad():
        scores = density.log_prob(as_tensor(NEW))
    np.testing.assert_allclose(scores, model.score_samples(NEW), atol=1e-4)


@pytest.mark.parametrize("weight", [None, RNG.integers(1, 4, 500)], ids=["equal", "weights"])
@pytest.mark.parametrize("base_measure", ["box", "gaussian", 2, "kernel"])
def test_sums_of_parts_are_read_as_all_rows_are_solved(base_measure, weight):
    spec = ModelSpec(n_features=40, bandwidth=0.5, base_measure=base_measure)
    plan = select(summarize(X, weight), spec)
    whole = np.ones(500) if weight is None else weight
    parts = [
        as_source(X[part], whole[part]).total(partial(plan.sums, DOUBLE))
        for part in np.array_split(np.arange(500), 3)
    ]
    sums = parts[2] + parts[0] + parts[1]
    assert sums.weight == pytest.approx(whole.sum())
    with torch.no_grad():
        expected = solve(plan, X, weight).log_prob(as_tensor(NEW))
        for density in (plan.read(sums), solve(plan, sums)):
            np.testing.assert_allclose(density.log_prob(as_tensor(NEW)), expected, atol=1e-10)


def test_sums_name_rows_beyond_the_ends_by_their_number():
    plan = select(summarize(X), ModelSpec(n_features=40, bandwidth=0.5, base_measure="box"))
    part = as_tensor(X) + 100, torch.ones(500).double(), range(7000, 7500)
    with pytest.raises(ValueError, match=r"500 rows lie outside .* the first is row 7000"):
        plan.sums(DOUBLE, part)


def test_names_of_columns_are_in_messages():
    frame = pd.DataFrame(X, columns=["a", "b"]).assign(b=1.0)
    with pytest.raises(ValueError, match="constant column: 'b'"):
        select(summarize(frame), names=["a", "b"])
    with pytest.raises(ValueError, match="row 3 has NaN in column 'b'"):
        summarize(frame.assign(b=frame.b.where(frame.index != 3)))

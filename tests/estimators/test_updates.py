"""Rows that come and go: chunks, merges, removals and decay give what one fit would."""

import copy
import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from qaffde import QAFFDE, Real, SelectionPolicy
from qaffde.selection import Plan

RNG = np.random.default_rng(0)
X = np.concatenate([RNG.normal(size=(200, 2)), [3, 1] + 0.5 * RNG.normal(size=(100, 2))])
WEIGHT = RNG.uniform(0.1, 3, size=300)
POINTS = RNG.uniform(-4, 6, size=(100, 2))
PLANS = {
    "box": {"base_measure": "box"},
    "gaussian": {"base_measure": "gaussian"},
    "mixture": {"base_measure": 2, "measurement": "direct"},
    "kernel": {"base_measure": "kernel"},
}
GIVEN = {"bandwidth": 0.5, "columns": Real(-9, 9), "random_state": 0}
WHOLE = {
    name: QAFFDE(30, 0.6, random_state=0, **options).fit(X) for name, options in PLANS.items()
}


def on_plan(name, rows=X, weight=None):
    """The fit of other rows with the plan of a fit to all of them."""
    return QAFFDE(plan=WHOLE[name].plan_).fit(rows, sample_weight=weight)


def assert_same(first, second, atol=1e-10):
    np.testing.assert_allclose(
        first.score_samples(POINTS), second.score_samples(POINTS), rtol=0, atol=atol
    )
    assert first.sums_.weight == pytest.approx(second.sums_.weight, rel=1e-12)
    assert first.sums_.count == pytest.approx(second.sums_.count, rel=1e-10)
    assert first.rank_ == second.rank_


plans = st.sampled_from(list(PLANS))
cuts = st.lists(st.integers(2, 298), min_size=1, max_size=4, unique=True).map(sorted)


# Adding


@settings(max_examples=20, deadline=None)
@given(plans, cuts, st.booleans(), st.randoms(use_true_random=False))
def test_chunks_in_any_order_are_one_fit(name, cuts, weighted, random):
    weight = WEIGHT if weighted else np.ones(300)
    chunks = np.split(np.arange(300), cuts)
    random.shuffle(chunks)
    assume(len(chunks[0]) > 1)
    model = on_plan(name, X[chunks[0]], weight[chunks[0]])
    for chunk in chunks[1:]:
        model.partial_fit(X[chunk], sample_weight=weight[chunk])
    assert_same(model, on_plan(name, X, weight))


@pytest.mark.parametrize("features", ["auto", "random", "sobol"])
@pytest.mark.parametrize("d", [1, 2])
def test_with_numbers_for_bandwidth_and_bounds_chunks_are_a_plain_fit(d, features):
    rows = X[:, :d]
    options = GIVEN | {"features": features, "n_features": 40}
    model = QAFFDE(**options)
    for chunk in np.array_split(rows, 7):
        model.partial_fit(chunk)
    plain = QAFFDE(**options).fit(rows)
    difference = model.score_samples(POINTS[:, :d]) - plain.score_samples(POINTS[:, :d])
    assert np.abs(difference).max() < 1e-10


def test_features_of_a_given_plan_do_not_count_the_rows():
    fine = GIVEN | {"bandwidth": 0.05}
    few, more = (QAFFDE(**fine).fit(X[:n, :1]) for n in (10, 300))
    assert few.n_fourier_features_ == more.n_fourier_features_ == 249
    assert few.plan_.matches(more.plan_)


def test_a_given_plan_may_have_constant_columns():
    model = QAFFDE(300, **GIVEN).fit(np.ones((5, 2)))
    assert model.score_samples([[1.0, 1.0]]) > model.score_samples([[3.0, 1.0]]) + 1


def test_a_stream_begins_with_a_plan_that_has_no_ends():
    model = QAFFDE(random_state=0).partial_fit(X[:50]).partial_fit(100 + X[50:60])
    assert model.base_measure_ in ("gaussian", "mixture")
    assert model.n_fourier_features_ == 500
    assert model.plan_.reach.isinf().all()
    assert model.get_params() == QAFFDE(random_state=0).get_params()


def test_a_random_state_is_advanced_by_the_first_chunk():
    source = np.random.RandomState(0)
    options = {"n_features": 20, "bandwidth": 0.5, "features": "random", "random_state": source}
    first, second = (QAFFDE(**options).partial_fit(X) for _ in range(2))
    assert not first.plan_.matches(second.plan_)


def test_the_background_follows_the_effective_count():
    model = QAFFDE(20, 0.5, features="sobol", base_measure="gaussian").fit(X[:100])
    epsilon = [model.density_.density.epsilon, model.partial_fit(X).density_.density.epsilon]
    assert epsilon == pytest.approx([1 / 101, 1 / 401])


def test_the_density_is_read_when_it_is_asked_for(monkeypatch):
    model, reads = on_plan("box"), []
    read = Plan.read
    monkeypatch.setattr(Plan, "read", lambda *state: reads.append(state) or read(*state))
    for row in X[:10]:
        model.partial_fit(row[None])
    assert not reads
    first, second = model.density_, model.density_
    assert first is second
    assert len(reads) == 1


def test_warm_start_keeps_the_plan_and_replaces_the_rows():
    model = copy.deepcopy(WHOLE["gaussian"]).set_params(warm_start=True)
    plan = model.plan_
    assert model.fit(X[:40]).plan_ is plan
    assert_same(model, on_plan("gaussian", X[:40]))
    assert model.sums_.weight == 40
    assert not clone(model).fit(X[:40]).plan_.matches(model.plan_)


# Merging


@settings(max_examples=15, deadline=None)
@given(plans, st.integers(2, 298))
def test_merging_is_the_joint_fit(name, cut):
    first, second = (
        on_plan(name, X[rows], WEIGHT[rows]) for rows in (slice(cut), slice(cut, None))
    )
    other = second.score_samples(POINTS)
    assert first.merge(second) is first
    assert_same(first, on_plan(name, X, WEIGHT))
    np.testing.assert_array_equal(second.score_samples(POINTS), other)


def test_fits_with_the_same_numbers_merge():
    first, second = (QAFFDE(30, **GIVEN).fit(rows) for rows in (X[:100], X[100:]))
    assert_same(first.merge(second), QAFFDE(30, **GIVEN).fit(X))


# Forgetting


@settings(max_examples=15, deadline=None)
@given(plans, st.integers(2, 290), st.booleans())
def test_forgetting_what_was_merged_is_the_original(name, cut, weighted):
    weight = WEIGHT if weighted else np.ones(300)
    model = on_plan(name, X, weight).forget(X[cut:], sample_weight=weight[cut:])
    assert_same(model, on_plan(name, X[:cut], weight[:cut]), atol=1e-7)


def test_decay_scales_the_weight_and_leaves_the_density():
    model, before = on_plan("box", X, WEIGHT), on_plan("box", X, WEIGHT)
    model.forget(decay=0.5)
    assert model.sums_.weight == pytest.approx(WEIGHT.sum() / 2)
    torch.testing.assert_close(model.sums_.rho, before.sums_.rho / 2)
    assert model.sums_.count == before.sums_.count
    np.testing.assert_allclose(model.score_samples(POINTS), before.score_samples(POINTS))


def test_rows_after_a_decay_weigh_more():
    model = on_plan("box", X[:150]).forget(decay=0.25).partial_fit(X[150:])
    faded = np.repeat([0.25, 1.0], 150)
    assert_same(model, on_plan("box", X, faded))
    assert model.sums_.count == pytest.approx(faded.sum() ** 2 / (faded**2).sum())
    model.forget(X[:150], sample_weight=faded[:150])
    assert_same(model, on_plan("box", X[150:]), atol=1e-8)


# After every update


UPDATES = {
    "partial_fit": lambda model: model.partial_fit(X[:30]),
    "merge": lambda model: model.merge(on_plan(model.base_measure_, X[50:120], WEIGHT[50:120])),
    "forget": lambda model: model.forget(X[:100]),
    "decay": lambda model: model.forget(decay=0.1).partial_fit(X[:5]),
}


@pytest.mark.parametrize("update", UPDATES)
@pytest.mark.parametrize("name", ["box", "gaussian", "mixture"])
def test_mass_is_one_after_every_update(name, update, legendre):
    policy = SelectionPolicy(background=0.01)
    model = QAFFDE(30, 0.6, random_state=0, policy=policy, **PLANS[name]).fit(X)
    UPDATES[update](model)
    edges = np.stack([X.mean(0) - 40, X.min(0), X.max(0), X.mean(0) + 40])
    total = 0.0
    for i, j in np.ndindex(3, 3):
        ends = edges[[i, i + 1], 0], edges[[j, j + 1], 1]
        points, weights = legendre(*torch.tensor(np.transpose(ends)), 60)
        total += np.exp(model.score_samples(points.numpy())) @ weights.numpy()
    assert total == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("update", UPDATES)
@pytest.mark.parametrize("read", [False, True])
def test_updated_models_survive_a_pickle(update, read):
    model = UPDATES[update](on_plan("box"))
    if read:
        model.score_samples(POINTS)
    loaded = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(loaded.score_samples(POINTS), model.score_samples(POINTS))
    assert_same(loaded.partial_fit(X[:9]), model.partial_fit(X[:9]))


def test_the_calculus_sees_updates():
    model = on_plan("gaussian", X[:200])
    before = model.mean()
    assert np.abs(model.partial_fit(X[200:]).mean() - before).max() > 0.1
    assert model.purity() == pytest.approx(on_plan("gaussian").purity())


# Bad input: nothing of the old state is lost


def outside():
    rows = X[:5].copy()
    rows[3, 0] = 99.0
    return rows


BAD = {
    "width": (lambda m: m.partial_fit(X[:, :1]), "X has 1 features, but QAFFDE is expecting 2"),
    "NaN": (lambda m: m.partial_fit([[np.nan, 1.0]]), "Input X contains NaN"),
    "weights": (lambda m: m.partial_fit(X[:2], sample_weight=[-1, 1]), "Negative values"),
    "outside": (
        lambda m: m.partial_fit(outside()),
        r"1 rows lie outside the ends of the plan.*row 3: \[99.*give ends that hold",
    ),
    "parameter": (lambda m: m.set_params(rank=0).partial_fit(X), "rank=0 must be a whole number"),
    "other plan": (
        lambda m: m.merge(WHOLE["gaussian"]),
        r"different plans.*QAFFDE\(plan=first.plan_\).fit\(rows\)",
    ),
    "no fit": (lambda m: m.merge(QAFFDE()), "not fitted yet"),
    "no density matrix": (lambda m: m.merge(m.marginal([0])), "only a fit with a density matrix"),
    "nothing": (lambda m: m.forget(), "give either rows to forget or decay"),
    "both": (lambda m: m.forget(X[:2], decay=0.5), "give either rows to forget or decay"),
    "faded": (lambda m: m.forget(decay=1e-300), "rounds their density away"),
    "decay": (lambda m: m.forget(decay=1.5), r"decay=1.5 must be a number in \(0, 1\)"),
    "decay and weights": (
        lambda m: m.forget(decay=0.5, sample_weight=[1.0]),
        "sample_weight belongs to rows",
    ),
    "everything": (lambda m: m.forget(X), "weight 300 cannot be forgotten: the fit holds 300"),
    "too much": (lambda m: m.forget(X, sample_weight=2 * WEIGHT), "something must be left"),
    "too heavy": (
        lambda m: m.forget(X[:1], sample_weight=[250.0]),
        "not all in the fit, or not with this weight: their weights do not fit",
    ),
    "never seen": (
        lambda m: m.forget([[3.0, -2.4]] * 30),
        "rows to forget were not all in the fit.*has the eigenvalue -",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_failed_update_changes_nothing(case):
    call, message = BAD[case]
    model = on_plan("box")
    before = model.sums_.rho.clone(), model.score_samples(POINTS)
    with pytest.raises((ValueError, TypeError), match=f"(?s){message}"):
        call(model)
    assert torch.equal(model.sums_.rho, before[0])
    assert model.sums_.weight == model.sums_.count == 300
    np.testing.assert_array_equal(model.score_samples(POINTS), before[1])


def test_rows_beyond_the_period_of_a_lattice_are_refused():
    with pytest.raises(ValueError, match="outside the ends of the plan"):
        copy.deepcopy(WHOLE["gaussian"]).partial_fit([[60.0, 0.0]])


def test_column_names_must_agree():
    frames = [pd.DataFrame(X, columns=names) for names in (["a", "b"], ["b", "a"])]
    first, second = (QAFFDE(20, **GIVEN).fit(frame) for frame in frames)
    with pytest.raises(ValueError, match="column names"):
        first.merge(second)
    with pytest.raises(ValueError, match="feature names should match"):
        first.partial_fit(frames[1])


@pytest.mark.parametrize("far", [1e60, 1e300])
def test_rows_whose_phases_overflow_are_refused(far):
    # they made the density matrix NaN, and then all scores
    rows = np.random.default_rng(0).normal(size=(40, 2)) * 1e-100
    model = QAFFDE(12, 1e-100, base_measure="gaussian", random_state=0).fit(rows)
    before = model.score_samples(rows)
    with pytest.raises(ValueError, match=r"outside the ends of the plan.*the first is row 0"):
        model.partial_fit(np.full((1, 2), far))
    np.testing.assert_array_equal(model.score_samples(rows), before)


def test_a_failed_first_chunk_leaves_the_model_unfitted():
    model = QAFFDE()
    with pytest.raises(ValueError, match="constant column: 1"):
        model.partial_fit(np.c_[X[:, 0], np.ones(300)])
    for call in (lambda: model.forget(X), lambda: model.merge(model), lambda: model.score(X)):
        with pytest.raises(NotFittedError):
            call()
    assert not hasattr(model, "density_")
    assert model.partial_fit(X).sums_.weight == 300

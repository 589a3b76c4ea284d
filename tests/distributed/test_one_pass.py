"""Passes over Dask collections: how many there are, and what they say of all rows."""

import numpy as np
import pytest

from qaffde import QAFFDE, Real
from qaffde.distributed import DaskSource, score_samples

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")

N, PARTS = 3000, 10
X = np.random.default_rng(0).normal(size=(N, 2)) * [1.0, 3.0] + [0.0, 5.0]
WEIGHT = np.random.default_rng(1).choice([0.0, 1.0, 2.5], N)
ROWS = da.from_array(X, chunks=(N // PARTS, 2))
SCOTT = {"n_features": 48, "bandwidth": "scott", "random_state": 0}


@pytest.fixture(autouse=True)
def threads():
    """Dask's threads, one of them, unless a test has a cluster."""
    with dask.config.set(scheduler="threads", num_workers=1):
        yield


def fit(model, X, sample_weight=None, **options):
    return model.fit(DaskSource(X, sample_weight, **options))


def counted(loads):
    """Partitions that tell when they are loaded."""

    def load(number):
        loads.append(number)
        return np.array_split(X, PARTS)[number]

    parts = [dask.delayed(load)(number) for number in range(PARTS)]
    return da.concatenate([da.from_delayed(part, (N // PARTS, 2), float) for part in parts])


PASSES = {
    "two": ({}, 2 * PARTS),
    "given": ({"bandwidth": 0.5, "columns": Real(-30, 30)}, PARTS + 1),
}


@pytest.mark.parametrize("name", PASSES)
def test_partitions_are_read_as_often_as_is_said(name):
    parameters, expected = PASSES[name]
    loads = []
    model = fit(QAFFDE(**{**SCOTT, **parameters}), counted(loads))
    assert model.sums_.weight == N
    assert len(loads) == expected
    assert set(loads) == set(range(PARTS))


def test_a_kept_plan_takes_one_pass():
    loads = []
    model = fit(QAFFDE(**SCOTT, warm_start=True), ROWS)
    fit(model, counted(loads))
    assert len(loads) == PARTS


def test_a_given_plan_takes_one_pass():
    loads = []
    plan = fit(QAFFDE(**SCOTT), ROWS).plan_
    model = fit(QAFFDE(plan=plan), counted(loads))
    assert len(loads) == PARTS
    assert model.plan_ is plan


@pytest.mark.parametrize("weight", [None, WEIGHT])
def test_the_box_holds_all_rows(weight):
    lazy = None if weight is None else da.from_array(weight, chunks=N // PARTS)
    model = fit(QAFFDE(**SCOTT, base_measure="box"), ROWS, lazy)
    kept = X if weight is None else X[weight > 0]
    plan = model.plan_
    ends = [plan.location + plan.scale * e for e in (plan.measure.lower, plan.measure.upper)]
    np.testing.assert_allclose(ends, [kept.min(0), kept.max(0)])
    assert model.sums_.weight == pytest.approx(N if weight is None else weight.sum())
    assert model.probability(kept.min(0), kept.max(0)) == pytest.approx(1.0, abs=1e-2)
    assert np.isfinite(model.score_samples(kept)).all()
    with pytest.raises(ValueError, match="lie outside"):
        model.partial_fit(X + 100.0)


def test_the_gaussian_has_the_moments_of_all_rows():
    model = fit(QAFFDE(**SCOTT, base_measure="gaussian"), ROWS)
    plan, measure = model.plan_, model.plan_.measure
    np.testing.assert_allclose(plan.location + plan.scale * measure.means[0], X.mean(0))
    covariance = plan.scale * measure.covariances[0] * plan.scale[:, None]
    np.testing.assert_allclose(covariance, np.cov(X.T, ddof=0), rtol=1e-6, atol=1e-6)


def test_rows_beyond_given_ends_are_told_in_any_partition():
    rows = X.copy()
    rows[2950, 0] = 50.0
    model = QAFFDE(**SCOTT, columns=[Real(-30.0, 20.0), Real(-30.0, 30.0)], transformation=None)
    with pytest.raises(ValueError, match=r"^partition 9: .*the first is row 250"):
        fit(model, da.from_array(rows, chunks=(N // PARTS, 2)))
    assert not model.__sklearn_is_fitted__()
    plan = fit(model, ROWS).plan_
    ends = plan.location + plan.scale * plan.reach
    np.testing.assert_allclose(ends, [[-30.0, -30.0], [20.0, 30.0]])


def test_a_first_partition_of_one_row_is_no_error():
    rows = da.concatenate([ROWS[:1], ROWS[1:]])
    given = {**SCOTT, "bandwidth": 0.5, "columns": Real(-30, 30)}
    assert fit(QAFFDE(**given), rows).sums_.weight == N
    with pytest.raises(ValueError, match="fewer than two rows"):
        fit(QAFFDE(**SCOTT), ROWS[:1])


def test_the_number_of_workers_changes_nothing():
    found = []
    for workers in (1, 3):
        with (
            distributed.LocalCluster(
                n_workers=workers, threads_per_worker=1, processes=False, dashboard_address=":0"
            ) as cluster,
            distributed.Client(cluster) as client,
        ):
            model = fit(QAFFDE(48, random_state=0), ROWS, client=client)
            found.append((model.sums_.rho, client.compute(score_samples(model, ROWS)).result()))
    (one, scores), (three, others) = found
    np.testing.assert_allclose(one, three, rtol=0, atol=1e-12 * N)
    np.testing.assert_allclose(scores, others, rtol=0, atol=1e-9)

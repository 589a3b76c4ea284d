"""Dask collections give ordinary fits, whoever computes them and in whatever order."""

import os
import pickle
import signal

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import qaffde
from qaffde import (
    QAFFDE,
    QAFFDESGD,
    QAFFDETensorTrain,
    Real,
    TensorTrainConfig,
    TrainingConfig,
)
from qaffde.distributed import DaskSource, score_samples

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
dd = pytest.importorskip("dask.dataframe")
distributed = pytest.importorskip("distributed")

N = 900
X = np.random.default_rng(0).normal(size=(N, 2)) * [1.0, 3.0] + [0.0, 5.0]
WEIGHT = np.random.default_rng(1).choice([0.0, 1.0, 2.5], N)
ROWS = da.from_array(X, chunks=(130, 1))
FRAME = pd.DataFrame(X, columns=["a", "b"])
GIVEN = {"n_features": 24, "bandwidth": 0.7, "base_measure": "gaussian", "random_state": 0}
TOLERANCE = 1e-9
"""Of log-densities, where sums of float64 differ by their order alone."""


@pytest.fixture(autouse=True)
def threads():
    """Dask's threads, one of them, unless a test has a cluster."""
    with dask.config.set(scheduler="threads", num_workers=1):
        yield


def fit(model, X, sample_weight=None, **options):
    return model.fit(DaskSource(X, sample_weight, **options))


def assert_same(first, second, atol=TOLERANCE):
    assert first.sums_.weight == pytest.approx(second.sums_.weight)
    assert first.sums_.count == pytest.approx(second.sums_.count)
    scores = [model._log_density(X) for model in (first, second)]
    np.testing.assert_allclose(*scores, atol=atol)


@pytest.mark.parametrize("base", ["gaussian", "box"])
@pytest.mark.parametrize("weight", [None, WEIGHT])
def test_an_array_gives_the_fit_in_memory(base, weight):
    parameters = {**GIVEN, "base_measure": base}
    lazy = None if weight is None else da.from_array(weight, chunks=200)
    found = fit(QAFFDE(**parameters), ROWS, lazy)
    assert type(found) is QAFFDE
    assert_same(found, QAFFDE(**parameters).fit(X, sample_weight=weight))


def test_a_data_frame_gives_the_fit_in_memory():
    lazy = dd.from_pandas(FRAME.assign(w=WEIGHT), npartitions=4)
    some = lazy[lazy["a"] < 9.0]  # of unknown length
    found = fit(QAFFDE(**GIVEN), some[["a", "b"]], some["w"])
    assert list(found.feature_names_in_) == ["a", "b"]
    assert_same(found, QAFFDE(**GIVEN).fit(FRAME, sample_weight=WEIGHT))


def test_unknown_lengths_and_empty_partitions():
    mask = da.from_array(np.arange(N) < 300, chunks=130)
    rows, weight = ROWS.rechunk((130, 2))[mask], da.from_array(WEIGHT, chunks=130)[mask]
    assert np.isnan(rows.shape[0])
    found = fit(QAFFDE(**GIVEN), rows, weight)
    assert_same(found, QAFFDE(**GIVEN).fit(X[:300], sample_weight=WEIGHT[:300]))
    assert score_samples(found, rows).compute().shape == (300,)


def test_the_untuned_fit_knows_no_order():
    blocks = [ROWS.rechunk((130, 2)).blocks[k] for k in range(7)]
    forth = fit(QAFFDE(24, random_state=0), da.concatenate(blocks))
    back = fit(QAFFDE(24, random_state=0), da.concatenate(blocks[::-1]))
    assert_same(forth, back, atol=1e-6)
    held_out = np.random.default_rng(5).normal(size=(500, 2)) * [1.0, 3.0] + [0.0, 5.0]
    whole = QAFFDE(24, random_state=0).fit(X)
    assert forth.score(held_out) == pytest.approx(whole.score(held_out), abs=0.05)


def test_updates_merge_and_forget():
    first = QAFFDE(**GIVEN).partial_fit(DaskSource(ROWS[:500]))
    first.partial_fit(DaskSource(ROWS[500:]))
    second = QAFFDE(**GIVEN).partial_fit(DaskSource(ROWS[:500])).partial_fit(X[500:])
    assert_same(first, second)
    first.set_params(warm_start=True)
    assert_same(fit(first, ROWS).merge(second).forget(X), second, atol=1e-6)


def test_scores_are_lazy_and_known():
    model = QAFFDE(**GIVEN).fit(X)
    lazy = score_samples(model, ROWS)
    assert isinstance(lazy, da.Array)
    assert (lazy.chunks, lazy.dtype, type(lazy._meta)) == (
        (ROWS.chunks[0],),
        np.float64,
        np.ndarray,
    )
    np.testing.assert_allclose(lazy.compute(), model.score_samples(X), atol=TOLERANCE)
    named = QAFFDE(**GIVEN).fit(FRAME)
    series = score_samples(named, dd.from_pandas(FRAME, npartitions=3, sort=False))
    assert isinstance(series, dd.Series)
    assert series.name == "log_density"
    pd.testing.assert_series_equal(
        series.compute(), pd.Series(named.score_samples(FRAME), name="log_density")
    )
    short = TrainingConfig(max_iter=5)
    sgd = QAFFDESGD(16, 0.8, ridge=1e-3, base_measure="gaussian", training=short).fit(X)
    scores = score_samples(sgd, ROWS).compute()
    np.testing.assert_allclose(scores, sgd.score_samples(X), atol=TOLERANCE)


def unreadable(number):
    raise AssertionError(f"partition {number} was computed")


def test_nothing_is_computed_before_it_is_asked_for():
    model = QAFFDE(**GIVEN).fit(FRAME)
    parts = [dask.delayed(unreadable)(number) for number in range(3)]
    array = da.concatenate([da.from_delayed(part, (10, 2), float) for part in parts])
    frame = dd.from_delayed(parts, meta=FRAME.iloc[:0], verify_meta=False)
    lazy = [score_samples(QAFFDE(**GIVEN).fit(X), array), score_samples(model, frame)]
    for scores in lazy:
        with pytest.raises(AssertionError, match="was computed"):
            scores.compute()


def test_rows_with_gaps_have_their_marginal_density():
    model = QAFFDE(**GIVEN).fit(X)
    found = score_samples(model, da.from_array(holed(397), chunks=(130, 2))).compute()
    np.testing.assert_allclose(found, model.score_samples(holed(397)), atol=TOLERANCE)
    assert found[397] == pytest.approx(model.marginal([0]).score_samples(X[397:398, :1])[0])


def test_scores_of_bad_rows_name_their_partition():
    endless = np.where(np.isnan(holed(397)), np.inf, X)
    with pytest.raises(ValueError, match=r"^partition 3: .*infinity.*$"):
        score_samples(QAFFDE(**GIVEN).fit(X), da.from_array(endless, (130, 2))).compute()
    frame = dd.from_delayed(
        [dask.delayed(pd.DataFrame(part, columns=["a", "b"])) for part in np.split(endless, 9)]
    )
    with pytest.raises(ValueError, match=r"^partition 3: .*infinity.*$"):
        score_samples(QAFFDE(**GIVEN).fit(FRAME), frame).compute()


def test_workers_get_no_more_than_they_need():
    model = QAFFDE(**{**GIVEN, "n_features": 200, "rank": 2}).fit(X)
    graph = score_samples(model, ROWS).__dask_graph__()
    assert len(pickle.dumps(dict(graph))) < model.sums_.rho.nbytes
    assert len(model.sums_.rho) == model.n_fourier_features_  # the caller's own is left as it was


def holed(row):
    rows = X.copy()
    rows[row, 1] = np.nan
    return rows


BAD = {
    "partition 3: row 7 has NaN in column 1": lambda: (da.from_array(holed(397), (130, 2)), None),
    "in column 'b'": lambda: (dd.from_pandas(pd.DataFrame(holed(3), columns=["a", "b"])), None),
    "column 'b' holds text": lambda: (dd.from_pandas(FRAME.assign(b="x"), npartitions=2), None),
    "partition 0: row 3 has the weight -1": lambda: (ROWS, np.where(np.arange(N) == 3, -1.0, 1)),
    "has the shape (5,)": lambda: (ROWS, np.ones(5)),
    "with the 2 partitions of X": lambda: (dd.from_pandas(FRAME, npartitions=2), WEIGHT),
    "fewer than two rows": lambda: (ROWS, np.zeros(N)),
    "with d known": lambda: (ROWS[:, 0], None),
    "got ndarray": lambda: (X, None),
    "outside bounds, the first is row 0": lambda: (ROWS + 100.0, None),
}


@pytest.mark.parametrize("message", BAD)
def test_bad_collections_are_rejected(message):
    rows, weight = BAD[message]()
    model = QAFFDE(24, columns=Real(-50, 50))
    with pytest.raises((ValueError, TypeError)) as caught:
        fit(model, rows, weight)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert vars(model) == vars(QAFFDE(24, columns=Real(-50, 50)))


def test_what_cannot_be_scored_or_fitted_is_told():
    model = QAFFDE(**GIVEN).fit(X)
    with pytest.raises(ValueError, match="3 features"):
        score_samples(model, da.ones((4, 3)))
    with pytest.raises(TypeError, match=r"model\.score_samples"):
        score_samples(model, X)


def test_trains_are_fitted_to_the_rows_of_all_partitions():
    """A sample in an order of its own, so equal to a fit in memory in distribution only."""
    training = TensorTrainConfig(max_steps=40, bond=6, n_functions=6)
    model = QAFFDETensorTrain(training=training, random_state=0)
    whole = clone(model).fit(X).score(X)
    assert model.fit(DaskSource(ROWS)).score(X) == pytest.approx(whole, abs=0.1)


@pytest.fixture(scope="module")
def cluster():
    """Two workers of one thread, each a process of its own, forked from one that has torch."""
    with dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"}):
        distributed.utils.get_mp_context().set_forkserver_preload(["qaffde.distributed"])
        with distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0"
        ) as made:
            yield made


def perishable(folder):
    """Partitions, one of which takes its worker down in each pass when it is first loaded."""

    def load(number):
        for victim, begun in ((5, "first"), (6, "second")):
            mark, due = f"{folder}/killed in the {begun} pass", os.path.exists(f"{folder}/{begun}")
            if number == victim and due and not os.path.exists(mark):
                with open(mark, "w") as file:
                    file.write(str(os.getpid()))
                os.kill(os.getpid(), signal.SIGKILL)
        return np.array(X[100 * number : 100 * (number + 1)])

    parts = [dask.delayed(load)(number) for number in range(9)]
    return da.concatenate([da.from_delayed(part, (100, 2), float) for part in parts])


def test_a_cluster_gives_the_same_even_when_workers_are_killed(cluster, tmp_path, monkeypatch):
    chosen = {"n_features": 24, "bandwidth": "scott", "base_measure": "box", "random_state": 0}
    undisturbed = fit(QAFFDE(**chosen), da.from_array(X, chunks=(100, 2)))
    select_plan = QAFFDE._plan

    def between(*args, **kwargs):
        plan = select_plan(*args, **kwargs)
        (tmp_path / "second").touch()
        return plan

    monkeypatch.setattr(QAFFDE, "_plan", between)
    (tmp_path / "first").touch()
    with distributed.Client(cluster.scheduler_address) as client:  # as of any scheduler
        before = set(client.run(os.getpid).values())
        found = fit(QAFFDE(**chosen), perishable(tmp_path), client=client)
        scores = client.compute(score_samples(found, ROWS)).result()
    killed = [int(path.read_text()) for path in sorted(tmp_path.glob("killed*"))]
    assert len(set(killed)) == 2
    assert killed[0] in before
    np.testing.assert_allclose(found.sums_.rho, undisturbed.sums_.rho, rtol=0, atol=1e-12 * N)
    np.testing.assert_allclose(scores, undisturbed.score_samples(X), atol=TOLERANCE)
    found.save(tmp_path / "model")
    np.testing.assert_allclose(qaffde.load(tmp_path / "model").score_samples(X), scores)
    assert pickle.loads(pickle.dumps(found)).merge(found).sums_.weight == 2 * N


def test_errors_come_back_from_a_cluster(cluster):
    rows = da.from_array(holed(397), chunks=(130, 2))
    with (
        distributed.Client(cluster) as client,
        pytest.raises(ValueError, match="partition 3: row 7 has NaN in column 1"),
    ):
        fit(QAFFDE(**GIVEN), rows, client=client)

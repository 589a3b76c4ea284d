"""Two processes with half the rows each find what one process finds with all of them."""

from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

import qaffde
from qaffde import QAFFDE, QAFFDESGD, Periodic, SelectionPolicy, TrainingConfig
from qaffde.distributed import fit_shard, process_group, shard
from qaffde.training.run import ALONE
from tests.estimators.test_tables import TABLE as LONG

TABLE = LONG[:900].reset_index(drop=True)

GIVEN = {"n_features": 24, "bandwidth": 0.8, "ridge": 1e-3, "rank": 4, "random_state": 0}
LBFGS, ADAM = TrainingConfig(max_iter=40), TrainingConfig(solver="adam", max_iter=40)
MODELS = {
    "lbfgs": {**GIVEN, "base_measure": "gaussian", "training": LBFGS},
    "adam": {**GIVEN, "base_measure": "gaussian", "training": ADAM},
    "box": {**GIVEN, "base_measure": "box", "training": LBFGS, "features": "sobol"},
}
TOLERANCE = {"lbfgs": 1e-4, "adam": 1e-4, "box": 1e-4}
"""Of the mean log-likelihood: sums of float32 differ by their order."""

MIXED = {
    "columns": {"hour": Periodic(24)},
    "policy": SelectionPolicy(mixture_sizes=(3,), table_iterations=10),
    "random_state": 0,
}


def work(folder):
    """What each of the two processes does: fits, and a fit that fails in the second alone."""
    torch.set_num_threads(1)
    X, weight = (np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("X", "weight"))
    with process_group() as peers:
        assert peers.size == 2
        for name, parameters in MODELS.items():
            model = fit_shard(QAFFDESGD(**parameters), shard(X), shard(weight))
            model.save(folder / f"{name}.{peers.rank}")
        own = np.array(shard(X))
        own[3 * peers.rank :: len(own)] = np.nan if peers.rank else own[0]
        try:
            fit_shard(QAFFDESGD(**parameters), own)
        except ValueError as error:
            (folder / f"errors.{peers.rank}").write_text(str(error))
        fit_shard(QAFFDESGD(**MIXED), TABLE[peers.rank :: 2]).save(folder / f"table.{peers.rank}")
        try:
            odd = TABLE.assign(age=TABLE["region"]) if peers.rank else TABLE
            fit_shard(QAFFDESGD(**MIXED), odd)
        except ValueError as error:
            (folder / f"mixed.{peers.rank}").write_text(str(error))
    threads = [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]
    (folder / f"threads.{peers.rank}").write_text("\n".join(threads))


def launch(folder):
    """``torchrun --standalone --nproc_per_node 2``, but forked: nothing is imported again."""
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=2,
        max_restarts=0,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        run_id="two processes",
        start_method="fork",
    )
    elastic_launch(config, work)(folder)


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(-1, 0.5, (250, 2)), rng.normal(1, 0.7, (151, 2))])
    return X, rng.choice([0.5, 1.0, 3.0], 401)


@pytest.fixture(scope="module")
def together(rows, tmp_path_factory):
    """Folder with what two processes of torchrun found."""
    folder = tmp_path_factory.mktemp("together")
    np.save(folder / "X.npy", rows[0])
    np.save(folder / "weight.npy", rows[1])
    process = get_context("fork").Process(target=launch, args=[folder])
    process.start()
    process.join(600)
    assert process.exitcode == 0
    return folder


@pytest.mark.parametrize("name", MODELS)
def test_the_likelihood_is_that_of_one_process(name, together, rows):
    X, weight = rows
    one = QAFFDESGD(**MODELS[name]).fit(X, sample_weight=weight)
    two = qaffde.load(together / f"{name}.0")
    mean = [np.average(model.score_samples(X), weights=weight) for model in (one, two)]
    assert mean[0] == pytest.approx(mean[1], abs=TOLERANCE[name])
    assert two.ridge_ == pytest.approx(one.ridge_)
    assert one.n_fourier_features_ == two.n_fourier_features_


@pytest.mark.parametrize("name", MODELS)
def test_both_processes_have_the_same_fit(name, together, rows):
    first, second = (qaffde.load(together / f"{name}.{rank}") for rank in (0, 1))
    np.testing.assert_array_equal(first.score_samples(rows[0]), second.score_samples(rows[0]))


def test_an_error_of_one_process_is_one_of_all(together):
    errors = [(together / f"errors.{rank}").read_text() for rank in (0, 1)]
    assert errors[0] == errors[1]
    assert errors[0].startswith("process 1: row 3 has NaN in column 0")


def test_tables_have_one_schema_and_density(together):
    first, second = (qaffde.load(together / f"table.{rank}") for rank in (0, 1))
    assert first.schema_.kinds == QAFFDESGD(**MIXED).fit(TABLE).schema_.kinds
    np.testing.assert_array_equal(first.score_samples(TABLE), second.score_samples(TABLE))
    one = QAFFDESGD(plan=first.plan_).fit(TABLE)
    np.testing.assert_allclose(first.score_samples(TABLE), one.score_samples(TABLE), atol=1e-9)
    errors = [(together / f"mixed.{rank}").read_text() for rank in (0, 1)]
    assert errors[0] == errors[1]
    assert "column 'age' has text" in errors[0]


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are not listed here")
def test_no_thread_of_the_group_outlives_it(together):
    """One that does may abort the process when the interpreter ends."""
    for rank in (0, 1):
        threads = (together / f"threads.{rank}").read_text().splitlines()
        assert threads
        assert not [name for name in threads if "gloo" in name]


def test_one_process_fits_as_ever(rows):
    X, weight = rows
    with process_group() as peers:
        assert peers is ALONE
        model = fit_shard(QAFFDESGD(**MODELS["lbfgs"]), shard(X), shard(weight))
    alone = QAFFDESGD(**MODELS["lbfgs"]).fit(X, sample_weight=weight)
    np.testing.assert_array_equal(model.score_samples(X), alone.score_samples(X))


def test_processes_that_do_not_know_each_other_are_told(rows, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(RuntimeError, match="do not know each other"):
        shard(rows[0])


def test_a_sum_is_sent_elsewhere(rows):
    with pytest.raises(TypeError, match="merge"):
        fit_shard(QAFFDE(), rows[0])


def test_a_process_alone_has_its_own_errors():
    def fail():
        raise ValueError("bad rows")

    for call in (ALONE.first, ALONE.gather, ALONE.together):
        with pytest.raises(ValueError, match="bad rows"):
            call(fail)
    assert (ALONE.any(True), ALONE.any(False), ALONE.share_of(7)) == (True, False, 7)

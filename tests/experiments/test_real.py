"""The comparison on real tables in small: rows, turns of flows, and the page."""

import subprocess

import numpy as np
import pytest

from experiments.config import TablesBudget, TablesConfig, load_config
from experiments.earlier import BEFORE_MAPS, EarlierEstimator
from experiments.real import FLOWS, Comparison, TrainedFlow, table_cells, tables_page
from experiments.real_sets import split_table, without_ties
from experiments.rows import ROOT, read_rows
from experiments.runner import Files, run_cells
from qaffde import QAFFDE

BUDGET = TablesBudget(seeds=(0,), max_train=100, seconds=(1, 2))
METHODS = ("gmm_bic", "kde", "maf")
CONFIG = TablesConfig("Tables", ("wine",), METHODS, {"quick": BUDGET})


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    files = Files(tmp_path_factory.mktemp("tables"), "tables-quick")
    run_cells(table_cells(CONFIG, "quick", files.scratch), files)
    return read_rows(files.rows)


def test_every_method_has_a_row_and_flows_go_on_where_they_ended(rows):
    assert [(row["method"], row["limit"]) for row in rows] == [
        ("gmm_bic", None),
        ("kde", None),
        ("maf", 1),
        ("maf", 2),
    ]
    assert all(row["status"] == "complete" for row in rows)
    assert rows[3]["ended"] or rows[3]["steps"] > rows[2]["steps"]
    assert rows[3]["fit_cpu_seconds"] < 3


def test_page(rows):
    page = tables_page(rows, CONFIG, "Rebuild.")
    assert "| table | rows × columns | GMM, BIC | KDE | MAF, 1 s | MAF, 2 s |" in page
    bic = Comparison(rows, ("wine",)).figure("wine", "gmm_bic")
    assert f"{bic['log_likelihood']:.3f} ± " in page


def has_history():
    command = ["git", "-C", str(ROOT), "cat-file", "-e", f"{BEFORE_MAPS}:src"]
    return not subprocess.run(command, capture_output=True).returncode


@pytest.mark.skipif(not has_history(), reason="the clone has no history")
def test_an_earlier_revision_is_fitted_by_its_own_code():
    X = np.exp(np.random.default_rng(0).normal(size=(400, 4)))
    model = EarlierEstimator("QAFFDE", random_state=0).fit(X)
    assert model.fit_cpu_seconds_ > 0
    assert np.isfinite(model.score_samples(X)).all()
    assert QAFFDE(random_state=0).fit(X).score(X) > model.score_samples(X).mean() + 0.2
    with pytest.raises(RuntimeError, match="has no attribute 'QAFFDETensorTrain'"):
        EarlierEstimator("QAFFDETensorTrain", random_state=0).fit(X)


def test_a_flow_resumes_the_very_steps_that_it_would_have_taken():
    X = np.random.default_rng(0).normal(size=(200, 2))
    flows = [TrainedFlow(FLOWS["maf"], X, seed=0) for _ in range(3)]
    take_steps(flows[0], 6)
    take_steps(flows[1], 3)
    flows[2].restore(flows[1].state())
    take_steps(flows[2], 3)
    for one, other in zip(flows[0].flow.parameters(), flows[2].flow.parameters(), strict=True):
        assert (one == other).all()


def take_steps(flow, n):
    for _ in range(n):
        flow.take_step()


def test_splits_are_disjoint_and_the_same_each_time():
    train, test = split_table("wine", 0, 100)
    assert train.shape == (100, 13)
    assert not {tuple(row) for row in train} & {tuple(row) for row in test}
    assert (split_table("wine", 0, 100)[0] == train).all()
    assert (split_table("wine", 1, 100)[0] != train).any()


def test_no_value_is_shared_where_many_were():
    X = np.random.default_rng(0).integers(0, 30, size=(300, 2)).astype(float)
    Z = without_ties(X, np.random.default_rng(0))
    assert len(np.unique(Z[:, 0])) == len(Z) == len(np.unique(X, axis=0))


def test_tables_are_ten():
    assert len(load_config("tables", TablesConfig).sets) == 10


def test_unknown_names_are_told():
    with pytest.raises(ValueError, match="tables has no set 'arc'; it has wine"):
        table_cells(CONFIG, "quick", None, sets=("arc",))

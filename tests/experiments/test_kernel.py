"""Figure 2 in small: learned and squared features approximate the kernel best."""

from statistics import mean

import pytest

from experiments.config import KernelBudget, KernelConfig
from experiments.kernel import errors_of, kernel_cells
from experiments.rows import read_rows
from experiments.runner import Files, run_cells
from tests.experiments.tiny import without_timings

BUDGET = KernelBudget((0,), (8, 32), n_epochs=3, n_pairs=5000, batch_size=250, learning_rate=0.02)
CONFIG = KernelConfig("Kernel", {"quick": BUDGET})


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    files = Files(tmp_path_factory.mktemp("kernel"), "kernel-quick")
    run_cells(kernel_cells(CONFIG, "quick"), files)
    return read_rows(files.rows)


def test_order_of_the_figure(rows):
    errors = {
        kind: mean(row["mse"] for row in by_size[32]) for kind, by_size in errors_of(rows).items()
    }
    assert errors["AFF²"] < 0.5 * errors["AFF"] < 0.25 * errors["RFF"]
    assert errors["AFF², paired"] < 0.1 * errors["RFF²"]


def test_rows_repeat_and_only_the_shown_ones_have_a_curve(rows, tmp_path):
    files = Files(tmp_path, "kernel-quick")
    run_cells(kernel_cells(CONFIG, "quick", kinds=("RFF",)), files)
    again = without_timings(read_rows(files.rows))
    assert again == without_timings([row for row in rows if row["kind"] == "RFF"])
    assert {row["n_features"] for row in rows if "curve" in row} == {8}


def test_unknown_kinds_are_named():
    with pytest.raises(ValueError, match="kernel has no method 'SVM'; it has RFF, RFF²"):
        kernel_cells(CONFIG, "quick", kinds=("SVM",))

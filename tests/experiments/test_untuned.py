"""Untuned cells: the defaults, no trials, no sight of test rows or truth, tables beside tuned."""

import numpy as np
import pytest

from experiments import trials
from experiments.methods import Method
from experiments.results import Results
from experiments.rows import read_rows
from experiments.runner import Files, run_cells
from experiments.tables import planar_excerpt, planar_page, variants_table
from experiments.targets import get_target
from qaffde.baselines import GMM
from tests.experiments.tiny import SETS, tiny_cells, tiny_config

UNTUNED = {"sets": ("arc",), "methods": ("gmm",), "variant": "untuned"}


@pytest.fixture(scope="module")
def untuned(tmp_path_factory):
    files = Files(tmp_path_factory.mktemp("untuned"), "planar-quick")
    run_cells(tiny_cells(files, **UNTUNED), files)
    return files


def test_the_defaults_are_trained_once_for_each_seed(untuned):
    rows = read_rows(untuned.rows)
    assert [(row["stage"], row["seed"]) for row in rows] == [("untuned", 3), ("untuned", 4)]
    for row in rows:
        assert row["parameters"] == GMM(random_state=row["seed"]).get_params()
        assert (row["n_train"], row["n_test"], row["sampled"]) == (200, 90, {})
        assert set(row["metrics"]) > {"spearman", "excess_nll"}
    assert not untuned.pictures.exists()
    assert not list(untuned.folder.glob("*.optuna.db"))


def test_what_is_there_is_not_trained_again(untuned, monkeypatch):
    before = untuned.rows.read_bytes()
    monkeypatch.setattr(trials, "attempt", lambda *_: pytest.fail("trained again"))
    run_cells(tiny_cells(untuned, **UNTUNED), untuned)
    assert untuned.rows.read_bytes() == before


def test_seeds_and_sizes_are_part_of_the_name_and_the_search_is_not(files):
    def names(config=None, **changes):
        cells = tiny_cells(files, config=config, **(UNTUNED | changes))
        return {task for cell in cells for task in cell.tasks()}

    assert names() == names(tiny_config(trials=5, search_steps=99))
    assert names() == names(seeds=(3, 4))
    assert not names() & names(seeds=(5,))
    assert not names() & names(tiny_config(n_train=201))
    assert not names() & names(variant="tuned")


class SpyTarget:
    """Target that notes what is asked of it, in order."""

    n_dims = 2

    def __init__(self, events):
        self.target, self.events = get_target("arc"), events

    def sample(self, n_samples, random_state):
        self.events.append(("sample", n_samples, random_state))
        return self.target.sample(n_samples, random_state)

    def log_prob(self, X):
        self.events.append(("log_prob", len(X)))
        return self.target.log_prob(X)


def test_a_fit_sees_neither_test_rows_nor_truth(files, monkeypatch):
    events = []

    class SpyModel(GMM):
        def fit(self, X, y=None, sample_weight=None):
            events.append(("fit", X))
            return super().fit(X, y, sample_weight)

    monkeypatch.setattr(trials, "find_target", lambda name: SpyTarget(events))
    spied = Method("GMM", "classical", SpyModel, {}, "black")
    monkeypatch.setattr(trials, "find_method", lambda name: spied)
    run_cells(tiny_cells(files, seeds=(3,), **UNTUNED), files)
    (_, train), events[1] = events[1], ("fit",)
    assert events == [("sample", 200, 9), ("fit",), ("sample", 90, 11), ("log_prob", 90)]
    assert np.array_equal(train, get_target("arc").sample(200, 9))


@pytest.fixture
def both(measured, untuned):
    rows = read_rows(measured.rows) + read_rows(untuned.rows)
    return Results(rows, [], SETS)


def test_tables_of_tuned_methods_do_not_change(measured, both):
    tuned = Results(read_rows(measured.rows), [], SETS)
    for metric in ("spearman", "fit_cpu_seconds"):
        assert both.figure("arc", "gmm", metric).value == tuned.figure("arc", "gmm", metric).value
    assert both.total_seconds("gmm") == tuned.total_seconds("gmm")
    before, after = (planar_page(r, "t", "quick").split("## Untuned")[0] for r in (tuned, both))
    assert before.split("## Pictures")[0].rstrip() == after.rstrip()


def test_the_page_has_the_untuned_beside_the_tuned(both, untuned):
    page = planar_page(both, "t", "quick")
    figure = both.untuned.figure("arc", "gmm", "spearman")
    assert len(figure.rows) == 2
    _, part = page.split("### Spearman, untuned")
    assert f"{figure.value:.4f} ± {figure.spread:.4f}" in part
    assert f"{both.untuned.total_seconds('gmm'):.0f}" in part


def row(method, stage, **metrics):
    place = {"set": "arc", "method": method, "seed": 3, "stage": stage, "trial": None}
    return {"id": method + stage, "status": "complete", **place, "metrics": metrics}


def test_ours_stand_untuned_and_tuned_beside_the_best_other():
    stages = {"untuned": 0.991, "final": 0.995}
    rows = [row("qaffde", stage, spearman=s, excess_nll=1 - s) for stage, s in stages.items()]
    rows.append(row("nsf", "final", spearman=0.993, excess_nll=0.25))
    results = Results(rows, [], ("arc",))
    head, _, line = variants_table(results, "spearman", {"qaffde": {"arc": 0.9943}}).splitlines()
    assert head.startswith("| set | QAFFDE, untuned | QAFFDE, tuned | best other, tuned | the ")
    assert line == "| arc | 0.9910 | 0.9950 | 0.9930 NSF | 0.9943 |"
    assert "| arc | 0.00900 | 0.00500 | 0.25000 NSF |" in planar_excerpt(results)

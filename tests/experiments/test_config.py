"""Configurations: slips are errors that name them, and what ships is sound."""

import pytest

from experiments.config import (
    BUDGETS,
    ConfigError,
    DensityConfig,
    KernelConfig,
    load_config,
    parse_config,
)
from experiments.density import density_cells
from experiments.methods import METHODS
from experiments.registry import EXPERIMENTS, Selection, plan
from experiments.results import paper_figures
from experiments.targets import PLANAR

GOOD = """
title = "t"
sets = ["arc"]
methods = ["gmm"]
[budgets.quick]
trials = 1
n_search = 10
n_valid = 10
n_train = 10
n_test = 10
search_steps = 1
final_steps = 1
seeds = [0]
"""
BAD = {
    "trails = 3": "budgets.quick has no key 'trails'; it knows trials, n_search",
    "sampler = 'grid'": "budgets.quick.sampler is 'grid'; it must be one of 'random', 'tpe'",
    "startup_trials = 1.5": "budgets.quick.startup_trials is 1.5; it must be a whole number",
    "startup_trials = -1": "startup_trials is -1; it must be a whole number of at least 0",
    "sets = 'arc'": "budgets.quick.sets is 'arc'; it must be a list",
    "[budgets.quick.methods.gmm]\ntrials = 9": "methods.gmm has no key 'trials'; it knows seeds",
    "[budgets.quick.methods]\ngmm = 3": "methods.gmm is 3; it must be a table",
    "trials = 2": "config is not TOML: Cannot overwrite a value",
}


@pytest.mark.parametrize("line", BAD)
def test_slips_are_named(line):
    with pytest.raises(ConfigError, match=BAD[line].replace(".", r"\.")):
        parse_config(GOOD + line, DensityConfig)


def test_what_is_missing_is_named():
    with pytest.raises(ConfigError, match=r"budgets\.quick lacks the key 'n_valid'"):
        parse_config(GOOD.replace("n_valid = 10\n", ""), DensityConfig)


def test_parameters_that_no_estimator_has_are_named():
    text = GOOD + "[budgets.quick.methods.gmm]\nfinal = { components = 3 }"
    with pytest.raises(ValueError, match=r"gmm has no parameter 'components'; gmm knows .*n_comp"):
        density_cells("planar", parse_config(text, DensityConfig), "quick")


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_what_ships_plans_every_budget(name, tmp_path):
    assert set(EXPERIMENTS[name].config().budgets) == set(BUDGETS)
    for budget in BUDGETS:
        planned = plan(name, budget, folder=tmp_path)
        assert planned.n_done == 0
        assert len(planned.tasks) == sum(len(cell.tasks()) for cell in planned.cells)


def test_the_paper_s_search_and_all_its_sets_and_methods_are_there():
    config = load_config("planar", DensityConfig)
    paper = config.budgets["paper"]
    assert (paper.trials, paper.n_search, paper.n_valid, paper.n_train) == (
        30,
        40_000,
        1000,
        10**5,
    )
    assert config.sets == PLANAR
    assert {*config.methods, *config.optional_methods} == set(METHODS)
    assert load_config("kernel", KernelConfig).title


def test_the_paper_s_tables_are_whole():
    figures = paper_figures()["planar"]
    for metric in ("spearman", "mean_absolute_error"):
        methods = {name: of for name, of in figures[metric].items() if name != "source"}
        assert list(methods) == ["qaffde", "qaffde_sgd", "made", "iaf", "planar", "nsf"]
        assert all(tuple(of) == PLANAR for of in methods.values())


@pytest.mark.parametrize(
    ("selection", "message"),
    [
        (Selection(sets=("moons",)), "unknown set 'moons'; choose one of arc"),
        (Selection(methods=("svm",)), "unknown method 'svm'; choose one of qaffde"),
    ],
)
def test_a_selection_names_what_is_there(selection, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        plan("planar", "quick", selection, tmp_path)

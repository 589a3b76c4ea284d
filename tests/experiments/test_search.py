"""The search: what is drawn, judged and pruned."""

import numpy as np
import pytest

from experiments.methods import METHODS, Reference
from experiments.search import Search, import_optuna
from experiments.spaces import Choice, Range
from qaffde.training import History
from tests.experiments.tiny import tiny_budget

SPACE = {
    "width": Range(2, 64, log=True),
    "rate": Range(1e-4, 1e-2, log=True),
    "kind": Choice(("a", "b")),
}


@pytest.fixture
def storage(tmp_path):
    return f"sqlite:///{tmp_path / 'studies.db'}"


def open_search(storage, name="s", **changes):
    return Search(name, ({}, SPACE), tiny_budget(**changes), storage)


def drawn(search, indices):
    return [dict(search.ask(k).params) for k in indices]


@pytest.mark.parametrize("sampler", ["random", "tpe"])
def test_what_a_trial_draws_does_not_depend_on_interruptions(storage, sampler):
    whole = drawn(open_search(storage, sampler=sampler), range(4))
    open_search(storage, "t", sampler=sampler).ask(0)
    again = open_search(storage, "s", sampler=sampler)
    assert drawn(again, [2, 3]) == whole[2:]
    assert whole[0] == {}
    for draw in whole[1:]:
        assert 2 <= draw["width"] <= 64
        assert isinstance(draw["width"], int)
        assert 1e-4 <= draw["rate"] <= 1e-2
        assert draw["kind"] in ("a", "b")
    assert whole[1] != whole[2]


def test_settings_of_single_trials_come_before_those_that_are_drawn(storage):
    spaces = ({}, {"form": Choice(("c",))}, SPACE)
    search = Search("s", spaces, tiny_budget(), storage)
    first, second, third, fourth = drawn(search, range(4))
    assert (first, second) == ({}, {"form": "c"})
    assert third.keys() == fourth.keys() == SPACE.keys()
    row = {"trial": 1, "status": "complete", "validation": -2.5, "sampled": second}
    again = Search("t", spaces, tiny_budget(), storage)
    again.remember([row | {"held_out": []}])
    assert [trial.params for trial in again.study.get_trials()] == [second]


def test_a_study_that_was_lost_is_filled_from_rows(storage):
    row = {
        "trial": 1,
        "status": "complete",
        "validation": -2.5,
        "sampled": {"width": 8, "rate": 1e-3, "kind": "a"},
        "held_out": [-3.0, -2.6],
    }
    search = open_search(storage)
    search.remember([row])
    search.remember([row])
    [trial] = search.study.get_trials()
    assert (trial.value, trial.params) == (-2.5, row["sampled"])
    assert trial.intermediate_values == {1: -3.0, 2: -2.6}


def test_a_trial_below_the_median_is_pruned_and_one_above_is_not(storage):
    search = open_search(storage, startup_trials=1, warmup_evaluations=0)
    for k, losses in enumerate([[2.0, 1.0], [1.9, 0.9]]):
        trial, reported = search.ask(k), []
        listen = search.listener(trial, reported)
        history = History()
        for loss in losses:
            history.valid_loss.append(loss)
            listen(history)
        search.tell(trial, {"status": "complete", "validation": -losses[-1]})
        assert reported == [-loss for loss in losses]
    listen = search.listener(search.ask(2), [])
    with pytest.raises(import_optuna().TrialPruned):
        listen(History(valid_loss=[5.0]))


def test_bandwidths_are_in_deviations_and_fall_with_more_rows():
    reference = Reference(np.array([1.0, 10.0]), {}, growth=2.5)
    parameters = METHODS["kde"].resolve({"bandwidth": 0.1}, reference)
    np.testing.assert_allclose(parameters["bandwidth"], 2.5 ** (-1 / 6) * np.array([0.1, 1.0]))
    assert METHODS["kde"].resolve({}, reference) == {}


def test_ours_are_searched_around_what_the_default_chose():
    default = {"bandwidth": [0.2, 0.4], "ridge": 1e-3}
    reference = Reference(np.ones(2), default, growth=2.0)
    sampled = {"bandwidth_factor": 2.0, "ridge_factor": 4.0, "rank": 9}
    assert METHODS["qaffde_sgd"].resolve(sampled, reference) == {
        "bandwidth": [0.4, 0.8],
        "ridge": 2e-3,
        "rank": 9,
    }
    closed_form = Reference(np.ones(2), {"bandwidth": [0.2, 0.4]}, growth=64.0)
    resolved = METHODS["qaffde"].resolve({"bandwidth_factor": 1.0}, closed_form)
    np.testing.assert_allclose(resolved["bandwidth"], [0.1, 0.2])


def test_what_the_default_chose_is_trained_on_more_rows_if_its_row_says_it_all():
    default = {"bandwidth": [0.2, 0.4], "ridge": 1e-3, "base_measure": "box"}
    resolve = METHODS["qaffde_sgd"].resolve
    assert resolve({}, Reference(np.ones(2), default, growth=2.0)) == {
        "base_measure": "box",
        "bandwidth": [0.2, 0.4],
        "ridge": 5e-4,
    }
    mixture = default | {"base_measure": "mixture"}
    assert resolve({}, Reference(np.ones(2), mixture, growth=2.0)) == {}
    assert resolve({}, Reference(np.ones(2), {})) == {}  # the first trial


@pytest.mark.parametrize(("d", "plain"), [(2, "box"), (10, "gaussian")])
def test_a_plain_base_is_no_box_in_many_columns(d, plain):
    reference = Reference(np.ones(d), {})
    assert METHODS["qaffde"].resolve({"base": "plain"}, reference) == {"base_measure": plain}
    assert METHODS["qaffde"].resolve({"base": "mixture"}, reference) == {"base_measure": "mixture"}


@pytest.mark.parametrize("name", METHODS)
def test_every_method_can_be_made_from_its_space(name):
    method = METHODS[name]
    rng = np.random.default_rng(0)
    sampled = {
        key: part.values[0] if isinstance(part, Choice) else type(part.low)(part.low)
        for key, part in method.space.items()
    }
    default = {"bandwidth": [0.2, 0.3], "ridge": 1e-3}
    reference = Reference(rng.uniform(1, 2, 2), default)
    model = method.make(**method.resolve(sampled, reference), **method.judged_as)
    assert set(model.get_params()) >= set(method.judged_as)

"""Search spaces: every method has one, and its values are ones that the method takes."""

import pytest

pytest.importorskip("zuko", reason="the flows need the extra 'flows'")

from experiments.methods import METHODS, find_method
from experiments.models.flat import flat_parameters
from experiments.spaces import SPACES, Range
from qaffde.baselines import BASELINES, TrainedEstimator

OTHERS = [name for name, method in METHODS.items() if method.kind != "ours"]


def given(model):
    is_trained = isinstance(model, TrainedEstimator)
    return flat_parameters(model) if is_trained else model.get_params()


@pytest.mark.parametrize("name", OTHERS)
def test_search_spaces_name_parameters_and_hold_valid_values(name):
    for parameter, space in SPACES[name].items():
        ends = (space.low, space.high) if isinstance(space, Range) else space.values
        for value in ends:
            made = find_method(name).make(**{parameter: value})
            assert given(made)[parameter] == value


@pytest.mark.parametrize("name", SPACES)
def test_ranges_are_ranges_and_reasons_are_sentences(name):
    for space in SPACES[name].values():
        if isinstance(space, Range):
            assert space.low < space.high
        if space.why:
            assert len(space.why) > 20


def test_every_method_and_baseline_has_a_search_space():
    assert METHODS.keys() <= SPACES.keys()
    assert BASELINES.keys() <= SPACES.keys()

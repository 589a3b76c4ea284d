"""A policy rejects what its search could not work with."""

from dataclasses import asdict

import pytest

from qaffde import SelectionPolicy

BAD = {
    "few_rows='x' must be a whole number of at least 1": {"few_rows": "x"},
    "n_folds=0 must be a whole number": {"n_folds": 0},
    "max_features=2.5 must be a whole number": {"max_features": 2.5},
    "min_scale=nan must be a positive number": {"min_scale": float("nan")},
    "rough_step=-1 must be a positive number": {"rough_step": -1},
    "box_reach='x' must be a positive number": {"box_reach": "x"},
    r"mixture_sizes=\[1, 2\] must be a tuple of numbers": {"mixture_sizes": [1, 2]},
    r"mixture_sizes=\(\) must be a tuple of numbers": {"mixture_sizes": ()},
    "mixture_sizes=1.5 must be a whole number": {"mixture_sizes": (1, 1.5)},
    "class_bandwidths='x' must be a positive number": {"class_bandwidths": (0.1, "x")},
    r"tail_rates=\(1.0,\) must be two numbers": {"tail_rates": (1.0,)},
    r"min_trace=2 must be a number in \(0, 1\]": {"min_trace": 2},
}


@pytest.mark.parametrize("message", BAD)
def test_bad_constants(message):
    with pytest.raises(ValueError, match=message):
        SelectionPolicy(**BAD[message])


def test_whole_numbers_do_for_others():
    policy = SelectionPolicy(background_spread=2, class_bandwidths=(1, 0.5))
    assert asdict(policy) == asdict(SelectionPolicy(class_bandwidths=(1.0, 0.5)))

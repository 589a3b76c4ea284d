"""Progress: silent by default, and lines that say what is done, and for how long, if asked."""

import inspect
import re

import numpy as np
import pytest

import qaffde
from qaffde.training import TrainingConfig

X = np.random.default_rng(0).normal(size=(120, 2))
Y = X[:, 0] > 0
SHORT = TrainingConfig(max_steps=20)
SECONDS = re.compile(r"^ *\d+\.\d of 60 s  \S", re.MULTILINE)
STEPS = re.compile(r"^step +\d+/\d+ .* \d+\.\d s, \d+\.\d s left$", re.MULTILINE)
ESTIMATORS = {
    "QAFFDE": ({}, [SECONDS]),
    "QAFFDESGD": ({"rank": 2}, [SECONDS, STEPS]),
    "QAFFDETensorTrain": ({}, [STEPS]),
    "QAFFDEClassifier": ({"method": "gradient", "training": SHORT}, [SECONDS, STEPS]),
    "QAFFDERegressor": ({"training": SHORT}, [STEPS]),
    "QAFFDEAutoregressive": ({"training": SHORT}, [STEPS]),
    "QAFFDEOutlierDetector": ({}, [SECONDS]),
}


def test_every_estimator_with_a_limit_is_here():
    ours = [name for name in qaffde.__all__ if name.startswith("QAFFDE")]
    parameters = {name: inspect.signature(getattr(qaffde, name)).parameters for name in ours}
    assert {name for name in ours if "verbose" in parameters[name]} == set(ESTIMATORS)
    assert {name for name in ours if "time_limit" in parameters[name]} == set(ESTIMATORS)


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.filterwarnings("ignore")
def test_progress_is_printed_only_if_asked(name, capsys):
    options, patterns = ESTIMATORS[name]
    options = {**options, "time_limit": 60.0, "random_state": 0}
    has_y = name in ("QAFFDEClassifier", "QAFFDERegressor")
    for verbose in (False, True):
        model = getattr(qaffde, name)(**options, verbose=verbose)
        model.fit(X, Y.astype(int)) if has_y else model.fit(X)
        out = capsys.readouterr().out
        for pattern in patterns if verbose else ():
            assert pattern.search(out), out
        assert verbose or out == ""

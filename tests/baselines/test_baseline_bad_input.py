"""Bad input of the baselines: every case with the message that says what to do."""

import numpy as np
import pytest

from experiments.models.made import MADE
from experiments.models.planar import Planar
from qaffde.baselines import GMM, KDE, MAF, NSF
from qaffde.training import TrainingConfig

from .conftest import SETTINGS, make

X = np.random.default_rng(0).normal(size=(50, 2))
COUNT = "must be a whole number of at least 1"
PARAMETERS = {
    f"n_layers=0 {COUNT}": MAF(0),
    f"hidden_size=2.5 {COUNT}": MAF(hidden_size=2.5),
    f"n_hidden='two' {COUNT}": MADE(n_hidden="two"),
    f"n_components=0 {COUNT}": MADE(0),
    "n_bins=1 must be a whole number of at least 2": NSF(n_bins=1),
    f"n_layers=True {COUNT}": Planar(True),
    "training=3 must be a TrainingConfig": MAF(training=3),
    "time_limit='long' must be a positive number or None": MAF(time_limit="long"),
    "checkpoint needs a random_state.*set random_state to a number": MAF(
        training=TrainingConfig(checkpoint="fit")
    ),
    "the directory of checkpoint .* does not exist": MAF(
        training=TrainingConfig(checkpoint="nowhere/fit"), random_state=0
    ),
    "bandwidth='wide' is not known; choose one of auto, scott": KDE("wide"),
    "bandwidth=0 must be one of auto": KDE(0),
    'n_components=0 must be a whole number of at least 1 or "auto"': GMM(0),
    "n_components=51 is too many for 50 rows; take fewer": GMM(51),
}


@pytest.mark.parametrize("message", PARAMETERS)
def test_bad_parameters(message):
    with pytest.raises((ValueError, OSError), match=message):
        PARAMETERS[message].fit(X)


ROWS = {
    "Input X contains NaN": np.full((50, 2), np.nan),
    "1 sample.* minimum of 2": X[:1],
    "Expected 2D array": X[:, 0],
    "constant column: 1": np.c_[X[:, 0], np.ones(50)],
    "columns 0 and 1 are copies": X[:, [0, 0]],
    "variance overflows": 1e307 * X,
}


@pytest.mark.parametrize("message", ROWS)
@pytest.mark.parametrize("name", ["maf", "gmm"])
def test_bad_rows(name, message):
    with pytest.raises(ValueError, match=message):
        make(name, **SETTINGS[name]).fit(ROWS[message])


@pytest.mark.parametrize("n_samples", [0, -1, 2.5])
def test_bad_numbers_of_draws(fitted, n_samples):
    with pytest.raises(ValueError, match=f"n_samples={n_samples} {COUNT}"):
        fitted["maf"].sample(n_samples)


def test_an_unknown_parameter_is_named():
    with pytest.raises(TypeError, match="unexpected keyword argument 'steps'"):
        MAF(steps=3)

"""Bad input of the baselines: every case with the message that says what to do."""

import numpy as np
import pytest

from qaffde.baselines import GMM, KDE, MADE, MAF, NSF, Planar, get_baseline

from .conftest import SETTINGS

X = np.random.default_rng(0).normal(size=(50, 2))
COUNT = "must be a whole number of at least 1"
PARAMETERS = {
    f"n_layers=0 {COUNT}": MAF(0),
    f"hidden_size=2.5 {COUNT}": MAF(hidden_size=2.5),
    f"n_hidden='two' {COUNT}": MADE(n_hidden="two"),
    f"n_components=0 {COUNT}": MADE(0),
    "n_bins=1 must be a whole number of at least 2": NSF(n_bins=1),
    f"n_layers=True {COUNT}": Planar(True),
    f"max_steps=0 {COUNT}": Planar(max_steps=0),
    f"batch_size='all' {COUNT} or None": Planar(batch_size="all"),
    "learning_rate=-1 must be a positive number": Planar(learning_rate=-1),
    "weight_decay=-1 must be a number of at least 0": Planar(weight_decay=-1),
    "clip_norm=0 must be a positive number or None": Planar(clip_norm=0),
    r"validation_fraction=1 must be a number in \(0, 1\)": Planar(validation_fraction=1),
    f"patience=0 {COUNT} or None": Planar(patience=0),
    "time_limit='long' must be a positive number or None": Planar(time_limit="long"),
    "checkpoint needs random_state.*set random_state to a number": Planar(checkpoint="fit.ckpt"),
    "the directory of checkpoint .* does not exist": Planar(
        checkpoint="nowhere/fit.ckpt", random_state=0
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
@pytest.mark.parametrize("name", ["planar", "gmm"])
def test_bad_rows(name, message):
    with pytest.raises(ValueError, match=message):
        get_baseline(name, **SETTINGS[name]).fit(ROWS[message])


@pytest.mark.parametrize("n_samples", [0, -1, 2.5])
def test_bad_numbers_of_draws(fitted, n_samples):
    with pytest.raises(ValueError, match=f"n_samples={n_samples} {COUNT}"):
        fitted["planar"].sample(n_samples)


def test_an_unknown_parameter_is_named():
    with pytest.raises(TypeError, match="unexpected keyword argument 'steps'"):
        MAF(steps=3)

"""Small fits that several files look at."""

from dataclasses import replace

import numpy as np
import pytest

from experiments.targets import get_target
from qaffde.baselines import BASELINES
from qaffde.training import TrainingConfig

pytest.importorskip("zuko", reason="the flows need the extra 'flows'")

from experiments.models.made import MADE
from experiments.models.planar import Planar
from experiments.models.predecessors import IAF, dmkde

ADAM = TrainingConfig(max_steps=60, batch_size=64, learning_rate=1e-2, patience=20)
SHORT = {"training": ADAM, "random_state": 0}
SMALL = {"n_layers": 2, "hidden_size": 16, "n_hidden": 1}
SETTINGS = {
    "made": {"n_components": 4, "hidden_size": 16, "n_hidden": 1, **SHORT},
    "maf": {**SMALL, **SHORT},
    "iaf": {**SMALL, **SHORT},
    "realnvp": {**SMALL, **SHORT},
    "nsf": {"n_bins": 5, **SMALL, **SHORT},
    "planar": {"n_layers": 4, "training": replace(ADAM, learning_rate=0.05), "random_state": 0},
    "kde": {"bandwidth": [0.5, 0.7]},
    "gmm": {"n_components": 2, "random_state": 0},
}
TRAINED = [name for name, settings in SETTINGS.items() if "training" in settings]
LABORATORY = {"made": MADE, "iaf": IAF, "planar": Planar, "dmkde": dmkde}
"""Estimators of the experiments, which keep the same promises."""
N_GRID = 181


def make(name, **options):
    return (BASELINES | LABORATORY)[name](**options)


@pytest.fixture(scope="package")
def settings():
    return SETTINGS


@pytest.fixture(scope="package")
def X():  # noqa: N802
    return get_target("bimodal_l").sample(1000, random_state=0)


@pytest.fixture(scope="package")
def fitted(X):
    return {name: make(name, **options).fit(X) for name, options in SETTINGS.items()}


@pytest.fixture(scope="package")
def axes(X):
    """Points on each axis that reach ten standard deviations beyond the data's mean."""
    centre, reach = X.mean(0), 10 * X.std(0)
    return np.linspace(centre - reach, centre + reach, N_GRID).T


@pytest.fixture(scope="package")
def on_grid(fitted, axes):
    """Density of each baseline on the product of the axes."""
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, 2)
    return {
        name: np.exp(model.score_samples(grid)).reshape(N_GRID, N_GRID)
        for name, model in fitted.items()
    }

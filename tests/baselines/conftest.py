"""Small fits that several files look at."""

import numpy as np
import pytest

from qaffde.targets import get_target

pytest.importorskip("zuko", reason="the flows need the extra 'flows'")

SHORT = {"max_steps": 60, "batch_size": 64, "learning_rate": 1e-2, "random_state": 0}
SMALL = {"n_layers": 2, "hidden_size": 16, "n_hidden": 1}
SETTINGS = {
    "made": {"n_components": 4, "hidden_size": 16, "n_hidden": 1, **SHORT},
    "maf": {**SMALL, **SHORT},
    "iaf": {**SMALL, **SHORT},
    "realnvp": {**SMALL, **SHORT},
    "nsf": {"n_bins": 5, **SMALL, **SHORT},
    "planar": {"n_layers": 4, **SHORT, "learning_rate": 0.05},
    "kde": {"bandwidth": [0.5, 0.7]},
    "gmm": {"n_components": 2, "random_state": 0},
}
TRAINED = [name for name, settings in SETTINGS.items() if "max_steps" in settings]
N_GRID = 181


@pytest.fixture(scope="package")
def settings():
    return SETTINGS


@pytest.fixture(scope="package")
def X():  # noqa: N802
    return get_target("bimodal_l").sample(1000, random_state=0)


@pytest.fixture(scope="package")
def fitted(X):
    from qaffde.baselines import get_baseline

    return {name: get_baseline(name, **options).fit(X) for name, options in SETTINGS.items()}


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

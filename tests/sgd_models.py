"""Small data and cheap settings of QAFFDESGD, shared by its tests."""

import numpy as np
import pandas as pd

from qaffde import QAFFDESGD, TrainingConfig

RNG = np.random.default_rng(0)
X = np.concatenate([RNG.normal(size=(150, 2)), [4, 3] + 0.7 * RNG.normal(size=(150, 2))])
FRAME = pd.DataFrame(X, columns=["height", "weight"])
FEW = X[::5, :1]
WEIGHT = RNG.integers(0, 4, size=len(X))
FIXED = {
    "n_features": 30,
    "bandwidth": 1.0,
    "base_measure": "gaussian",
    "ridge": 0.01,
    "random_state": 0,
}
SHORT = {"max_iter": 20, "max_steps": 20}


def fitted(rows=X, sample_weight=None, training=None, **options):
    """Fit with short trainings, whose settings may be changed."""
    config = TrainingConfig(**SHORT | (training or {}))
    return QAFFDESGD(**FIXED | options, training=config).fit(rows, sample_weight=sample_weight)

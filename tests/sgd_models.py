"""Small data and cheap settings of QAFFDESGD, shared by its tests."""

import numpy as np
import pandas as pd
import torch
from torch.distributions import AffineTransform, ExpTransform

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


class Stretch(torch.nn.Module):
    """Learnable map x ↦ shift + scale · x, as a module that returns a transform."""

    def __init__(self):
        super().__init__()
        self.shift = torch.nn.Parameter(torch.zeros(2))
        self.scale = torch.nn.Parameter(torch.ones(2))

    def forward(self):
        return AffineTransform(self.shift, self.scale, event_dim=1)


class Logarithm(torch.nn.Module):
    """Nothing to learn; unlike torch's own inverses it can be copied and pickled."""

    def forward(self):
        return ExpTransform().inv

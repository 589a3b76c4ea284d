"""scikit-learn's own checks of every baseline, with settings as cheap as they come."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

pytest.importorskip("zuko")

from experiments.models.made import MADE
from experiments.models.planar import Planar
from experiments.models.predecessors import IAF, dmkde
from qaffde.baselines import GMM, KDE, MAF, NSF, RealNVP
from qaffde.training import TrainingConfig

CHEAP = {"training": TrainingConfig(max_steps=3, batch_size=32)}
TINY = {"n_layers": 1, "hidden_size": 4, "n_hidden": 1, **CHEAP}
ESTIMATORS = [
    MADE(2, 4, 1, **CHEAP),
    MAF(**TINY),
    IAF(**TINY),
    RealNVP(**TINY | {"n_layers": 2}),
    NSF(n_bins=3, **TINY),
    Planar(2, **CHEAP),
    KDE("scott"),
    GMM(1),
    dmkde(n_features=16, bandwidth=0.5),
]


@parametrize_with_checks(ESTIMATORS)
def test_scikit_learn(estimator, check):
    check(estimator)

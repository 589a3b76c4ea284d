"""The methods of the paper's comparison, behind the same API as :class:`qaffde.QAFFDE`.

>>> import numpy as np
>>> from qaffde.baselines import get_baseline
>>> X = np.random.default_rng(0).normal(size=(500, 2))
>>> get_baseline("gmm", n_components=1).fit(X).score_samples([[0.0, 0.0]]).round(1)
array([-1.8])
"""

from qaffde.baselines.base import TrainedEstimator
from qaffde.baselines.classical import GMM, KDE, dmkde
from qaffde.baselines.flows import IAF, MADE, MAF, NSF, RealNVP
from qaffde.baselines.planar import Planar
from qaffde.baselines.registry import BASELINES, get_baseline

__all__ = [
    "BASELINES",
    "GMM",
    "IAF",
    "KDE",
    "MADE",
    "MAF",
    "NSF",
    "Planar",
    "RealNVP",
    "TrainedEstimator",
    "dmkde",
    "get_baseline",
]

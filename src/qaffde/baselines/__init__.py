"""Classical estimators and normalizing flows, behind the same API as :class:`qaffde.QAFFDE`.

>>> import numpy as np
>>> X = np.random.default_rng(0).normal(size=(500, 2))
>>> BASELINES["gmm"](n_components=1).fit(X).score_samples([[0.0, 0.0]]).round(1)
array([-1.8])
"""

from collections.abc import Callable

from qaffde.baselines.base import TrainedEstimator
from qaffde.baselines.classical import GMM, KDE
from qaffde.baselines.flows import MAF, NSF, RealNVP
from qaffde.estimators.base import DensityEstimator

__all__ = ["BASELINES", "GMM", "KDE", "MAF", "NSF", "RealNVP", "TrainedEstimator"]

BASELINES: dict[str, Callable[..., DensityEstimator]] = {
    "maf": MAF,
    "realnvp": RealNVP,
    "nsf": NSF,
    "kde": KDE,
    "gmm": GMM,
}

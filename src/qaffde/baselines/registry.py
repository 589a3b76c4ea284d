"""Baselines by name."""

from collections.abc import Callable
from typing import Any

from qaffde.baselines.classical import GMM, KDE, dmkde
from qaffde.baselines.flows import IAF, MADE, MAF, NSF, RealNVP
from qaffde.baselines.planar import Planar
from qaffde.estimators.base import DensityEstimator

BASELINES: dict[str, Callable[..., DensityEstimator]] = {
    "made": MADE,
    "maf": MAF,
    "iaf": IAF,
    "realnvp": RealNVP,
    "nsf": NSF,
    "planar": Planar,
    "kde": KDE,
    "gmm": GMM,
    "dmkde": dmkde,
}


def get_baseline(name: str, **parameters: Any) -> DensityEstimator:
    """Unfitted estimator by its name.

    Parameters
    ----------
    name : str
        A key of ``BASELINES``.
    **parameters
        Of the estimator.

    Examples
    --------
    >>> get_baseline("maf", n_layers=3)
    MAF(n_layers=3)
    """
    if name not in BASELINES:
        raise ValueError(f"unknown baseline {name!r}; choose one of {', '.join(BASELINES)}")
    return BASELINES[name](**parameters)

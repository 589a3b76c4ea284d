"""Benchmark densities: the truth by formula, and exact samples.

>>> from qaffde.targets import get_target
>>> target = get_target("arc")
>>> X = target.sample(1000, random_state=0)
>>> target.log_prob(X).shape
(1000,)
"""

from typing import Any

from qaffde.targets.arc import Arc
from qaffde.targets.base import Target
from qaffde.targets.gaussians import EqualGaussians, bimodal_l, binomial, star_eight
from qaffde.targets.potentials import (
    RidgePotential,
    RingPotential,
    potential_2,
    potential_3,
    potential_4,
)
from qaffde.targets.random_gmm import RandomGMM
from qaffde.targets.swiss_roll import SwissRoll

TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        Arc(),
        bimodal_l(),
        binomial(),
        RingPotential(),
        potential_2(),
        potential_3(),
        potential_4(),
        star_eight(),
        SwissRoll(),
    )
}
PLANAR: tuple[str, ...] = tuple(TARGETS)

__all__ = [
    "PLANAR",
    "TARGETS",
    "Arc",
    "EqualGaussians",
    "RandomGMM",
    "RidgePotential",
    "RingPotential",
    "SwissRoll",
    "Target",
    "get_target",
]


def get_target(name: str, **options: Any) -> Target:
    """Look up a benchmark density by its name.

    Parameters
    ----------
    name : str
        One of ``PLANAR``, or ``"random_gmm"``.
    **options
        Arguments of `RandomGMM`: ``n_dims``, ``scale``, ``random_state``.

    Examples
    --------
    >>> get_target("swiss_roll")
    <Target swiss_roll, n_dims=2>
    >>> get_target("random_gmm", n_dims=5, scale=0.2)
    <Target random_gmm, n_dims=5>
    """
    if name == RandomGMM.name:
        return RandomGMM(**options)
    if name not in TARGETS:
        known = ", ".join([*PLANAR, RandomGMM.name])
        raise ValueError(f"unknown target {name!r}; choose one of {known}")
    if options:
        raise TypeError(f"{name} takes no options, got {', '.join(options)}")
    return TARGETS[name]

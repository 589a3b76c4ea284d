"""Benchmark densities: the truth by formula, and exact samples.

>>> from experiments.targets import get_target
>>> target = get_target("arc")
>>> X = target.sample(1000, random_state=0)
>>> target.log_prob(X).shape
(1000,)
"""

from experiments.targets.base import Target
from experiments.targets.curved import (
    Arc,
    RidgePotential,
    RingPotential,
    SwissRoll,
    ridge_potentials,
)
from experiments.targets.gaussians import (
    EqualGaussians,
    bimodal_l,
    binomial,
    random_gmm,
    star_eight,
)

TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        Arc(),
        bimodal_l(),
        binomial(),
        RingPotential(),
        *ridge_potentials(),
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
    "RidgePotential",
    "RingPotential",
    "SwissRoll",
    "Target",
    "get_target",
    "random_gmm",
]


def get_target(name: str) -> Target:
    """Look up a benchmark density of two columns by its name, one of ``PLANAR``.

    Examples
    --------
    >>> get_target("swiss_roll")
    <Target swiss_roll, n_dims=2>
    """
    if name not in TARGETS:
        raise ValueError(f"unknown target {name!r}; choose one of {', '.join(PLANAR)}")
    return TARGETS[name]

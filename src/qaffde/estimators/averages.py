"""Mixtures of Gaussians averaged over their posterior, chosen by held-out rows."""

from collections.abc import Callable
from dataclasses import replace

from torch import Generator

from qaffde.estimators.data_measure import MeasureSpec, average_mixture
from qaffde.estimators.design import Split, weighted_mean
from qaffde.nn import GaussianMeasure
from qaffde.training.posterior import N_DRAWS, Monomials

AVERAGE_ROWS, AVERAGE_SIZES, STRENGTH, CHOICE_WORK = 80, (1, 8, 64, 128), 20.0, 10_240
"""The least rows for each number of a mean and variances, components of a draw to choose from,
rows that a prior may be worth, and sweeps times components."""
MIN_AVERAGED, PARTS_A_COLUMN = 3, 4
"""From this number of columns on, mixtures are averaged over their posterior; with fewer, one of
so many components for each column in a draw is a rival of what was found."""


def choose_average(
    split: Split, generator: Callable[[], Generator], sizes: tuple[int, ...]
) -> tuple[MeasureSpec, GaussianMeasure]:
    """Number of components and prior of a mixture averaged over its posterior.

    From three columns on no lattice of frequencies reaches all modes, and the base measure has to.
    """
    n, d = split.train.shape
    most = n // (AVERAGE_ROWS * (d + 2) // 4)
    valid = Monomials(split.valid)
    found: dict[MeasureSpec, GaussianMeasure] = {}

    def value(spec: MeasureSpec) -> float:
        found[spec] = average_mixture(
            spec, split.train, split.train_weight, generator(), work=CHOICE_WORK
        )
        return weighted_mean(valid.log_terms(found[spec]).logsumexp(1), split.valid_weight)

    offered = dict.fromkeys(min(size, most) for size in sizes)
    free = [MeasureSpec("mixture", N_DRAWS * size, strength=0.0) for size in offered]
    values = {spec: value(spec) for spec in free}
    held = replace(max(values, key=values.__getitem__), strength=STRENGTH)
    values[held] = value(held)
    best = max(values, key=values.__getitem__)
    return best, found[best]

"""The untuned path: bandwidth and base measure by held-out likelihood."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Generator, Tensor

from qaffde.estimators.data_measure import (
    MeasureSpec,
    effective_count,
    fit_mixture,
    within_scale,
)
from qaffde.nn import BaseMeasure

SELECTION_ROWS = 30_000
VALIDATION_ROWS = 10_000
MIXTURE_SIZES = (1, 2, 4, 8, 16, 32)
MAX_DOUBLINGS = 6
SMALL = 1000
MIN_SCALE = 1e-3


@dataclass(frozen=True)
class Split:
    """Rows to fit on and rows to judge by."""

    train: Tensor
    train_weight: Tensor
    valid: Tensor
    valid_weight: Tensor


@dataclass(frozen=True)
class Design:
    """What is chosen before the closed form runs.

    Parameters
    ----------
    spec : MeasureSpec
        Which base measure.
    bandwidth : Tensor of shape (d,)
        Kernel bandwidth, in the units of the rows.
    log_likelihood : float
        Held-out mean log-likelihood of this choice; NaN where nothing was compared.
    """

    spec: MeasureSpec
    bandwidth: Tensor
    log_likelihood: float = math.nan


Judge = Callable[[BaseMeasure, Tensor, Split], Tensor]
"""Held-out log-densities of a base measure and a bandwidth, one for each validation row."""


def make_splits(Z: Tensor, weight: Tensor, generator: Generator) -> list[Split]:
    """One hold-out split of at most 40 000 rows, or four folds where rows are few."""
    rows = torch.randperm(len(Z), generator=generator)[: SELECTION_ROWS + VALIDATION_ROWS]
    if len(Z) >= SMALL:
        n_valid = min(len(rows) // 5, VALIDATION_ROWS)
        folds = [rows[:n_valid]]
    else:
        folds = [fold for fold in rows.tensor_split(4) if len(fold)]
    return [_split(Z, weight, rows, fold) for fold in folds]


def _split(Z: Tensor, weight: Tensor, rows: Tensor, fold: Tensor) -> Split:
    train = rows[~torch.isin(rows, fold)]
    return Split(Z[train], weight[train], Z[fold], weight[fold])


def mixture_size(split: Split, generator: Generator) -> int:
    """Smallest number of Gaussians within one standard error of the best held-out likelihood.

    The fewer the components, the less of their own shape do they leave on the density: what they
    miss, the density matrix adds.
    """
    n, d = split.train.shape
    log_p = {}
    for size in (k for k in MIXTURE_SIZES if n >= 10 * k * (d + 2)):
        measure = fit_mixture(split.train, split.train_weight, size, generator, rows=20_000)
        log_p[size] = measure.log_density(split.valid)
    if len(log_p) < 2:
        return 1
    best = max(log_p, key=lambda size: weighted_mean(log_p[size], split.valid_weight))
    return next(
        size for size in log_p if _indistinct(log_p[size], log_p[best], split.valid_weight)
    )


def search_bandwidth(
    judge: Callable[[float], Tensor], weight: Tensor, start: float = 0.5
) -> tuple[float, float]:
    """Maximise the mean score of a positive factor: doublings to a bracket, then half steps.

    Of two neighbours that the scored rows cannot tell apart, the smaller factor is taken: to
    smooth less costs a little variance, which ranks survive better than bias.

    Parameters
    ----------
    judge : callable
        Scores of shape (n,) at a factor.
    weight : Tensor of shape (n,)
    start : float

    Returns
    -------
    factor, mean score
    """
    scores: dict[float, Tensor] = {}

    def mean_at(step: float) -> float:
        if step not in scores:
            scores[step] = judge(start * 2.0**step)
        return weighted_mean(scores[step], weight)

    best = max((0.0, 1.0), key=mean_at)
    direction = 2 * best - 1
    while abs(best) < MAX_DOUBLINGS and mean_at(best + direction) > mean_at(best):
        best += direction
    best = max((best - 0.5, best, best + 0.5), key=mean_at)
    mean_at(best - 0.5)
    if _indistinct(scores[best - 0.5], scores[best], weight):
        best -= 0.5
    return start * 2.0**best, mean_at(best)


def _indistinct(score: Tensor, best: Tensor, weight: Tensor) -> bool:
    """Whether a mean score is within one standard error of the best, row by row."""
    loss, n = best - score, effective_count(weight)
    mean = weighted_mean(loss, weight)
    return mean <= math.sqrt(weighted_mean((loss - mean).square(), weight) / n)


def choose_design(
    Z: Tensor,
    weight: Tensor,
    specs: list[MeasureSpec],
    bandwidth: Tensor | None,
    judge: Judge,
    generator: Generator,
) -> Design:
    """Choose the base measure, and the bandwidth unless it is given, by held-out likelihood.

    Columns keep the ratio of their standard deviations within a component of the mixture: that
    is where the density bends, while the deviation over all data also counts how far apart its
    parts are.

    Parameters
    ----------
    Z, weight : Tensors of shapes (n, d), (n,)
    specs : list of MeasureSpec
        Candidates; a mixture of size 0 has its size chosen, and one Gaussian is a choice.
    bandwidth : Tensor of shape (d,) or None
    judge : Judge
    generator : torch.Generator
    """
    splits = make_splits(Z, weight, generator)
    size = mixture_size(splits[0], generator)
    scale = _structure_scale(splits[0], size, generator)
    candidates = [
        _best_bandwidth(spec, splits, bandwidth, scale, judge, generator)
        for spec in (replace(spec, n_components=spec.n_components or size) for spec in specs)
    ]
    best = max(candidates, key=lambda design: design.log_likelihood)
    if bandwidth is not None:
        return best
    shrink = (len(splits[0].train) / len(Z)) ** (1 / (Z.shape[1] + 4))
    return replace(best, bandwidth=best.bandwidth * shrink)


def _best_bandwidth(
    spec: MeasureSpec,
    splits: list[Split],
    bandwidth: Tensor | None,
    scale: Tensor,
    judge: Judge,
    generator: Generator,
) -> Design:
    fits = [(spec.fit(s.train, s.train_weight, generator), s) for s in splits]
    weight = torch.cat([split.valid_weight for split in splits])

    def scores(h: Tensor) -> Tensor:
        return torch.cat([judge(measure, h, split) for measure, split in fits])

    if bandwidth is not None:
        return Design(spec, bandwidth, weighted_mean(scores(bandwidth), weight))
    factor, value = search_bandwidth(lambda factor: scores(factor * scale), weight)
    return Design(spec, factor * scale, value)


def _structure_scale(split: Split, size: int, generator: Generator) -> Tensor:
    if size == 1:
        return split.train.std(0).clamp(min=MIN_SCALE)
    measure = fit_mixture(split.train, split.train_weight, size, generator, rows=20_000)
    return within_scale(measure).clamp(min=MIN_SCALE)


def weighted_mean(values: Tensor, weight: Tensor) -> float:
    """Mean of `values` under weights."""
    return float((values @ weight) / weight.sum())

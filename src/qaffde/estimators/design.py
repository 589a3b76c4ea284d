"""The untuned path: bandwidth and base measure by held-out likelihood."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Generator, Tensor

from qaffde.estimators.data_measure import (
    MeasureSpec,
    blur_measure,
    fit_mixture,
    within_scale,
)
from qaffde.estimators.totals import effective_count
from qaffde.nn import BaseMeasure, GaussianMeasure

SELECTION_ROWS = 30_000
VALIDATION_ROWS = 10_000
MIXTURE_SIZES = (1, 2, 4, 8, 16, 32)
MANY_MODES = (64, 96, 128)
"""Sizes to try beyond three columns, where no lattice of frequencies reaches all modes."""
SIZES_WORSE = 2
"""Sizes in a row that are worse than a smaller one before no larger one is tried."""
MAX_DOUBLINGS = 6
SMALL = 1000
MANY_ROWS = 5000
MIN_SCALE = 1e-3
NEIGHBOURS = (2**-0.5, 1.0, 2**0.5)


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
    start : BaseMeasure, optional
        The measure as it was judged, where the fit to all rows begins.
    """

    spec: MeasureSpec
    bandwidth: Tensor
    log_likelihood: float = math.nan
    start: BaseMeasure | None = None


Judge = Callable[[BaseMeasure, Tensor, Split], Tensor]
"""Held-out log-densities of a base measure and a bandwidth, one for each validation row."""


def make_splits(
    Z: Tensor,
    weight: Tensor,
    generator: Generator,
    n_rows: int = SELECTION_ROWS + VALIDATION_ROWS,
    n_folds: int = 1,
) -> list[Split]:
    """One hold-out split of at most `n_rows` rows, or folds; four of them where rows are few.

    Copies of a row become one row of their weight: on both sides of a split they would praise
    whatever memorises them.
    """
    sample = torch.randperm(len(Z), generator=generator)[:n_rows]
    rows, row_weight = _distinct(Z[sample], weight[sample], generator)
    order = torch.arange(len(rows))
    if len(rows) < SMALL:
        folds = list(order.tensor_split(4))
    elif n_folds > 1:
        folds = list(order.tensor_split(n_folds))
    else:
        folds = [order[: min(len(rows) // 5, n_rows // 4)]]
    return [_split(rows, row_weight, fold) for fold in folds]


def _distinct(Z: Tensor, weight: Tensor, generator: Generator) -> tuple[Tensor, Tensor]:
    """Different rows in random order, with the sums of their weights."""
    rows, copy_of = Z.unique(dim=0, return_inverse=True)
    if len(rows) == len(Z):
        return Z, weight
    total = weight.new_zeros(len(rows)).index_add_(0, copy_of, weight)
    order = torch.randperm(len(rows), generator=generator)
    return rows[order], total[order]


def _split(Z: Tensor, weight: Tensor, fold: Tensor) -> Split:
    train = torch.ones(len(Z), dtype=torch.bool)
    train[fold] = False
    return Split(Z[train], weight[train], Z[fold], weight[fold])


def choose_mixture(split: Split, generator: Generator) -> GaussianMeasure:
    """Smallest mixture of Gaussians within one standard error of the best held-out likelihood.

    The fewer the components, the less of their own shape do they leave on the density: what they
    miss, the density matrix adds.
    """
    n, d = split.train.shape
    offered = MIXTURE_SIZES if d <= 3 else MIXTURE_SIZES + MANY_MODES
    mixtures, log_p, means = [], [], []
    for k in [k for k in offered if n >= 10 * k * (d + 2)] or [1]:
        mixtures.append(fit_mixture(split.train, split.train_weight, k, generator, rows=20_000))
        log_p.append(mixtures[-1].log_density(split.valid))
        means.append(weighted_mean(log_p[-1], split.valid_weight))
        if len(means) > means.index(max(means)) + SIZES_WORSE:
            break
    best = log_p[means.index(max(means))]
    return next(
        mixture
        for mixture, scores in zip(mixtures, log_p, strict=True)
        if indistinct(scores, best, split.valid_weight)
    )


def search_bandwidth(
    judge: Callable[[float], Tensor], weight: Tensor, start: float = 0.5
) -> tuple[float, float]:
    """Maximise the mean score of a positive factor: doublings to a bracket, then half steps.

    Of two neighbours that many scored rows cannot tell apart, the smaller factor is taken: to
    smooth less costs a little variance, which ranks survive better than bias. Few rows can tell
    nothing apart, and the best is taken.

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
    if effective_count(weight) >= MANY_ROWS:
        mean_at(best - 0.5)
        if indistinct(scores[best - 0.5], scores[best], weight):
            best -= 0.5
    return start * 2.0**best, mean_at(best)


def indistinct(score: Tensor, best: Tensor, weight: Tensor, errors: float = 1.0) -> bool:
    """Whether a mean score is within some standard errors of the best, row by row."""
    loss, n = best - score, effective_count(weight)
    mean = weighted_mean(loss, weight)
    return mean <= errors * math.sqrt(weighted_mean((loss - mean).square(), weight) / n)


def choose_design(
    Z: Tensor,
    weight: Tensor,
    specs: list[MeasureSpec],
    bandwidth: Tensor | None,
    judge: Judge,
    blur: float,
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
        Candidates, the plainest first; a mixture of size 0 has its size chosen, and one Gaussian
        is a choice.
    bandwidth : Tensor of shape (d,) or None
    judge : Judge
    blur : float
        By how many bandwidths a mixture may be blurred.
    generator : torch.Generator
    """
    splits = make_splits(Z, weight, generator)
    mixture = choose_mixture(splits[0], generator)
    scale = within_scale(mixture).clamp(min=MIN_SCALE)
    contest = _Contest(splits, judge, mixture, generator)
    size = len(mixture.weights)
    sized = (replace(spec, n_components=spec.n_components or size) for spec in specs)
    entries = [contest.best(spec, scale, bandwidth) for spec in sized]
    best = contest.first_of_the_best(entries)
    if best.spec.name == "mixture":
        best = contest.blurred(best, blur, (1.0,) if bandwidth is not None else NEIGHBOURS)
    best = replace(best, start=contest.start(best.spec))
    if bandwidth is not None:
        return best
    share = float(splits[0].train_weight.sum() / weight.sum())
    shrink = share ** (1 / (Z.shape[1] + 4))
    return replace(best, bandwidth=best.bandwidth * shrink)


class _Contest:
    """Designs judged on the same splits, row by row."""

    def __init__(
        self,
        splits: list[Split],
        judge: Judge,
        mixture: GaussianMeasure,
        generator: Generator,
    ) -> None:
        self.splits = splits
        self.judge = judge
        self.mixture = mixture
        self.generator = generator
        self.weight = torch.cat([split.valid_weight for split in splits])
        self.fits: dict[MeasureSpec, list[BaseMeasure]] = {}

    def scores(self, spec: MeasureSpec, h: Tensor) -> Tensor:
        """Held-out log-densities of a design, one for each validation row."""
        sharp = replace(spec, blur=0.0)
        if sharp not in self.fits:
            self.fits[sharp] = [
                sharp.fit(s.train, s.train_weight, h, self.generator, self.mixture)
                for s in self.splits
            ]
        pairs = zip(self.fits[sharp], self.splits, strict=True)
        return torch.cat(
            [self.judge(blur_measure(m, spec.blur * h), h, split) for m, split in pairs]
        )

    def start(self, spec: MeasureSpec) -> BaseMeasure:
        """The measure that a specification was judged by, before any blur."""
        return self.fits[replace(spec, blur=0.0)][0]

    def best(self, spec: MeasureSpec, scale: Tensor, bandwidth: Tensor | None) -> Design:
        """Design of a base measure at its best bandwidth, or at the given one."""
        if bandwidth is not None:
            return Design(spec, bandwidth, self._mean(self.scores(spec, bandwidth)))
        factor, value = search_bandwidth(lambda f: self.scores(spec, f * scale), self.weight)
        return Design(spec, factor * scale, value)

    def first_of_the_best(self, entries: list[Design]) -> Design:
        """First design that the held-out rows cannot tell from the best: the plainer ones lead."""
        best = max(entries, key=lambda design: design.log_likelihood)
        reference = self.scores(best.spec, best.bandwidth)
        return next(
            entry
            for entry in entries
            if entry is best
            or indistinct(self.scores(entry.spec, entry.bandwidth), reference, self.weight)
        )

    def blurred(self, sharp: Design, width: float, factors: tuple[float, ...]) -> Design:
        """The same with a blurred mixture, unless the held-out rows can tell that it is worse.

        A mixture may have bumps that are finer than the features, which then cannot take them
        back; blurred by the features' own bandwidth it leaves no mark on the density.
        """
        spec = replace(sharp.spec, blur=width)
        entries = {f: self.scores(spec, f * sharp.bandwidth) for f in factors}
        factor = max(entries, key=lambda f: self._mean(entries[f]))
        reference = self.scores(sharp.spec, sharp.bandwidth)
        if not indistinct(entries[factor], reference, self.weight):
            return sharp
        return Design(spec, factor * sharp.bandwidth, self._mean(entries[factor]))

    def _mean(self, scores: Tensor) -> float:
        return weighted_mean(scores, self.weight)


def weighted_mean(values: Tensor, weight: Tensor) -> float:
    """Mean of `values` under weights."""
    return float((values @ weight) / weight.sum())

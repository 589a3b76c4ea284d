"""One search for all models: candidates judged by held-out likelihood on the same splits."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import torch
from torch import Generator, Tensor

from qaffde.nn import BaseMeasure, GaussianMeasure
from qaffde.selection.base_measure import (
    BaseSpec,
    Monomials,
    Shape,
    average,
    coarse_dtype,
    fit_mixture,
    n_distinct,
    spec_of,
    start_mixture,
)
from qaffde.selection.policy import SelectionPolicy
from qaffde.selection.summary import Moments
from qaffde.training.closed_form import effective_count
from qaffde.training.run import hold_out


@dataclass(frozen=True, eq=False)
class Split:
    """Rows to fit on and rows to judge by, with the numbers of their classes (densities: 0)."""

    train: Tensor
    train_weight: Tensor
    train_labels: Tensor
    valid: Tensor
    valid_weight: Tensor
    valid_labels: Tensor

    @classmethod
    def of(cls, rows: "Labeled", fold: Tensor) -> "Split":
        """The split that holds out the rows of these numbers."""
        train = torch.ones(len(rows[0]), dtype=torch.bool)
        train[fold] = False
        return cls(*(part[train] for part in rows), *(part[fold] for part in rows))

    def train_monomials(self) -> Monomials:
        """Rows to fit on, of mean weight one, for expectation–maximization."""
        share = self.train_weight / self.train_weight.mean()
        return Monomials(self.train, share, coarse_dtype(self.train))

    @property
    def ends(self) -> Tensor:
        """Least and largest values (2, d) of the rows to fit on."""
        return torch.stack([self.train.amin(0), self.train.amax(0)])


def show_numbers(values: Tensor) -> str:
    """Numbers of shape (d,) in one line; a number that all columns share stands once."""
    shown = [f"{number:.4g}" for number in values]
    return shown[0] if len(set(shown)) == 1 else ", ".join(shown)


@dataclass(frozen=True)
class Trial:
    """One candidate of a search.

    Parameters
    ----------
    name : str
    n_rows : int
        Rows that it was fitted to and judged by.
    log_likelihood : float
        Mean over held-out rows, in the units of the data (of a classifier: minus the log-loss).
    chosen : bool
    """

    name: str
    n_rows: int
    log_likelihood: float
    chosen: bool = False


@dataclass(frozen=True, eq=False)
class Choice:
    """Candidate of a search: base measure, bandwidth (d,) in the units of the plan, and the rest.

    The ridge is that of maximum likelihood, times the number of rows; of a classifier, the share
    of the largest eigenvalue of ρ̄ that is added to all. A bare one leaves the base measure as it
    is, with one constant feature. Measurement and rank are those of a classifier. 0 features leave
    their number to the method.
    """

    base: BaseSpec
    bandwidth: Tensor
    ridge: float | None = None
    bare: bool = False
    measurement: str | None = None
    rank: int | float | str = 1
    n_features: int = 0

    def __str__(self) -> str:
        return self.describe(torch.ones_like(self.bandwidth))

    def describe(self, scale: Tensor) -> str:
        """Name with the bandwidth in the units of the data, whose scale has shape (d,)."""
        if self.bare:
            return f"{self.base} alone"
        h = show_numbers(self.bandwidth * scale)
        if self.measurement is not None:
            ridge = "" if self.ridge is None else f", ridge {self.ridge:.4g}"
            reading = f"{self.measurement}{ridge}, rank {self.rank}"
            return f"bandwidth {h}, {reading}, {self.n_features} features"
        ridge = "" if self.ridge is None else f", ridge {self.ridge:.4g}/n"
        size = f", {self.n_features} features" if self.n_features else ""
        return f"{self.base}, bandwidth {h}{ridge}{size}"


Mixtures = list[GaussianMeasure]
"""One for each split of the rows."""
Labeled = tuple[Tensor, Tensor, Tensor]
"""Rows of shape (n, d), weights of shape (n,) and numbers of classes of shape (n,)."""


def _distinct(Z: Tensor, weight: Tensor, labels: Tensor, generator: Generator) -> Labeled:
    """Distinct rows in random order, with the sums of their weights.

    Copies of a row become one row of their weight, as far as `labels` agree: duplicates across
    a split would reward overfitting.
    """
    joint = torch.cat([Z, labels[:, None].to(Z)], 1)
    if n_distinct(joint, len(joint)) == len(joint):
        return Z, weight, labels
    rows, copy_of = joint.unique(dim=0, return_inverse=True)
    total = weight.new_zeros(len(rows)).index_add_(0, copy_of, weight)
    order = torch.randperm(len(rows), generator=generator)
    return rows[order, :-1].contiguous(), total[order], rows[order, -1].long()


def fixed(value: float | str) -> float | None:
    """A number that is given, None for "auto"."""
    return None if isinstance(value, str) else float(value)


def weighted_mean(values: Tensor, weight: Tensor) -> float:
    """Mean of `values` under weights."""
    return float((values @ weight) / weight.sum())


def indistinct(score: Tensor, best: Tensor, weight: Tensor, errors: float = 1.0) -> bool:
    """Whether a mean score is within some standard errors of the best, row by row."""
    loss, n = best - score, effective_count(weight)
    mean = weighted_mean(loss, weight)
    return mean <= errors * math.sqrt(weighted_mean((loss - mean).square(), weight) / n)


def best_shape(
    sizes: Sequence[int],
    shrinkage: float,
    scores: Callable[[Shape, Shape | None], Tensor],
    weight: Tensor,
    policy: SelectionPolicy,
    is_late: Callable[[], bool],
) -> Shape:
    """Shape of a mixture with the best held-out scores.

    Sizes grow until one is worse by a standard error, or as many in a row as the patience; without
    shrinkage, where the smallest of those that are alike is taken, also until a large one is no
    better by a standard error than that before. Then the shrinkage of the best moves, and larger
    sizes are tried with that. ``scores(shape, near)`` are those of a new mixture, or of one that
    begins at that of the shape `near`.
    """
    found: dict[Shape, Tensor] = {}

    def best() -> Shape:
        return max(found, key=lambda shape: weighted_mean(found[shape], weight))

    def grow(sizes: Sequence[int], shrinkage: float) -> None:
        worse = 0
        for k in sizes:
            shape = k, shrinkage if k > 1 else 0.0
            before, found[shape] = best() if found else None, scores(shape, None)
            worse = 0 if best() == shape else worse + 1
            tied = indistinct(found[shape], found[best()], weight)
            if is_late() or worse >= policy.mixture_patience or not tied:
                break
            is_large = not shrinkage and k > policy.cheap_components
            if before and is_large and indistinct(found[before], found[shape], weight):
                break

    grow(sizes, shrinkage)
    while best()[0] > 1 and best()[1] and not is_late():
        k, before = best()
        for factor in (policy.shrinkage_step, 1 / policy.shrinkage_step):
            for _ in range(policy.max_steps):
                near = best()
                shape = k, near[1] * factor
                if shape in found or is_late():
                    break
                found[shape] = scores(shape, near)
                if best() != shape:
                    break
        if best()[1] == before:
            break
        grow([size for size in sizes if size > k], best()[1])
        if best()[0] == k:
            break
    return best()


Judge = Callable[[BaseMeasure, Choice, Split], Tensor]
"""Held-out log-densities of a choice on a measure, one for each validation row of a split."""
Move = Callable[[Choice, int], Choice]
"""A neighbor of a choice, in direction 1 or −1."""


def wider(factor: float, columns: Tensor | float = 1.0) -> Move:
    """Move that multiplies the bandwidth of the columns that are marked by one."""
    return lambda choice, direction: replace(
        choice, bandwidth=choice.bandwidth * factor ** (direction * columns)
    )


class Search:
    """Candidates judged on the same held-out rows, for as long as there is time.

    Every candidate is drawn from the same seed, so that only a deadline, on the clock of
    :func:`time.monotonic`, changes the result.
    Rows of shape (n, d) are in the units of the plan; `labels` are the numbers of their classes.
    `known` holds log-densities of candidates that were judged before, and ``report(name, mean)``
    is called after each other one and each mixture. `values` are mean held-out log-likelihoods,
    by name and number of rows. Candidates are first compared on `rough` rows, the last ones on
    `fine` rows, and base measures are chosen by `most`. The deadline moves so that a fit to
    `n_all` rows, if these take as long as those of a candidate, is over before the `end`.
    """

    def __init__(
        self,
        Z: Tensor,
        weight: Tensor,
        judge: Judge,
        *,
        policy: SelectionPolicy,
        seed: int,
        labels: Tensor | None = None,
        deadline: float = math.inf,
        end: float = math.inf,
        n_all: int = 0,
        known: dict[str, Tensor] | None = None,
        report: Callable[[str, float], None] | None = None,
    ) -> None:
        self.Z, self.weight, self.labels, self.judge = Z, weight, labels, judge
        self.policy, self.seed, self.deadline = policy, seed, deadline
        self.known = {} if known is None else known
        self.report = report or (lambda name, mean: None)
        self.rough, self.fine = policy.rough_rows, policy.fine_rows
        many = Z.shape[1] > policy.max_box_columns and labels is None  # all depends on the mixture
        self.most = max(policy.max_mixture_rows, self.fine) if many else self.fine
        self.values: dict[tuple[str, int], tuple[Choice, float]] = {}
        self.end, self.n_all = end, n_all
        self.seconds: dict[int, float] = {}
        self.ahead = 0.0
        self.was_late = False
        self.fits: dict[tuple[BaseSpec, int], BaseMeasure] = {}

    def generator(self) -> Generator:
        """A new generator, always from the same seed."""
        return torch.Generator().manual_seed(self.seed)

    @cached_property
    def splits(self) -> dict[int, list[Split]]:
        """Splits of few rows, of more, and of those that base measures are fitted to.

        There is one hold-out split of each size; few rows have folds of all. What a split holds
        out is also held out by those of more rows, so that a base measure fitted to the rest has
        seen none of it.
        """
        policy, generator, labels = self.policy, self.generator(), self.labels
        if labels is None:
            labels = torch.zeros(len(self.Z), dtype=torch.int64)
        sample = torch.randperm(len(self.Z), generator=generator)[: self.most]
        rows = _distinct(self.Z[sample], self.weight[sample], labels[sample], generator)
        sizes, m = {self.rough, self.fine, self.most}, len(rows[0])
        if m < policy.fold_rows:
            folds = [Split.of(rows, fold) for fold in torch.arange(m).tensor_split(policy.n_folds)]
            return dict.fromkeys(sizes, folds)
        first = {n: (rows[0][:n], rows[1][:n], rows[2][:n]) for n in sizes}
        return {
            n: [Split.of(some, hold_out(len(some[0]), policy.valid_share)[1])]
            for n, some in first.items()
        }

    @cached_property
    def mixture(self) -> BaseSpec:
        """Gaussian mixture of the best held-out likelihood, or a smaller one like it.

        Each shape has a few iterations; only the one chosen has more of them. In few columns,
        where features follow, that is the smallest within a standard error. In many only one
        Gaussian takes precedence, and fits from several starts are averaged for as long as that
        helps.
        """
        policy, generator, splits = self.policy, self.generator(), self.splits[self.most]
        (n, d), weight = splits[0].train.shape, self.held_out_weight(self.most)
        rows = [split.train_monomials() for split in splits]
        valid = [Monomials(split.valid) for split in splits]
        scores: dict[BaseSpec, Tensor] = {}
        shared: dict[str, Any] = {"policy": policy, "deadline": self.deadline}

        def iterated(spec: BaseSpec, starts: list[GaussianMeasure], most: int) -> Mixtures:
            options: dict[str, Any] = {"max_iter": most, "prior": spec.prior(policy), **shared}
            return [
                fit_mixture(each, spec.n_components, generator, start=start, **options)
                for each, start in zip(rows, starts, strict=True)
            ]

        def started(spec: BaseSpec) -> Mixtures:
            k, prior = spec.n_components, spec.prior(policy)
            half = [s for s in scores if 2 * s.n_components == k]
            smaller = self.mixtures(half[-1], len(rows)) if half else [None] * len(rows)
            return [
                start_mixture(each, k, generator, prior=prior, smaller=of, **shared)
                for each, of in zip(rows, smaller, strict=True)
            ]

        def judged(spec: BaseSpec, fits: Sequence[Mixtures]) -> float:
            mixtures = [average(each) for each in zip(*fits, strict=True)]
            self.fits |= {(spec, number): mixture for number, mixture in enumerate(mixtures)}
            log_p = [of.log_density(mixture) for of, mixture in zip(valid, mixtures, strict=True)]
            scores[spec] = torch.cat(log_p).clamp(min=-policy.worst)
            mean = weighted_mean(scores[spec], weight)
            self.report(f"{spec} alone ({self.n_rows(self.most)} rows)", mean)
            return mean

        def simplest(specs: list[BaseSpec]) -> BaseSpec:
            alike = (spec for spec in specs if indistinct(scores[spec], scores[best], weight))
            return next(alike, best)

        def tried(shape: Shape, near: Shape | None) -> Tensor:
            began, spec = time.monotonic(), spec_of(shape)
            other = None if near is None else replace(spec, shrinkage=near[1])
            starts = started(spec) if other is None else self.mixtures(other, len(rows))
            judged(spec, [iterated(spec, starts, policy.last_iterations)])
            self.ahead = 2 * (time.monotonic() - began)  # the next one is twice as large
            return scores[spec]

        late = partial(self.is_late, 0)
        far = int((self.Z.abs() > policy.far).any())  # one Gaussian would reach out to far rows
        sizes = [k for k in policy.mixture_sizes if k > far and n >= policy.component_rows * k]
        few = d <= policy.max_box_columns  # there features do what components cannot
        first = 0.0 if few else policy.mixture_shrinkage * d
        best = spec_of(best_shape(sizes or [1 + far], first, tried, weight, policy, late))
        one = next(iter(scores))
        best = simplest([*scores]) if few else best
        k, begin, value = best.n_components, self.mixtures(best, len(rows)), -math.inf
        fits: list[Mixtures] = []
        largest = 1 if few or k == 1 else min(policy.max_mixtures, policy.mixture_sizes[-1] // k)
        while len(fits) < largest and not late():
            fits.append(iterated(best, begin, policy.mixture_iterations))
            several = replace(best, n_mixtures=len(fits))
            mean = judged(several, fits)
            if mean <= value:
                break
            best, value = several, mean
            if len(fits) < largest:
                begin = started(best)
        fits = fits[: best.n_mixtures]
        for _ in range(policy.max_steps if len(fits) > 1 else 0):  # averages need less shrinkage
            less = replace(best, shrinkage=best.shrinkage / policy.shrinkage_step)
            fits = [iterated(less, starts, policy.last_iterations) for starts in fits]
            mean = judged(less, fits)
            if late() or mean <= value:
                break
            best, value = less, mean
        return best if few else simplest([one])

    def sized(self, bases: list[BaseSpec]) -> list[BaseSpec]:
        """Base measures of which those of open size have the chosen one."""
        return [base if base.n_components else self.mixture for base in bases]

    def mixtures(self, spec: BaseSpec, n: int = 1) -> "Mixtures":
        """Mixtures as they were judged, of the first n splits."""
        found = [self.fits[spec, number] for number in range(n)]
        return [mixture for mixture in found if isinstance(mixture, GaussianMeasure)]

    @property
    def within(self) -> Tensor:
        """Standard deviation of each column within a component of the mixture, of shape (d,)."""
        [mixture] = self.mixtures(self.mixture)
        variance = mixture.weights @ mixture.covariances.diagonal(dim1=1, dim2=2)
        return variance.sqrt().clamp(min=self.policy.min_scale)

    def measure(self, base: BaseSpec, h: Tensor, moments: Moments) -> BaseMeasure:
        """The base measure fitted to all rows, from where it was judged."""
        return self._fit(base, self.Z, self.weight, h, moments)

    def _fitted(self, choice: Choice, number: int) -> BaseMeasure:
        """The base measure of a choice, fitted once to the training rows of a split of many."""
        base = choice.base
        if (base, number) not in self.fits:
            split = self.splits[self.most][number]
            fit = self._fit(base, split.train, split.train_weight, choice.bandwidth)
            self.fits[base, number] = fit
        return self.fits[base, number]

    def _fit(
        self, base: BaseSpec, Z: Tensor, weight: Tensor, h: Tensor, whole: Moments | None = None
    ) -> BaseMeasure:
        judged, options = self.fits.get((base, 0)), (self.generator(), self.policy)
        return base.fit(Z, weight, h, *options, judged, whole, self.deadline)

    def scores(self, choice: Choice, rows: int) -> Tensor:
        """Held-out log-densities with splits of that many rows."""
        name = f"{choice} ({self.n_rows(rows)} rows)"
        self._fitted(choice, 0)  # where `measure` begins, be the scores known or not
        if name not in self.known:
            self.known[name] = self._judged(choice, rows)
            self.report(name, weighted_mean(self.known[name], self.held_out_weight(rows)))
        return self.known[name]

    def _judged(self, choice: Choice, rows: int) -> Tensor:
        started = time.monotonic()
        scores = [
            self.judge(self._fitted(choice, number), choice, split)
            for number, split in enumerate(self.splits[rows])
        ]
        spent = time.monotonic() - started
        self.seconds[rows] = max(self.seconds.get(rows, 0.0), spent)
        self.deadline = min(self.deadline, self.end - spent * self.n_all / self.n_rows(rows))
        return torch.cat(scores).clamp(min=-self.policy.worst)

    def n_rows(self, rows: int) -> int:
        """Rows that there are for splits of so many."""
        split = self.splits[rows][0]
        return len(split.train) + len(split.valid)

    def held_out_weight(self, rows: int) -> Tensor:
        """Weights of the rows that are held out."""
        return torch.cat([split.valid_weight for split in self.splits[rows]])

    def value(self, choice: Choice, rows: int) -> float:
        """Mean held-out log-likelihood."""
        mean = weighted_mean(self.scores(choice, rows), self.held_out_weight(rows))
        self.values[str(choice), rows] = choice, mean
        return mean

    def highest(self, choices: list[Choice], rows: int) -> Choice:
        """Choice of the best held-out likelihood."""
        if len(choices) == 1:
            return choices[0]
        return max(choices, key=lambda choice: self.value(choice, rows))

    def simplest(self, choices: list[Choice], rows: int) -> Choice:
        """First choice that held-out rows cannot tell from the best; the simpler ones lead."""
        best, weight = self.highest(choices, rows), self.held_out_weight(rows)
        reference = self.scores(best, rows)
        alike = (c for c in choices if indistinct(self.scores(c, rows), reference, weight))
        return next(alike)

    def climb(
        self, start: Choice, moves: list[Move], rows: int, gain: float, max_steps: int
    ) -> Choice:
        """Go along each move in turn for as long as the held-out likelihood rises."""
        best = start
        for move in moves:
            up = self._along(best, move, 1, rows, gain, max_steps)
            best = self._along(best, move, -1, rows, gain, max_steps) if up is best else up
        return best

    def _along(
        self, best: Choice, move: Move, direction: int, rows: int, gain: float, max_steps: int
    ) -> Choice:
        for _ in range(max_steps):
            ahead = move(best, direction)
            if self.is_late(rows) or self.value(ahead, rows) <= self.value(best, rows) + gain:
                break
            best = ahead
        return best

    def is_late(self, rows: int) -> bool:
        """Whether one more candidate, if it takes as long as the last, would end too late.

        More rows come with more features; no rows are those of one more mixture.
        """
        known = (s * max(1.0, rows / n) ** 1.5 for n, s in self.seconds.items())
        ahead = self.seconds.get(rows, max(known, default=self.ahead)) if rows else self.ahead
        late = time.monotonic() + ahead >= self.deadline
        self.was_late = self.was_late or late
        return late

    def trials(
        self, chosen: Choice, scale: Tensor, log_slopes: Callable[[Tensor], Tensor]
    ) -> tuple[Trial, ...]:
        """Candidates that were compared, in units of the data, whose scale has shape (d,).

        `log_slopes` of rows z are what the units add to held-out scores. The candidate chosen may
        have been judged with fewer features only.
        """
        units = {
            rows: weighted_mean(
                log_slopes(torch.cat([split.valid for split in self.splits[rows]])),
                self.held_out_weight(rows),
            )
            for _, rows in self.values
        }
        alike = str(replace(chosen, n_features=0))
        same = [name for name, _ in self.values if name == str(chosen)] or [
            name
            for (name, _), (choice, _) in self.values.items()
            if str(replace(choice, n_features=0)) == alike
        ]
        return tuple(
            Trial(choice.describe(scale), self.n_rows(rows), value + units[rows], name in same)
            for (name, rows), (choice, value) in self.values.items()
        )

    @property
    def shrinkage(self) -> float:
        """Ratio n^(−1/(d+4)) of the best bandwidths for all rows and for those of a split."""
        if not self.values:
            return 1.0
        share = self.splits[self.fine][0].train_weight.sum() / self.weight.sum()
        return float(share) ** (1 / (self.Z.shape[1] + 4))

"""One search for all models: candidates judged by held-out likelihood on the same splits."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Generator, Tensor

from qaffde.nn import BaseMeasure, GaussianMeasure
from qaffde.selection.base_measure import (
    BaseSpec,
    average_mixture,
    blur_measure,
    fit_mixture,
)
from qaffde.selection.plan import Choice, Trial
from qaffde.selection.policy import SelectionPolicy
from qaffde.selection.summary import Moments
from qaffde.training.closed_form import effective_count
from qaffde.training.posterior import N_DRAWS, Monomials


@dataclass(frozen=True, eq=False)
class Split:
    """Rows to fit on and rows to judge by, with the numbers of their classes (densities: 0)."""

    train: Tensor
    train_weight: Tensor
    train_labels: Tensor
    valid: Tensor
    valid_weight: Tensor
    valid_labels: Tensor


def make_splits(
    Z: Tensor,
    weight: Tensor,
    generator: Generator,
    n_rows: int,
    policy: SelectionPolicy,
    n_folds: int = 1,
    labels: Tensor | None = None,
) -> list[Split]:
    """One hold-out split of at most `n_rows` rows, or folds; always folds where rows are few.

    Copies of a row become one row of their weight, as far as `labels` agree: duplicates across
    the split would reward overfitting.
    """
    sample = torch.randperm(len(Z), generator=generator)[:n_rows]
    classes = torch.zeros(len(Z), dtype=torch.int64) if labels is None else labels
    rows = _distinct(Z[sample], weight[sample], classes[sample], generator)
    n = len(rows[0])
    order = torch.arange(n)
    if n < policy.fold_rows:
        folds = list(order.tensor_split(policy.n_folds))
    elif n_folds > 1:
        folds = list(order.tensor_split(n_folds))
    else:
        folds = [order[: min(int(n * policy.valid_share), n_rows // 4)]]
    return [_split(rows, fold) for fold in folds]


Labeled = tuple[Tensor, Tensor, Tensor]
"""Rows of shape (n, d), weights of shape (n,) and numbers of classes of shape (n,)."""


def _distinct(Z: Tensor, weight: Tensor, labels: Tensor, generator: Generator) -> Labeled:
    """Distinct rows in random order, with the sums of their weights."""
    joint = torch.cat([Z, labels[:, None].to(Z)], 1)
    rows, copy_of = joint.unique(dim=0, return_inverse=True)
    if len(rows) == len(Z):
        return Z, weight, labels
    total = weight.new_zeros(len(rows)).index_add_(0, copy_of, weight)
    order = torch.randperm(len(rows), generator=generator)
    return rows[order, :-1].contiguous(), total[order], rows[order, -1].long()


def _split(rows: Labeled, fold: Tensor) -> Split:
    train = torch.ones(len(rows[0]), dtype=torch.bool)
    train[fold] = False
    return Split(*(part[train] for part in rows), *(part[fold] for part in rows))


def weighted_mean(values: Tensor, weight: Tensor) -> float:
    """Mean of `values` under weights."""
    return float((values @ weight) / weight.sum())


def indistinct(score: Tensor, best: Tensor, weight: Tensor, errors: float = 1.0) -> bool:
    """Whether a mean score is within some standard errors of the best, row by row."""
    loss, n = best - score, effective_count(weight)
    mean = weighted_mean(loss, weight)
    return mean <= errors * math.sqrt(weighted_mean((loss - mean).square(), weight) / n)


Judge = Callable[[BaseMeasure, Choice, list[Split]], Tensor]
"""Held-out log-densities of a choice on a measure, one for each validation row of the splits."""
Move = Callable[[Choice, int], Choice]
"""A neighbor of a choice, in direction 1 or −1."""


def wider(factor: float, columns: Tensor | float = 1.0) -> Move:
    """Move that multiplies the bandwidth of the columns that are marked by one."""
    return lambda choice, direction: replace(
        choice, bandwidth=choice.bandwidth * factor ** (direction * columns)
    )


def blurrier(step: float) -> Move:
    """Move that blurs a mixture, whose own bumps may be finer than the features can undo."""
    return lambda choice, direction: replace(
        choice,
        base=replace(choice.base, blur=max(0.0, choice.base.blur + step * direction)),
    )


def stiffer(factor: float) -> Move:
    """Move that multiplies the ridge."""
    return lambda choice, direction: replace(
        choice, ridge=(choice.ridge or 0.0) * factor**direction
    )


def bare(choice: Choice) -> Choice:
    """The base measure of a choice alone, as it was fitted."""
    return replace(choice, base=choice.base.sharp, bare=True)


class Search:
    """Candidates judged on the same held-out rows, for as long as there is time.

    Every candidate is drawn from the same seed, so that its value does not depend on what was
    judged before: only a deadline that is reached changes the result.

    Parameters
    ----------
    Z, weight : Tensors of shapes (n, d), (n,)
        Rows in the units of the plan.
    judge : Judge
    policy : SelectionPolicy
    seed : int
    labels : Tensor of shape (n,), optional
        Numbers of the classes of the rows.
    deadline : float
        On the clock of :func:`time.monotonic`.
    known : dict of {str: Tensor}, optional
        Held-out log-densities of candidates that were judged before.
    report : callable, optional
        Called as ``report(name, mean)`` after each candidate that was not known.

    Attributes
    ----------
    values : dict of {(str, int): (Choice, float)}
        Candidates by name and number of rows, and their mean held-out log-likelihood.
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
        known: dict[str, Tensor] | None = None,
        report: Callable[[str, float], None] | None = None,
    ) -> None:
        self.Z, self.weight, self.labels, self.judge = Z, weight, labels, judge
        self.policy, self.seed, self.deadline = policy, seed, deadline
        self.known = {} if known is None else known
        self.report = report
        self.values: dict[tuple[str, int], tuple[Choice, float]] = {}
        self.seconds: dict[int, float] = {}
        self.fits: dict[tuple[BaseSpec, int, int], BaseMeasure] = {}

    def generator(self) -> Generator:
        """A new generator, always from the same seed."""
        return torch.Generator().manual_seed(self.seed)

    @cached_property
    def splits(self) -> dict[int, list[Split]]:
        """One split to compare candidates, and folds for the last steps."""
        policy = self.policy
        levels = {policy.rough_rows: 1, policy.fine_rows: policy.fine_folds}
        return {
            rows: make_splits(
                self.Z, self.weight, self.generator(), rows, policy, n_folds, self.labels
            )
            for rows, n_folds in levels.items()
        }

    @property
    def rough(self) -> int:
        """Rows of the one split."""
        return self.policy.rough_rows

    @property
    def fine(self) -> int:
        """Rows of the folds."""
        return self.policy.fine_rows

    # Base measures

    @cached_property
    def mixture(self) -> GaussianMeasure:
        """Smallest Gaussian mixture within a standard error of the best held-out likelihood.

        Few components leave less of their own shape on the density; the density matrix adds the
        rest.
        """
        policy, split, generator = self.policy, self.splits[self.rough][0], self.generator()
        n, d = split.train.shape
        offered = policy.mixture_sizes
        if d > policy.max_box_columns:
            offered += policy.many_mode_sizes
        mixtures, log_p, means = [], [], []
        for k in [k for k in offered if n >= 10 * k * (d + 2)] or [1]:
            mixtures.append(
                fit_mixture(
                    split.train, split.train_weight, k, generator, policy, policy.max_choice_rows
                )
            )
            log_p.append(mixtures[-1].log_density(split.valid))
            means.append(weighted_mean(log_p[-1], split.valid_weight))
            if len(means) > means.index(max(means)) + policy.mixture_patience:
                break
        best = log_p[means.index(max(means))]
        return next(
            mixture
            for mixture, scores in zip(mixtures, log_p, strict=True)
            if indistinct(scores, best, split.valid_weight)
        )

    @cached_property
    def averaged(self) -> tuple[BaseSpec, GaussianMeasure]:
        """Gaussian mixture averaged over its posterior: its size and prior by held-out rows."""
        policy, split = self.policy, self.splits[self.rough][0]
        n, d = split.train.shape
        few_columns = d < policy.min_averaged_columns
        sizes = (policy.averaged_parts * d,) if few_columns else policy.averaged_sizes
        most = n // (policy.averaged_rows * (d + 2) // 4)
        valid = Monomials(split.valid)
        found: dict[BaseSpec, GaussianMeasure] = {}

        def value(spec: BaseSpec) -> float:
            found[spec] = average_mixture(
                spec,
                split.train,
                split.train_weight,
                self.generator(),
                policy,
                work=policy.averaged_choice_work,
            )
            return weighted_mean(valid.log_terms(found[spec]).logsumexp(1), split.valid_weight)

        offered = dict.fromkeys(min(size, most) for size in sizes)
        free = [BaseSpec("mixture", N_DRAWS * size, strength=0.0) for size in offered]
        values = {spec: value(spec) for spec in free}
        held = replace(max(values, key=values.__getitem__), strength=policy.averaged_strength)
        values[held] = value(held)
        best = max(values, key=values.__getitem__)
        return best, found[best]

    def can_average(self) -> bool:
        """Whether the rows are many enough for an average over the posterior."""
        n, d = self.splits[self.rough][0].train.shape
        return n >= self.policy.averaged_rows * (d + 2)

    def measure(self, base: BaseSpec, h: Tensor, moments: Moments) -> BaseMeasure:
        """The base measure fitted to all rows, from where it was judged."""
        unjudged = vars(self).get("mixture")  # where all but the size was given
        judged = next((m for (s, *_), m in self.fits.items() if s == base.sharp), unjudged)
        return base.fit(self.Z, self.weight, h, self.generator(), self.policy, judged, moments)

    def _fitted(self, choice: Choice, rows: int, number: int) -> BaseMeasure:
        """The base measure of a choice, fitted once for each group of splits, then blurred."""
        base, h = choice.base.sharp, choice.bandwidth
        key = (base, rows, number)
        if key not in self.fits:
            self.fits[key] = self._fit(base, h, rows, number)
        return blur_measure(self.fits[key], choice.base.blur * h)

    def _fit(self, base: BaseSpec, h: Tensor, rows: int, number: int) -> BaseMeasure:
        start = None
        if base.name == "mixture":
            start = self.mixture if base.strength is None else self.averaged[1]
            if base.strength is not None and rows == self.rough:
                return start
        group = self._groups(base, rows)[number]
        Z, weight = group[0].train, group[0].train_weight
        if len(group) > 1:
            Z = torch.cat([split.valid for split in group])
            weight = torch.cat([split.valid_weight for split in group])
        return base.fit(Z, weight, h, self.generator(), self.policy, start)

    def _groups(self, base: BaseSpec, rows: int) -> list[list[Split]]:
        """Splits that share a base measure, and so all coordinates.

        Each split has a base measure that did not see its validation rows: a mixture that did
        would favor candidates that change it little. A box depends only on the ends of the rows,
        so the folds of the last steps share one.
        """
        splits = self.splits[rows]
        shared = base.name == "box" and rows == self.fine
        return [splits] if shared else [[split] for split in splits]

    # Values and comparisons

    def scores(self, choice: Choice, rows: int) -> Tensor:
        """Held-out log-densities with splits of that many rows."""
        name = f"{choice} ({rows} rows)"
        self._fitted(choice, rows, 0)  # where `measure` begins, be the scores known or not
        if name not in self.known:
            self.known[name] = self._judged(choice, rows)
            if self.report is not None:
                self.report(name, weighted_mean(self.known[name], self.held_out_weight(rows)))
        return self.known[name]

    def _judged(self, choice: Choice, rows: int) -> Tensor:
        started = time.monotonic()
        groups = enumerate(self._groups(choice.base, rows))
        scores = [self.judge(self._fitted(choice, rows, i), choice, g) for i, g in groups]
        self.seconds[rows] = time.monotonic() - started
        return torch.cat(scores)

    def held_out_weight(self, rows: int) -> Tensor:
        """Weights of the rows that are held out."""
        return torch.cat([split.valid_weight for split in self.splits[rows]])

    def value(self, choice: Choice, rows: int) -> float:
        """Mean held-out log-likelihood."""
        mean = weighted_mean(self.scores(choice, rows), self.held_out_weight(rows))
        self.values[str(choice), rows] = choice, mean
        return mean

    def ties(self, choice: Choice, best: Choice, rows: int, errors: float = 1.0) -> bool:
        """Whether held-out rows cannot tell a choice from the best."""
        self.value(choice, rows)
        scores, reference = self.scores(choice, rows), self.scores(best, rows)
        return indistinct(scores, reference, self.held_out_weight(rows), errors)

    def highest(self, choices: list[Choice], rows: int) -> Choice:
        """Choice of the best held-out likelihood."""
        if len(choices) == 1:
            return choices[0]
        return max(choices, key=lambda choice: self.value(choice, rows))

    def simplest(self, choices: list[Choice], rows: int, errors: float = 1.0) -> Choice:
        """First choice that held-out rows cannot tell from the best; the simpler ones lead."""
        best = self.highest(choices, rows)
        return next(c for c in choices if c is best or self.ties(c, best, rows, errors))

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

    def narrowed(self, best: Choice, moves: list[Move], rows: int) -> Choice:
        """One step narrower along each move, where held-out rows cannot tell the difference.

        Less smoothing costs a little variance, which ranks survive better than bias.
        """
        narrow = best
        for move in moves:
            ahead = move(narrow, -1)
            if not self.is_late(rows) and self.ties(ahead, best, rows):
                narrow = ahead
        return narrow

    def is_late(self, rows: int) -> bool:
        """Whether one more candidate, if it takes as long as the last, would end too late."""
        longest = max(self.seconds.values(), default=0.0)
        return time.monotonic() + self.seconds.get(rows, longest) >= self.deadline

    def trials(self, chosen: Choice, scale: Tensor, log_scale: float) -> tuple[Trial, ...]:
        """Candidates that were compared, in units of the data, whose scale has shape (d,)."""
        return tuple(
            Trial(
                choice.describe(scale),
                len(self.splits[rows][0].train) + len(self.splits[rows][0].valid),
                value - log_scale,
                chosen=name == str(chosen),
            )
            for (name, rows), (choice, value) in self.values.items()
        )

    @property
    def shrinkage(self) -> float:
        """Ratio n^(−1/(d+4)) of the best bandwidths for all rows and for those of a split."""
        if not self.values:
            return 1.0
        share = self.splits[self.rough][0].train_weight.sum() / self.weight.sum()
        return float(share) ** (1 / (self.Z.shape[1] + 4))

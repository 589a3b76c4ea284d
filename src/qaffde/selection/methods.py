"""Ways to find a density, as the search sees them: features, judge and strategy.

The closed form (paper, Algorithm 2) and maximum likelihood (Algorithm 3).
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Generator, Tensor

from qaffde import functional as QF
from qaffde.nn import BaseMeasure, BoxMeasure, FourierFeatures, KernelMeasure
from qaffde.selection.base_measure import BaseSpec, measure_ends, within_scale
from qaffde.selection.plan import Choice, ModelSpec, background_weight, fixed
from qaffde.selection.policy import SelectionPolicy
from qaffde.selection.search import (
    Move,
    Search,
    Split,
    bare,
    blurrier,
    stiffer,
    weighted_mean,
    wider,
)
from qaffde.selection.summary import Summary
from qaffde.training.adaptive import fit_adaptive_features
from qaffde.training.closed_form import (
    READINGS,
    SPECTRUM_WIDENING,
    density_matrix,
    effective_count,
    row_batches,
)
from qaffde.training.config import ComputeConfig
from qaffde.training.likelihood import maximize_state, whiten


class Method(ABC):
    """A way to find a density: closed form or maximum likelihood.

    Parameters
    ----------
    spec : ModelSpec
    policy : SelectionPolicy
    compute : ComputeConfig
    seed : int

    Attributes
    ----------
    tolerance : float
        Eigenvalues of G below this share of the largest count as zero.
    """

    usual_tolerance: float

    def __init__(
        self, spec: ModelSpec, policy: SelectionPolicy, compute: ComputeConfig, seed: int
    ) -> None:
        self.spec, self.policy, self.compute, self.seed = spec, policy, compute, seed
        given = policy.tolerance
        self.tolerance = self.usual_tolerance if isinstance(given, str) else float(given)

    @abstractmethod
    def scores(self, measure: BaseMeasure, choice: Choice, splits: list[Split]) -> Tensor:
        """Held-out log-densities of a choice on a measure."""

    @abstractmethod
    def choose(self, search: Search, bases: list[BaseSpec], h: Tensor | None) -> Choice:
        """Strategy of the search; a bandwidth that is given stays as it is."""

    @abstractmethod
    def unsearched(self, base: BaseSpec, h: Tensor, count: float) -> Choice:
        """The choice without a search: all is given, or rows are too few."""

    @abstractmethod
    def width(self, choice: Choice, measure: BaseMeasure) -> Tensor:
        """Bandwidth of the frequencies, of shape (d,)."""

    @abstractmethod
    def measurement(self, measure: BaseMeasure) -> str:
        """How the density matrix is found."""

    @abstractmethod
    def rank(self, d: int) -> int | float | str:
        """Rank of the density matrix of d columns."""

    def generator(self) -> Generator:
        """A new generator, always from the same seed."""
        return torch.Generator().manual_seed(self.seed)

    def draw_features(
        self,
        choice: Choice,
        measure: BaseMeasure,
        ends: Tensor,
        n: int | None,
        generator: Generator,
    ) -> FourierFeatures:
        """Frequencies for n rows (None: rows are still to come) between ends of shape (2, d)."""
        d = ends.shape[1]
        if choice.bare:
            return constant_feature(d)
        D = self.spec.n_features
        if isinstance(D, str):
            D = self.policy.n_features(n, d, choice.base.n_components)
        h, policy = self.width(choice, measure), self.policy
        lower, upper = measure_ends(measure, ends, policy.gaussian_reach)
        period = upper - lower + policy.lattice_margin * h
        return FourierFeatures.draw(self.spec.frequency_kind(d), int(D), h, period, generator)

    def features(
        self, choice: Choice, measure: BaseMeasure, z: Summary, n: int | None
    ) -> FourierFeatures:
        """Features of the plan, learned by Algorithm 1 if they are to be adaptive."""
        generator = self.generator()
        features = self.draw_features(choice, measure, z.moments.ends, n, generator)
        if self.spec.features != "adaptive" or choice.bare:
            return features
        h = self.width(choice, measure)
        return fit_adaptive_features(features, z.rows, h, generator=generator)

    def reach(self, choice: Choice, measure: BaseMeasure, ends: Tensor) -> Tensor:
        """Ends that rows must keep to: a box stops there, a lattice begins to repeat itself."""
        kept = torch.stack(measure_ends(measure, ends, self.policy.gaussian_reach))
        if isinstance(measure, BoxMeasure):
            return kept
        infinite = torch.tensor([[-torch.inf], [torch.inf]], dtype=torch.float64).expand_as(kept)
        if choice.bare or self.spec.frequency_kind(ends.shape[1]) != "lattice":
            return infinite.clone()
        margin = self.policy.lattice_margin / 2 * self.width(choice, measure)
        return kept + margin * infinite.sign()

    def log_defended(self, log_p: Tensor, z: Tensor, count: float) -> Tensor:
        """Log-densities with the background that a fit to `count` rows will have."""
        d = z.shape[1]
        zero = torch.zeros(d, dtype=torch.float64)
        spread = self.policy.background_spread * torch.eye(d, dtype=torch.float64)
        epsilon = torch.tensor(background_weight(self.policy.background, count)).double()
        log_broad = QF.log_gaussian_density(z, zero, spread)
        return torch.logaddexp(log_p + torch.log1p(-epsilon), log_broad + epsilon.log())


def constant_feature(d: int) -> FourierFeatures:
    """The one feature of d columns that leaves a base measure as it is."""
    zero, one = torch.zeros(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64)
    return FourierFeatures(zero.expand(1, d).clone(), zero, one)


def sized(bases: Sequence[BaseSpec], chosen: BaseSpec) -> list[BaseSpec]:
    """Base measures of which those of open size have the chosen one."""
    return [base if base.n_components else chosen for base in bases]


class ClosedForm(Method):
    """Closed form: the density matrix is a mean over rows."""

    usual_tolerance = 1e-6

    def scores(self, measure: BaseMeasure, choice: Choice, splits: list[Split]) -> Tensor:
        """Held-out log-densities of closed forms."""
        return torch.cat([self._score(measure, choice, split) for split in splits])

    @torch.no_grad()
    def _score(self, measure: BaseMeasure, choice: Choice, split: Split) -> Tensor:
        Z, weight = split.train, split.train_weight
        ends = torch.stack([Z.amin(0), Z.amax(0)])
        features = self.draw_features(choice, measure, ends, len(Z), self.generator())
        born = READINGS[self.measurement(measure)](
            features,
            density_matrix(features, row_batches(Z, weight)),
            measure,
            rank=self.spec.rank,
            min_trace=self.policy.min_trace,
            tolerance=self.tolerance,
        )
        return self.log_defended(born.log_prob(split.valid), split.valid, effective_count(weight))

    def choose(self, search: Search, bases: list[BaseSpec], h: Tensor | None) -> Choice:
        """Best bandwidth of each base measure, the simplest of those, and whether to blur it.

        Columns keep the ratio of their standard deviations within a component of the mixture:
        that is where the density bends, while the deviation over all data also counts how far
        apart its parts are.
        """
        policy = self.policy
        offered = sized(bases, BaseSpec("mixture", len(search.mixture.weights)))
        start = h
        if start is None:
            scale = within_scale(search.mixture).clamp(min=policy.min_scale)
            start = policy.closed_form_start * scale
        choices = [Choice(base, start) for base in offered]
        if h is None:
            choices = [self._bandwidth(search, choice) for choice in choices]
        best = search.simplest(choices, search.rough)
        if best.base.name == "mixture":
            best = self._blurred(search, best, fixed=h is not None)
        return best

    def _bandwidth(self, search: Search, start: Choice) -> Choice:
        """Doublings to a bracket, then half steps; among many rows the smaller of a tie."""
        policy, rows = self.policy, search.rough
        half = wider(policy.rough_step)
        best = search.climb(start, [wider(2.0)], rows, 0.0, policy.max_doublings)
        best = search.highest([half(best, -1), best, half(best, 1)], rows)
        if effective_count(search.held_out_weight(rows)) < policy.many_rows:
            return best
        return search.narrowed(best, [half], rows)

    def _blurred(self, search: Search, best: Choice, *, fixed: bool) -> Choice:
        """The same with a blurred mixture, unless the held-out rows can tell that it is worse.

        A mixture may have bumps that are finer than the features, which then cannot undo them;
        blurred by the features' own bandwidth it leaves no mark on the density.
        """
        blurred = replace(
            best, base=replace(best.base, blur=SPECTRUM_WIDENING[self.spec.measurement])
        )
        half = wider(self.policy.rough_step)
        offered = [blurred] if fixed else [half(blurred, -1), blurred, half(blurred, 1)]
        highest = search.highest(offered, search.rough)
        return highest if search.ties(highest, best, search.rough) else best

    def unsearched(self, base: BaseSpec, h: Tensor, count: float) -> Choice:
        """Base measure and bandwidth."""
        return Choice(base, h)

    def width(self, choice: Choice, measure: BaseMeasure) -> Tensor:
        """Bandwidth of the frequencies: the reading may resolve a finer kernel than they do."""
        return choice.bandwidth * SPECTRUM_WIDENING[self.measurement(measure)]

    def measurement(self, measure: BaseMeasure) -> str:
        """How ρ is read; the "kernel" form is always "direct"."""
        return "direct" if isinstance(measure, KernelMeasure) else self.spec.measurement

    def rank(self, d: int) -> int | float | str:
        """Rank as it was given: "auto" depends on the spectrum of ρ."""
        return self.spec.rank


class Likelihood(Method):
    """Maximum likelihood: the density matrix solves a convex problem."""

    usual_tolerance = 1e-7

    def scores(self, measure: BaseMeasure, choice: Choice, splits: list[Split]) -> Tensor:
        """Held-out log-densities after short trainings with frozen features."""
        generator, first = self.generator(), splits[0]
        n, d = first.train.shape
        ends = torch.stack([first.train.amin(0), first.train.amax(0)])
        features = self.draw_features(choice, measure, ends, n, generator)
        ridge = (choice.ridge or 0.0) / effective_count(first.train_weight)
        space = whiten(features, measure, ridge, self.tolerance).to(self.compute.device)
        codes = [space.coordinates(split.valid) for split in splits]
        found = []
        for number, split in enumerate(splits):
            others = codes[:number] + codes[number + 1 :]
            E = torch.cat(others) if others else space.coordinates(split.train)
            weight = split.train_weight / split.train_weight.mean()
            state = space.start_from(E, weight, space.resolve_rank(self.rank(d)))
            maximize_state(state, E, weight, self.policy.judge_iterations, generator)
            log_p = space.log_prob(state, split.valid, codes[number]).cpu()
            count = effective_count(split.train_weight)
            found.append(self.log_defended(log_p, split.valid, count))
        return torch.cat(found)

    def choose(self, search: Search, bases: list[BaseSpec], h: Tensor | None) -> Choice:
        """Climb to the best bandwidth of each base measure, then of the best ones in fine steps.

        Bandwidths start at the deviations within a part of the mixture: that is where the density
        bends.
        """
        policy, rough = self.policy, search.rough
        d = search.Z.shape[1]
        averages = self.spec.is_free and search.can_average()
        if averages and d >= policy.min_averaged_columns:
            chosen, mixture = search.averaged
        else:
            mixture = search.mixture
            chosen = BaseSpec("mixture", len(mixture.weights))
        start = h
        if start is None:
            start = policy.likelihood_start * within_scale(mixture).clamp(min=policy.min_scale)
        ridge = self._ridge(effective_count(search.weight))
        widen = [wider(policy.rough_step)] if h is None else []
        stiffen: list[Move] = []
        if self.spec.ridge == "auto":
            stiffen = [stiffer(policy.ridge_step)]
        summits = [
            self._climb(search, Choice(base, start, ridge), widen, rough)
            for base in sized(bases, chosen)
        ]
        highest = search.highest(summits, rough)
        if highest.base.strength is not None:
            best = search.simplest([bare(highest), highest], rough, policy.base_errors)
            return best if best.bare else self._climb(search, best, stiffen, rough)
        rivals = [c for c in summits if c.base.strength is None]
        rivals = [
            c for c in rivals if c is highest or search.ties(c, highest, rough, policy.base_errors)
        ]
        stretches = self._stretches(d) if h is None else []

        def moves(choice: Choice) -> list[Move]:
            blurs = choice.base.name == "mixture" and h is None
            return stretches + stiffen + ([blurrier(policy.blur_step)] if blurs else [])

        finest = self._finest(search, rivals, moves)
        if self._is_better_bare(search, finest):
            return bare(finest)
        narrow = search.narrowed(finest, stretches, search.fine)
        return self._averaged(search, narrow) if averages else narrow

    def _climb(self, search: Search, start: Choice, moves: list[Move], rows: int) -> Choice:
        gain = self.policy.rough_gain if rows == search.rough else self.policy.fine_gain
        return search.climb(start, moves, rows, gain, self.policy.max_steps)

    def _stretches(self, d: int) -> list[Move]:
        each = d <= self.policy.max_stretched_columns
        columns = torch.eye(d) if each else torch.ones(1, d)
        return [wider(self.policy.fine_step, marked) for marked in columns]

    def _finest(
        self, search: Search, rivals: list[Choice], moves: Callable[[Choice], list[Move]]
    ) -> Choice:
        """The highest that rivals climb to by their moves."""
        best = self._climb(search, rivals[0], moves(rivals[0]), search.fine)
        for rival in rivals[1:]:
            if not search.is_late(search.fine):
                other = self._climb(search, rival, moves(rival), search.fine)
                best = search.highest([best, other], search.fine)
        return best

    def _is_better_bare(self, search: Search, finest: Choice) -> bool:
        """Whether held-out rows cannot tell that features add anything to a mixture."""
        if not self.spec.is_free or finest.base.kind != "mixture" or search.is_late(search.fine):
            return False
        return search.simplest([bare(finest), finest], search.fine).bare

    def _averaged(self, search: Search, best: Choice) -> Choice:
        """A mixture averaged over its posterior, where held-out rows see that it is better.

        Features gain more than an average from the rows that the search has not seen, so a tie
        goes to them. Where the most likely mixture is far behind, as at an edge, its average would
        be too, and is not tried.
        """
        policy = self.policy
        if time.monotonic() + policy.averaged_seconds >= search.deadline:
            return best
        split = search.splits[search.rough][0]
        alone = weighted_mean(search.mixture.log_density(split.valid), split.valid_weight)
        if search.value(best, search.rough) - alone > policy.averaged_reach:
            return best
        rival = Choice(search.averaged[0], best.bandwidth, best.ridge, bare=True)
        return search.simplest([best, rival], search.fine)

    def unsearched(self, base: BaseSpec, h: Tensor, count: float) -> Choice:
        """Base measure, bandwidth, and the given ridge or the first one of a search."""
        return Choice(base, h, self._ridge(count))

    def _ridge(self, count: float) -> float:
        """Ridge times `count` rows: the given one, or where a search begins."""
        given = fixed(self.spec.ridge)
        return self.policy.ridge_rows if given is None else given * count

    def width(self, choice: Choice, measure: BaseMeasure) -> Tensor:
        """Bandwidth of the frequencies."""
        return choice.bandwidth

    def measurement(self, measure: BaseMeasure) -> str:
        """Nothing is read: the density matrix is found."""
        return "likelihood"

    def rank(self, d: int) -> int | float | str:
        """Rank, by the number of columns where it is "auto"."""
        if self.spec.rank != "auto":
            return self.spec.rank
        policy = self.policy
        return policy.rank if d <= policy.max_box_columns else policy.many_columns_rank

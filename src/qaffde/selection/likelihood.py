"""Selection for maximum likelihood (paper, Algorithm 3): base measure, bandwidth, ridge."""

import time
from collections.abc import Callable

import torch
from torch import Tensor

from qaffde.nn import BaseMeasure
from qaffde.selection.base_measure import BaseSpec, within_scale
from qaffde.selection.method import Method, sized
from qaffde.selection.plan import Choice
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
from qaffde.selection.spec import fixed
from qaffde.training.likelihood import maximize_state, whiten
from qaffde.training.sums import effective_count


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

        Features gain more from rows that the search has not seen, so they stay where nothing can
        be told. Where the most likely mixture is far behind, as at an edge, its average would be
        too.
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

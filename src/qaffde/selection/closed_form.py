"""Selection for the closed form (paper, Algorithm 2): base measure, bandwidth and blur."""

from dataclasses import replace

import torch
from torch import Tensor

from qaffde.nn import BaseMeasure, KernelMeasure
from qaffde.selection.base_measure import BaseSpec, within_scale
from qaffde.selection.method import Method, sized
from qaffde.selection.plan import Choice
from qaffde.selection.search import Search, Split, wider
from qaffde.training.closed_form import READINGS, SPECTRUM_WIDENING, density_matrix, row_batches
from qaffde.training.sums import effective_count


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
        """How ρ is read; the "kernel" form knows one way only."""
        return "direct" if isinstance(measure, KernelMeasure) else self.spec.measurement

    def rank(self, d: int) -> int | float | str:
        """Rank as it was given: "auto" depends on the spectrum of ρ."""
        return self.spec.rank

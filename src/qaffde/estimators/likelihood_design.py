"""The untuned path of maximum likelihood: base measure, bandwidth and ridge, by held-out rows."""

import time
from collections.abc import Callable
from functools import cached_property

import torch
from torch import Generator, Tensor

from qaffde.estimators.averages import (
    AVERAGE_ROWS,
    AVERAGE_SIZES,
    MIN_AVERAGED,
    PARTS_A_COLUMN,
    choose_average,
)
from qaffde.estimators.candidates import (
    RIDGE_ROWS,
    Candidate,
    Move,
    blurrier,
    is_bell,
    plainer,
    sharp,
    stiffer,
    wider,
)
from qaffde.estimators.data_measure import MeasureSpec, blur_measure, within_scale
from qaffde.estimators.design import (
    MIN_SCALE,
    Split,
    choose_mixture,
    indistinct,
    make_splits,
    weighted_mean,
)
from qaffde.estimators.totals import Totals
from qaffde.nn import BaseMeasure, GaussianMeasure

ROUGH_ROWS, FINE_ROWS = 40_000, 60_000
FINE_FOLDS = 3
START_FACTOR = 1.2
ROUGH_STEP, FINE_STEP = 2**0.5, 2**0.3
ROUGH_GAIN, FINE_GAIN = 1e-3, 2e-5
"""Nats that a step must gain: beyond the frequencies at hand, a bandwidth changes little."""
BASE_ERRORS = 2.0
"""Standard errors within which base measures, or one bell and what climbed, are not told apart."""
AVERAGE_REACH, AVERAGE_SECONDS = 0.02, 20.0
"""Nats by which the most likely mixture may be behind for its average to be tried, and what that
may take."""
MAX_STEPS = 12
MAX_STRETCHED = 3
"""Up to this number of columns, each has a bandwidth of its own."""


Judge = Callable[[BaseMeasure, Candidate, list[Split]], Tensor]
"""Held-out log-densities of a candidate on a measure, one for each validation row of splits."""


class Search:
    """Climb to the candidate of the best held-out likelihood, for as long as there is time.

    Every candidate is drawn from the same seed, so that a value does not depend on what was
    judged before: only a deadline that is reached cuts the way short.

    Parameters
    ----------
    Z, weight : Tensors of shapes (n, d), (n,)
    judge : Judge
    seed : int
    deadline : float
        On the clock of :func:`time.monotonic`.
    known : dict of {str: Tensor}
        Held-out log-densities of candidates that were judged before.
    report : callable
        Called as ``report(name, mean)`` after each candidate that was not known.
    free : bool
        Whether nobody asked for features, a rank or a mixture of a kind. Then a mixture may be
        left bare, or be averaged over its posterior.

    Attributes
    ----------
    values : dict of {str: float}
        Mean held-out log-likelihood of every candidate that was met.
    """

    def __init__(
        self,
        Z: Tensor,
        weight: Tensor,
        judge: Judge,
        *,
        seed: int,
        deadline: float,
        known: dict[str, Tensor],
        report: Callable[[str, float], None],
        free: bool = False,
    ) -> None:
        self.Z, self.weight, self.judge = Z, weight, judge
        self.seed, self.deadline = seed, deadline
        self.known, self.report, self.free = known, report, free
        self.values: dict[str, float] = {}
        self.seconds: dict[int, float] = {}
        self.fits: dict[tuple[MeasureSpec, int, int], BaseMeasure] = {}

    def generator(self) -> Generator:
        """A new generator, always from the same seed."""
        return torch.Generator().manual_seed(self.seed)

    @cached_property
    def splits(self) -> dict[int, list[Split]]:
        """One to find the way, and folds for the last steps, which held-out rows barely tell."""
        return {
            rows: make_splits(self.Z, self.weight, self.generator(), rows, n_folds)
            for rows, n_folds in ((ROUGH_ROWS, 1), (FINE_ROWS, FINE_FOLDS))
        }

    @cached_property
    def chosen(self) -> tuple[MeasureSpec, GaussianMeasure]:
        """The mixture of Gaussians that held-out rows like best."""
        if self._can_average and self.Z.shape[1] >= MIN_AVERAGED:
            return self.averaged
        mixture = choose_mixture(self.splits[ROUGH_ROWS][0], self.generator())
        return MeasureSpec("mixture", len(mixture.weights)), mixture

    @cached_property
    def averaged(self) -> tuple[MeasureSpec, GaussianMeasure]:
        """The mixture averaged over its posterior that held-out rows like best."""
        d = self.Z.shape[1]
        sizes = AVERAGE_SIZES if d >= MIN_AVERAGED else (PARTS_A_COLUMN * d,)
        return choose_average(self.splits[ROUGH_ROWS][0], self.generator, sizes)

    @property
    def _can_average(self) -> bool:
        """Whether nobody asked for anything else, and the rows are many enough."""
        n, d = self.splits[ROUGH_ROWS][0].train.shape
        return self.free and n >= AVERAGE_ROWS * (d + 2)

    @property
    def mixture(self) -> GaussianMeasure:
        """The chosen mixture, as it was judged."""
        return self.chosen[1]

    def run(
        self,
        specs: list[MeasureSpec],
        bandwidth: Tensor | None,
        ridge: float | None,
    ) -> Candidate:
        """Best candidate; a bandwidth or ridge that is given stays as it is.

        Bandwidths start at the deviations within a part of the mixture: that is where the density
        bends.
        """
        sized = [spec if spec.n_components else self.chosen[0] for spec in specs]
        h = self._start() if bandwidth is None else bandwidth
        mu = RIDGE_ROWS if ridge is None else ridge
        rough = [wider(ROUGH_STEP)] if bandwidth is None else []
        summits = [self._climb(Candidate(s, h, mu), rough, ROUGH_ROWS) for s in sized]
        highest = self._highest(summits, ROUGH_ROWS)
        stretches = self._stretches(len(h)) if bandwidth is None else []
        stiffen: list[Move] = [stiffer] if ridge is None else []
        if highest.spec.strength is not None:
            best = self._best([*plainer(highest), highest], ROUGH_ROWS, BASE_ERRORS)
            return best if best.bare else self._climb(best, stiffen, ROUGH_ROWS)
        rivals = self._rivals([c for c in summits if c.spec.strength is None])

        def moves(candidate: Candidate) -> list[Move]:
            blurs = candidate.spec.name == "mixture" and bandwidth is None
            return stretches + stiffen + ([blurrier] if blurs else [])

        finest = self._finest(rivals, moves)
        plain = self._plainest(finest, rivals, ridge)
        return plain or self._averaged(self._sharpened(finest, stretches))

    def measure(self, spec: MeasureSpec, h: Tensor, totals: Totals | None = None) -> BaseMeasure:
        """The base measure fitted to all rows, from where it was judged."""
        unjudged = vars(self).get("chosen", (None, None))[1]  # where all but the size was given
        judged = next((m for (s, *_), m in self.fits.items() if s == sharp(spec)), unjudged)
        return spec.fit(self.Z, self.weight, h, self.generator(), judged, totals)

    def scores(self, candidate: Candidate, rows: int) -> Tensor:
        """Held-out log-densities with splits of that many rows."""
        name = f"{candidate} ({rows} rows)"
        self._fitted(candidate, rows, 0)  # where `measure` begins, be the scores known or not
        if name not in self.known:
            self.known[name] = self._judged(candidate, rows)
            self.report(name, weighted_mean(self.known[name], self._weight(rows)))
        self.values[name] = weighted_mean(self.known[name], self._weight(rows))
        return self.known[name]

    def _judged(self, candidate: Candidate, rows: int) -> Tensor:
        started = time.monotonic()
        groups = enumerate(self._groups(candidate.spec, rows))
        scores = [self.judge(self._fitted(candidate, rows, i), candidate, g) for i, g in groups]
        self.seconds[rows] = time.monotonic() - started
        return torch.cat(scores)

    def value(self, candidate: Candidate, rows: int) -> float:
        """Mean held-out log-likelihood."""
        return weighted_mean(self.scores(candidate, rows), self._weight(rows))

    def _weight(self, rows: int) -> Tensor:
        return torch.cat([split.valid_weight for split in self.splits[rows]])

    def _start(self) -> Tensor:
        return START_FACTOR * within_scale(self.mixture).clamp(min=MIN_SCALE)

    @staticmethod
    def _stretches(d: int) -> list[Move]:
        columns = torch.eye(d) if d <= MAX_STRETCHED else torch.ones(1, d)
        return [wider(FINE_STEP, marked) for marked in columns]

    def _groups(self, spec: MeasureSpec, rows: int) -> list[list[Split]]:
        """Splits that share a base measure, and so all coordinates.

        Each has its own, that did not see the validation rows: a mixture that saw them would make
        whatever leaves it alone look better than it is. A box is only what holds the rows, and
        once the base is chosen, the folds share one.
        """
        splits = self.splits[rows]
        shared = spec.name == "box" and rows == FINE_ROWS
        return [splits] if shared else [[split] for split in splits]

    def _fitted(self, candidate: Candidate, rows: int, number: int) -> BaseMeasure:
        """The base measure of a candidate, fitted once for each group of splits, then blurred."""
        spec, h = sharp(candidate.spec), candidate.bandwidth
        key = (spec, rows, number)
        if key not in self.fits:
            group = self._groups(spec, rows)[number]
            Z, weight = group[0].train, group[0].train_weight
            if len(group) > 1:
                Z = torch.cat([split.valid for split in group])
                weight = torch.cat([split.valid_weight for split in group])
            start = self._judged_mixture(spec)
            if spec.strength is not None and rows == ROUGH_ROWS:
                assert start is not None
                self.fits[key] = start
            else:
                self.fits[key] = spec.fit(Z, weight, h, self.generator(), start)
        return blur_measure(self.fits[key], candidate.spec.blur * h)

    def _judged_mixture(self, spec: MeasureSpec) -> GaussianMeasure | None:
        """Where a mixture begins: as it was chosen."""
        if spec.name != "mixture":
            return None
        return self.mixture if spec.strength is None else self.averaged[1]

    def _rivals(self, candidates: list[Candidate]) -> list[Candidate]:
        """What a rough look cannot tell from the best, the plainer ones first."""
        if len(candidates) == 1:
            return candidates
        best = self._highest(candidates, ROUGH_ROWS)
        return [c for c in candidates if self._ties(c, best, ROUGH_ROWS, BASE_ERRORS)]

    def _finest(
        self, rivals: list[Candidate], moves: Callable[[Candidate], list[Move]]
    ) -> Candidate:
        """The highest that rivals climb to by their moves."""
        best = self._climb(rivals[0], moves(rivals[0]), FINE_ROWS)
        for rival in rivals[1:]:
            if not self._is_late(FINE_ROWS):
                other = self._climb(rival, moves(rival), FINE_ROWS)
                best = self._highest([best, other], FINE_ROWS)
        return best

    def _plainest(
        self, finest: Candidate, rivals: list[Candidate], ridge: float | None
    ) -> Candidate | None:
        """A plainer form of a mixture, where there is one that is as good as the finest.

        What climbed to the top of many candidates is ahead by luck, too: one bell is given up
        for it, or for features on a box, only where held-out rows are sure.
        """
        bells = [rival for rival in rivals if is_bell(rival)]
        mixtures = bells or [finest] * (finest.spec.kind == "mixture")
        if not self.free or not mixtures or self._is_late(FINE_ROWS):
            return None
        forms = [*plainer(mixtures[0], ridge), finest]
        best = self._best(forms, FINE_ROWS, BASE_ERRORS if bells else 1.0)
        return None if best is finest else best

    def _highest(self, candidates: list[Candidate], rows: int) -> Candidate:
        if len(candidates) == 1:
            return candidates[0]
        return max(candidates, key=lambda candidate: self.value(candidate, rows))

    def _best(self, candidates: list[Candidate], rows: int, errors: float = 1.0) -> Candidate:
        """First candidate that held-out rows cannot tell from the best: the plainer ones lead."""
        best = self._highest(candidates, rows)
        return next(c for c in candidates if c is best or self._ties(c, best, rows, errors))

    def _ties(self, candidate: Candidate, best: Candidate, rows: int, errors: float = 1.0) -> bool:
        scores, reference = self.scores(candidate, rows), self.scores(best, rows)
        return indistinct(scores, reference, self._weight(rows), errors)

    def _climb(self, start: Candidate, moves: list[Move], rows: int) -> Candidate:
        """Go along each move in turn for as long as the held-out likelihood rises."""
        best = start
        for move in moves:
            up = self._along(best, move, 1, rows)
            best = self._along(best, move, -1, rows) if up is best else up
        return best

    def _along(self, best: Candidate, move: Move, direction: int, rows: int) -> Candidate:
        for _ in range(MAX_STEPS):
            ahead = move(best, direction)
            gain = ROUGH_GAIN if rows == ROUGH_ROWS else FINE_GAIN
            if self._is_late(rows) or self.value(ahead, rows) <= self.value(best, rows) + gain:
                break
            best = ahead
        return best

    def _sharpened(self, best: Candidate, stretches: list[Move]) -> Candidate:
        """One step narrower along each move, where held-out rows cannot tell the difference.

        Less smoothing costs a little variance, which ranks survive better than bias.
        """
        sharp = best
        for move in stretches:
            ahead = move(sharp, -1)
            if not self._is_late(FINE_ROWS) and self._ties(ahead, best, FINE_ROWS):
                sharp = ahead
        return sharp

    def _averaged(self, best: Candidate) -> Candidate:
        """A mixture averaged over its posterior, where held-out rows see that it is better.

        Features gain more from rows that the search has not seen, so that they stay where nothing
        can be told. What is a bare mixture already stays, and where the most likely mixture is far
        behind, as at an edge, its average would be too.
        """
        late = time.monotonic() + AVERAGE_SECONDS >= self.deadline
        if late or not self._can_average:
            return best
        split = self.splits[ROUGH_ROWS][0]
        alone = weighted_mean(self.mixture.log_density(split.valid), split.valid_weight)
        if self.value(best, ROUGH_ROWS) - alone > AVERAGE_REACH:
            return best
        rival = Candidate(self.averaged[0], best.bandwidth, best.ridge, bare=True)
        return self._best([best, rival], FINE_ROWS)

    def _is_late(self, rows: int) -> bool:
        """Whether one more candidate, if it takes as long as the last, would end too late."""
        longest = max(self.seconds.values(), default=0.0)
        return time.monotonic() + self.seconds.get(rows, longest) >= self.deadline

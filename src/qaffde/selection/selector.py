"""From a summary of the rows to a plan: the open parameters by held-out likelihood."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any
from warnings import warn

import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Generator, Tensor

from qaffde import functional as QF
from qaffde.nn import BaseMeasure, BoxMeasure, FourierFeatures, GaussianMeasure
from qaffde.nn.maps import MapTable
from qaffde.parameters import DOUBLE, ComputeConfig, check_bandwidth, check_lattice, check_mixture
from qaffde.selection.bandwidth import RULES, bandwidth_by_rule
from qaffde.selection.base_measure import BaseSpec, constant_feature, n_distinct
from qaffde.selection.columns import (
    Maps,
    choose_maps,
    is_as_good,
    mapped_summary,
    maps_of_ends,
)
from qaffde.selection.plan import ModelSpec, Plan, background_weight
from qaffde.selection.policy import DEFAULT_POLICY, SEARCHED_COVARIANCES, SelectionPolicy
from qaffde.selection.search import Choice, Search, Split, Trial, fixed, wider
from qaffde.selection.summary import (
    Names,
    Summary,
    box_units,
    check_width,
    relative_bandwidth,
    robust_units,
)
from qaffde.selection.tables import select_mixture
from qaffde.training.adaptive import fit_adaptive_features
from qaffde.training.closed_form import (
    SPECTRUM_WIDENING,
    density_matrix,
    effective_count,
    read_density,
    row_batches,
    square_root_values,
)
from qaffde.training.run import Run


class Method(ABC):
    """A way to find a density, or those of classes.

    Eigenvalues of G below the share `tolerance` of the largest count as zero. `rules` are names of
    bandwidths; `judges_rows` says whether held-out scores are densities of rows.
    """

    usual_tolerance: float
    rules: tuple[str, ...] = RULES
    judges_rows = True

    def __init__(
        self, spec: ModelSpec, policy: SelectionPolicy, compute: ComputeConfig, seed: int
    ) -> None:
        self.spec, self.policy, self.compute, self.seed = spec, policy, compute, seed
        self.tolerance = fixed(policy.tolerance) or self.usual_tolerance
        self._log_base: dict[tuple[BaseMeasure, Split], Tensor] = {}

    @abstractmethod
    def scores(self, measure: BaseMeasure, choice: Choice, split: Split) -> Tensor:
        """Held-out log-densities of a choice on a measure."""

    @abstractmethod
    def choose(self, search: Search, bases: list[BaseSpec], h: Tensor | None) -> Choice:
        """Strategy of the search; a bandwidth that is given stays as it is."""

    @abstractmethod
    def unsearched(self, base: BaseSpec, h: Tensor, count: float) -> Choice:
        """The choice without a search: all is given, or rows are too few."""

    @abstractmethod
    def settled(self, chosen: Choice, search: Search, z: Summary, given: Tensor | None) -> Choice:
        """The candidate chosen, with measurement and rank, as it is for all rows."""

    def alone(self, search: Search, mixture: Choice, rows: int) -> bool:
        """Whether the mixture itself is the answer: no time is left to judge any features."""
        is_open = self.spec.is_free and mixture.base.kind == "mixture"
        return is_open and not self.spec.open_ended and search.is_late(rows)

    def width(self, choice: Choice) -> Tensor:
        """Bandwidth of the frequencies, of shape (d,)."""
        return choice.bandwidth

    def frame(self, summary: Summary, maps: Maps | None, names: Names) -> "Frame":
        """Units of the rows, and the rows in these units."""
        return Frame.of(summary, self, maps, names)

    def background(self, choice: Choice, frame: "Frame") -> float | str:
        """Weight of the background."""
        box = frame.box if choice.base.kind == "box" else None
        is_closed = box is not None and not bool(box.isnan().any())
        return 0.0 if is_closed else self.policy.background

    def generator(self) -> Generator:
        """A new generator, always from the same seed."""
        return torch.Generator().manual_seed(self.seed)

    def draw_features(
        self, choice: Choice, measure: BaseMeasure, ends: Tensor, n: int | None, seeded: Generator
    ) -> FourierFeatures:
        """Frequencies for n rows (None: rows are still to come) between ends of shape (2, d)."""
        d = ends.shape[1]
        if choice.bare:
            return constant_feature(d)
        D = choice.n_features or self.n_features(choice.base, n, d)
        h, (lower, upper) = self.width(choice), self._resolved(measure, ends)
        period = upper - lower + self.policy.lattice_margin * h
        features = FourierFeatures.draw(self.spec.frequency_kind(d), D, h, period, seeded)
        return features.trimmed(self.tolerance)

    def n_features(self, base: BaseSpec, n: int | None, d: int) -> int:
        """Number of features for n rows (None: rows are still to come) of d columns."""
        if not isinstance(self.spec.n_features, str):
            return int(self.spec.n_features)
        policy, most = self.policy, self.most_features(base, d)
        if n is None:
            return most
        return min(most, max(policy.min_features, n // policy.rows_per_feature))

    def most_features(self, base: BaseSpec, d: int) -> int:
        """Number of features for many rows."""
        return self.policy.max_features if d == 2 else self.policy.rough_features

    def features(
        self, choice: Choice, measure: BaseMeasure, z: Summary, n: int | None
    ) -> FourierFeatures:
        """Features of the plan, learned by Algorithm 1 if they are to be adaptive."""
        generator = self.generator()
        features = self.draw_features(choice, measure, z.moments.ends, n, generator)
        if self.spec.features != "adaptive" or choice.bare:
            return features
        return fit_adaptive_features(features, z.rows, self.width(choice), generator=generator)

    def _resolved(self, measure: BaseMeasure, ends: Tensor) -> Tensor:
        """Ends (2, d) of the region that features must resolve: the box, or the rows.

        One Gaussian reaches further than rows in separate parts.
        """
        if isinstance(measure, BoxMeasure):
            return torch.stack([measure.lower, measure.upper])
        if not isinstance(measure, GaussianMeasure) or len(measure.weights) > 1:
            return ends
        mean, deviation = measure.means[0], measure.covariances[0].diagonal().sqrt()
        reach = self.policy.gaussian_reach * deviation
        return torch.stack([ends[0].minimum(mean - reach), ends[1].maximum(mean + reach)])

    def reach(self, choice: Choice, measure: BaseMeasure, ends: Tensor) -> Tensor:
        """Ends that rows must keep to: a box stops there, a lattice begins to repeat itself."""
        kept = self._resolved(measure, ends)
        if isinstance(measure, BoxMeasure):
            return kept
        side = torch.tensor([[-1.0], [1.0]], dtype=torch.float64)
        if choice.bare or self.spec.frequency_kind(ends.shape[1]) != "lattice":
            return (torch.inf * side).expand_as(kept).clone()
        return kept + self.policy.lattice_margin / 2 * self.width(choice) * side

    def log_held_out(self, log_square: Tensor, measure: BaseMeasure, split: Split) -> Tensor:
        """Log-densities from those over the base measure, with the background of a fit."""
        if (measure, split) not in self._log_base:
            self._log_base = {(measure, split): measure.log_density(split.valid)}
        log_p, z = log_square + self._log_base[measure, split], split.valid
        zero = z.new_zeros(z.shape[1])
        epsilon = background_weight(self.policy.background, effective_count(split.train_weight))
        spread = (self.policy.background_spread * torch.ones_like(zero)).diag()
        log_broad = QF.log_gaussian_density(z, zero, spread)
        return torch.logaddexp(log_p + math.log1p(-epsilon), log_broad + math.log(epsilon))


class ClosedForm(Method):
    """Closed form: the density matrix is a mean over rows."""

    usual_tolerance = 1e-6

    @torch.no_grad()
    def scores(self, measure: BaseMeasure, choice: Choice, split: Split) -> Tensor:
        """Held-out log-densities of the closed form."""
        Z, weight = split.train, split.train_weight
        features = self.draw_features(choice, measure, split.ends, len(Z), self.generator())
        rho, how = density_matrix(features, row_batches(Z, weight)), self._reading(choice)
        if self.spec.rank == "auto" and how == "square_root":
            square = square_root_values(features, rho, measure, split.valid, self.tolerance)
        else:
            options = {"min_trace": self.policy.min_trace, "tolerance": self.tolerance}
            born = read_density(how, features, rho, measure, rank=self.spec.rank, **options)
            square = QF.born_rule(features(split.valid), born.factor)
        return self.log_held_out(square.log(), measure, split)

    def choose(self, search: Search, bases: list[BaseSpec], h: Tensor | None) -> Choice:
        """Best bandwidth of each base measure, and the best of those.

        Columns keep the ratio of their standard deviations within a component of the mixture:
        that is where the density bends, while the deviation over all data also counts how far
        apart its parts are. A box resolves edges, and else takes more features than a mixture:
        only where it comes near a mixture with as many of them is it tried with more. On rows
        that one Gaussian describes all bandwidths are alike, and the widest is taken: it leaves
        the Gaussian nearly as it is, and later rows can still change it.
        """
        policy, rows = self.policy, search.fine
        n, d = search.splits[rows][0].train.shape
        scale, offered = search.within, search.sized(bases)
        moves = [wider(policy.rough_step)] if h is None else []
        D = self.n_features(BaseSpec("mixture"), n, d)
        start = policy.closed_form_start * scale if h is None else h
        if self.alone(search, without := Choice(offered[-1], start, bare=True), rows):
            return without
        choices: list[Choice] = []
        for base in reversed(offered):
            choice = Choice(base, start, n_features=D)
            choice = search.climb(choice, moves, rows, policy.closed_form_gain, policy.max_steps)
            choices.insert(0, choice)
            more = replace(choice, n_features=self.n_features(base, n, d))
            if more.n_features > D:
                behind = max(search.value(c, rows) for c in choices) - search.value(choice, rows)
                if behind < policy.box_reach:
                    choices.insert(0, moves[0](more, -1) if moves else more)
            start = start if h is not None else start * policy.box_start
        best = search.highest(choices, rows)
        if h is not None or offered[-1].name != "gaussian" or search.is_late(rows):
            return best
        widest = policy.closed_form_start * policy.rough_step**policy.max_steps * scale
        return search.simplest([Choice(offered[-1], widest, n_features=D), best], rows)

    def most_features(self, base: BaseSpec, d: int) -> int:
        """Number of features for many rows; a box takes more."""
        many = base.kind == "box" and d == 2
        return self.policy.many_features if many else super().most_features(base, d)

    def unsearched(self, base: BaseSpec, h: Tensor, count: float) -> Choice:
        """Base measure and bandwidth."""
        return Choice(base, h)

    def width(self, choice: Choice) -> Tensor:
        """Bandwidth of the frequencies: the reading may resolve a finer kernel than they do."""
        return choice.bandwidth * SPECTRUM_WIDENING[self._reading(choice)]

    def settled(self, chosen: Choice, search: Search, z: Summary, given: Tensor | None) -> Choice:
        """The same kernel, which narrows as rows become many."""
        factor = 1.0
        if given is None:
            factor = z.shrinkage * (search.shrinkage if self.spec.bandwidth == "auto" else 1.0)
        return replace(
            chosen,
            bandwidth=chosen.bandwidth * factor,
            measurement=self._reading(chosen),
            rank=self.spec.rank,
            n_features=0,
        )

    def _reading(self, choice: Choice) -> str:
        """How ρ is read; the "kernel" form is always "direct"."""
        return "direct" if choice.base.kind == "kernel" else self.spec.measurement


METHODS: dict[str, type[Method]] = {"closed_form": ClosedForm}
"""By name; modules of other methods add theirs."""


def select(
    summary: Summary,
    spec: ModelSpec | None = None,
    *,
    policy: SelectionPolicy | None = None,
    compute: ComputeConfig = DOUBLE,
    seed: int = 0,
    names: Names = None,
    run: Run | None = None,
) -> Plan:
    """Choose the open parameters of a specification by held-out likelihood.

    Parameters
    ----------
    summary : Summary
        Of the rows, as :func:`summarize` makes it; of a classifier, with labels.
    spec : ModelSpec, optional
        Parameters that are fixed; all others are chosen.
    policy : SelectionPolicy, optional
        Constants of the search.
    compute : ComputeConfig, optional
        Where candidates are judged.
    seed : int, default=0
    names : sequence of str, optional
        Of the columns, for messages.
    run : Run, optional
        Clock, checkpoint and progress.

    Examples
    --------
    >>> import numpy as np
    >>> import torch
    >>> from qaffde.selection import ModelSpec, solve, summarize
    >>> X = np.random.default_rng(0).normal(size=(500, 1))
    >>> plan = select(summarize(X, random_state=0), ModelSpec(bandwidth=0.3, base_measure="box"))
    >>> plan.base_measure, plan.features.n_features
    ('box', 23)
    >>> density = solve(plan, X)
    >>> density.log_prob(torch.zeros(1, 1).double()).exp().round(decimals=1)
    tensor([0.4000], dtype=torch.float64)
    """
    spec = ModelSpec() if spec is None else spec
    policy = DEFAULT_POLICY if policy is None else policy
    if not summary.is_plain:
        return select_mixture(summary, spec, policy, compute, seed, run)
    spec.check_ends()
    n, d = summary.moments.n, summary.rows.shape[1]
    check_lattice(spec.features, d)
    check_mixture(spec.base_measure, n)
    if not spec.is_single:
        check_width(d, SEARCHED_COVARIANCES)
    method = METHODS[spec.method](spec, policy, compute, seed)
    maps: Maps | None = None
    rehearsed: list[Trial] = []
    if spec.may_map(d, policy):
        if not spec.is_given:
            robust_units(summary, policy, names)  # refuses what no map would mend
        deadline = math.inf if run is None else run.deadline(policy.search_share / 2)

        def judge(maps: Maps | None) -> tuple[Tensor, Tensor]:
            frame = Frame.of(summary, method, maps, names)
            trial, scores, weight = rehearsal(method, frame, policy.for_maps(), deadline)
            rehearsed.append(trial)
            return scores, weight

        maps = choose_maps(summary, spec, policy, judge)

    def searched(frame: Frame, policy: SelectionPolicy = method.policy) -> Search:
        z = frame.summary
        rows, share = (z.rows, z.weight, z.labels), policy.search_share
        told: dict[str, Any] = {"rows": rows, "parameters": (spec, policy), "seed": seed}
        context = {} if run is None else run.search(share, **told)
        options: dict[str, Any] = {"policy": policy, "seed": seed, "labels": z.labels}
        options["n_all"] = z.moments.n
        return Search(z.rows, z.weight, method.scores, **options, **context)

    frame = method.frame(summary, maps, names)
    search, ended = searched(frame), None
    if bool((summary.moments.ends[0] >= 0).any()):
        ended = maps_of_ends(summary, spec, policy)
    h = check_bandwidth(spec.bandwidth, len(frame.scale), method.rules)
    given = relative_bandwidth(h, frame.scale)
    if ended is None:
        chosen = _choose(search, method, frame.summary, given, frame.box)
    else:
        mapped, few = method.frame(summary, ended, names), policy.for_ends()
        sides = (frame, searched(frame, few)), (mapped, searched(mapped))
        found = _boxed_or_mapped(method, *sides)
        if found is None:
            chosen = _choose(search, method, frame.summary, given, frame.box)
        else:
            (frame, search), chosen, rehearsed = found
            maps = frame.maps
    z, scale = frame.summary, frame.scale
    if search.was_late:
        tried, what = len(search.values), "the plan is the best of them"
        if not tried:
            what = "the plan has the first bandwidth, or is a mixture alone"
        warn(
            f"time_limit has ended the search after {tried} candidates; {what}. Give more time, "
            "or a plan (plan=…)",
            ConvergenceWarning,
            stacklevel=2,
        )

    slopes = frame.log_slopes if method.judges_rows else lambda z: z.new_zeros(len(z))
    choice = method.settled(chosen, search, z, given)
    measure = search.measure(choice.base, choice.bandwidth, z.moments)
    size = None if spec.open_ended or spec.is_given else n
    return Plan(
        method=spec.method,
        location=frame.location,
        scale=scale,
        bandwidth=choice.bandwidth,
        base=str(choice.base) + (" alone" if choice.bare else ""),
        measure=measure,
        features=method.features(choice, measure, z, size),
        reach=method.reach(choice, measure, z.moments.ends),
        measurement=str(choice.measurement),
        rank=choice.rank,
        ridge=choice.ridge or 0.0,
        min_trace=policy.min_trace,
        background=method.background(choice, frame),
        background_spread=policy.background_spread,
        tolerance=method.tolerance,
        n_rows=len(z.rows),
        trials=(*rehearsed, *search.trials(chosen, scale, slopes)),
        axes=frame.axes,
        noise=frame.noise,
        columns=maps,
    )


@dataclass(frozen=True, eq=False)
class Frame:
    """Rows behind the maps of their columns and in the units of a plan.

    The summary is one of z = (g(x) − location) / scale; with principal axes (d, q), of the
    coordinates along them, where `noise` is the variance in other directions. `box` of shape (2,
    d) are known ends of a box, in those units, NaN where they come from the data.
    """

    maps: Maps | None
    location: Tensor
    scale: Tensor
    summary: Summary
    box: Tensor | None = None
    axes: Tensor | None = None
    noise: Tensor | None = None

    @classmethod
    def of(cls, summary: Summary, method: Method, maps: Maps | None, names: Names) -> "Frame":
        """The frame of a method's specification, given the maps."""
        spec, policy = method.spec, method.policy
        d = summary.rows.shape[1]
        ends = spec.box_ends(d, policy) if maps is None else None
        if maps is not None:
            summary = mapped_summary(summary, maps)
        if ends is not None and spec.is_given:
            location, scale = box_units(ends)
        else:
            h = check_bandwidth(spec.bandwidth, d, RULES)
            smoothing = h if spec.base_measure == "kernel" else None
            location, scale = robust_units(summary, policy, names, smoothing)
        box = None if ends is None else (ends - location) / scale
        return cls(maps, location, scale, summary.standardized(location, scale), box)

    def log_slopes(self, z: Tensor) -> Tensor:
        """Logarithm, of shape (n,), of dz/dx at z of shape (n, d)."""
        log_slope = -self.scale.log().sum().expand(len(z))
        if self.maps is None:
            return log_slope
        table = MapTable.of(self.maps)
        return log_slope + table(table.inverse(self.location + self.scale * z))[1]


Side = tuple[Frame, Search]
"""Columns as they are or mapped, and the candidates there."""


def rehearsal(
    method: Method, frame: "Frame", policy: SelectionPolicy, deadline: float
) -> tuple[Trial, Tensor, Tensor]:
    """Gaussian mixture of a few rows behind maps, with held-out log-densities and weights.

    Log-densities are in the units of the data; held-out rows are the same for all maps. Where maps
    are chosen, Fourier features add little to a mixture.
    """

    def scores(measure: BaseMeasure, choice: Choice, split: Split) -> Tensor:
        slopes = frame.log_slopes(split.valid)
        return method.log_held_out(torch.zeros(()), measure, split) + slopes

    z = frame.summary
    search = Search(z.rows, z.weight, scores, policy=policy, seed=method.seed, deadline=deadline)
    choice, rows = Choice(search.mixture, search.within, bare=True), search.fine
    name = "columns as they are" if frame.maps is None else "columns mapped"
    found = Trial(f"{name}: {choice.base}", search.n_rows(rows), search.value(choice, rows))
    return found, search.scores(choice, rows), search.held_out_weight(rows)


def _choose(
    search: Search, method: Method, z: Summary, h: Tensor | None, ends: Tensor | None
) -> Choice:
    """Base measure and bandwidth: given, by a rule, or by held-out likelihood."""
    spec, policy = method.spec, method.policy
    n, d = n_distinct(z.rows), z.rows.shape[1]
    bases = spec.base_specs(ends, n, d, policy)
    few = n < policy.few_rows
    known = h
    if known is None and (few or spec.bandwidth != "auto" or bases[0].kind == "kernel"):
        rule = "silverman" if few and spec.bandwidth == "auto" else spec.bandwidth
        known = bandwidth_by_rule(rule, z, search.generator(), policy)
    if known is not None and (few or _is_settled(spec, bases)):
        return method.unsearched(bases[0], known, z.moments.count)
    return method.choose(search, bases, known)


def _boxed_or_mapped(
    method: Method, plain: Side, mapped: Side
) -> tuple[Side, Choice, list[Trial]] | None:
    """The better one of a box and a mixture behind maps that have an end, and trials of the other.

    None where maps make a mixture alone worse.
    """
    (n, d), policy = plain[0].summary.rows.shape, method.policy
    box, mixture = method.spec.base_specs(None, n, d, policy)

    def scores(side: Side, choice: Choice) -> Tensor:
        frame, search = side
        z = torch.cat([split.valid for split in search.splits[search.fine]])
        return search.scores(choice, search.fine) + frame.log_slopes(z)

    def is_no_worse(after: Choice, before: Choice) -> bool:
        columns, weight = mapped[0].maps, plain[1].held_out_weight(plain[1].fine)
        pair = scores(mapped, after), scores(plain, before)
        assert columns is not None
        return is_as_good(columns, *pair, weight, mapped[0].summary, policy.map_errors)

    alone = [Choice(s.mixture, s.within, bare=True) for _, s in (mapped, plain)]
    if not is_no_worse(*alone):
        return None
    behind = method.choose(mapped[1], [mixture], None)
    boxed = method.choose(plain[1], [box], None)
    if is_no_worse(behind, boxed):
        return mapped, behind, _others(plain, boxed, "columns as they are")
    return plain, boxed, _others(mapped, behind, "columns mapped")


def _others(side: Side, choice: Choice, name: str) -> list[Trial]:
    """Trials of a side that was not chosen."""
    frame, search = side
    trials = search.trials(choice, frame.scale, frame.log_slopes)
    return [replace(trial, name=f"{name}: {trial.name}", chosen=False) for trial in trials]


def _is_settled(spec: ModelSpec, bases: list[BaseSpec]) -> bool:
    """Whether the bandwidth is the last choice."""
    if bases[0].kind == "kernel":
        return True
    one = len(bases) == 1 and bases[0].n_components > 0
    return one and (spec.method == "closed_form" or fixed(spec.ridge) is not None)

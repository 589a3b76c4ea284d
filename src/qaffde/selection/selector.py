"""From a summary of the rows to a plan: the open parameters by held-out likelihood."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any
from warnings import warn

import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Generator, Tensor

from qaffde import functional as QF
from qaffde.nn import BaseMeasure, BoxMeasure, FourierFeatures
from qaffde.nn.maps import MapTable
from qaffde.parameters import DOUBLE, ComputeConfig, check_bandwidth, check_lattice, check_mixture
from qaffde.selection.bandwidth import RULES, bandwidth_by_rule
from qaffde.selection.base_measure import BaseSpec, measure_ends, n_distinct
from qaffde.selection.columns import Maps, choose_maps, mapped_summary
from qaffde.selection.plan import Choice, ModelSpec, Plan, Trial, background_weight, fixed
from qaffde.selection.policy import DEFAULT_POLICY, SelectionPolicy
from qaffde.selection.search import (
    Move,
    Search,
    Split,
    bare,
    fewer_features,
    stiffer,
    weighted_mean,
    wider,
)
from qaffde.selection.summary import Summary, box_units, relative_bandwidth, robust_units
from qaffde.selection.tables import select_mixture
from qaffde.training.adaptive import fit_adaptive_features
from qaffde.training.checkpoint import fingerprint
from qaffde.training.closed_form import (
    SPECTRUM_WIDENING,
    density_matrix,
    effective_count,
    read_density,
    row_batches,
    square_root_values,
)
from qaffde.training.likelihood import approximate_state, whiten
from qaffde.training.run import Run

"""Stages of a fit: columns as they are, and behind maps."""


class Method(ABC):
    """A way to find a density, or those of classes.

    Eigenvalues of G below the share `tolerance` of the largest count as zero.
    """

    usual_tolerance: float
    rules: tuple[str, ...] = RULES
    """Names of bandwidths."""

    def __init__(
        self, spec: ModelSpec, policy: SelectionPolicy, compute: ComputeConfig, seed: int
    ) -> None:
        self.spec, self.policy, self.compute, self.seed = spec, policy, compute, seed
        given = policy.tolerance
        self.tolerance = self.usual_tolerance if isinstance(given, str) else float(given)
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
    def width(self, choice: Choice, measure: BaseMeasure) -> Tensor:
        """Bandwidth of the frequencies, of shape (d,)."""

    @abstractmethod
    def measurement(self, choice: Choice) -> str:
        """How the density matrix is found."""

    @abstractmethod
    def rank(self, choice: Choice) -> int | float | str:
        """Rank of the density matrix."""

    @property
    def search_policy(self) -> SelectionPolicy:
        """Constants of the search."""
        return self.policy

    def frame(self, summary: Summary, maps: Maps | None, names: Sequence[str] | None) -> "Frame":
        """Units of the rows, and the rows in these units."""
        return Frame.of(summary, self.spec, maps, self.policy, names)

    def settled(self, chosen: Choice, search: Search, z: Summary, given: Tensor | None) -> Choice:
        """The candidate chosen, as it is for all rows."""
        ridge = None if chosen.ridge is None else chosen.ridge / z.moments.count
        return replace(chosen, n_features=0, ridge=ridge)

    def background(self, choice: Choice, frame: "Frame") -> float | str:
        """Weight of the background."""
        is_closed = frame.is_closed and choice.base.kind == "box"
        return 0.0 if is_closed else self.policy.background

    def log_units(self, frame: "Frame", search: Search, rows: int) -> float:
        """What the units of the plan add to the mean held-out score of so many rows."""
        return frame.log_units(search, rows)

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
        D = choice.n_features or self.n_features(choice.base, n, d)
        h, policy = self.width(choice, measure), self.policy
        lower, upper = measure_ends(measure, ends, policy.gaussian_reach)
        period = upper - lower + policy.lattice_margin * h
        features = FourierFeatures.draw(self.spec.frequency_kind(d), D, h, period, generator)
        return features.trimmed(self.tolerance)

    def n_features(self, base: BaseSpec, n: int | None, d: int) -> int:
        """Number of features for n rows (None: rows are still to come) of d columns."""
        if not isinstance(self.spec.n_features, str):
            return int(self.spec.n_features)
        most = self.most_features(base, d)
        return most if n is None else fewer_features(self.policy, most, n)

    def most_features(self, base: BaseSpec, d: int) -> int:
        """Number of features for many rows."""
        return self.policy.max_features if d == 2 else self.policy.rough_features

    def few_features(self, n: int, d: int) -> int:
        """Number of features of candidates."""
        return min(self.policy.rough_features, self.n_features(BaseSpec("mixture"), n, d))

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

    def log_held_out(self, log_square: Tensor, measure: BaseMeasure, split: Split) -> Tensor:
        """Log-densities from those over the base measure, with the background of a fit."""
        if (measure, split) not in self._log_base:
            self._log_base = {(measure, split): measure.log_density(split.valid)}
        log_p, z = log_square + self._log_base[measure, split], split.valid
        count, d = effective_count(split.train_weight), z.shape[1]
        zero = torch.zeros(d, dtype=torch.float64)
        spread = self.policy.background_spread * torch.eye(d, dtype=torch.float64)
        epsilon = torch.tensor(
            background_weight(self.policy.background, count), dtype=torch.float64
        )
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

    @torch.no_grad()
    def scores(self, measure: BaseMeasure, choice: Choice, split: Split) -> Tensor:
        """Held-out log-densities of the closed form."""
        Z, weight = split.train, split.train_weight
        ends = torch.stack([Z.amin(0), Z.amax(0)])
        features = self.draw_features(choice, measure, ends, len(Z), self.generator())
        rho, how = density_matrix(features, row_batches(Z, weight)), self.measurement(choice)
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
        scale, offered = search.within, sized(bases, search.mixture)
        moves = [wider(policy.rough_step)] if h is None else []
        D = self.n_features(BaseSpec("mixture"), n, d)
        start = policy.closed_form_start * scale if h is None else h
        choices: list[Choice] = []
        for base in reversed(offered):
            choice = Choice(base, start, n_features=D)
            choice = search.climb(choice, moves, rows, policy.closed_form_gain, policy.max_steps)
            choices.insert(0, choice)
            more = replace(choice, n_features=self.n_features(base, n, d))
            if more.n_features > D and self._is_near(search, choice, choices):
                choices.insert(0, moves[0](more, -1) if moves else more)
            start = start if h is not None else start * policy.box_start
        best = search.highest(choices, rows)
        if h is not None or offered[-1].name != "gaussian" or search.is_late(rows):
            return best
        widest = policy.closed_form_start * policy.rough_step**policy.max_steps * scale
        return search.simplest([Choice(offered[-1], widest, n_features=D), best], rows)

    def _is_near(self, search: Search, choice: Choice, rivals: list[Choice]) -> bool:
        """Whether more features may bring a choice to its rivals."""
        ahead = (search.value(rival, search.fine) for rival in rivals)
        value = search.value(choice, search.fine)
        return max(ahead, default=value) - value < self.policy.box_reach

    def most_features(self, base: BaseSpec, d: int) -> int:
        """Number of features for many rows; a box takes more."""
        many = base.kind == "box" and d == 2
        return self.policy.many_features if many else super().most_features(base, d)

    def unsearched(self, base: BaseSpec, h: Tensor, count: float) -> Choice:
        """Base measure and bandwidth."""
        return Choice(base, h)

    def width(self, choice: Choice, measure: BaseMeasure) -> Tensor:
        """Bandwidth of the frequencies: the reading may resolve a finer kernel than they do."""
        return choice.bandwidth * SPECTRUM_WIDENING[self.measurement(choice)]

    def settled(self, chosen: Choice, search: Search, z: Summary, given: Tensor | None) -> Choice:
        """The same kernel, which narrows as rows become many."""
        choice = super().settled(chosen, search, z, given)
        if given is not None:
            return choice
        factor = z.shrinkage * (search.shrinkage if self.spec.bandwidth == "auto" else 1.0)
        return replace(choice, bandwidth=choice.bandwidth * factor)

    def measurement(self, choice: Choice) -> str:
        """How ρ is read; the "kernel" form is always "direct"."""
        return "direct" if choice.base.kind == "kernel" else self.spec.measurement

    def rank(self, choice: Choice) -> int | float | str:
        """Rank as it was given: "auto" depends on the spectrum of ρ."""
        return self.spec.rank


class Likelihood(Method):
    """Maximum likelihood: the density matrix solves a convex problem."""

    usual_tolerance = 1e-7

    def scores(self, measure: BaseMeasure, choice: Choice, split: Split) -> Tensor:
        """Held-out log-densities after a short training with frozen features."""
        if choice.bare:
            return self.log_held_out(torch.zeros(()), measure, split)
        n, generator, policy = len(split.train), self.generator(), self.policy
        ends = torch.stack([split.train.amin(0), split.train.amax(0)])
        features = self.draw_features(choice, measure, ends, n, generator)
        ridge = (choice.ridge or 0.0) / effective_count(split.train_weight)
        space = whiten(features, measure, ridge, self.tolerance).to(self.compute.device)
        phi, weight = space.values(split.train), split.train_weight / split.train_weight.mean()
        start = space.start_from(phi, weight, space.resolve_rank(self.rank(choice)))
        state = approximate_state(space, start, phi, weight, policy.judge_iterations)
        log_square = space.log_square(state, space.values(split.valid)).cpu()
        return self.log_held_out(log_square, measure, split)

    def choose(self, search: Search, bases: list[BaseSpec], h: Tensor | None) -> Choice:
        """Climb to the best bandwidth of each base measure, with few rows and features.

        These, and the mixture alone, are compared with more of both. Features gain more by
        further rows than a mixture does: where there are any, features win a tie. Then the
        bandwidth of each column and the ridge are chosen, with few rows again. Bandwidths start at
        the deviations within a part of the mixture: that is where the density bends.
        """
        policy, rough, d = self.policy, search.rough, search.Z.shape[1]
        n = len(search.splits[rough][0].train)
        start = policy.likelihood_start * search.within if h is None else h
        ridge, D = self._ridge(effective_count(search.weight)), self.few_features(n, d)
        widen, others = self._moves(d, given=h is not None)
        summits = []
        for base in sized(bases, search.mixture):
            first = Choice(base, start, ridge, n_features=D)
            if self.spec.is_free and base.kind == "mixture":
                first = self._if_needed(search, first, widen)
            summits.append(self._climb(search, first, widen))
        if search.is_late(search.fine):
            return search.highest(summits, rough)
        rivals = [replace(c, n_features=0) for c in summits if not c.bare]
        best = search.highest(rivals, search.fine) if rivals else summits[-1]
        if rivals and self.spec.is_free and summits[-1].base.kind == "mixture":
            last = [best, bare(summits[-1])]
            more = len(search.Z) > search.fine  # rows, which features gain by
            best = (search.simplest if more else search.highest)(last, search.fine)
        if best.bare or search.is_late(rough):
            return best
        return self._climb(search, replace(best, n_features=D), others)

    def _climb(self, search: Search, start: Choice, moves: list[Move]) -> Choice:
        """Go along moves with few rows; a mixture alone has none."""
        policy = self.policy
        if start.bare:
            return start
        return search.climb(start, moves, search.rough, policy.rough_gain, policy.max_steps)

    def _if_needed(self, search: Search, start: Choice, moves: list[Move]) -> Choice:
        """A start no worse than the mixture alone, which wide bandwidths tend to; or that."""
        alone, rows = bare(start), search.rough
        starts = [start, *(move(start, -1) for move in moves)]
        found = (c for c in starts if search.value(c, rows) >= search.value(alone, rows))
        return next(found, alone)

    def _moves(self, d: int, *, given: bool) -> tuple[list[Move], list[Move]]:
        """All columns wider at once; then each on its own, and the ridge."""
        policy, others = self.policy, list[Move]()
        if not given and 1 < d <= policy.max_stretched_columns:
            others += [wider(policy.rough_step, marked) for marked in torch.eye(d)]
        if self.spec.ridge == "auto":
            others.append(stiffer(policy.ridge_step))
        return [] if given else [wider(policy.rough_step)], others

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

    def measurement(self, choice: Choice) -> str:
        """Nothing is read: the density matrix is found."""
        return "likelihood"

    def rank(self, choice: Choice) -> int | float | str:
        """Rank, by the number of columns where it is "auto"."""
        if self.spec.rank != "auto":
            return self.spec.rank
        policy, d = self.policy, len(choice.bandwidth)
        return policy.rank if d <= policy.max_box_columns else policy.many_columns_rank


METHODS: dict[str, type[Method]] = {"closed_form": ClosedForm, "likelihood": Likelihood}


def select(
    summary: Summary,
    spec: ModelSpec | None = None,
    *,
    policy: SelectionPolicy | None = None,
    compute: ComputeConfig = DOUBLE,
    seed: int = 0,
    names: Sequence[str] | None = None,
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

    Returns
    -------
    Plan

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
        return select_mixture(summary, spec, policy, seed, run)
    spec.check_ends()
    n, d = summary.moments.n, summary.rows.shape[1]
    check_lattice(spec.features, d)
    check_mixture(spec.base_measure, n)
    maps: Maps | None = None
    rehearsed: tuple[Trial, ...] = ()
    if spec.may_map(d, policy):
        if not spec.is_given:
            robust_units(summary, names)  # refuses what no map would mend
        deadline = math.inf if run is None else run.deadline(policy.search_share / 2)
        rehearse = Rehearsal(summary, spec, policy.for_maps(), compute, seed, names, deadline)
        maps, rehearsed = choose_maps(summary, spec, policy, rehearse), rehearse.trials
    method = METHODS[spec.method](spec, policy, compute, seed)
    frame = method.frame(summary, maps, names)
    z, scale = frame.summary, frame.scale
    search = Search(
        z.rows,
        z.weight,
        method.scores,
        policy=method.search_policy,
        seed=seed,
        labels=z.labels,
        **search_context(run, policy, spec, z, seed),
    )
    given = relative_bandwidth(check_bandwidth(spec.bandwidth, len(scale), method.rules), scale)
    chosen = _choose(search, method, z, given, frame.box)
    warn_if_late(search)
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
        measurement=method.measurement(choice),
        rank=method.rank(choice),
        ridge=choice.ridge or 0.0,
        min_trace=policy.min_trace,
        background=method.background(choice, frame),
        background_spread=policy.background_spread,
        tolerance=method.tolerance,
        n_rows=len(z.rows),
        trials=rehearsed
        + search.trials(chosen, scale, lambda rows: method.log_units(frame, search, rows)),
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
    def of(
        cls,
        summary: Summary,
        spec: ModelSpec,
        maps: Maps | None,
        policy: SelectionPolicy,
        names: Sequence[str] | None,
    ) -> "Frame":
        """The frame of a specification, given the maps."""
        d = summary.rows.shape[1]
        ends = spec.box_ends(d, policy) if maps is None else None
        if maps is not None:
            summary = mapped_summary(summary, maps)
        if ends is not None and spec.is_given:
            location, scale = box_units(ends)
        else:
            h = check_bandwidth(spec.bandwidth, d, RULES)
            smoothing = h if spec.base_measure == "kernel" else None
            location, scale = robust_units(summary, names, smoothing)
        box = None if ends is None else (ends - location) / scale
        return cls(maps, location, scale, summary.standardized(location, scale), box)

    @property
    def is_closed(self) -> bool:
        """Whether all ends of a box are known."""
        return self.box is not None and not bool(self.box.isnan().any())

    def log_slopes(self, z: Tensor) -> Tensor:
        """Logarithm, of shape (n,), of dz/dx at z of shape (n, d)."""
        log_slope = -self.scale.log().sum().expand(len(z))
        if self.maps is None:
            return log_slope
        table = MapTable.of(self.maps)
        return log_slope + table(table.inverse(self.location + self.scale * z))[1]

    def log_units(self, search: Search, rows: int) -> float:
        """Mean of −log dz/dx over the held-out rows of a search."""
        z = torch.cat([split.valid for split in search.splits[rows]])
        return -weighted_mean(self.log_slopes(z), search.held_out_weight(rows))


class Rehearsal:
    """Gaussian mixtures of a few rows, one for each choice of maps.

    Called with maps, it returns the held-out log-densities of the mixture, in the units of the
    data, and the weights of the held-out rows. These rows are the same for all maps. Where maps
    are chosen, Fourier features add little to a mixture. `trials` are the mixtures found.
    """

    def __init__(
        self,
        summary: Summary,
        spec: ModelSpec,
        policy: SelectionPolicy,
        compute: ComputeConfig,
        seed: int,
        names: Sequence[str] | None,
        deadline: float,
    ) -> None:
        self.summary, self.spec, self.policy = summary, spec, policy
        self.compute, self.seed, self.names, self.deadline = compute, seed, names, deadline
        self.trials: tuple[Trial, ...] = ()

    def __call__(self, maps: Maps | None) -> tuple[Tensor, Tensor]:
        """Log-densities (n,) of held-out rows, and their weights."""
        policy, spec = self.policy, self.spec
        frame = Frame.of(self.summary, spec, maps, policy, self.names)
        method = METHODS[spec.method](spec, policy, self.compute, self.seed)
        z = frame.summary
        search = Search(
            z.rows, z.weight, method.scores, policy=policy, seed=self.seed, deadline=self.deadline
        )
        choice = bare(method.unsearched(search.mixture, search.within, z.moments.count))
        splits, weight = search.splits[search.fine], search.held_out_weight(search.fine)
        held_out = torch.cat([split.valid for split in splits])
        scores = search.scores(choice, search.fine) + frame.log_slopes(held_out)
        name = "columns as they are" if maps is None else "columns mapped"
        n = search.n_rows(search.fine)
        self.trials += (Trial(f"{name}: {choice.base}", n, weighted_mean(scores, weight)),)
        return scores, weight


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


def _is_settled(spec: ModelSpec, bases: list[BaseSpec]) -> bool:
    """Whether the bandwidth is the last choice."""
    if bases[0].kind == "kernel":
        return True
    one = len(bases) == 1 and bases[0].n_components > 0
    return one and (spec.method == "closed_form" or fixed(spec.ridge) is not None)


def warn_if_late(search: Search) -> None:
    """Say that a search was ended by its time limit."""
    if search.was_late:
        warn(
            f"time_limit has ended the search after {len(search.values)} candidates; the plan is "
            "the best of them. Give more time, or a plan (plan=…)",
            ConvergenceWarning,
            stacklevel=3,
        )


def search_context(
    run: Run | None,
    policy: SelectionPolicy,
    spec: object,
    z: Summary,
    seed: int,
) -> dict[str, Any]:
    """Deadline, checkpoint and report of a search, as arguments of :class:`Search`."""
    if run is None:
        return {}
    file, known = run.file("search"), {}
    rows = z.rows, z.weight, z.labels
    identity = fingerprint(rows=rows, parameters=(spec, policy), seed=seed)
    if file is not None and (saved := file.load(identity)) is not None:
        with file.restoring():
            known = {str(name): scores.double() for name, scores in saved["known"].items()}

    def report(name: str, value: float) -> None:
        run.say(f"{run.seconds:6.1f} s  {name}: held-out log-likelihood {value:.5f}")
        if file is not None:
            file.save({"known": dict(known)}, identity)

    return {"deadline": run.deadline(policy.search_share), "known": known, "report": report}

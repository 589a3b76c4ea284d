"""Fourier features over the parts of a table, on its mixture: whether they pay, and their state.

Several draws from the mixture given the rest of the row stand for a row with gaps: its likelihood
is their mean, which is linear in the density matrix, so that the problem stays convex. It is
solved by expectation–maximization, whose steps are problems of rows without gaps.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Generator, Tensor

from qaffde.nn import (
    BaseMeasure,
    BornDensity,
    FourierFeatures,
    expand,
)
from qaffde.nn.parts import MAX_TURNS
from qaffde.parameters import ComputeConfig
from qaffde.selection.base_measure import constant_feature
from qaffde.selection.plan import Plan
from qaffde.selection.policy import DRAWN_TERMS, SelectionPolicy
from qaffde.selection.search import Trial, indistinct, weighted_mean
from qaffde.selection.table_mixture import TableMixture, TableRows
from qaffde.training.likelihood import approximate_state, whiten
from qaffde.training.run import Run


@dataclass(frozen=True, eq=False)
class FilledRows:
    """Rows of parts (N, q) without gaps, their weights, and the numbers of the rows they were."""

    x: Tensor
    weight: Tensor
    number: Tensor

    @classmethod
    def of(
        cls,
        base: BaseMeasure,
        x: Tensor,
        weight: Tensor,
        policy: SelectionPolicy,
        generator: Generator,
    ) -> "FilledRows":
        """Draws from the base measure given the rest of the row in place of gaps."""
        gaps = x.isnan().any(1)
        most = policy.drawn_rows // max(int(gaps.sum()), 1)
        copies = torch.where(gaps, max(1, min(policy.gap_draws, most)), 1)
        number = torch.arange(len(x)).repeat_interleave(copies)
        one = torch.ones(1, 1, dtype=torch.float64)
        density = expand(BornDensity(constant_feature(x.shape[1]), one, base))
        blocks = x[number].split(max(1, DRAWN_TERMS // base.width))
        filled = [density.fill(block, generator) for block in blocks]
        return cls(torch.cat(filled), (weight / copies)[number], number)

    def log_mean(self, log_values: Tensor) -> Tensor:
        """Logarithm of the mean (n,) of values (N,) of which each row has some."""
        share = self.weight.new_zeros(int(self.number[-1]) + 1)
        total = share.index_add(0, self.number, log_values.exp())
        return (total / share.index_add(0, self.number, torch.ones_like(log_values))).log()

    def reweighted(self, log_values: Tensor) -> "FilledRows":
        """The same with the weights of rows given to draws by their values."""
        ratio = (log_values - self.log_mean(log_values)[self.number]).exp()
        return replace(self, weight=self.weight * ratio)


def wave_features(mixture: TableMixture, h: float, n: int, seed: int) -> FourierFeatures:
    """Fourier features of the parts, and a constant one.

    Bandwidths are `h` deviations within a component. Waves on a circle make whole turns. Half of
    the waves do not see a category, the others are those of the discrete Fourier transform.
    """
    generator, q = torch.Generator().manual_seed(seed), len(mixture.parts)
    bandwidth, kind = h * mixture.deviations(), "sobol" if q <= 6 else "orthogonal"
    layer = FourierFeatures.draw(kind, n, bandwidth, generator=generator)
    W, laws = layer.W.clone(), iter(mixture.laws)
    for k, part in enumerate(mixture.parts):
        if part.kind == "circle":
            W[:, k] = 2 * math.pi * (W[:, k] / (2 * math.pi)).round().clamp(-MAX_TURNS, MAX_TURNS)
        elif part.kind == "codes" and not next(laws).has_order:
            share = 2 * torch.special.ndtr(W[:, k] * bandwidth[k] * math.sqrt(2)) - 1
            wave = 1 + (share * (part.size - 1)).floor()
            W[:, k] = 2 * math.pi / part.size * torch.where(share < 0, 0, wave)
    zero, one = torch.zeros(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64)
    W = torch.cat([W, zero.expand(1, q)])
    return FourierFeatures(W, torch.cat([layer.b, zero]), torch.cat([layer.a, one]))


@dataclass(frozen=True)
class Waves:
    """Bandwidth in deviations within a component, and ridge times the number of rows."""

    bandwidth: float
    ridge: float

    def __str__(self) -> str:
        return f"waves, bandwidth {self.bandwidth:.4g}, ridge {self.ridge:.4g}/n"


@dataclass(frozen=True, eq=False)
class WaveSearch:
    """Waves on the mixture of some rows, judged by others, whose gains (n,) are kept."""

    mixture: TableMixture
    base: BaseMeasure
    train: FilledRows
    valid: FilledRows
    weight: Tensor
    policy: SelectionPolicy
    tolerance: float
    device: str
    seed: int
    report: Callable[[Waves, float], None]
    deadline: float
    gains: dict[Waves, Tensor]

    def scores(self, waves: Waves) -> Tensor:
        """Log-densities (n,) of held-out rows over the mixture, after a short training."""
        if waves not in self.gains:
            self.gains[waves] = self._scores(waves)
            self.report(waves, self.value(waves))
        return self.gains[waves]

    def _scores(self, waves: Waves) -> Tensor:
        train, policy, n = self.train, self.policy, int(self.train.number[-1]) + 1
        features = wave_features(self.mixture, waves.bandwidth, n_waves(n, policy), self.seed)
        space = whiten(features, self.base, waves.ridge / n, self.tolerance).to(self.device)
        phi, weight = space.values(train.x), train.weight / train.weight.mean()
        rank = space.resolve_rank(wave_rank(features.n_dims, policy))
        state = space.start(train.x, weight, rank)
        for _ in range(policy.gap_rounds):
            weight = train.weight / train.weight.mean()
            state = approximate_state(space, state, phi, weight, policy.judge_iterations)
            train = train.reweighted(space.log_square(state, phi).cpu())
        log_square = space.log_square(state, space.values(self.valid.x)).cpu()
        return self.valid.log_mean(log_square).clamp(min=-math.log(n))

    def value(self, waves: Waves) -> float:
        """Mean log-density of held-out rows over the mixture."""
        return weighted_mean(self.scores(waves), self.weight)

    def best(self) -> Waves:
        """Climb to the best bandwidth, then to the best ridge."""
        policy, best = (
            self.policy,
            Waves(self.policy.likelihood_start, self.policy.wave_ridge_rows),
        )
        for factors in (policy.rough_step, 1.0), (1.0, policy.ridge_step):
            up = self._along(best, factors)
            back = (1 / factors[0], 1 / factors[1])
            best = self._along(best, back) if up is best else up
        return best

    def _along(self, best: Waves, factors: tuple[float, float]) -> Waves:
        for _ in range(self.policy.max_steps):
            ahead = Waves(best.bandwidth * factors[0], best.ridge * factors[1])
            late = time.monotonic() > self.deadline
            if late or self.value(ahead) <= self.value(best) + self.policy.rough_gain:
                break
            best = ahead
        return best


def with_waves(
    plan: Plan,
    mixture: TableMixture,
    fitted: TableRows,
    judged: TableRows,
    policy: SelectionPolicy,
    compute: ComputeConfig,
    seed: int,
    run: Run | None,
) -> Plan:
    """A plan of a table with waves, if they raise the likelihood of held-out rows beyond doubt.

    `mixture` is that of the rows `fitted`; candidates are judged with the first of them.
    """
    deadline = math.inf if run is None else run.deadline(policy.search_share)
    if time.monotonic() > deadline:
        return plan
    alone = next(trial for trial in plan.trials if trial.chosen)
    most = round(policy.valid_share * policy.rough_rows)
    judged, fitted = judged.select(slice(most)), fitted.select(slice(policy.rough_rows - most))
    base, generator, trials = mixture.base(), torch.Generator().manual_seed(seed), list[Trial]()
    train = FilledRows.of(base, fitted.x, fitted.weight, policy, generator)
    valid = FilledRows.of(base, judged.x, judged.weight, policy, generator)

    def report(waves: Waves, gain: float) -> None:
        value, n = alone.log_likelihood + gain, len(fitted.x) + len(judged.x)
        trials.append(Trial(f"{alone.name}, {waves}", n, value))
        if run is not None:
            run.say(f"{waves}: held-out log-likelihood {value:.5f}")

    search = WaveSearch(
        *(mixture, base, train, valid, judged.weight, policy, plan.tolerance),
        *(compute.device, seed, report, deadline, {}),
    )
    best = search.best()
    gain, whole = search.scores(best), plan.measure
    assert isinstance(whole, TableMixture)
    if indistinct(torch.zeros_like(gain), gain, judged.weight, policy.map_errors):
        return replace(plan, trials=(*plan.trials, *trials))
    lines = [part.is_line for part in whole.parts]
    before = (replace(trial, chosen=False) for trial in plan.trials)
    after = (replace(trial, chosen=trial.name.endswith(str(best))) for trial in trials)
    return replace(
        plan,
        features=wave_features(whole, best.bandwidth, n_waves(plan.n_rows, policy), seed),
        bandwidth=best.bandwidth * whole.deviations()[lines],
        ridge=best.ridge / plan.n_rows,
        rank=wave_rank(len(whole.parts), policy),
        trials=(*before, *after),
    )


def n_waves(n: int, policy: SelectionPolicy) -> int:
    """Number of features for n rows."""
    return min(policy.rough_features, max(policy.min_features, n // policy.rows_per_feature))


def wave_rank(q: int, policy: SelectionPolicy) -> int:
    """Rank of the density matrix of q parts."""
    return policy.rank if q <= policy.max_box_columns else policy.many_columns_rank


def with_floor(born: BornDensity, epsilon: float) -> BornDensity:
    """The density with a part ε of its base measure, by the last feature, which is constant."""
    L = born.factor.detach()
    constant = torch.zeros_like(L[:1])
    constant[0, -1] = 1 / born.features.a[-1]
    parts = math.sqrt(1 - epsilon) * L, math.sqrt(epsilon) * constant
    return BornDensity(born.features, torch.cat(parts), born.measure)

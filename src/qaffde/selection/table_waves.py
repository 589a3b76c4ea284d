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
from qaffde.selection.policy import SelectionPolicy
from qaffde.selection.search import Trial, indistinct, weighted_mean
from qaffde.selection.table_mixture import TableMixture, TableRows
from qaffde.training.closed_form import effective_count
from qaffde.training.likelihood import (
    Whitening,
    approximate_state,
    whiten,
)
from qaffde.training.run import Run

MOST_DRAWS, DRAWN_ROWS = 5, 1 << 16
"""Draws for a row with gaps, and all of them together, at most."""
ROUNDS = 2
"""Of expectation–maximization."""
BLOCK = 1 << 24
"""Rows times components of the mixture that are drawn at once."""
SPREAD = math.sqrt(2)
"""Deviations of a standard normal number in a frequency times its bandwidth."""


@dataclass(frozen=True, eq=False)
class FilledRows:
    """Rows of parts (N, q) without gaps, their weights, and the numbers of the rows they were."""

    x: Tensor
    weight: Tensor
    number: Tensor

    @classmethod
    def of(
        cls, base: BaseMeasure, x: Tensor, weight: Tensor, generator: Generator
    ) -> "FilledRows":
        """Draws from the base measure given the rest of the row in place of gaps."""
        gaps = x.isnan().any(1)
        most = DRAWN_ROWS // max(int(gaps.sum()), 1)
        copies = torch.where(gaps, max(1, min(MOST_DRAWS, most)), 1)
        number = torch.arange(len(x)).repeat_interleave(copies)
        one = torch.ones(1, 1, dtype=torch.float64)
        density = expand(BornDensity(constant_feature(x.shape[1]), one, base))
        blocks = x[number].split(max(1, BLOCK // base.width))
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
            share = 2 * torch.special.ndtr(W[:, k] * bandwidth[k] * SPREAD) - 1
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
    alone = next(trial for trial in plan.trials if trial.chosen)
    fitted, judged = (
        rows.select(slice(round(share * policy.rough_rows)))
        for rows, share in ((fitted, 1 - policy.valid_share), (judged, policy.valid_share))
    )
    q, n = len(mixture.parts), len(fitted.x)
    rank = policy.rank if q <= policy.max_box_columns else policy.many_columns_rank
    base, generator = mixture.base(), torch.Generator().manual_seed(seed)
    train, valid = (
        FilledRows.of(base, rows.x, rows.weight, generator) for rows in (fitted, judged)
    )
    deadline = math.inf if run is None else run.deadline(policy.search_share)
    count, gains, trials = effective_count(fitted.weight), dict[Waves, Tensor](), list[Trial]()

    def value(waves: Waves) -> float:
        if waves not in gains:
            features = wave_features(mixture, waves.bandwidth, n_waves(n, policy), seed)
            space = whiten(features, base, waves.ridge / count, plan.tolerance)
            space = space.to(compute.device)
            log_square = _log_squares(space, rank, train, valid.x, policy.judge_iterations)
            gains[waves] = valid.log_mean(log_square)
            gain = alone.log_likelihood + weighted_mean(gains[waves], judged.weight)
            trials.append(Trial(f"{alone.name}, {waves}", n + len(judged.x), gain))
            if run is not None:
                run.say(f"{waves}: held-out log-likelihood {gain:.5f}")
        return weighted_mean(gains[waves], judged.weight)

    def along(best: Waves, move: Callable[[Waves, int], Waves], direction: int) -> Waves:
        for _ in range(policy.max_steps):
            ahead = move(best, direction)
            late = time.monotonic() > deadline
            if late or value(ahead) <= value(best) + policy.rough_gain:
                break
            best = ahead
        return best

    def wider(waves: Waves, way: int) -> Waves:
        return replace(waves, bandwidth=waves.bandwidth * policy.rough_step**way)

    def stiffer(waves: Waves, way: int) -> Waves:
        return replace(waves, ridge=waves.ridge * policy.ridge_step**way)

    if time.monotonic() > deadline:
        return plan
    best = Waves(policy.likelihood_start, policy.wave_ridge_rows)
    for move in (wider, stiffer):
        after = along(best, move, 1)
        best = along(best, move, -1) if after is best else after
    gain, zero = gains[best], torch.zeros_like(gains[best])
    if indistinct(zero, gain, judged.weight, policy.map_errors):
        return replace(plan, trials=(*plan.trials, *trials))
    h, lines = best.bandwidth, [part.is_line for part in mixture.parts]
    assert isinstance(plan.measure, TableMixture)
    return replace(
        plan,
        features=wave_features(plan.measure, h, n_waves(plan.n_rows, policy), seed),
        bandwidth=h * plan.measure.deviations()[lines],
        ridge=best.ridge / plan.n_rows,
        rank=rank,
        trials=(
            *(replace(trial, chosen=False) for trial in plan.trials),
            *(replace(trial, chosen=trial.name.endswith(str(best))) for trial in trials),
        ),
    )


def n_waves(n: int, policy: SelectionPolicy) -> int:
    """Number of features for n rows."""
    return min(policy.rough_features, max(policy.min_features, n // policy.rows_per_feature))


TOLERANCE = 1e-7
"""Eigenvalues of G below this share of the largest count as zero."""


def with_floor(born: BornDensity, epsilon: float) -> BornDensity:
    """The density with a part ε of its base measure, by the last feature, which is constant."""
    L = born.factor.detach()
    constant = torch.zeros_like(L[:1])
    constant[0, -1] = 1 / born.features.a[-1]
    parts = math.sqrt(1 - epsilon) * L, math.sqrt(epsilon) * constant
    return BornDensity(born.features, torch.cat(parts), born.measure)


def _log_squares(
    space: Whitening, rank: int, train: FilledRows, x: Tensor, max_iter: int
) -> Tensor:
    """Log-density over the base measure at x after a short training."""
    phi, weight = space.values(train.x), train.weight / train.weight.mean()
    state = space.start_from(phi, weight, rank)
    for _ in range(ROUNDS):
        weight = train.weight / train.weight.mean()
        state = approximate_state(space, state, phi, weight, max_iter)
        train = train.reweighted(space.log_square(state, phi).cpu())
    return space.log_square(state, space.values(x)).cpu()

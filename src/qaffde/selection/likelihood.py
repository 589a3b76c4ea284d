"""Maximum likelihood: its candidates, and the state that maximizes it on a plan."""

from dataclasses import replace

import torch
from torch import Tensor

from qaffde.nn import BaseMeasure, DensityMatrix
from qaffde.parameters import ComputeConfig
from qaffde.selection.base_measure import BaseSpec
from qaffde.selection.plan import Fitted, Plan, background_weight
from qaffde.selection.policy import DEFAULT_POLICY, USUAL_TOLERANCE
from qaffde.selection.search import Choice, Move, Search, Split, fixed, wider
from qaffde.selection.selector import METHODS, Method
from qaffde.selection.summary import Summary
from qaffde.selection.table_waves import FilledRows, with_floor
from qaffde.training.closed_form import Sums, effective_count
from qaffde.training.config import TrainingConfig
from qaffde.training.likelihood import (
    Whitening,
    approximate_state,
    maximize_likelihood,
    whiten,
)
from qaffde.training.run import History, Run


def stiffer(factor: float) -> Move:
    """Move that multiplies the ridge."""
    return lambda choice, direction: replace(
        choice, ridge=(choice.ridge or 0.0) * factor**direction
    )


def bare(choice: Choice) -> Choice:
    """The base measure of a choice alone."""
    return replace(choice, bare=True)


class Likelihood(Method):
    """Maximum likelihood: the density matrix solves a convex problem."""

    usual_tolerance = USUAL_TOLERANCE

    def scores(self, measure: BaseMeasure, choice: Choice, split: Split) -> Tensor:
        """Held-out log-densities after a short training with frozen features."""
        if choice.bare:
            return self.log_held_out(torch.zeros(()), measure, split)
        (n, d), policy = split.train.shape, self.policy
        features = self.draw_features(choice, measure, split.ends, n, self.generator())
        ridge = (choice.ridge or 0.0) / effective_count(split.train_weight)
        space = whiten(features, measure, ridge, self.tolerance).to(self.compute.device)
        phi, weight = space.values(split.train), split.train_weight / split.train_weight.mean()
        few = slice(policy.rough_rows)
        rank = space.resolve_rank(self._rank(d))
        start = space.start(split.train[few], weight[few], rank)
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
        ridge, D = (
            self._ridge(effective_count(search.weight)),
            self.n_features(BaseSpec("mixture"), n, d),
        )
        D = min(D, policy.rough_features)
        widen, others = self._moves(d, given=h is not None)
        summits, offered = list[Choice](), search.sized(bases)
        if self.alone(search, without := bare(Choice(offered[-1], start, ridge)), rough):
            return without
        for base in offered:
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

    def settled(self, chosen: Choice, search: Search, z: Summary, given: Tensor | None) -> Choice:
        """The candidate chosen, with its ridge as a share."""
        return replace(
            chosen,
            ridge=(chosen.ridge or 0.0) / z.moments.count,
            measurement="likelihood",
            rank=self._rank(len(chosen.bandwidth)),
            n_features=0,
        )

    def _rank(self, d: int) -> int | float | str:
        """Rank, by the number of columns where it is "auto"."""
        if self.spec.rank != "auto":
            return self.spec.rank
        policy = self.policy
        return policy.rank if d <= policy.max_box_columns else policy.many_columns_rank


METHODS["likelihood"] = Likelihood


def maximized_state(
    plan: Plan,
    Z: Tensor,
    weight: Tensor,
    training: TrainingConfig,
    compute: ComputeConfig,
    seed: int,
    run: Run,
) -> tuple[Whitening, DensityMatrix, History]:
    """The coordinates, and the state in them that maximizes the likelihood.

    Of many rows, L-BFGS sees those of the closed form in the first half of its iterations.
    """
    generator = torch.Generator().manual_seed(seed)
    relative, first = relative_weight(weight, run), first_rows(Z, weight, training, run)
    is_quick = (training.solver, training.initialization) == ("lbfgs", "closed_form")
    more = run.peers.any(len(Z) > run.peers.share_of(training.start_rows))
    early = training.max_iter // 2 if is_quick and more else 0

    def begin() -> tuple[Whitening, DensityMatrix]:
        space = whiten(plan.features, plan.base_law, plan.ridge, plan.tolerance)
        space = space.to(compute.device)
        rank = space.resolve_rank(plan.rank)
        if training.initialization == "random":
            state = DensityMatrix.draw(len(space.level), rank, generator)
            return space, state.to(compute.device)
        state = space.start(*first, rank)
        if early:
            mass = first[1] / first[1].mean()
            state = approximate_state(space, state, space.values(first[0]), mass, early)
        return space, state

    space, state = run.peers.first(begin)
    training = replace(training, max_iter=training.max_iter - early)
    history = maximize_likelihood(space, state, Z, relative, training, generator, run)
    return space, state, history


def maximized_table(
    plan: Plan,
    X: Tensor,
    weight: Tensor,
    sums: Sums,
    training: TrainingConfig,
    compute: ComputeConfig,
    seed: int,
    run: Run,
) -> tuple[Fitted, list[History]]:
    """Density of the rows of a table, given their sums: a mixture, with waves or without."""
    if not plan.has_waves:
        return plan.read(sums), []
    base, generator = plan.table_base(sums), torch.Generator().manual_seed(seed)
    rows = FilledRows.of(base, plan.standardize(X), weight, DEFAULT_POLICY, generator)
    inner, history = replace(plan, measure=base), list[History]()
    space, state, first = maximized_state(inner, rows.x, rows.weight, training, compute, seed, run)
    history.append(first)
    for _ in range(DEFAULT_POLICY.gap_rounds - 1):
        rows = rows.reweighted(space.log_square(state, space.values(rows.x)).cpu())
        relative = relative_weight(rows.weight, run)
        again = maximize_likelihood(space, state, rows.x, relative, training, generator, run)
        history.append(again)
    floor = background_weight(plan.background, sums.count)
    return plan.complete(with_floor(space.density(state).cpu(), floor), sums.count), history


def first_rows(
    Z: Tensor, weight: Tensor, training: TrainingConfig, run: Run
) -> tuple[Tensor, Tensor]:
    """Rows and weights that a closed form starts from: the same number from each process."""
    n = run.peers.share_of(training.start_rows)
    parts = run.peers.gather(lambda: (Z[:n], weight[:n]))
    return torch.cat([rows for rows, _ in parts]), torch.cat([mass for _, mass in parts])


def relative_weight(weight: Tensor, run: Run) -> Tensor:
    """Weights of mean one over the rows of all processes."""
    parts = run.peers.gather(lambda: (float(weight.sum()), len(weight)))
    total, n = sum(part[0] for part in parts), sum(part[1] for part in parts)
    if run.peers.size == 1:
        return weight * (n / total)
    return weight * (len(weight) * run.peers.size / total)

"""From a plan and rows to a density: closed form, or maximum likelihood."""

from functools import partial
from typing import Any

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from qaffde.nn import BornDensity, DensityMatrix, StandardizedDensity
from qaffde.parameters import Seed, generator_from
from qaffde.selection.plan import Plan
from qaffde.selection.summary import Part, Source, as_source
from qaffde.training.closed_form import READINGS, Sums, effective_count
from qaffde.training.config import DOUBLE, ComputeConfig, TrainingConfig
from qaffde.training.likelihood import START_ROWS, Whitening, maximize_likelihood, whiten
from qaffde.training.run import History, Run


def solve(
    plan: Plan,
    rows: Any,
    sample_weight: ArrayLike | None = None,
    *,
    training: TrainingConfig | None = None,
    compute: ComputeConfig = DOUBLE,
    random_state: Seed = None,
) -> StandardizedDensity:
    """Density of the rows on a plan, by the plan's method.

    Parameters
    ----------
    plan : Plan
        As :func:`select` makes it.
    rows : array-like of shape (n, d), a source of chunks, Source, or Sums
        Sums are those of a closed form, see :func:`qaffde.selection.sum_rows`.
    sample_weight : array-like of shape (n,), optional
    training : TrainingConfig, optional
        Of maximum likelihood.
    compute : ComputeConfig, optional
    random_state : int, RandomState instance or None, default=None
        Of maximum likelihood, where it starts at random or takes batches.

    Returns
    -------
    StandardizedDensity
        In the units of the data.
    """
    if isinstance(rows, Sums):
        return read(plan, rows)
    source = as_source(rows, sample_weight)
    if plan.method == "closed_form":
        return read(plan, sum_rows(plan, source, compute))
    seed = generator_from(random_state).initial_seed()
    X, weight = source.rows(seed)
    config = TrainingConfig() if training is None else training
    born, _ = maximize(plan, plan.standardize(X), weight, config, compute, seed, Run())
    return plan.complete(born, effective_count(weight))


def sum_rows(plan: Plan, source: Source, compute: ComputeConfig = DOUBLE) -> Sums:
    """Sufficient statistics of all rows of a source, for a closed form."""
    return source.total(partial(sum_part, plan, compute))


def sum_part(plan: Plan, compute: ComputeConfig, part: Part) -> Sums:
    """Sufficient statistics of one part of the rows."""
    rows, weight, number = part
    return Sums.of(plan.features, plan.standardize(rows, number), weight, compute)


def read(plan: Plan, sums: Sums) -> StandardizedDensity:
    """Density that a closed form reads from its sums."""
    born = READINGS[plan.measurement](
        plan.features,
        sums.rho / sums.weight,
        plan.measure,
        rank=plan.rank,
        min_trace=plan.min_trace,
        tolerance=plan.tolerance,
    )
    return plan.complete(born, sums.count)


def maximize(
    plan: Plan,
    Z: Tensor,
    weight: Tensor,
    training: TrainingConfig,
    compute: ComputeConfig,
    seed: int,
    run: Run,
) -> tuple[BornDensity, History]:
    """Born density of maximum likelihood for standardized rows, and how it was found."""
    space, state, history = maximized_state(plan, Z, weight, training, compute, seed, run)
    return space.density(state).cpu(), history


def maximized_state(
    plan: Plan,
    Z: Tensor,
    weight: Tensor,
    training: TrainingConfig,
    compute: ComputeConfig,
    seed: int,
    run: Run,
) -> tuple[Whitening, DensityMatrix, History]:
    """The coordinates, and the state in them that maximizes the likelihood."""
    generator = torch.Generator().manual_seed(seed)
    relative, first = relative_weight(weight, run), first_rows(Z, weight, run)

    def begin() -> tuple[Whitening, DensityMatrix]:
        space = whiten(plan.features, plan.measure, plan.ridge, plan.tolerance)
        space = space.to(compute.device)
        rank = space.resolve_rank(plan.rank)
        if training.initialization == "random":
            state = DensityMatrix.draw(len(space.level), rank, generator)
            return space, state.to(compute.device)
        return space, space.start(*first, rank)

    space, state = run.peers.first(begin)
    history = maximize_likelihood(space, state, Z, relative, training, generator, run)
    return space, state, history


def first_rows(Z: Tensor, weight: Tensor, run: Run) -> tuple[Tensor, Tensor]:
    """Rows and weights that a closed form starts from: the same number from each process."""
    n = run.peers.share_of(START_ROWS)
    parts = run.peers.gather(lambda: (Z[:n], weight[:n]))
    return torch.cat([rows for rows, _ in parts]), torch.cat([mass for _, mass in parts])


def relative_weight(weight: Tensor, run: Run) -> Tensor:
    """Weights of mean one over the rows of all processes."""
    parts = run.peers.gather(lambda: (float(weight.sum()), len(weight)))
    total, n = sum(part[0] for part in parts), sum(part[1] for part in parts)
    if run.peers.size == 1:
        return weight * (n / total)
    return weight * (len(weight) * run.peers.size / total)

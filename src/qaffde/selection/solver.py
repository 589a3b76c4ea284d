"""From a plan and rows to a density: closed form, or maximum likelihood."""

from functools import partial
from typing import Any

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from qaffde.nn import DensityMatrix, MappedDensity, StandardizedDensity
from qaffde.parameters import DOUBLE, ComputeConfig, Seed, generator_from
from qaffde.selection.plan import Plan
from qaffde.selection.summary import as_source
from qaffde.training.closed_form import Sums, effective_count
from qaffde.training.config import TrainingConfig
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
) -> MappedDensity | StandardizedDensity:
    """Density of the rows on a plan, by the plan's method.

    Parameters
    ----------
    plan : Plan
        As :func:`select` makes it.
    rows : array-like of shape (n, d), a source of chunks, Source, or Sums
        Sums are those of a closed form, see :meth:`Plan.sums`.
    sample_weight : array-like of shape (n,), optional
    training : TrainingConfig, optional
        Of maximum likelihood.
    compute : ComputeConfig, optional
    random_state : int, RandomState instance or None, default=None
        Of maximum likelihood, where it starts at random or takes batches.

    Returns
    -------
    MappedDensity or StandardizedDensity
        In the units of the data.
    """
    if isinstance(rows, Sums):
        return plan.read(rows)
    source = as_source(rows, sample_weight)
    if plan.method == "closed_form":
        return plan.read(source.total(partial(plan.sums, compute)))
    seed = generator_from(random_state).initial_seed()
    X, weight = source.rows(seed)
    config = TrainingConfig() if training is None else training
    Z = plan.standardize(X)
    space, state, _ = maximized_state(plan, Z, weight, config, compute, seed, Run())
    return plan.complete(space.density(state).cpu(), effective_count(weight))


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

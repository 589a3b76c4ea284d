"""From a plan and rows to a density: closed form, maximum likelihood, or gradient descent.

Gradient training of classes (paper, Algorithm 3 and Section 4.3) begins with the closed form or,
behind an encoder, with random states.
"""

import math
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from qaffde.nn import (
    BornDensity,
    Density,
    FourierFeatures,
    StandardizedDensity,
)
from qaffde.nn.encoded import EncodedDensity, ImageCoder
from qaffde.parameters import DOUBLE, MAX_ROWS, ComputeConfig, Seed, generator_from
from qaffde.schema import Schema
from qaffde.selection.likelihood import maximized_state, maximized_table
from qaffde.selection.plan import NOT_PLAIN, Fitted, Plan
from qaffde.selection.sources import as_source
from qaffde.training import train
from qaffde.training.classes import (
    CLASS_BATCH,
    ROUGH,
    ClassReader,
    ClassStates,
    ClassSums,
    LabeledRows,
    conditional_loss,
)
from qaffde.training.closed_form import Sums, effective_count
from qaffde.training.config import TrainingConfig
from qaffde.training.likelihood import MAX_COORDINATES, Whitening
from qaffde.training.run import History, Run, hold_out


def check_plan(plan: object, method: str, d: int, schema: Schema | None = None) -> Plan:
    """The plan, if it is one of this method for rows of d columns with these kinds."""
    if not isinstance(plan, Plan):
        raise ValueError(
            f"plan={plan!r} must be a Plan: the plan_ of a fit, or what select returns"
        )
    if plan.method != method:
        raise ValueError(f"the plan is one of {plan.method}; this estimator needs {method}")
    if plan.n_dims != d:
        raise ValueError(f"the plan is one of {plan.n_dims} columns, but X has {d}")
    if plan.schema is None and schema is not None and not schema.is_real:
        raise ValueError(f"{NOT_PLAIN}; fit without plan")
    return plan


def solve(
    plan: Plan,
    rows: Any,
    sample_weight: ArrayLike | None = None,
    *,
    training: TrainingConfig | None = None,
    compute: ComputeConfig = DOUBLE,
    random_state: Seed = None,
) -> Fitted:
    """Density of the rows on a plan, by the plan's method; of a classifier, those of its classes.

    Parameters
    ----------
    plan : Plan
        As :func:`select` makes it.
    rows : array-like of shape (n, d), a source of chunks, Source, LabeledRows, or sums
        Labeled rows are those of a classifier. Sums are those of a closed form, see
        :meth:`Plan.sums`.
    sample_weight : array-like of shape (n,), optional
    training : TrainingConfig, optional
        Of maximum likelihood and of gradient training.
    compute : ComputeConfig, optional
    random_state : int, RandomState instance or None, default=None
        Of training, where it starts at random or takes batches.

    Returns
    -------
    StandardizedDensity or TableDensity
        In the units of the data.
    """
    if isinstance(rows, Sums | ClassSums):
        return plan.read(rows)
    if isinstance(rows, LabeledRows) and plan.measurement != "gradient":
        return plan.read(class_sums(plan, rows))
    seed = generator_from(random_state).initial_seed()
    config = TrainingConfig() if training is None else training
    if isinstance(rows, LabeledRows):
        density = train_classes(plan, rows, config, seed, Run())[0]
        assert isinstance(density, StandardizedDensity)
        return density
    source = as_source(rows, sample_weight, schema=plan.schema)
    if plan.method == "closed_form" or (plan.schema is not None and not plan.has_waves):
        return plan.read(source.total(partial(plan.sums, compute)))
    X, weight = source.rows(seed)
    if plan.schema is not None:
        sums = plan.sums(compute, (X, weight, range(len(X))))
        return maximized_table(plan, X, weight, sums, config, compute, seed, Run())[0]
    Z = plan.standardize(X)
    space, state, _ = maximized_state(plan, Z, weight, config, compute, seed, Run())
    return plan.complete(space.density(state).cpu(), effective_count(weight))


def class_sums(plan: Plan, rows: LabeledRows) -> ClassSums:
    """Sufficient statistics of labeled rows, for a closed form."""
    return ClassSums.of(plan.features, projected(plan, rows))


def projected(plan: Plan, rows: LabeledRows) -> LabeledRows:
    """Labeled rows in the units of a plan, without a second copy in double precision.

    All values beyond some size are as far: the cosine of infinity is not a number.
    """
    far = torch.finfo(torch.float64).max ** 0.25
    blocks = (plan.standardize(x.double()) for x in rows.X.split(MAX_ROWS))
    return replace(rows, X=torch.cat([z.clamp(-far, far) for z in blocks]))


def train_classes(
    plan: Plan,
    rows: LabeledRows,
    training: TrainingConfig,
    seed: int,
    run: Run,
    coder: ImageCoder | None = None,
) -> tuple[Density, History]:
    """Train the density matrices by the likelihood of classes, and what else learns.

    The plan is one of the rows or, behind a coder, which is trained in place, of its codes.
    """
    generator = torch.Generator().manual_seed(seed)
    chosen, held_out = hold_out(len(rows.y), training.validation_fraction, generator)
    measure, features = plan.base_law, plan.features
    G = measure.gram(features)
    space = Whitening.of(features, measure, G, ridge=plan.ridge, tolerance=plan.tolerance)
    rank, n = space.resolve_rank(plan.rank), len(space.level)
    if coder is None:
        rows = projected(plan, rows)
        first = _closed_form_start(plan, G, rows.part(chosen), rank, training.mixed_start)
        start = first @ (space.transform * space.level)
    else:
        start = torch.randn(rows.n_classes, rank, n, generator=generator, dtype=torch.float64)
        start /= math.sqrt(rank * n)
    frozen = coder is None and not training.learn_features
    in_coordinates = frozen and len(rows.y) * n <= MAX_COORDINATES
    module = ClassStates(
        space,
        start,
        rows.log_prior,
        float(plan.background),
        training,
        generator,
        in_coordinates=in_coordinates,
        coder=coder,
        unit=plan.scale,
    )
    inputs = space.coordinates(rows.X) if in_coordinates else rows.X
    parts = inputs.float(), (rows.weight / rows.weight.mean()).float(), rows.y
    config = training.loop(CLASS_BATCH, run.left)
    history = train(
        module.float(),
        conditional_loss,
        tuple(part[chosen] for part in parts),
        tuple(part[held_out] for part in parts) if len(held_out) else None,
        config,
        generator,
        **run.loop_arguments("learning", config.max_steps),
    )
    if training.learn_features:
        learned = module.features.double()
        features = FourierFeatures(learned.W.detach(), learned.b.detach(), learned.a)
    factor = module.factor.detach().double() @ space.transform.T
    born = BornDensity(features, factor, measure).normalize_()
    density = plan.complete(born)
    return (density if coder is None else EncodedDensity(density, coder)), history


def _closed_form_start(
    plan: Plan, G: Tensor, rows: LabeledRows, rank: int, mixed_size: float
) -> Tensor:
    """Factors: the pure states of the classes and, smaller, their mixed ones."""
    reader = ClassReader(ClassSums.of(plan.features, rows), G, plan.tolerance, ROUGH)
    pure = reader.factor("coherent", plan.ridge, 1)
    mixed = reader.factor("pretty_good", plan.ridge, rank)
    return torch.cat([pure, mixed_size * mixed], 1)[:, :rank]

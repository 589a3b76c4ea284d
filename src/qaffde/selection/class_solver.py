"""From a plan and labeled rows to the densities of all classes: closed form, or gradient descent.

Gradient training (paper, Algorithm 3 and Section 4.3) begins with the closed form or, behind an
encoder, with random states.
"""

import math

import torch
from torch import Tensor

from qaffde.nn import FourierFeatures
from qaffde.nn.class_density import ClassBorn, ClassDensity, ImageCoder
from qaffde.selection.classes import project
from qaffde.selection.plan import Plan
from qaffde.training import History, TrainingConfig, hold_out, train
from qaffde.training.class_likelihood import ClassStates, conditional_loss
from qaffde.training.class_readings import ROUGH, ClassReader
from qaffde.training.closed_form import ClassSums, LabeledRows
from qaffde.training.likelihood import MAX_COORDINATES, Whitening
from qaffde.training.run import Run

BATCH_SIZE = 256
MIXED_SHARE = 0.1
"""Size of the mixed part of a start beside its pure part: amplitude, not probability."""


def sum_classes(plan: Plan, rows: LabeledRows) -> ClassSums:
    """Sufficient statistics of labeled rows, for a closed form."""
    return ClassSums.of(plan.features, project(plan.projection, rows))


def read_classes(plan: Plan, sums: ClassSums) -> ClassDensity:
    """Densities that a closed form reads from its sums."""
    reader = ClassReader(sums, plan.measure.gram(plan.features), plan.tolerance)
    factor = reader.factor(plan.measurement, plan.ridge, plan.rank)
    born = ClassBorn(plan.features, factor, plan.measure, float(plan.background))
    return ClassDensity(plan.projection, born)


def train_classes(
    plan: Plan,
    rows: LabeledRows,
    training: TrainingConfig,
    seed: int,
    run: Run,
    coder: ImageCoder | None = None,
) -> tuple[ClassDensity, History]:
    """Train the density matrices by the likelihood of classes, and what else learns.

    Parameters
    ----------
    plan : Plan
        Of the rows, or behind a coder of its codes.
    rows : LabeledRows
    training : TrainingConfig
    seed : int
    run : Run
        Clock, checkpoint and progress.
    coder : ImageCoder, optional
        It is trained in place.
    """
    generator = torch.Generator().manual_seed(seed)
    chosen, held_out = hold_out(len(rows.y), training.validation_fraction, generator)
    G = plan.measure.gram(plan.features)
    space = Whitening.of(
        plan.features, plan.measure, G, ridge=plan.ridge, tolerance=plan.tolerance
    )
    rank, n = space.resolve_rank(plan.rank), len(space.level)
    if coder is None:
        rows = project(plan.projection, rows)
        start = _closed_form_start(plan, space, G, rows.part(chosen), rank)
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
    )
    inputs = space.coordinates(rows.X) if in_coordinates else rows.X
    parts = inputs.float(), (rows.weight / rows.weight.mean()).float(), rows.y
    config = training.loop(BATCH_SIZE, run.left)
    history = train(
        module.float(),
        conditional_loss,
        tuple(part[chosen] for part in parts),
        tuple(part[held_out] for part in parts) if len(held_out) else None,
        config,
        generator,
        **run.loop_arguments("learning", config.max_steps),
    )
    features = plan.features
    if training.learn_features:
        learned = module.features.double()
        features = FourierFeatures(learned.W.detach(), learned.b.detach(), learned.a)
    factor = module.factor.detach().double() @ space.transform.T
    born = ClassBorn(features, factor, plan.measure, float(plan.background))
    return ClassDensity(plan.projection if coder is None else coder, born), history


def _closed_form_start(
    plan: Plan, space: Whitening, G: Tensor, rows: LabeledRows, rank: int
) -> Tensor:
    """Factors in coordinates: the pure states of the classes and, smaller, their mixed ones."""
    reader = ClassReader(ClassSums.of(plan.features, rows), G, plan.tolerance, ROUGH)
    pure = reader.factor("coherent", plan.ridge, 1)
    mixed = reader.factor("pretty_good", plan.ridge, rank)
    factor = torch.cat([pure, MIXED_SHARE * mixed], 1)[:, :rank]
    return factor @ (space.transform * space.level)

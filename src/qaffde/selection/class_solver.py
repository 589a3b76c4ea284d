"""From a plan and labeled rows to the densities of all classes: closed form, or gradient descent.

Gradient training (paper, Algorithm 3 and Section 4.3) begins with the closed form or, behind an
encoder, with random states.
"""

import math
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from numbers import Integral
from typing import Any

import torch
from torch import Generator, Tensor, nn

from qaffde.nn import FourierFeatures
from qaffde.nn.class_density import ClassBorn, ClassDensity, ImageCoder
from qaffde.selection.classes import project
from qaffde.selection.plan import Plan
from qaffde.training import History, TrainingConfig, hold_out, train
from qaffde.training.class_likelihood import LOSSES, ClassStates
from qaffde.training.class_readings import ROUGH, ClassReader
from qaffde.training.closed_form import ClassSums, LabeledRows
from qaffde.training.likelihood import MAX_COORDINATES, Whitening
from qaffde.training.run import Run

BATCH_SIZE = 256
MIXED_SHARE = 0.1
"""Size of the mixed part of a start beside its pure part: amplitude, not probability."""


def sum_classes(plan: Plan, rows: LabeledRows) -> ClassSums:
    """Sufficient statistics of labeled rows, for a closed form."""
    return ClassSums.of(plan.features, replace(rows, X=project(plan.projection, rows.X)))


def read_classes(plan: Plan, sums: ClassSums) -> ClassDensity:
    """Densities that a closed form reads from its sums."""
    reader = ClassReader(sums, plan.measure.gram(plan.features), plan.tolerance)
    factor = reader.factor(plan.measurement, plan.ridge, plan.rank)
    born = ClassBorn(plan.features, factor, plan.measure, float(plan.background))
    return ClassDensity(plan.projection, born)


def train_classes(
    plan: Plan,
    rows: LabeledRows,
    objective: str,
    training: TrainingConfig,
    seed: int,
    run: Run,
    coder: ImageCoder | None = None,
) -> tuple[ClassDensity, History]:
    """Train the density matrices, and the features and a coder that learn.

    Parameters
    ----------
    plan : Plan
        Of the rows, or behind a coder of its codes.
    rows : LabeledRows
    objective : {"conditional", "generative"}
    training : TrainingConfig
    seed : int
    run : Run
        Checkpoint and progress.
    coder : ImageCoder, optional
        It is trained in place.
    """
    generator, epsilon = torch.Generator().manual_seed(seed), float(plan.background)
    chosen, held_out = hold_out(len(rows.y), training.validation_fraction, generator)
    G = plan.measure.gram(plan.features)
    space = Whitening.of(
        plan.features, plan.measure, G, ridge=plan.ridge, tolerance=plan.tolerance
    )
    generative = objective == "generative"
    if coder is None:
        inputs = project(plan.projection, rows.X)
        part = replace(rows, X=inputs).part(chosen)
        start = _closed_form_start(plan, space, G, part, generative=generative)
    else:
        inputs = rows.X
        start = _random_start(plan, space, rows.n_classes, generator)
    learns = coder is not None or training.learn_features
    in_coordinates = not learns and len(inputs) * len(space.level) <= MAX_COORDINATES
    module = ClassStates(
        space,
        start,
        rows.log_prior,
        epsilon,
        generative=generative,
        in_coordinates=in_coordinates,
        learn_features=training.learn_features,
        dropout=training.dropout,
        coder=coder,
        augment=training.augment,
        generator=generator,
    )
    if in_coordinates:
        inputs = space.coordinates(inputs)
    parts = inputs.float(), (rows.weight / rows.weight.mean()).float(), rows.y
    config = training.loop(BATCH_SIZE, run.left)
    history = train(
        module.float(),
        LOSSES[objective],
        tuple(part[chosen] for part in parts),
        tuple(part[held_out] for part in parts) if len(held_out) else None,
        config,
        generator,
        **run.loop_arguments("learning", config.max_steps),
    )
    features = _frozen(module.features) if training.learn_features else plan.features
    factor = module.factor.detach().double() @ space.transform.T
    born = ClassBorn(features, factor, plan.measure, epsilon)
    return ClassDensity(plan.projection if coder is None else coder, born), history


def _closed_form_start(
    plan: Plan, space: Whitening, G: Tensor, rows: LabeledRows, *, generative: bool
) -> Tensor:
    """Factors in coordinates: the pure states of the classes and, smaller, their mixed ones."""
    reader = ClassReader(ClassSums.of(plan.features, rows), G, plan.tolerance)
    rank = space.resolve_rank(plan.rank)
    if generative:
        factor = reader.factor("square_root", 0.0, rank, ROUGH)
    else:
        pure = reader.factor("coherent", plan.ridge, 1)
        mixed = reader.factor("pretty_good", plan.ridge, rank, ROUGH)
        factor = torch.cat([pure, MIXED_SHARE * mixed], 1)[:, :rank]
    return factor @ (space.transform * space.level)


def _random_start(plan: Plan, space: Whitening, n_classes: int, generator: Generator) -> Tensor:
    rank, n = space.resolve_rank(plan.rank), len(space.level)
    factor = torch.randn(n_classes, rank, n, generator=generator, dtype=torch.float64)
    return factor / math.sqrt(rank * n)


def _frozen(learned: Any) -> FourierFeatures:
    return FourierFeatures(*(part.detach().double() for part in (learned.W, learned.b, learned.a)))


def image_coder(encoder: nn.Module, X: Tensor) -> ImageCoder:
    """Coder of rows by a copy of an encoder, which sees images if it has an `image_shape`.

    Inputs have mean zero and variance one: all pixels together, or each column.
    """
    shape = image_shape(encoder, X.shape[1])
    values = X.float() if shape is None else X.float().reshape(-1, 1)
    location, scale = values.mean(0), values.std(0, correction=0)
    scale = torch.where(scale > 0, scale, torch.ones_like(scale))
    return ImageCoder(deepcopy(encoder).float(), location, scale, shape)


def image_shape(encoder: nn.Module, d: int) -> tuple[int, ...] | None:
    """Shape of the inputs of an encoder, which must hold d numbers; None for rows."""
    shape = getattr(encoder, "image_shape", None)
    if shape is None:
        return None
    numbers = isinstance(shape, Sequence) and all(
        isinstance(size, Integral) and int(size) > 0 for size in shape
    )
    if not numbers or math.prod(shape) != d:
        raise ValueError(
            f"the encoder's image_shape={shape!r} must be positive whole numbers (channels, "
            f"height, width) of product {d}, the number of columns"
        )
    return tuple(int(size) for size in shape)


@torch.no_grad()
def encode_some(coder: ImageCoder, X: Tensor) -> Tensor:
    """Codes of shape (n, k) of some rows, if the encoder gives any."""
    try:
        codes: Any = coder.eval()(X.float())
    except (RuntimeError, ValueError, TypeError) as error:
        seen = tuple(coder.inputs(X.float()).shape)
        raise ValueError(
            f"encoder cannot take inputs of shape {seen}: {str(error).splitlines()[0]}; give it "
            "an attribute image_shape=(channels, height, width) if it wants images"
        ) from None
    if not isinstance(codes, Tensor) or codes.ndim != 2 or len(codes) != len(X):
        raise ValueError(
            f"encoder must return codes of shape (n, k), got {tuple(getattr(codes, 'shape', ()))} "
            f"for n = {len(X)} rows"
        )
    return codes.double()

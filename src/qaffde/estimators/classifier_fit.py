"""The stages of a classifier's fit by gradient descent; parameters are the classifier's."""

import math
import os
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor, nn

from qaffde import functional as QF
from qaffde.estimators.classifier_closed import (
    ROUGH,
    ClassReader,
    ClassSums,
    Reading,
)
from qaffde.estimators.classifier_frame import ClassFrame, LabelledRows, settle_features
from qaffde.nn import BaseMeasure, FourierFeatures, GaussianMeasure
from qaffde.nn.class_density import ClassBorn, ClassDensity, ImageCoder
from qaffde.parameters import check_bandwidth
from qaffde.training import History, LoopConfig, print_progress, train
from qaffde.training.class_likelihood import (
    LOSSES,
    Augment,
    ClassNetwork,
    ClassStates,
)
from qaffde.training.likelihood import MAX_COORDINATES, Whitening

RANK = 20
RIDGE = 1e-3
MIXED_SHARE = 0.1
"""Size of the mixed part of a start beside its pure part: amplitude, not probability."""
CODE_SPREAD = 0.5
"""Standard deviation of the base measure of codes, which lie in (−1, 1)."""
FEW_ROWS = 20
"""Below this there is nothing to hold out."""
CHECKED_ROWS = 2
MAX_CODES = 10_000
"""Rows whose first codes adaptive features are fitted to."""


@dataclass(frozen=True, kw_only=True)
class GradientSettings:
    """What gradient training takes from the classifier's parameters."""

    objective: str
    rank: int | float
    ridge: float
    learn_features: bool
    dropout: float
    epsilon: float
    tolerance: float
    validation_fraction: float
    augment: Augment | None
    config: LoopConfig
    checkpoint: str | os.PathLike[str] | None
    verbose: bool

    def rank_of(self, space: Whitening) -> int:
        """Number of rows of each factor in these coordinates."""
        return QF.resolve_rank(self.rank, space.level, 1.0)

    @property
    def generative(self) -> bool:
        """Whether likelihoods are maximised."""
        return self.objective == "generative"


def fit_states(
    frame: ClassFrame, rows: LabelledRows, settings: GradientSettings, generator: Generator
) -> tuple[ClassDensity, History]:
    """Train the factors, and the features if they learn, from the closed form."""
    chosen, held_out = _split(len(rows.y), settings.validation_fraction, generator)
    space = _whitening(frame.features, frame.measure, frame.gram, settings)
    start = _start(frame, rows.part(chosen), space, settings)
    Z = frame.coordinates(rows.X)
    frozen = not settings.learn_features and len(Z) * len(space.level) <= MAX_COORDINATES
    module: ClassStates | ClassNetwork
    if frozen:
        metric = 1 - space.ridge / space.level
        module = ClassStates(
            start,
            metric,
            rows.log_prior,
            settings.epsilon,
            penalized=settings.generative,
            dropout=settings.dropout,
        )
        inputs = space.coordinates(Z)
    else:
        module = _network(space, start, rows, settings)
        inputs = Z.float()
    history = _train(module, inputs, rows, chosen, held_out, settings, generator)
    features = frame.features if frozen else _frozen(module)
    born = _born(module, features, frame.measure, space, settings)
    return ClassDensity(frame.projection, born), history


def fit_encoder(
    encoder: nn.Module,
    shape: tuple[int, ...] | None,
    features: tuple[str, int, Any],
    rows: LabelledRows,
    settings: GradientSettings,
    generator: Generator,
) -> tuple[ClassDensity, Tensor, History]:
    """Train an encoder, the factors, and the features if they learn, from random states.

    `features` are a kind, a number and the parameter `bandwidth`; what it came to, of shape (k,),
    is returned with the densities.
    """
    location, scale = _input_units(rows.X, shape)
    coder = ImageCoder(deepcopy(encoder).float(), location, scale, shape)
    k = count_codes(coder, rows.X[:CHECKED_ROWS])
    covariance = CODE_SPREAD**2 * torch.eye(k, dtype=torch.float64)
    measure = GaussianMeasure(
        torch.ones(1, dtype=torch.float64), covariance[:1] * 0, covariance[None]
    )
    kind, D, bandwidth = features
    numbers = check_bandwidth(bandwidth, k, ("auto",))
    h = code_bandwidth(k) if numbers is None else numbers
    with torch.no_grad():
        codes = coder(rows.X[:MAX_CODES].float()).double() if kind == "adaptive" else None
    drawn = settle_features(kind, D, h, codes, generator)
    space = _whitening(drawn, measure, measure.gram(drawn), settings)
    n = len(space.level)
    rank = settings.rank_of(space)
    start = torch.randn(rows.n_classes, rank, n, generator=generator, dtype=torch.float64)
    chosen, held_out = _split(len(rows.y), settings.validation_fraction, generator)
    network = _network(space, start / math.sqrt(rank * n), rows, settings, coder, generator)
    history = _train(network, rows.X.float(), rows, chosen, held_out, settings, generator)
    born = _born(network, _frozen(network), measure, space, settings)
    return ClassDensity(coder, born), h, history


def _whitening(
    features: FourierFeatures, measure: BaseMeasure, G: Tensor, settings: GradientSettings
) -> Whitening:
    return Whitening.of(features, measure, G, ridge=settings.ridge, tolerance=settings.tolerance)


def code_bandwidth(k: int) -> Tensor:
    """Bandwidth for codes of k numbers in (−1, 1).

    On the digits, anything from a quarter to twice as much made no difference.
    """
    return torch.full((k,), CODE_SPREAD * math.sqrt(k), dtype=torch.float64)


@torch.no_grad()
def count_codes(coder: ImageCoder, X: Tensor) -> int:
    """Numbers in a code, found by encoding some rows."""
    try:
        codes: Any = coder.eval()(X.float())
    except (RuntimeError, ValueError, TypeError) as error:
        seen = tuple(coder.inputs(X.float()).shape)
        raise ValueError(
            f"encoder cannot take inputs of shape {seen}: {str(error).splitlines()[0]}; give "
            "image_shape=(channels, height, width) if it wants images"
        ) from None
    if not isinstance(codes, Tensor) or codes.ndim != 2 or len(codes) != len(X):
        raise ValueError(
            f"encoder must return codes of shape (n, k), got {tuple(getattr(codes, 'shape', ()))} "
            f"for n = {len(X)} rows"
        )
    return codes.shape[1]


def _start(
    frame: ClassFrame, rows: LabelledRows, space: Whitening, settings: GradientSettings
) -> Tensor:
    """Factors in coordinates: the pure states of the classes and, smaller, their mixed ones."""
    sums = ClassSums.of(frame, rows.X, rows.y, rows.weight, rows.n_classes)
    reader = ClassReader(sums, frame.gram, settings.tolerance)
    rank = settings.rank_of(space)
    if settings.generative:
        factor = reader.factor(Reading("square_root", 0.0, rank), ROUGH)
    else:
        pure = reader.factor(Reading("coherent", settings.ridge, 1))
        mixed = reader.factor(Reading("pretty_good", settings.ridge, rank), ROUGH)
        factor = torch.cat([pure, MIXED_SHARE * mixed], 1)[:, :rank]
    return factor @ (space.transform * space.level)


def _network(
    space: Whitening,
    start: Tensor,
    rows: LabelledRows,
    settings: GradientSettings,
    coder: ImageCoder | None = None,
    generator: Generator | None = None,
) -> ClassNetwork:
    return ClassNetwork(
        space,
        start,
        rows.log_prior,
        settings.epsilon,
        generative=settings.generative,
        learn_features=settings.learn_features,
        dropout=settings.dropout,
        coder=coder,
        augment=settings.augment,
        generator=generator,
    )


def _train(
    module: nn.Module,
    inputs: Tensor,
    rows: LabelledRows,
    chosen: Tensor,
    held_out: Tensor,
    settings: GradientSettings,
    generator: Generator,
) -> History:
    parts = inputs, (rows.weight / rows.weight.mean()).float(), rows.y
    return train(
        module.float(),
        LOSSES[settings.objective],
        tuple(part[chosen] for part in parts),
        tuple(part[held_out] for part in parts) if len(held_out) else None,
        settings.config,
        generator,
        checkpoint=settings.checkpoint,
        report=print_progress(settings.config.max_steps) if settings.verbose else None,
    )


def _born(
    module: ClassStates | ClassNetwork,
    features: FourierFeatures,
    measure: Any,
    space: Whitening,
    settings: GradientSettings,
) -> ClassBorn:
    """The trained densities, in double precision."""
    factor = module.factor.detach().double() @ space.transform.double().T
    return ClassBorn(features, factor, deepcopy(measure).double(), settings.epsilon)


def _frozen(network: nn.Module) -> FourierFeatures:
    learned = network.features
    assert isinstance(learned, FourierFeatures)
    W, b, a = (part.detach().double() for part in (learned.W, learned.b, learned.a))
    return FourierFeatures(W, b, a)


def _split(n: int, fraction: float, generator: Generator) -> tuple[Tensor, Tensor]:
    """Rows to train on, and rows to hold out; none of the latter where rows are few."""
    order = torch.randperm(n, generator=generator)
    n_valid = 0 if n < FEW_ROWS else max(1, round(fraction * n))
    return order[n_valid:], order[:n_valid]


def _input_units(X: Tensor, shape: tuple[int, ...] | None) -> tuple[Tensor, Tensor]:
    """Location and scale of an encoder's inputs: of all pixels at once, or of each column."""
    values = X.float()
    if shape is not None:
        values = values.reshape(-1, 1)
    location, scale = values.mean(0), values.std(0, correction=0)
    return location, torch.where(scale > 0, scale, torch.ones_like(scale))

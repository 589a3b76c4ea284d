"""The methods that classify images: how each is made of its recipe."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import Any

import torch

from experiments.images.augment import Augment, Augmentation, RandomFlip, RandomShift
from experiments.images.flows import ImageFlowClassifier
from experiments.images.lenet import LeNet
from experiments.images.roundtrip import ImageRoundTrip
from experiments.models.flat import ADAM, from_flat
from experiments.models.made import MADE
from qaffde import QAFFDEClassifier, SelectionPolicy, TrainingConfig
from qaffde.baselines import MAF, RealNVP, TrainedEstimator
from qaffde.training.checkpoint import Checkpoint, State

Shape = tuple[int, int, int]
Make = Callable[[Mapping[str, Any], Shape, int], Any]

NETWORK = ("n_codes", "dropout", "shift", "flip")
"""Parts of a recipe that the encoder and the augmentation take."""
PIXELS = ("alpha", "n_draws", "shared")
"""Parts of a recipe that the classifier takes, not its flow."""
TRAINING = {name: name for name in ADAM} | {"feature_dropout": "dropout"}
"""Parts of a recipe that our training settings take, and what they call them."""
POLICY = {"ridge": "class_ridge", "background": "background", "tolerance": "tolerance"}
"""Parts of a recipe that our policy takes, and what it calls them."""


@dataclass(frozen=True)
class ImageMethod:
    """One method of the comparison.

    Parameters
    ----------
    label : str
        In tables and figures.
    kind : {"ours", "baseline"}
    make : callable
        Unfitted classifier of a recipe, the shape of images and a seed.
    known : tuple of str
        What a recipe may say.
    colour, marker : str
        In figures.
    attributes : tuple of str
        Fitted attributes that a row records.
    is_trained : bool
        Whether training takes steps, and so can leave a checkpoint.
    """

    label: str
    kind: str
    make: Make
    known: tuple[str, ...]
    colour: str
    marker: str = "o"
    attributes: tuple[str, ...] = ()
    is_trained: bool = True

    def peek(self, checkpoint: Path) -> State | None:
        """State that a training which was killed left there."""
        return Checkpoint(f"{checkpoint}.learning").load({})


def classifier(
    recipe: Mapping[str, Any], seed: int, *, method: str, encoder: Any = None, **settings: Any
) -> QAFFDEClassifier:
    """Our classifier of a flat recipe; `settings` are more of its training."""
    training = {TRAINING[name]: value for name, value in recipe.items() if name in TRAINING}
    policy = {POLICY[name]: value for name, value in recipe.items() if name in POLICY}
    rest = {k: value for k, value in recipe.items() if k not in TRAINING and k not in POLICY}
    return QAFFDEClassifier(
        **rest,
        method=method,
        encoder=encoder,
        training=TrainingConfig(**training, **settings),
        policy=SelectionPolicy(**policy),
        random_state=seed,
    )


def _density(method: str, **settings: Any) -> Make:
    def make(recipe: Mapping[str, Any], shape: Shape, seed: int) -> Any:
        return classifier(recipe, seed, method=method, **settings)

    return make


def _lenet(recipe: Mapping[str, Any], shape: Shape, seed: int) -> Any:
    own = {name: value for name, value in recipe.items() if name not in NETWORK}
    weights = torch.Generator().manual_seed(seed)
    size, share = recipe.get("n_codes", 84), recipe.get("dropout", 0.0)
    encoder = LeNet(shape, size, dropout=share, generator=weights)
    augment = augmentation(recipe.get("shift", 0), flip=recipe.get("flip", False))
    return classifier(own, seed, method="gradient", encoder=encoder, augment=augment)


def augmentation(shift: int, *, flip: bool) -> Augmentation | None:
    """Shifts of so many pixels, and mirror images; None for neither."""
    parts: list[Augment] = [RandomShift(shift)] if shift else []
    if flip:
        parts.append(RandomFlip())
    return Augmentation(*parts) if parts else None


def _flow(flow: type[TrainedEstimator]) -> Make:
    def make(recipe: Mapping[str, Any], shape: Shape, seed: int) -> Any:
        own = {name: value for name, value in recipe.items() if name in PIXELS}
        rest = {name: value for name, value in recipe.items() if name not in PIXELS}
        return ImageFlowClassifier(from_flat(flow, **rest), **own, random_state=seed)

    return make


def _roundtrip(recipe: Mapping[str, Any], shape: Shape, seed: int) -> Any:
    return ImageRoundTrip(shape, **recipe, random_state=seed)


FIXED = (
    "random_state",
    "checkpoint",
    "image_shape",
    "method",
    "encoder",
    "plan",
    "training",
    "policy",
)
"""Parameters that the method decides, not its recipe."""


def _of(cls: type, *more: str) -> tuple[str, ...]:
    """Names that a recipe may have."""
    return (*(name for name in signature(cls).parameters if name not in FIXED), *more)


_OURS = _of(QAFFDEClassifier, *TRAINING, *POLICY)
_FLOWS = (*(name for name in ADAM if name != "checkpoint"), *PIXELS)
_FITTED = ("bandwidth", "n_components", "n_fourier_features", "rank", "measurement", "ridge")

IMAGE_METHODS: dict[str, ImageMethod] = {
    "qaffde": ImageMethod(
        "QAFFDE",
        "ours",
        _density("auto"),
        _OURS,
        "#D55E00",
        "o",
        _FITTED,
        is_trained=False,
    ),
    "qaffde_sgd": ImageMethod(
        "QAFFDE-SGD",
        "ours",
        _density("gradient"),
        _OURS,
        "#0072B2",
        "s",
        _FITTED,
    ),
    "qaffde_sgd_learned": ImageMethod(
        "QAFFDE-SGD, learned features",
        "ours",
        _density("gradient", learn_features=True),
        _OURS,
        "#56B4E9",
        "D",
        _FITTED,
    ),
    "lenet": ImageMethod(
        "LeNet QAFFDE-SGD",
        "ours",
        _lenet,
        (*_OURS, *NETWORK),
        "#CC79A7",
        "P",
        _FITTED,
    ),
    "lenet_augmented": ImageMethod(
        "LeNet QAFFDE-SGD, augmented",
        "ours",
        _lenet,
        (*_OURS, *NETWORK),
        "#A81E6A",
        "X",
        _FITTED,
    ),
    "made": ImageMethod("MADE", "baseline", _flow(MADE), _of(MADE, *_FLOWS), "#009E73", "^"),
    "realnvp": ImageMethod(
        "RealNVP", "baseline", _flow(RealNVP), _of(RealNVP, *_FLOWS), "#8C6BB1", "v"
    ),
    "maf": ImageMethod("MAF", "baseline", _flow(MAF), _of(MAF, *_FLOWS), "#E69F00", "<"),
    "roundtrip": ImageMethod(
        "RoundTrip (CNN)", "baseline", _roundtrip, _of(ImageRoundTrip), "#44AA99", ">"
    ),
}


def find_image_method(name: str) -> ImageMethod:
    """Method by its name."""
    if name not in IMAGE_METHODS:
        raise ValueError(f"unknown method {name!r}; choose one of {', '.join(IMAGE_METHODS)}")
    return IMAGE_METHODS[name]


def check_recipe(name: str, recipe: Mapping[str, Any], where: str) -> None:
    """Reject what a method's estimator cannot take."""
    known = find_image_method(name).known
    for parameter in recipe:
        if parameter not in known:
            raise ValueError(
                f"{where} has no parameter {parameter!r}; {name} knows {', '.join(known)}"
            )

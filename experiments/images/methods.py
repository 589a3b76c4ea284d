"""The methods that classify images: how each is made of its recipe."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import signature
from typing import Any

import torch

from experiments.images.augment import Augment, Augmentation, RandomFlip, RandomShift
from experiments.images.flows import ImageFlowClassifier
from experiments.images.roundtrip import ImageRoundTrip
from qaffde import QAFFDEClassifier
from qaffde.baselines import MADE, MAF, RealNVP
from qaffde.nn import LeNet

Shape = tuple[int, int, int]
Make = Callable[[Mapping[str, Any], Shape, int], Any]

NETWORK = ("n_codes", "dropout", "shift", "flip")
"""Parts of a recipe that the encoder and the augmentation take."""
PIXELS = ("alpha", "n_draws", "shared")
"""Parts of a recipe that the classifier takes, not its flow."""


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


def _density(**fixed: Any) -> Make:
    def make(recipe: Mapping[str, Any], shape: Shape, seed: int) -> Any:
        return QAFFDEClassifier(**recipe, **fixed, random_state=seed)

    return make


def _lenet(recipe: Mapping[str, Any], shape: Shape, seed: int) -> Any:
    own = {name: value for name, value in recipe.items() if name not in NETWORK}
    weights = torch.Generator().manual_seed(seed)
    size, share = recipe.get("n_codes", 84), recipe.get("dropout", 0.0)
    encoder = LeNet(shape, size, dropout=share, generator=weights)
    augment = augmentation(recipe.get("shift", 0), flip=recipe.get("flip", False))
    return QAFFDEClassifier(
        **own,
        training="gradient",
        encoder=encoder,
        image_shape=shape,
        augment=augment,
        random_state=seed,
    )


def augmentation(shift: int, *, flip: bool) -> Augmentation | None:
    """Shifts of so many pixels, and mirror images; None for neither."""
    parts: list[Augment] = [RandomShift(shift)] if shift else []
    if flip:
        parts.append(RandomFlip())
    return Augmentation(*parts) if parts else None


def _flow(flow: Callable[..., Any]) -> Make:
    def make(recipe: Mapping[str, Any], shape: Shape, seed: int) -> Any:
        own = {name: value for name, value in recipe.items() if name in PIXELS}
        rest = {name: value for name, value in recipe.items() if name not in PIXELS}
        return ImageFlowClassifier(flow(**rest), **own, random_state=seed)

    return make


def _roundtrip(recipe: Mapping[str, Any], shape: Shape, seed: int) -> Any:
    return ImageRoundTrip(shape, **recipe, random_state=seed)


FIXED = (
    "random_state",
    "checkpoint",
    "image_shape",
    "training",
    "learn_features",
    "encoder",
    "augment",
)
"""Parameters that the method decides, not its recipe."""


def _of(cls: type, *more: str) -> tuple[str, ...]:
    """Names that a recipe may have."""
    return (*(name for name in signature(cls).parameters if name not in FIXED), *more)


_OURS = _of(QAFFDEClassifier)
_FITTED = ("bandwidth", "n_components", "n_fourier_features", "rank", "measurement", "ridge")

IMAGE_METHODS: dict[str, ImageMethod] = {
    "qaffde": ImageMethod(
        "QAFFDE",
        "ours",
        _density(training="closed_form"),
        _OURS,
        "#D55E00",
        "o",
        _FITTED,
        is_trained=False,
    ),
    "qaffde_sgd": ImageMethod(
        "QAFFDE-SGD", "ours", _density(training="gradient"), _OURS, "#0072B2", "s", _FITTED
    ),
    "qaffde_sgd_learned": ImageMethod(
        "QAFFDE-SGD, learned features",
        "ours",
        _density(training="gradient", learn_features=True),
        _OURS,
        "#56B4E9",
        "D",
        _FITTED,
    ),
    "lenet": ImageMethod(
        "LeNet QAFFDE-SGD", "ours", _lenet, (*_OURS, *NETWORK), "#CC79A7", "P", _FITTED
    ),
    "lenet_augmented": ImageMethod(
        "LeNet QAFFDE-SGD, augmented", "ours", _lenet, (*_OURS, *NETWORK), "#A81E6A", "X", _FITTED
    ),
    "made": ImageMethod("MADE", "baseline", _flow(MADE), _of(MADE, *PIXELS), "#009E73", "^"),
    "realnvp": ImageMethod(
        "RealNVP", "baseline", _flow(RealNVP), _of(RealNVP, *PIXELS), "#8C6BB1", "v"
    ),
    "maf": ImageMethod("MAF", "baseline", _flow(MAF), _of(MAF, *PIXELS), "#E69F00", "<"),
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

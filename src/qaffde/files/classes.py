"""Recipes of what a classifier is made of: projection, encoder, densities, sums."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from qaffde.files.fields import Fields
from qaffde.files.format import quoted
from qaffde.files.modules import n_columns
from qaffde.files.values import Recipe, attributes
from qaffde.nn import FourierFeatures, GaussianMeasure, LeNet
from qaffde.nn.class_density import (
    ClassBorn,
    ClassDensity,
    ImageCoder,
    Projection,
)
from qaffde.training.sums import ClassSums

MAX_SIZE = 1 << 16
"""Most channels, pixels a side, filters or codes of a network in a file."""


def _projection(f: Fields) -> Projection:
    location, scale = f.tensor("location", "d"), f.positive("scale", "q")
    if f.get("axes") is None:
        f.require(len(location) == len(scale), "scale", "is not of all columns")
        f.require("noise" not in f or f.get("noise") is None, "noise", "is of no direction")
        return Projection(location, scale)
    axes = f.tensor("axes", "d", "q")
    seen = "noise" in f and f.get("noise") is not None  # older files have none
    return Projection(location, scale, axes, f.positive("noise") if seen else None)


def _lenet(f: Fields) -> LeNet:
    shape, filters = f.item("image_shape", tuple), f.item("n_filters", tuple)
    sizes = (*shape, *filters, f.count("n_codes"))
    good = all(isinstance(size, int) and 0 < size <= MAX_SIZE for size in sizes)
    f.require(good and (len(shape), len(filters)) == (3, 2), "image_shape", "is wrong")
    state = f.item("state", dict)
    f.require(
        all(isinstance(part, Tensor) and part.isfinite().all() for part in state.values()),
        "state",
        "holds no finite tensors",
    )
    n_numbers = sum(part.numel() for part in state.values())
    inner = filters[1] * (shape[1] // 4) * (shape[2] // 4)
    least = 25 * filters[0] * (shape[0] + filters[1]) + inner * sizes[-1]
    f.require(0 < least <= n_numbers, "state", "is smaller than its network")
    dropout = f.number("dropout") if "dropout" in f else 0.0
    f.require(0 <= dropout < 1, "dropout", "is out of range")
    network = LeNet(shape, sizes[-1], filters, dropout).to(next(iter(state.values())).dtype)
    try:
        network.load_state_dict(state)
    except RuntimeError as error:
        f.complain("state", f"does not fit ({quoted(error)})")
    return network


def _lenet_fields(network: LeNet) -> dict[str, Any]:
    return {
        **attributes("image_shape", "n_codes", "n_filters")(network),
        "dropout": network.dropout.p,
        "state": dict(network.state_dict()),
    }


def _coder(f: Fields) -> ImageCoder:
    location, scale = f.tensor("location", "d"), f.positive("scale", "d")
    encoder, shape = f.item("encoder", LeNet), f.item("shape", tuple)
    f.require(shape == encoder.image_shape, "shape", "is not the encoder's")
    return ImageCoder(encoder, location.float(), scale.float(), shape)


def _coder_fields(coder: ImageCoder) -> dict[str, Any]:
    units = {"location": coder.location.double(), "scale": coder.scale.double()}
    return {**units, "encoder": coder.encoder, "shape": coder.shape}


def _born(f: Fields) -> ClassBorn:
    features, measure = f.item("features", FourierFeatures), f.item("measure", GaussianMeasure)
    f.require(n_columns(measure) == features.n_dims, "measure", "has other columns")
    factor = f.tensor("factor", "C", "r", features.n_features)
    born = ClassBorn(features, factor, measure, f.number("epsilon", 0, 1))
    born.factor = nn.Parameter(factor, requires_grad=False)  # to the last digit
    return born


def _density(f: Fields) -> ClassDensity:
    coder, born = f.item("coder", (Projection, ImageCoder)), f.item("born", ClassBorn)
    q = coder.n_components if isinstance(coder, Projection) else coder.encoder.n_codes
    f.require(q == born.features.n_dims, "coder", "has other coordinates than the densities")
    return ClassDensity(coder, born)


def _sums(f: Fields) -> ClassSums:
    weight = f.tensor("weight", "C")
    f.require((weight >= 0).all() and weight.sum() > 0, "weight", "must not be negative")
    return ClassSums(f.tensor("rho", "C", "D", "D"), f.tensor("psi", "C", "D"), weight)


def count_columns(coder: Projection | ImageCoder) -> int:
    """Number of columns of the rows that a coder takes."""
    if isinstance(coder, Projection):
        return len(coder.location)
    assert coder.shape is not None
    return int(torch.Size(coder.shape).numel())


RECIPES: Mapping[str, Recipe] = {
    "Projection": Recipe(
        Projection, attributes("location", "scale", "axes", "noise"), _projection
    ),
    "LeNet": Recipe(LeNet, _lenet_fields, _lenet),
    "ImageCoder": Recipe(ImageCoder, _coder_fields, _coder),
    "ClassBorn": Recipe(ClassBorn, attributes("features", "factor", "measure", "epsilon"), _born),
    "ClassDensity": Recipe(ClassDensity, attributes("coder", "born"), _density),
    "ClassSums": Recipe(ClassSums, attributes("rho", "psi", "weight"), _sums),
}
"""Parts of classifiers that a file may hold."""

"""Recipes of what is no module: histories, random states, encoders of torch."""

from collections.abc import Mapping
from dataclasses import fields as dataclass_fields
from typing import Any

import numpy as np
import torch
from numpy.random import RandomState
from torch import Tensor
from torch.distributions import Transform, transforms

from qaffde.files.fields import Fields
from qaffde.files.values import Recipe, attributes, without_fields
from qaffde.nn import PolynomialShear
from qaffde.training import History
from qaffde.training.shear import MAX_DEGREE

N_KEYS = 624
"""Words of state of a Mersenne twister."""
MAX_CHAIN = 256


def _history(f: Fields) -> History:
    return History(
        f.items("steps", int),
        f.items("train_loss", float | int),
        f.items("valid_loss", float | int),
        f.items("learning_rate", float | int),
        f.items("seconds", float | int),
        n_recoveries=f.item("n_recoveries", int),
        stopped_by=f.item("stopped_by", str),
    )


def _random_state(f: Fields) -> RandomState:
    keys = f.item("keys", np.ndarray)
    f.require((keys.shape, keys.dtype) == ((N_KEYS,), np.uint32), "keys", "have the wrong shape")
    position = f.item("position", int)
    f.require(0 <= position <= N_KEYS, "position", "is out of range")
    state = RandomState()
    has_gauss = int(f.item("has_gauss", bool))
    state.set_state(("MT19937", keys, position, has_gauss, f.number("gauss")))
    return state


def _state_of(random_state: RandomState) -> dict[str, Any]:
    state = random_state.get_state(legacy=False)
    inner = state["state"]
    return {
        "keys": inner["key"],
        "position": inner["pos"],
        "has_gauss": bool(state["has_gauss"]),
        "gauss": state["gauss"],
    }


def _affine(f: Fields) -> Transform:
    event_dim = f.item("event_dim", int)
    f.require(0 <= event_dim <= 1, "event_dim", "is out of range")
    loc, scale = _shift(f, "loc"), _shift(f, "scale")
    return transforms.AffineTransform(loc, scale, event_dim=event_dim)


def _shift(f: Fields, name: str) -> Tensor | float:
    """A number, or finite ones for each column."""
    value = f.get(name)
    if not isinstance(value, Tensor):
        return f.number(name)
    f.require(value.is_floating_point() and value.ndim <= 1, name, "is no vector")
    f.require(value.isfinite().all(), name, "is not finite")
    return value


def _composed(f: Fields) -> Transform:
    parts = f.items("parts", Transform)
    nested = any(isinstance(part, transforms.ComposeTransform) for part in parts)
    f.require(0 < len(parts) <= MAX_CHAIN and not nested, "parts", "are none, too many or nested")
    return transforms.ComposeTransform(parts)


def _shear(f: Fields) -> Transform:
    location, scale = f.tensor("location", "d"), f.positive("scale", "d")
    d = len(scale)
    order, powers = f.whole("order", "d"), f.whole("powers", "M", "d")
    f.require(order.sort()[0].equal(torch.arange(d)), "order", "is no order of the columns")
    f.require(0 <= powers.min() and powers.sum(1).max() <= MAX_DEGREE, "powers", "are wrong")
    coefficients = f.tensor("coefficients", "d", "M")
    place = order.argsort()  # of a column in the order
    latest = torch.where(powers > 0, place, -1).amax(1)  # of a monomial's columns
    later = (latest[None] >= place[:, None]) & (coefficients != 0)
    f.require(not later.any(), "coefficients", "are of columns that come later")
    return PolynomialShear(order, powers, coefficients, location, scale)


RECIPES: Mapping[str, Recipe] = {
    "PolynomialShear": Recipe(
        PolynomialShear,
        attributes("order", "powers", "coefficients", "location", "scale"),
        _shear,
    ),
    "History": Recipe(
        History, attributes(*(field.name for field in dataclass_fields(History))), _history
    ),
    "RandomState": Recipe(RandomState, _state_of, _random_state),
    "AffineTransform": Recipe(
        transforms.AffineTransform,
        lambda t: {"loc": t.loc, "scale": t.scale, "event_dim": t.event_dim},
        _affine,
    ),
    "ExpTransform": without_fields(transforms.ExpTransform),
    "SigmoidTransform": without_fields(transforms.SigmoidTransform),
    "TanhTransform": without_fields(transforms.TanhTransform),
    "ComposeTransform": Recipe(transforms.ComposeTransform, attributes("parts"), _composed),
    "InverseTransform": Recipe(
        type(transforms.ExpTransform().inv),
        lambda t: {"transform": t.inv},
        lambda f: f.item("transform", Transform).inv,
    ),
}
"""Objects that a file may hold."""

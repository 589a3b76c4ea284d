"""Trained networks: built by the estimator's own parameters, then filled from the file."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from qaffde.baselines.base import FlowDensity, TrainedEstimator
from qaffde.files.fields import Fields
from qaffde.files.format import quoted
from qaffde.nn import StandardizedDensity
from qaffde.selection.plan import in_data_units
from qaffde.training.noise import seeded

SLACK = 16
"""How many times more numbers than a file holds its network may seem to have."""
FREE = 1 << 22
"""Entries of masks that are no reason to look at the file's size."""


def network_state(density: StandardizedDensity) -> dict[str, Any]:
    """Fields of a trained network in front of which columns are standardised."""
    return {
        "location": density.location,
        "scale": density.scale,
        "state": dict(density.density.state_dict()),
    }


def rebuild(model: TrainedEstimator, f: Fields, d: int) -> StandardizedDensity:
    """The density of a trained estimator of d columns."""
    units = f.tensor("location", d), f.positive("scale", d)
    state = _state(f)
    _check_size(model, f, d, sum(tensor.numel() for tensor in state.values()))
    return in_data_units(_filled(lambda: model._build(d).double(), f, state), *units)


def _state(f: Fields) -> dict[str, Tensor]:
    state: dict[str, Tensor] = f.item("state", dict)
    f.require(all(isinstance(v, Tensor) for v in state.values()), "state", "holds no tensors")
    f.require(all(v.isfinite().all() for v in state.values()), "state", "is not finite")
    return state


def _filled(build: Callable[[], FlowDensity], f: Fields, state: dict[str, Tensor]) -> FlowDensity:
    """A network with what the file holds of it."""
    try:
        with seeded(torch.Generator()):
            network = build()
        masks = {k: v for k, v in network.state_dict().items() if not v.is_floating_point()}
        same = all(torch.equal(mask, state.get(name, mask)) for name, mask in masks.items())
        network.load_state_dict(state)
    except (ValueError, TypeError, RuntimeError) as error:
        f.complain("state", f"does not fit its parameters ({quoted(error)})")
    f.require(same, "state", "has other masks than its parameters")
    return network.eval().requires_grad_(False)


def _check_size(model: TrainedEstimator, f: Fields, d: int, n_numbers: int) -> None:
    """Refuse parameters of networks that are far larger than the file, before they are built.

    Of what a network is made of, the least is counted: its hidden layers and its outer ones; and
    of what making it costs, the masks of autoregressive ones.
    """
    layers, hidden, n_hidden = (
        _size(model, name) for name in ("n_layers", "hidden_size", "n_hidden")
    )
    width = max(_size(model, "n_components"), _size(model, "n_bins"))
    outer = max(1, hidden * (d + 1) * width // SLACK)
    least = layers * ((n_hidden - 1) * hidden**2 + outer)
    masks = layers * d * width * d
    fits = least <= n_numbers and masks <= FREE + 64 * n_numbers
    f.require(fits, "parameters", f"ask for a network that has more than {n_numbers} numbers")


def _size(model: Any, name: str) -> int:
    """A parameter that a network grows with; 1 where there is none."""
    value = getattr(model, name, None)
    return value if isinstance(value, int) and value >= 1 else 1

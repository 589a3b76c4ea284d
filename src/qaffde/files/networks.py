"""Trained networks: built by the estimator's own parameters, then filled from the file."""

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from qaffde.baselines.base import FlowDensity, TrainedEstimator
from qaffde.baselines.conditional import GivenContext, class_flow
from qaffde.baselines.image_roundtrip import ImageDensity, ImageRoundTrip
from qaffde.baselines.images import ImageFlowClassifier
from qaffde.baselines.pixels import PixelDensity
from qaffde.baselines.roundtrip import image_shape
from qaffde.baselines.roundtrip_density import RoundTripDensity
from qaffde.files.fields import Fields
from qaffde.files.format import quoted
from qaffde.nn import StandardizedDensity
from qaffde.selection.plan import in_data_units
from qaffde.training.noise import seeded

Network = TypeVar("Network", bound=nn.Module)
SLACK = 16
"""How many times more numbers than a file holds its network may seem to have."""
FREE = 1 << 22
"""Entries of masks that are no reason to look at the file's size."""
TOO_LARGE = "ask for a network that has more than {} numbers"


def network_state(density: StandardizedDensity) -> dict[str, Any]:
    """Fields of a trained network in front of which columns are standardised."""
    inner = density.density
    flow = inner.density if isinstance(inner, GivenContext) else inner
    return {
        "location": density.location,
        "scale": density.scale,
        "state": dict(flow.state_dict()),
    }


def rebuild(model: TrainedEstimator, f: Fields, d: int) -> StandardizedDensity:
    """The density of a trained estimator of d columns."""
    units = _units(f, d)
    return in_data_units(_network(model, f, d), *units)


def rebuild_classes(
    flow: TrainedEstimator, f: Fields, d: int, n_classes: int
) -> list[StandardizedDensity]:
    """The densities of classes that share one network of d columns."""
    units = _units(f, d)
    network = _network(flow, f, d, n_classes)
    one_hot = torch.eye(n_classes, dtype=torch.float64)
    return [in_data_units(GivenContext(network, given), *units) for given in one_hot]


def pixel_state(density: PixelDensity) -> dict[str, Any]:
    """Fields of a flow of images."""
    return {
        "location": density.location.double(),
        "scale": density.scale.double(),
        "noise": density.noise.double(),
        "state": dict(density.flow.state_dict()),
    }


def rebuild_pixels(
    model: ImageFlowClassifier, flow: TrainedEstimator, f: Fields, d: int, n_classes: int
) -> PixelDensity:
    """The density of images of d pixels given classes, by one flow or one for each."""
    location, scale = f.tensor("location", n_classes, d), f.positive("scale", n_classes, d)
    noise = f.tensor("noise", "draws", d)
    network = _network(flow, f, d, n_classes, shared=model.shared).float()
    generator = torch.Generator()
    density = PixelDensity(network, location.float(), scale.float(), model.alpha, 1, generator)
    density.noise = noise.float()
    return density.eval().requires_grad_(False)


def painted_state(density: ImageDensity) -> dict[str, Any]:
    """Fields of a generator of images."""
    return {
        "location": float(density.location),
        "scale": float(density.scale),
        "state": dict(density.density.state_dict()),
    }


def rebuild_painted(model: ImageRoundTrip, f: Fields, d: int, n_classes: int) -> ImageDensity:
    """The density of images of d pixels given classes, by a generator."""
    location, scale = f.number("location"), f.number("scale", 0)
    state = _state(f)
    width, n_latent = _size(model, "n_channels"), _size(model, "n_latent")
    hidden = width if model.hidden_size is None else _size(model, "hidden_size")
    least = max(width**2, hidden * max(width, n_latent * n_classes))
    f.require(least <= _count(state), "parameters", TOO_LARGE.format(_count(state)))

    def build() -> RoundTripDensity:
        model._settings()._check_parameters()
        return model._networks(image_shape(model.image_shape, d), n_classes).float()

    network = _filled(build, f, state)
    units = torch.tensor(location), torch.tensor(scale)
    return ImageDensity(network, *units, n_classes).eval().requires_grad_(False)


def _units(f: Fields, d: int) -> tuple[Tensor, Tensor]:
    return f.tensor("location", d), f.positive("scale", d)


def _network(
    model: TrainedEstimator, f: Fields, d: int, n_classes: int = 0, *, shared: bool = True
) -> FlowDensity:
    state = _state(f)
    n_context, n_flows = (n_classes, 1) if shared else (0, n_classes)
    _check_size(model, f, d, n_context, n_flows, _count(state))
    return _filled(lambda: class_flow(model, d, n_classes, shared=shared).double(), f, state)


def _state(f: Fields) -> dict[str, Tensor]:
    state: dict[str, Tensor] = f.item("state", dict)
    f.require(all(isinstance(v, Tensor) for v in state.values()), "state", "holds no tensors")
    f.require(all(v.isfinite().all() for v in state.values()), "state", "is not finite")
    return state


def _count(state: dict[str, Tensor]) -> int:
    return sum(tensor.numel() for tensor in state.values())


def _filled(build: Callable[[], Network], f: Fields, state: dict[str, Tensor]) -> Network:
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


def _check_size(
    model: TrainedEstimator, f: Fields, d: int, n_context: int, n_flows: int, n_numbers: int
) -> None:
    """Refuse parameters of networks that are far larger than the file, before they are built.

    Of what a network is made of, the least is counted: its hidden layers, its outer ones, and the
    draws of importance sampling; and of what making it costs, the masks of autoregressive ones.
    """
    layers, hidden, n_hidden, n_latent = (
        _size(model, name) for name in ("n_layers", "hidden_size", "n_hidden", "n_latent")
    )
    width = max(_size(model, "n_components"), _size(model, "n_bins"))
    outer = max(1, hidden * (d + n_latent) * width // SLACK)
    least = layers * ((n_hidden - 1) * hidden**2 + outer)
    is_drawn = getattr(model, "integration", "") == "importance"
    draws = _size(model, "n_draws") * n_latent if is_drawn else 0
    masks = max(layers * d * width * (d + n_context), n_context**2)
    fits = n_flows * max(least, draws) <= n_numbers
    fits = fits and n_flows * masks <= FREE + 64 * n_numbers
    f.require(fits, "parameters", TOO_LARGE.format(n_numbers))


def _size(model: Any, name: str) -> int:
    """A parameter that a network grows with; 1 where there is none."""
    value = getattr(model, name, None)
    return value if isinstance(value, int) and value >= 1 else 1

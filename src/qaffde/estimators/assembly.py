"""Parts that every fitted density is put together from."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Generator, Tensor

from qaffde.estimators.data_measure import MeasureSpec, measure_ends
from qaffde.nn import (
    BaseMeasure,
    DefensiveDensity,
    Density,
    FourierFeatures,
    StandardizedDensity,
)

BASE_MEASURES = ("auto", "box", "gaussian", "mixture", "kernel")
BACKGROUND_SPREAD = 2.0
FEW_ROWS = 10
"""Below this there is nothing to hold out."""
MAX_BOX_DIMS = 3
MANY_PARTS = 128
LATTICE_MARGIN = 3.0
"""Bandwidths between the data and their next image; G^{−1/2} sees to what is left of the wrap."""
START: dict[str, Callable[[int], str]] = {
    "auto": lambda d: "lattice" if d <= 2 else "sobol" if d <= 6 else "orthogonal",
    "adaptive": lambda d: "sobol" if d <= 6 else "orthogonal",
}
"""Kind of frequencies by the number of columns."""


def frequency_kind(features: str, d: int) -> str:
    """Kind of frequencies to draw for the parameter `features` and d columns."""
    return START[features](d) if features in START else features


def default_size(n: int | None, d: int, n_parts: int = 1) -> int:
    """Number of features for n rows, or for however many are to come, of d columns.

    Where the base measure has many parts, which each cost a Gram matrix, there are fewer.
    """
    most = 256 if d == 1 else 1000 if n_parts <= MANY_PARTS else 350
    return most if n is None else min(most, max(64, n // 4))


def draw_features(
    features: str,
    n_features: int,
    bandwidth: Tensor,
    measure: BaseMeasure,
    Z: Tensor,
    generator: Generator,
) -> FourierFeatures:
    """Draw frequencies of a bandwidth of shape (d,) that tell all of the measure apart."""
    lower, upper = measure_ends(measure, Z)
    period = upper - lower + LATTICE_MARGIN * bandwidth
    kind = frequency_kind(features, Z.shape[1])
    return FourierFeatures.draw(kind, n_features, bandwidth, period, generator)


def constant_feature(d: int) -> FourierFeatures:
    """The one feature of d columns that leaves a base measure as it is."""
    zero, one = torch.zeros(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64)
    return FourierFeatures(zero.expand(1, d).clone(), zero, one)


def candidate_measures(
    base_measure: str, n_base_components: int | str, box: MeasureSpec, n: int, d: int
) -> list[MeasureSpec]:
    """Base measures to compare, the plainest first; size 0 is a size still to be chosen.

    A mixture of one component is the Gaussian. A box is no candidate in many dimensions, where it
    is nearly all empty.

    Parameters
    ----------
    base_measure, n_base_components : parameters of the estimator
    box : MeasureSpec
        Of the box, with its bounds.
    n, d : int
        Different rows, and columns.
    """
    chosen = 1 if n < FEW_ROWS else 0
    size = chosen if n_base_components == "auto" else int(n_base_components)
    mixture = MeasureSpec("mixture", size)
    if base_measure != "auto":
        named = {"box": box, "mixture": mixture}
        return [named.get(base_measure, MeasureSpec(base_measure))]
    if box.bounds is not None:
        return [box]
    if n < FEW_ROWS:
        return [MeasureSpec("gaussian")]
    return [box, mixture] if d <= MAX_BOX_DIMS else [mixture]


def check_bounds_belong(bounds: Any, base_measure: str) -> None:
    """Reject bounds for a measure that has none."""
    if bounds is not None and base_measure not in ("auto", "box"):
        raise ValueError(
            f"bounds belong to the box, but base_measure={base_measure!r}; "
            'leave bounds out or set base_measure="box"'
        )


def background_weight(background: float | str, n: float) -> float:
    """Weight of the background, 1/(n + 1) if "auto"."""
    return 1 / (n + 1) if background == "auto" else float(background)


def defended(born: Density, epsilon: float, d: int) -> DefensiveDensity:
    """Add a broad Gaussian of weight epsilon to a density of standardised rows."""
    mean = torch.zeros(d, dtype=torch.float64)
    spread = BACKGROUND_SPREAD**2 * torch.eye(d, dtype=torch.float64)
    return DefensiveDensity(born, epsilon, mean, spread)


def in_data_units(density: Density, location: Tensor, scale: Tensor) -> StandardizedDensity:
    """The density of rows in their own units, frozen."""
    return StandardizedDensity(density, location, scale).requires_grad_(False).eval()

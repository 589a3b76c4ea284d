"""The encoder in front of a density: checks, copies and codes of rows."""

from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributions import Transform

from qaffde.nn import Density, Encoder, TransformedDensity, encode

SHEAR = "shear"
"""Name of the encoder that is found by least squares, see :func:`qaffde.training.fit_shear`."""


def check_encoder(encoder: Any) -> None:
    """Reject what is neither the name of one, a transform nor a module that returns one."""
    named = isinstance(encoder, str) and encoder == SHEAR
    if not (encoder is None or named or isinstance(encoder, Transform | nn.Module)):
        raise ValueError(
            f'encoder={encoder!r} must be "{SHEAR}", a torch.distributions.Transform, or a torch '
            "module that returns one when it is called without arguments (as zuko's lazy "
            "transforms do)"
        )


def own_encoder(encoder: Encoder | None) -> Encoder | None:
    """A copy that a fit may train, in float64; transforms without parameters stay as they are."""
    return deepcopy(encoder).double() if isinstance(encoder, nn.Module) else encoder


def has_parameters(encoder: Encoder | None) -> bool:
    """Whether the encoder has anything to learn."""
    return isinstance(encoder, nn.Module) and any(p.requires_grad for p in encoder.parameters())


@torch.no_grad()
def encode_rows(encoder: Encoder, rows: Tensor) -> Tensor:
    """Codes of shape (n, d) of rows of the same shape.

    Raises
    ------
    ValueError
        If they have another shape or are not finite.
    """
    codes, log_det = encode(encoder, rows)
    if codes.shape != rows.shape:
        raise ValueError(
            f"encoder turns rows of shape {tuple(rows.shape)} into {tuple(codes.shape)}; it must "
            "be invertible, so the shape stays"
        )
    finite = codes.isfinite().all(1) & log_det.isfinite()
    if not finite.all():
        row = int((~finite).nonzero()[0, 0])
        raise ValueError(
            f"encoder gives no finite code, or log-determinant, for {int((~finite).sum())} rows, "
            f"the first is row {row}: {rows[row].tolist()}; they must lie in its domain"
        )
    return codes


def behind(encoder: Encoder, density: Density) -> TransformedDensity:
    """The density of rows whose codes have the given one, frozen."""
    return TransformedDensity(density, encoder).requires_grad_(False).eval()

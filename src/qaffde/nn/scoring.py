"""Scoring: the log-density of a fitted density with all that is constant computed once.

Asking modules for their tensors takes longer than the arithmetic of one row, so the formula of
``log_prob`` is kept with its tensors: as arrays of NumPy for a few rows, and in the precision and
on the device of blocks of rows.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from qaffde.nn.base import Density
from qaffde.nn.density import find_born

FEW_ROWS = 4
"""Rows up to which a call costs more than its arithmetic."""


class Score:
    """Compiled log-density of a Born density in its wrappers; `width` numbers for a row at once.

    Features of blocks of points are in `dtype`; their units and a few points are in float64.

    Examples
    --------
    >>> from qaffde.nn import BornDensity, BoxMeasure, FourierFeatures, StandardizedDensity
    >>> one = torch.ones(1, dtype=torch.float64)
    >>> born = BornDensity(
    ...     FourierFeatures.draw("paired", 8, one), torch.eye(8).double(), BoxMeasure(-one, one)
    ... )
    >>> density = StandardizedDensity(born, 0 * one, 2 * one)
    >>> Score(density)(torch.zeros(1, 1).double()).exp()
    tensor([0.2500], dtype=torch.float64)
    """

    @torch.no_grad()
    def __init__(
        self,
        density: Density,
        dtype: torch.dtype = torch.float64,
        device: torch.device | str = "cpu",
    ) -> None:
        self.width = find_born(density).width(dtype)
        self._few = density.formula(torch.float64).converted(lambda tensor: tensor.cpu().numpy())
        self._blocks = density.formula(dtype).converted(lambda tensor: tensor.to(device))
        self._dtype = dtype

    @torch.no_grad()
    def __call__(self, x: Tensor) -> Tensor:
        """Log-density of shape (n,) at points of shape (n, d) in float64, on the device."""
        return self._blocks(x).to(self._dtype)

    def of_few(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """Log-density of shape (n,) at a few points of shape (n, d), in float64 on the CPU."""
        with np.errstate(divide="ignore", over="ignore"):
            return self._few(x)


def compiled_score(
    density: Density, dtype: torch.dtype = torch.float64, device: torch.device | str = "cpu"
) -> Score | None:
    """The compiled log-density of a fitted density, or None if it is no closed formula."""

    def compiled() -> Score | None:
        return Score(density, dtype, device) if density.formula().is_closed else None

    return density.derived((dtype, str(device)), compiled)

"""Diagnostics of the density matrix."""

import math

from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from qaffde import functional as QF
from qaffde.nn import Density, find_born


class SpectrumMixin:
    """Purity, entropy and effective rank of σ, the density matrix in orthonormal features."""

    density_: Density

    def purity(self) -> float:
        """Purity tr σ²: one where a single state is enough, 1/r for r equal states."""
        return float(QF.purity(self._spectrum()))

    def von_neumann_entropy(self) -> float:
        """Von Neumann entropy −tr σ log σ, in nats (not the entropy of the density)."""
        return float(QF.von_neumann_entropy(self._spectrum()))

    def effective_rank(self) -> float:
        """Exponential of the von Neumann entropy: how many states the data fill."""
        return math.exp(self.von_neumann_entropy())

    def _spectrum(self) -> Tensor:
        check_is_fitted(self)
        return find_born(self.density_).spectrum()

r"""Trigonometric polynomials of a point: frequencies, phases, and the coefficients of q."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from qaffde.nn.coefficients import (
    Coefficients,
    IntegratedCoefficients,
    SquaredCoefficients,
    merged_frequencies,
)
from qaffde.nn.laws import Law

BLOCK = 2048
"""Rows whose waves are computed at once."""


@dataclass(frozen=True)
class TrigonometricForm:
    """The polynomial q(Wu + b).

    Parameters
    ----------
    W, b : Tensors of shapes (H, d), (H,)
        Frequencies and phases.
    coefficients : Coefficients
        q; shared by all forms that differ in their frequencies and phases alone.
    """

    W: Tensor
    b: Tensor
    coefficients: Coefficients

    @classmethod
    def squared(cls, W: Tensor, b: Tensor, factor: Tensor) -> "TrigonometricForm":
        """The form ‖L cos(Wu + b)‖² of a factor L of shape (r, D)."""
        W, b, F = merged_frequencies(W, b, factor)
        return cls(W, b, SquaredCoefficients(F))

    def __call__(self, u: Tensor) -> Tensor:
        """Values (n,) of the form at u of shape (n, d)."""
        return torch.cat([self.coefficients(self.phases(v)) for v in u.split(BLOCK)])

    def phases(self, u: Tensor) -> Tensor:
        """Phases (n, H) where the first columns are `u` of shape (n, t), the others zero."""
        return torch.addmm(self.b, u, self.W[:, : u.shape[1]].T)

    def rotated(self, Q: Tensor) -> "TrigonometricForm":
        """The form of v, where u = Qv."""
        return replace(self, W=self.W @ Q)

    def fixed(self, u: Tensor) -> "TrigonometricForm":
        """The form of the other columns where the first len(u) are `u`."""
        return replace(self, W=self.W[:, len(u) :], b=self.phases(u[None])[0])

    def integrated(self, n_keep: int, law: Law) -> "TrigonometricForm":
        """The form of the first `n_keep` columns; the law integrates the others out."""
        if n_keep == self.W.shape[1]:
            return self
        integrated = IntegratedCoefficients(self.coefficients, law, self.W[:, n_keep:])
        return TrigonometricForm(self.W[:, :n_keep], self.b, integrated)

"""What rows leave behind in a frame, and the arithmetic of it."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from qaffde.estimators.compute import DOUBLE, Compute
from qaffde.estimators.frame import Frame
from qaffde.estimators.totals import effective_count, joint_count
from qaffde.training.closed_form import density_matrix, row_batches

Part = tuple[Tensor, Tensor, Sequence[int]]
"""Rows of shape (n, d), weights of shape (n,) and which rows these are."""
ROUNDING = 1e-10
"""Share of the whole below which what is left of a difference is rounding."""


@dataclass(frozen=True, eq=False)
class Sums:
    r"""What weighted rows leave behind in a frame.

    Sums of squared weights are kept as Kish's count :math:`n = (\sum w)^2 / \sum w^2`, which does
    not overflow.

    Parameters
    ----------
    rho : Tensor of shape (D, D)
        Σ w φφᵀ.
    weight : float
        Σ w.
    count : float
        Effective number of rows.
    """

    rho: Tensor
    weight: float
    count: float

    @classmethod
    def of(cls, frame: Frame, rows: Tensor, weight: Tensor, compute: Compute = DOUBLE) -> "Sums":
        """Sums over rows of shape (n, d) with weights of shape (n,)."""
        return cls.over(frame, [(rows, weight, range(len(rows)))], compute)

    @classmethod
    def over(cls, frame: Frame, parts: Iterable[Part], compute: Compute = DOUBLE) -> "Sums":
        """Sums over rows that come in parts, at least one, each of which is then gone."""
        masses: list[tuple[float, float]] = []

        def batches() -> Iterator[tuple[Tensor, Tensor]]:
            for rows, weight, number in parts:
                masses.append((float(weight.sum()), effective_count(weight)))
                Z = frame.standardize(rows, number)
                for z, w in row_batches(Z, weight, batch_size):
                    yield compute.tensor(z), compute.tensor(w)

        batch_size = compute.rows(frame.features.n_features)
        rho = density_matrix(compute.features(frame.features), batches()).cpu()
        return cls(rho, sum(weight for weight, _ in masses), joint_count(*masses))

    def __add__(self, other: "Sums") -> "Sums":
        count = joint_count((self.weight, self.count), (other.weight, other.count))
        return Sums(self.rho + other.rho, self.weight + other.weight, count)

    def __sub__(self, other: "Sums") -> "Sums":
        weight = self.weight - other.weight
        if weight <= ROUNDING * self.weight:
            raise ValueError(
                f"rows of weight {other.weight:g} cannot be forgotten: the fit holds "
                f"{self.weight:g}, and something must be left; fit anew instead"
            )
        share = self._square_share(weight) - other._square_share(weight)
        if not 0 < share <= 1 + ROUNDING * self._square_share(weight):
            raise ValueError(f"{NOT_FITTED}: their weights do not fit those that were added")
        return Sums(_difference(self.rho, other.rho), weight, 1 / min(share, 1.0))

    def __mul__(self, factor: float) -> "Sums":
        return Sums(factor * self.rho, factor * self.weight, self.count)

    def _square_share(self, total: float) -> float:
        """Sum of squares of the weights, in units of `total`²."""
        return (self.weight / total) ** 2 / self.count


NOT_FITTED = "rows to forget were not all in the fit, or not with this weight"


def _difference(whole: Tensor, part: Tensor) -> Tensor:
    """Difference of density matrices, which must not be negative by more than rounding.

    A Cholesky factor tells at a tenth of the cost of eigenvalues. Negative ones within rounding
    stay in the sum, where rows that return meet them again; every reading clips them.
    """
    rest = whole - part
    slack = ROUNDING * whole.trace() * torch.eye(len(rest), dtype=rest.dtype)
    if torch.linalg.cholesky_ex(rest + slack).info > 0:
        least = float(torch.linalg.eigvalsh(rest)[0])
        raise ValueError(
            f"{NOT_FITTED}: without them the density matrix has the eigenvalue {least:.2g}"
        )
    return rest

"""Ends and moments of weighted rows, which add up over rows as ρ does."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor


def effective_count(weight: Tensor) -> float:
    """Kish's effective sample size (Σw)²/Σw², whatever the unit of the weights."""
    share = weight / weight.max()
    return float(share.sum() ** 2 / share.square().sum())


def joint_count(*parts: tuple[float, float]) -> float:
    """Effective size of several samples together, from their weights and effective sizes.

    Examples
    --------
    >>> joint_count((2.0, 2.0), (3.0, 3.0))  # five rows of equal weight
    5.0
    """
    if len(parts) == 1:
        return parts[0][1]
    total = sum(weight for weight, _ in parts)
    return 1 / sum((weight / total) ** 2 / count for weight, count in parts)


@dataclass(frozen=True, eq=False)
class Totals:
    """What all rows of a fit say before any of them is a feature.

    Parameters
    ----------
    n : int
        Number of rows.
    weight, count : float
        Sum of their weights, and effective number.
    ends : Tensor of shape (2, d)
        Least and largest value of each column.
    mean, covariance : Tensors of shapes (d,), (d, d)

    Examples
    --------
    >>> X = torch.tensor([[1.0], [2.0], [6.0]])
    >>> one, two = Totals.of(X[:1], torch.ones(1)), Totals.of(X[1:], torch.ones(2))
    >>> both = one + two
    >>> both.n, both.mean.item(), both.ends.tolist()
    (3, 3.0, [[1.0], [6.0]])
    """

    n: int
    weight: float
    count: float
    ends: Tensor
    mean: Tensor
    covariance: Tensor

    @classmethod
    def of(cls, rows: Tensor, weight: Tensor) -> "Totals":
        """Totals of rows of shape (n, d) with positive weights of shape (n,)."""
        total = weight.sum()
        share = weight / total
        mean = share @ rows
        centred = rows - mean
        return cls(
            len(rows),
            float(total),
            effective_count(weight),
            torch.stack([rows.amin(0), rows.amax(0)]),
            mean,
            centred.T @ (centred * share[:, None]),
        )

    def __add__(self, other: "Totals") -> "Totals":
        weight = self.weight + other.weight
        share, step = other.weight / weight, other.mean - self.mean
        between = share * (1 - share) * step[:, None] * step
        return Totals(
            self.n + other.n,
            weight,
            joint_count((self.weight, self.count), (other.weight, other.count)),
            torch.stack(
                [
                    torch.minimum(self.ends[0], other.ends[0]),
                    torch.maximum(self.ends[1], other.ends[1]),
                ]
            ),
            self.mean + share * step,
            torch.lerp(self.covariance, other.covariance, share) + between,
        )

    def scaled(self, share: float) -> "Totals":
        """About the totals of a share of the rows, picked at random."""
        return replace(
            self,
            n=round(share * self.n),
            weight=share * self.weight,
            count=share * self.count,
        )

    def standardized(self, location: Tensor, scale: Tensor) -> "Totals":
        """Totals of the rows in the units z = (x − location) / scale."""
        return replace(
            self,
            ends=(self.ends - location) / scale,
            mean=(self.mean - location) / scale,
            covariance=self.covariance / scale / scale[:, None],
        )

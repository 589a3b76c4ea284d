r"""Two samples by the means of their features: permutation tests at the cost of matrix products.

The distance of two mean feature vectors, :math:`T = \lVert \bar\psi_1 - \bar\psi_2 \rVert^2`, is a
maximum mean discrepancy (Gretton et al., "A kernel two-sample test", 2012) with a kernel of
finitely many features. It needs sums over rows only. So does its distribution under permutations,
if whole groups of b rows change places: a permutation is then a row of signs, and all of them
together are one product with the sums of the groups.
"""

import torch
from torch import Generator, Tensor

ROUNDING = 1e-6
"""Difference of means, as a share of the mean, that is none."""


def random_labels(n_first: int, n_second: int, n: int, generator: Generator) -> Tensor:
    """Which groups belong to the second sample, (n + 1, n_first + n_second).

    They do so in truth in the first row, and by chance in the others.
    """
    order = torch.rand(n, n_first + n_second, generator=generator).argsort(1)
    truth = torch.arange(n_first + n_second)[None] >= n_first
    return torch.cat([truth, order >= n_first])


def squared_distances(sums: Tensor, counts: Tensor, labels: Tensor, blocks: Tensor) -> Tensor:
    """Statistics T (P, B) of each block of features, for labels (P, G) of groups.

    Parameters
    ----------
    sums, counts : Tensors of shapes (G, F), (G,)
        Of the features and rows of each group.
    labels : Tensor of shape (P, G)
    blocks : Tensor of shape (F,)
        Number of the block that each feature belongs to.

    Examples
    --------
    >>> sums, labels = torch.tensor([[2.0], [6.0]]), torch.tensor([[False, True]])
    >>> squared_distances(sums, torch.tensor([1.0, 2.0]), labels, torch.tensor([0]))
    tensor([[1.]])
    """
    chosen = labels.to(sums)
    second, n_second = chosen @ sums, (chosen @ counts)[:, None]
    first, n_first = sums.sum(0) - second, counts.sum() - n_second
    difference = second / n_second - first / n_first
    rounding = ROUNDING * sums.sum(0).abs() / counts.sum()
    squares = torch.where(difference.abs() > rounding, difference, 0).square()
    found = squares.new_zeros(len(labels), int(blocks.max()) + 1)
    return found.index_add_(1, blocks, squares)


def standardized(T: Tensor, root: int = 3) -> Tensor:
    """Roots of statistics (P, B), with mean zero and variance one over all rows.

    A sum of squares of normal numbers is nearly normal after the third root (Wilson and Hilferty,
    1931). Since the true row counts as any other, permutations stay exact.
    """
    roots = T if root == 1 else T.clamp(min=0).pow(1 / root)
    deviation = roots.std(0)
    return (roots - roots.mean(0)) / torch.where(deviation > 0, deviation, 1)


def share_above(values: Tensor) -> float:
    """Permutation p-value: the share of values (P,) that are not below the first."""
    tiny = 1e-9 * float(values.abs().max())
    return float((values >= values[0] - tiny).double().mean())


def step_down(z: Tensor) -> Tensor:
    """P-values (B,) of statistics (P, B), the first row true, corrected for their number.

    Holm's procedure with the joint distribution of the statistics in place of a bound (Westfall
    and Young, 1993): the probability of any false rejection is below the level.

    Examples
    --------
    >>> step_down(torch.tensor([[3.0, 0.0], [1.0, 1.0], [0.0, 0.5], [0.5, 2.0]]))
    tensor([0.2500, 1.0000], dtype=torch.float64)
    """
    order = z[0].argsort(descending=True)
    most = z[:, order].flip(1).cummax(1).values.flip(1)  # of those that are no larger
    found = torch.tensor([share_above(column) for column in most.T], dtype=torch.float64)
    return torch.empty_like(found).scatter_(0, order, found.cummax(0).values)

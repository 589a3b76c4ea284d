"""Rules of thumb for the bandwidth."""

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial.distance import pdist
from torch import Generator

MEDIAN_ROWS = 1000


def scott(n: float, d: int) -> float:
    """Scott's factor n^(−1/(d+4)), in standard deviations of the data.

    Parameters
    ----------
    n : float
        Number of rows, or the effective number of weighted ones.
    d : int
        Number of columns.

    Examples
    --------
    >>> round(scott(1000, 1), 4)
    0.2512
    """
    return n ** (-1 / (d + 4))


def silverman(n: float, d: int) -> float:
    """Silverman's factor (n(d+2)/4)^(−1/(d+4)), in standard deviations of the data.

    Parameters
    ----------
    n : float
        Number of rows, or the effective number of weighted ones.
    d : int
        Number of columns.

    Examples
    --------
    >>> round(silverman(1000, 1), 4)
    0.2661
    """
    return (n * (d + 2) / 4) ** (-1 / (d + 4))


def median_distance(X: NDArray[np.float64], generator: Generator) -> float:
    """Median distance of two different rows (of at most 1000), the habit of kernel methods.

    Parameters
    ----------
    X : ndarray of shape (n, d)
    generator : torch.Generator
        Chooses the rows.

    Returns
    -------
    float
        One where no two rows differ.

    Examples
    --------
    >>> median_distance(np.array([[0.0], [1.0], [4.0]]), torch.Generator())
    3.0
    """
    rows = torch.randperm(len(X), generator=generator)[:MEDIAN_ROWS]
    distances = pdist(X[rows.numpy()])
    distances = distances[distances > 0]
    return float(np.median(distances)) if len(distances) else 1.0

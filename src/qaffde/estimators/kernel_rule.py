"""Bandwidth of the exact kernel density estimate, for the form that has no likelihood."""

import torch
from torch import Generator, Tensor

from qaffde import functional as QF
from qaffde.estimators.bandwidth import scott
from qaffde.estimators.data_measure import draw_rows
from qaffde.estimators.design import search_bandwidth

KDE_ROWS = 5000


def held_out_kde(Z: Tensor, weight: Tensor, generator: Generator) -> float:
    """Bandwidth with the best held-out likelihood of the exact estimate on a sample of the rows.

    What is best for the sample is then shrunk to the number of rows by n^(−1/(d+4)), the rate at
    which the best bandwidth falls.
    """
    n, d = Z.shape
    sample = Z[draw_rows(weight, KDE_ROWS, generator)]
    valid, train = sample.split([len(sample) // 4, len(sample) - len(sample) // 4])

    def judge(h: float) -> Tensor:
        width = torch.tensor(h, dtype=Z.dtype)
        squares = torch.cdist(valid, train).square() * QF.gamma_from_bandwidth(width)
        return (-squares).logsumexp(1) - QF.log_kernel_mass(width, d)

    factor, _ = search_bandwidth(judge, Z.new_ones(len(valid)), start=scott(len(train), d))
    return factor * (len(train) / n) ** (1 / (d + 4))

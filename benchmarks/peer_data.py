"""Rows, queries and exact answers of the comparison of kernel density estimates.

A random mixture of Gaussians, whitened: so an isotropic kernel of Scott's bandwidth means the same
to every library, to those too that multiply it by the covariance of the rows.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from experiments.targets import random_gmm
from qaffde.nn import KernelMixture
from qaffde.selection.bandwidth import scott

Array = NDArray[np.float64]

SEED = 8
SCALE = 0.2
N_QUERIES = 10_000
MIN_EXACT, EXACT_KERNELS = 500, 5 * 10**9
"""Queries that are answered exactly: as many as this number of kernels allows, and at least so."""


@dataclass(frozen=True)
class Cell:
    """One size of the comparison.

    Parameters
    ----------
    n, d : int
        Rows and columns.
    seed : int
        Of the mixture, its rows and its queries.
    n_queries : int
    """

    n: int
    d: int
    seed: int = SEED
    n_queries: int = N_QUERIES

    @property
    def bandwidth(self) -> float:
        """Scott's, in standard deviations, which are one."""
        return scott(self.n, self.d)

    def file(self, folder: Path, what: str) -> Path:
        """Where a part of the data lies."""
        return folder / f"{what}-{self.n}-{self.d}-{self.seed}-{self.n_queries}.npy"

    def load(self, folder: Path, what: str) -> Array:
        """A part of the data, read into memory."""
        return np.load(self.file(folder, what))


def prepare(cell: Cell, folder: Path) -> None:
    """Write rows, queries, exact log-densities at the first of them, and true ones at all."""
    target = random_gmm(cell.d, scale=SCALE, random_state=cell.seed)
    X = target.sample(cell.n, random_state=np.random.default_rng([cell.seed, 1]))
    Q = target.sample(cell.n_queries, random_state=np.random.default_rng([cell.seed, 2]))
    mean, L = X.mean(0), np.linalg.cholesky(np.cov(X.T))
    truth = target.log_prob(Q) + np.linalg.slogdet(L).logabsdet
    rows, queries = ((points - mean) @ np.linalg.inv(L).T for points in (X, Q))
    exact = exact_log_density(rows, queries[: n_exact(cell)], cell.bandwidth)
    parts = {"truth": truth, "queries": queries, "exact": exact, "rows": rows}
    for what, values in parts.items():
        unfinished = cell.file(folder, what).with_suffix(".part")
        with unfinished.open("wb") as file:
            np.save(file, values)
        unfinished.replace(cell.file(folder, what))


def is_prepared(cell: Cell, folder: Path) -> bool:
    """Whether :func:`prepare` has written all; the rows come last."""
    return cell.file(folder, "rows").exists()


def n_exact(cell: Cell) -> int:
    """How many queries are answered exactly."""
    return min(cell.n_queries, max(MIN_EXACT, EXACT_KERNELS // cell.n))


def exact_log_density(rows: Array, queries: Array, h: float) -> Array:
    """Every kernel summed, in float64 and without a tolerance."""
    weight = torch.ones(len(rows), dtype=torch.float64)
    kernels = KernelMixture.of_rows(torch.as_tensor(rows / h), weight)
    log_p = kernels.log_prob(torch.as_tensor(queries / h)).numpy()
    return log_p - rows.shape[1] * np.log(h)

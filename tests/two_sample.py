"""Two-sample tests by permutation: what do labels tell about neighbours and distances?"""

from functools import cache

import numpy as np
from scipy.sparse import csr_array
from scipy.spatial import cKDTree
from scipy.spatial.distance import cdist

N_PERMUTATIONS = 1199


def neighbour_p_value(a, b, k=5, seed=0):
    """Schilling's test: the share of each point's k nearest that are from its own sample."""
    pooled = np.concatenate([a, b]) / np.std(b, axis=0)
    neighbours = cKDTree(pooled).query(pooled, k + 1)[1][:, 1:]
    n, ones = len(pooled), np.ones(neighbours.size, np.int8)
    near = csr_array((ones, neighbours.ravel(), k * np.arange(n + 1)), shape=(n, n))
    sign = np.where(_labels(len(a), n, seed), np.int8(1), np.int8(-1)).T
    return _p_value((sign * (near @ sign)).sum(0, dtype=np.int64))


def energy_p_value(a, b, seed=0):
    """Energy distance (Székely and Rizzo, 2004); ranks need no more than single precision."""
    pooled = np.concatenate([a, b]) / np.std(b, axis=0)
    distance = cdist(pooled, pooled)
    distance = (distance - distance.mean()).astype(np.float32)
    sign = np.where(_labels(len(a), len(pooled), seed), 1 / len(a), -1 / len(b))
    sign = sign.astype(np.float32)
    return _p_value(-np.einsum("pn,pn->p", sign @ distance, sign))


@cache
def _labels(n, total, seed):
    """Whether a row is of the first sample: as it is, then permuted."""
    rng = np.random.default_rng(seed)
    first = np.arange(total) < n
    return np.stack([first, *(rng.permutation(first) for _ in range(N_PERMUTATIONS))])


def _p_value(statistics):
    """Share of the statistics that are at least the first."""
    return np.mean(statistics >= statistics[0])

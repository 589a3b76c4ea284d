"""Real tables of numbers, split for training and testing.

Densities of all methods are against length, so no column may have ties that a method could gain
from by narrow peaks:

- of equal rows one is kept;
- a column with fewer than twenty values, or with one value in more than a tenth of the rows, is
  left out: it is a category or has an atom (``benchmarks.mixed_table`` measures those);
- in a column where more than a twentieth of the rows share their values, every value is drawn
  uniformly between the middles to its neighbors, as the literature does for rounded numbers.

A fifth of the rows, by a random order of the seed, are test rows. POWER keeps its own split.
"""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn import datasets

TABLES = Path(os.environ.get("QAFFDE_DATA", "~/.cache/qaffde")).expanduser()
FEWEST_VALUES, MOST_COMMON, SHARED = 20, 0.1, 0.05
TEST_SHARE = 0.2

Array = NDArray[np.float64]


def split_table(name: str, seed: int, max_train: int) -> tuple[Array, Array]:
    """Rows for training, at most so many, and for testing."""
    rng = np.random.default_rng(seed)
    if name == "power":
        train, test = (np.load(TABLES / f"power/{part}.npy") for part in ("train", "test"))
        chosen = np.sort(rng.permutation(len(train))[:max_train])
        return train[chosen].astype(np.float64), test.astype(np.float64)
    X = rng.permutation(without_ties(read_table(name), rng))
    n_test = round(TEST_SHARE * len(X))
    return X[n_test:][:max_train], X[:n_test]


def read_table(name: str) -> Array:
    """All rows of a table, as they are recorded."""
    loaders: dict[str, Callable[..., datasets.Bunch]] = {
        "wine": datasets.load_wine,
        "diabetes": datasets.load_diabetes,
        "breast_cancer": datasets.load_breast_cancer,
    }
    if name in loaders:
        bunch = loaders[name]()
        return np.column_stack([bunch.data, bunch.target] if name == "diabetes" else [bunch.data])
    folder = "adbench" if name[0].isdigit() else "uci_regression"
    with np.load(TABLES / folder / f"{name}.npz") as parts:
        X, y = parts["X"].astype(np.float64), parts["y"]
    return X[y == 0] if folder == "adbench" else np.column_stack([X, y])


def without_ties(X: Array, rng: np.random.Generator) -> Array:
    """Distinct rows of continuous columns; shared values are spread between their neighbors.

    Examples
    --------
    >>> X = np.arange(60.0)[:, None] // [2, 60, 0.5]  # in pairs, constant, all different
    >>> Z = without_ties(X, np.random.default_rng(0))
    >>> Z.shape, bool((np.abs(Z[:, 0] - X[:, 0]) <= 0.5).all()), bool((Z[:, 1] == X[:, 2]).all())
    ((60, 2), True, True)
    """
    X = np.unique(X, axis=0)
    columns = []
    for x in X.T:
        values, place, counts = np.unique(x, return_inverse=True, return_counts=True)
        if len(values) < FEWEST_VALUES or counts.max() > MOST_COMMON * len(x):
            continue
        is_shared = counts[counts > 1].sum() > SHARED * len(x)
        columns.append(_spread(values, place, rng) if is_shared else x)
    return np.column_stack(columns)


def _spread(values: Array, place: NDArray[np.intp], rng: np.random.Generator) -> Array:
    """Every value moved within its cell, which ends halfway to the next values."""
    half = np.diff(values) / 2
    edges = np.concatenate([[values[0] - half[0]], values[:-1] + half, [values[-1] + half[-1]]])
    low, high = edges[place], edges[place + 1]
    return low + (high - low) * rng.random(len(place))

"""Densities that points of a grid miss: atoms, heavy tails, narrow modes, ridges."""

import numpy as np

from qaffde import QAFFDE


def rows(kind, n=1000):
    rng = np.random.default_rng(0)
    few = rng.random(n)
    bulk, normal = rng.lognormal(6.5, 0.8, (n, 2)), rng.normal(size=(n, 2))
    return {
        "atoms in a column": np.column_stack([np.where(few < 0.35, 0, bulk[:, 0]), normal[:, 0]]),
        "copies of a row": np.where(few[:, None] < 0.44, 0, bulk),
        "heavy tails": rng.standard_cauchy((n, 2)),
        "narrow modes": np.where(few[:, None] < 0.5, 1 + 1e-3 * normal, 5 * normal),
        "a ridge": np.column_stack([normal[:, 0], 3 * normal[:, 0] + 1e-3 * normal[:, 1]]),
    }[kind]


KINDS = ("atoms in a column", "copies of a row", "heavy tails", "narrow modes", "a ridge")


def fit(kind):
    return QAFFDE(n_features=100, random_state=0).fit(rows(kind))

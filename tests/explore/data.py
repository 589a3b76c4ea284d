"""Rows of two groups in a few columns that depend on each other."""

import numpy as np


def rows(n=400, d=4):
    rng = np.random.default_rng(0)
    side = rng.choice([-1.0, 1.0], size=(n, 1))
    X = side * np.linspace(1.5, 0.5, d) + rng.normal(size=(n, d))
    X[:, 1:2] += 0.5 * X[:, :1]
    return X

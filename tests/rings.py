"""Rows about a ring, for densities of several columns."""

import numpy as np


def ring(n: int, seed: int) -> np.ndarray:
    """Three columns: a noisy ring, and its angle with noise."""
    rng = np.random.default_rng(seed)
    angle = rng.uniform(0, 2 * np.pi, n)
    radius = 1 + 0.15 * rng.normal(size=n)
    third = np.sin(angle) + 0.2 * rng.normal(size=n)
    return np.column_stack([radius * np.cos(angle), radius * np.sin(angle), third])

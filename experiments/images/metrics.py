"""How good a classifier is that knows densities: labels, confidence, and what is foreign."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax, logsumexp
from sklearn.metrics import roc_auc_score

Array = NDArray[np.float64]

N_BINS = 15
N_SHOWN = 2
"""Most, and least, likely images of each class."""
DIGITS = 6


def label_metrics(log_proba: Array, y: NDArray[Any]) -> dict[str, float]:
    """Accuracy and its standard error, mean −log P(y | x), and calibration error.

    Parameters
    ----------
    log_proba : ndarray of shape (n, C)
    y : ndarray of shape (n,)
        Numbers of the true classes.

    Examples
    --------
    >>> label_metrics(np.log([[0.8, 0.2], [0.6, 0.4]]), np.array([0, 1]))["accuracy"]
    0.5
    """
    accuracy = float((log_proba.argmax(1) == y).mean())
    found = {
        "accuracy": accuracy,
        "accuracy_standard_error": math.sqrt(accuracy * (1 - accuracy) / len(y)),
        "nll": float(-log_proba[np.arange(len(y)), y].mean()),
        "calibration_error": calibration_error(reliability(log_proba, y)),
    }
    return {name: round(value, DIGITS) for name, value in found.items()}


def reliability(log_proba: Array, y: NDArray[Any]) -> list[list[float]]:
    """Number, mean confidence and accuracy in each of 15 bins of equal width that is not empty.

    Examples
    --------
    >>> reliability(np.log([[0.75, 0.25], [0.35, 0.65]]), np.array([0, 0]))
    [[1, 0.65, 0.0], [1, 0.75, 1.0]]
    """
    confidence = np.exp(log_proba.max(1))
    right = log_proba.argmax(1) == y
    place = np.minimum((confidence * N_BINS).astype(int), N_BINS - 1)
    return [
        [
            int((place == k).sum()),
            round(float(confidence[place == k].mean()), DIGITS),
            round(float(right[place == k].mean()), DIGITS),
        ]
        for k in np.unique(place)
    ]


def calibration_error(bins: list[list[float]]) -> float:
    """Mean distance of confidence and accuracy, bins weighted by their numbers."""
    total = sum(n for n, _, _ in bins)
    return sum(n * abs(confidence - accuracy) for n, confidence, accuracy in bins) / total


def confusion(log_proba: Array, y: NDArray[Any]) -> list[list[int]]:
    """Counts by true class (lines) and predicted class (columns)."""
    C = log_proba.shape[1]
    cells = np.bincount(C * y + log_proba.argmax(1), minlength=C * C)
    return cells.reshape(C, C).tolist()


def extremes(log_density: Array, y: NDArray[Any]) -> tuple[list[list[int]], list[list[int]]]:
    """Rows of each class of the highest, and of the lowest, density within it.

    Two of each; if a class has fewer, its number of rows for all classes.
    """
    most, least = [], []
    n = min(N_SHOWN, int(np.bincount(y, minlength=log_density.shape[1]).min()))
    for c in range(log_density.shape[1]):
        own = np.flatnonzero(y == c)
        order = own[np.argsort(log_density[own, c], kind="stable")]
        least.append(order[:n].tolist())
        most.append(order[::-1][:n].tolist())
    return most, least


def separation(inside: Array, outside: Array, log_prior: Array) -> dict[str, float]:
    """AUC with which two scores tell images of the set from foreign ones.

    ``density`` is log p(x), of all classes together; ``confidence`` the largest posterior.

    Parameters
    ----------
    inside, outside : ndarrays of shape (n, C)
        Log-densities in each class.
    log_prior : ndarray of shape (C,)
    """
    joint = np.concatenate([inside, outside]) + log_prior
    known = np.repeat([1, 0], [len(inside), len(outside)])
    scores = {"density": logsumexp(joint, axis=1), "confidence": log_softmax(joint, 1).max(1)}
    return {name: round(float(roc_auc_score(known, s)), DIGITS) for name, s in scores.items()}

"""Bayes' rule for classifiers that have one density per class."""

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_softmax
from sklearn.base import ClassifierMixin

from qaffde.estimators.base import Array


class BayesRule(ClassifierMixin, ABC):
    r"""Classifier by :math:`P(c \mid x) \propto P(c)\, p(x \mid c)`; a subclass knows p.

    Attributes
    ----------
    classes_ : ndarray of shape (C,)
    class_prior_ : ndarray of shape (C,)
    """

    classes_: NDArray[Any]
    class_prior_: NDArray[np.float64]

    @abstractmethod
    def log_density(self, X: ArrayLike) -> Array:
        """Log-density of each row in each class, of shape (n, C)."""

    def predict_log_proba(self, X: ArrayLike) -> Array:
        """Log-probability of each class for each row, of shape (n, C)."""
        log_density = self.log_density(X)
        with np.errstate(divide="ignore"):
            return log_softmax(log_density + np.log(self.class_prior_), axis=1)

    def predict_proba(self, X: ArrayLike) -> Array:
        """Probability of each class for each row, of shape (n, C)."""
        return np.exp(self.predict_log_proba(X))

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Most probable class of each row, of shape (n,)."""
        best = self.predict_log_proba(X).argmax(1)
        return self.classes_[best]

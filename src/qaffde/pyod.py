"""The outlier detector behind PyOD's interface."""

from typing import Any, Self

from numpy.typing import ArrayLike

from qaffde.estimators.base import Array
from qaffde.estimators.outlier import QAFFDEOutlierDetector

try:
    from pyod.models.base import BaseDetector
except ImportError:  # which the class says when it is made
    BaseDetector = object


class PyODDetector(BaseDetector):
    """:class:`qaffde.QAFFDEOutlierDetector` as a detector of PyOD: high scores are outliers.

    Parameters
    ----------
    estimator : density estimator or list of them, optional
        As in :class:`qaffde.QAFFDEOutlierDetector`.
    contamination : float in (0, 0.5], default=0.1
        Share of the training rows that PyOD's threshold calls outliers; the fit does not use it.
    random_state : int, RandomState instance or None, default=None

    Attributes
    ----------
    detector_ : QAFFDEOutlierDetector
    decision_scores_ : ndarray of shape (n,)
        Of the training rows, out of fold.
    labels_ : ndarray of shape (n,)
        1 for outliers, 0 for others.
    threshold_ : float
    """

    def __init__(
        self, estimator: Any = None, *, contamination: float = 0.1, random_state: Any = None
    ) -> None:
        if BaseDetector is object:
            raise ImportError(
                "this interface needs PyOD, which is not installed: pip install pyod"
            )
        super().__init__(contamination=contamination)
        self.estimator = estimator
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: None = None) -> Self:
        """Fit the detector to the rows of `X`."""
        self._set_n_classes(y)
        detector = QAFFDEOutlierDetector(self.estimator, random_state=self.random_state)
        self.detector_ = detector.fit(X)
        self.decision_scores_ = -self.detector_.out_of_fold_scores_
        self._process_decision_scores()
        return self

    def decision_function(self, X: ArrayLike) -> Array:
        """Score of each row, of shape (n,): the higher, the more of an outlier."""
        return -self.detector_.score_samples(X)

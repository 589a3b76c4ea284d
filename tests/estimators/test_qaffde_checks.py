"""scikit-learn's own checks of the density estimator."""

from sklearn.utils.estimator_checks import parametrize_with_checks

from qaffde import QAFFDE

ESTIMATORS = [
    QAFFDE(),
    QAFFDE(base_measure="box", bandwidth="scott", features="sobol"),
    QAFFDE(base_measure="gaussian", bandwidth="silverman", measurement="direct"),
    QAFFDE(base_measure=1, bandwidth=1.0),
    QAFFDE(base_measure="kernel"),
]


@parametrize_with_checks(ESTIMATORS)
def test_scikit_learn(estimator, check):
    check(estimator)

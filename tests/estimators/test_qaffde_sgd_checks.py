"""scikit-learn's own checks of the maximum-likelihood estimator."""

from sklearn.utils.estimator_checks import parametrize_with_checks

from qaffde import QAFFDESGD, TrainingConfig

QUICK = {"bandwidth": 1.0, "ridge": 0.1, "n_features": 20, "training": TrainingConfig(max_iter=5)}
ESTIMATORS = [
    QAFFDESGD(base_measure="gaussian", **QUICK),
    QAFFDESGD(base_measure="box", **QUICK),
    QAFFDESGD(base_measure="kernel", **QUICK),
]


@parametrize_with_checks(ESTIMATORS)
def test_scikit_learn(estimator, check):
    check(estimator)

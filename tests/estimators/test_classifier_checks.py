"""scikit-learn's own checks of the classifier."""

from sklearn.utils.estimator_checks import parametrize_with_checks

from qaffde import QAFFDEClassifier

SHUFFLED = "batches and held-out rows are drawn from other rows, as of any stochastic training"
ESTIMATORS = [
    QAFFDEClassifier(20, 1.0, 10, measurement="pretty_good", ridge=1e-2, random_state=0),
    QAFFDEClassifier(20, 1.0, 5, training="gradient", max_steps=30, random_state=0),
]


def expected_failures(estimator):
    if estimator.training == "closed_form":
        return {}
    return {
        "check_sample_weight_equivalence_on_dense_data": SHUFFLED,
        "check_sample_weight_equivalence_on_sparse_data": SHUFFLED,
    }


@parametrize_with_checks(ESTIMATORS, expected_failed_checks=expected_failures)
def test_scikit_learn(estimator, check):
    check(estimator)

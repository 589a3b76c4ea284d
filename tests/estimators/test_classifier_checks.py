"""scikit-learn's own checks of the classifier."""

from sklearn.utils.estimator_checks import parametrize_with_checks

from qaffde import QAFFDEClassifier, SelectionPolicy, TrainingConfig

SHUFFLED = "batches and held-out rows are drawn from other rows, as of any stochastic training"
RIDGE, STEPS = SelectionPolicy(class_ridge=1e-2), TrainingConfig(max_steps=30)
ESTIMATORS = [
    QAFFDEClassifier(20, 1.0, 10, method="pretty_good", policy=RIDGE, random_state=0),
    QAFFDEClassifier(20, 1.0, 5, method="gradient", training=STEPS, random_state=0),
]


def expected_failures(estimator):
    if estimator.method != "gradient":
        return {}
    return {
        "check_sample_weight_equivalence_on_dense_data": SHUFFLED,
        "check_sample_weight_equivalence_on_sparse_data": SHUFFLED,
    }


@parametrize_with_checks(ESTIMATORS, expected_failed_checks=expected_failures)
def test_scikit_learn(estimator, check):
    check(estimator)

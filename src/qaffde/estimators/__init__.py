"""scikit-learn estimators."""

from qaffde.estimators.autoregressive import QAFFDEAutoregressive
from qaffde.estimators.calculus import BornEstimator, DerivedDensity
from qaffde.estimators.classifier import QAFFDEClassifier
from qaffde.estimators.drift import QAFFDEDriftDetector
from qaffde.estimators.fourier import FourierFeatures
from qaffde.estimators.information import DensityComparison, compare
from qaffde.estimators.kernel_mixture import KernelMixture
from qaffde.estimators.outlier import QAFFDEOutlierDetector
from qaffde.estimators.qaffde import QAFFDE
from qaffde.estimators.qaffde_sgd import QAFFDESGD
from qaffde.estimators.recipes import ESTIMATORS
from qaffde.estimators.regressor import QAFFDERegressor
from qaffde.estimators.tensor_train import QAFFDETensorTrain

__all__ = [
    "ESTIMATORS",
    "QAFFDE",
    "QAFFDESGD",
    "BornEstimator",
    "DensityComparison",
    "DerivedDensity",
    "FourierFeatures",
    "KernelMixture",
    "QAFFDEAutoregressive",
    "QAFFDEClassifier",
    "QAFFDEDriftDetector",
    "QAFFDEOutlierDetector",
    "QAFFDERegressor",
    "QAFFDETensorTrain",
    "compare",
]

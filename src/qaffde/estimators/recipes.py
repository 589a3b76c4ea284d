"""Recipes of the estimators: their parameters and fitted attributes."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from qaffde.estimators.base import DensityEstimator
from qaffde.estimators.calculus import DerivedDensity
from qaffde.estimators.classifier import QAFFDEClassifier
from qaffde.estimators.fourier import FourierFeatures
from qaffde.estimators.outlier import QAFFDEOutlierDetector
from qaffde.estimators.qaffde import QAFFDE
from qaffde.estimators.qaffde_sgd import QAFFDESGD
from qaffde.files.fields import Fields
from qaffde.files.format import UNKNOWN, FileError, quoted
from qaffde.files.values import RECIPES, Recipe
from qaffde.nn import BornMixture, Density
from qaffde.nn.class_density import ClassDensity
from qaffde.nn.recipes import MAX_COEFFICIENT, count_columns, n_columns
from qaffde.selection import Plan, SelectionPolicy, recipes  # noqa: F401 (registers recipes)
from qaffde.training import ComputeConfig, History, TrainingConfig
from qaffde.training.closed_form import ClassSums, Sums

COLUMNS = ("n_features_in_", "feature_names_in_")
CONFIGS: dict[str, type] = {
    "plan": Plan,
    "policy": SelectionPolicy,
    "compute": ComputeConfig,
    "training": TrainingConfig,
}
"""Parameters that are objects, or None."""
Restore = Callable[[Any, Fields, int], None]
"""Gives an unfitted estimator the fitted attributes in the fields, for that many columns."""


def estimator(kind: type, take: Callable[[Any], Mapping[str, Any]], restore: Restore) -> Recipe:
    """Recipe of an estimator, fitted or not.

    Parameters
    ----------
    kind : type
    take : callable
        What a fit left, as fields.
    restore : callable
    """

    def take_all(model: BaseEstimator) -> dict[str, Any]:
        parameters = {"parameters": model.get_params(deep=False)}
        if not fitted(model):
            return parameters
        try:
            return parameters | _columns(model) | dict(take(model))
        except AttributeError as error:
            raise FileError(
                f"the estimator is only partially fitted ({quoted(error)}); fit it again"
            ) from None

    def make(f: Fields) -> BaseEstimator:
        model = _unfitted(kind, f)
        if "n_features_in_" in f:
            model.n_features_in_ = f.count("n_features_in_")
            _restore_names(model, f)
            restore(model, f, model.n_features_in_)
        return model

    return Recipe(kind, take_all, make)


def fitted(model: BaseEstimator) -> bool:
    """Whether an estimator was fitted; a fit that failed leaves only the columns."""
    if hasattr(model, "__sklearn_is_fitted__"):
        return bool(model.__sklearn_is_fitted__())
    return any(name.endswith("_") and name not in COLUMNS for name in vars(model))


def _unfitted(kind: type, f: Fields) -> Any:
    parameters = f.item("parameters", dict)
    for name in parameters.keys() - set(kind._get_param_names()):  # type: ignore[attr-defined]
        raise FileError(f"{f.kind}'s parameter {quoted(name)} is {UNKNOWN}")
    for name, config in CONFIGS.items():
        if not isinstance(parameters.get(name), config | None):
            f.complain("parameters", f"have a {name} that is not of type {config.__name__}")
    return kind(**parameters)


def _columns(model: BaseEstimator) -> dict[str, Any]:
    names = getattr(model, "feature_names_in_", None)
    count = {"n_features_in_": model.n_features_in_}
    return count if names is None else count | {"feature_names_in_": names}


def _restore_names(model: Any, f: Fields) -> None:
    if "feature_names_in_" in f:
        names = f.item("feature_names_in_", np.ndarray)
        f.require(_are_names(names, model.n_features_in_), "feature_names_in_", "are wrong")
        model.feature_names_in_ = names


def _are_names(names: Any, d: int) -> bool:
    return names.dtype.kind in "OU" and names.shape == (d,)


def _learned(*names: str) -> Callable[[Any], dict[str, Any]]:
    """Function that takes the learned attributes of these names, without underscores."""
    return lambda model: {name: getattr(model, f"{name}_") for name in names}


def _density(f: Fields, d: int, kind: type = Density) -> Any:
    density = f.item("density", kind)
    f.require(n_columns(density) == d, "density", f"is not of {d} columns")
    return density


def _plan(f: Fields, d: int, method: str) -> Plan:
    plan: Plan = f.item("plan", Plan)
    f.require(plan.n_dims == d, "plan", f"is not of {d} columns")
    f.require(plan.method == method, "plan", "is one of another method")
    return plan


def _check_readable(f: Fields, plan: Plan) -> None:
    """Complain about features whose Gram matrix has no eigenvalues to read a density with."""
    size = float(plan.measure.gram(plan.features).abs().max())
    f.require(0 < size < MAX_COEFFICIENT, "plan", "has features beyond measure")


def _take_sums(model: QAFFDE) -> dict[str, Any]:
    # None where the density was not read from the sums yet.
    return _learned("plan", "sums")(model) | {"density": vars(model)["_density"]}


def _restore_sums(model: QAFFDE, f: Fields, d: int) -> None:
    plan, sums = _plan(f, d, "closed_form"), f.item("sums", Sums)
    f.require(len(sums.rho) == plan.features.n_features, "sums", "have other sizes")
    if f.get("density") is None:
        _check_readable(f, plan)
        model.restore(plan, sums)
    else:
        model.restore(plan, sums, _density(f, d))


def _restore_likelihood(model: QAFFDESGD, f: Fields, d: int) -> None:
    model.plan_ = _plan(f, d, "likelihood")
    model.density_ = _density(f, d)
    model.rank_ = f.count("rank")
    model.n_fourier_features_ = f.count("n_fourier_features")
    model.history_ = f.items("history", History)


def _take_outliers(model: QAFFDEOutlierDetector) -> dict[str, Any]:
    return {
        "estimator": model.estimator_,
        "offset": model.offset_,
        "scores": model.out_of_fold_scores_,
    }


def _restore_outliers(model: QAFFDEOutlierDetector, f: Fields, d: int) -> None:
    density = f.item("estimator", DensityEstimator)
    f.require(fitted(density), "estimator", "is not fitted")
    f.require(density.n_features_in_ == d, "estimator", f"is not of {d} columns")
    model.estimator_ = density
    model.offset_ = f.number("offset")
    model.out_of_fold_scores_ = f.array("scores", "n")


def _restore_features(model: FourierFeatures, f: Fields, d: int) -> None:
    model.bandwidth_ = f.array("bandwidth", d)
    model.location_ = f.array("location", d)
    model.frequencies_ = f.array("frequencies", "D", d)
    model.phases_ = f.array("phases", "D")
    model.amplitudes_ = f.array("amplitudes", "D")


def _take_classifier(model: QAFFDEClassifier) -> dict[str, Any]:
    learned = _learned("classes", "class_prior", "plan", "sums", "history")(model)
    return learned | {"density": vars(model)["_density"]}


def _restore_classifier(model: QAFFDEClassifier, f: Fields, d: int) -> None:
    model.classes_ = f.item("classes", np.ndarray)
    prior, plan = f.array("class_prior", "C"), f.item("plan", Plan)
    C, D = len(prior), plan.features.n_features
    f.require(model.classes_.shape == (C,), "classes", "have other sizes")
    f.require(plan.method == "classifier", "plan", "is one of another method")
    is_trained = plan.measurement == "gradient"
    sums = None if is_trained and f.get("sums") is None else f.item("sums", ClassSums)
    f.require(is_trained or plan.n_dims == d, "plan", f"is not of {d} columns")
    f.require(sums is None or tuple(sums.psi.shape) == (C, D), "sums", "have other sizes")
    density = None
    if f.get("density") is None and not is_trained:
        _check_readable(f, plan)
    else:
        density = f.item("density", ClassDensity)
        fits = density.born.n_classes == C and count_columns(density.coder) == d
        f.require(fits, "density", "has other sizes")
    model.restore(plan, prior, sums, density, f.items("history", History))


def _take_derived(model: DerivedDensity) -> dict[str, Any]:
    return {"density": model.density, "feature_names": model.feature_names}


def _make_derived(f: Fields) -> DerivedDensity:
    density, names = f.item("density", BornMixture), f.get("feature_names")
    fits = names is None or (isinstance(names, np.ndarray) and _are_names(names, density.n_dims))
    f.require(fits, "feature_names", "are wrong")
    return DerivedDensity(density, names)


ESTIMATORS = {
    "QAFFDE": estimator(QAFFDE, _take_sums, _restore_sums),
    "QAFFDESGD": estimator(
        QAFFDESGD,
        _learned("density", "plan", "rank", "n_fourier_features", "history"),
        _restore_likelihood,
    ),
    "QAFFDEClassifier": estimator(QAFFDEClassifier, _take_classifier, _restore_classifier),
    "QAFFDEOutlierDetector": estimator(QAFFDEOutlierDetector, _take_outliers, _restore_outliers),
    "FourierFeatures": estimator(
        FourierFeatures,
        _learned("bandwidth", "location", "frequencies", "phases", "amplitudes"),
        _restore_features,
    ),
    "DerivedDensity": Recipe(DerivedDensity, _take_derived, _make_derived),
}
"""Estimators that a file may hold."""
RECIPES |= ESTIMATORS

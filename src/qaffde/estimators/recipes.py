"""Recipes of the estimators: their parameters and fitted attributes."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from sklearn.base import BaseEstimator

from qaffde.estimators.base import DensityEstimator
from qaffde.estimators.calculus import DerivedDensity
from qaffde.estimators.classifier import QAFFDEClassifier
from qaffde.estimators.fourier import FourierFeatures
from qaffde.estimators.outlier import QAFFDEOutlierDetector
from qaffde.estimators.qaffde import QAFFDE
from qaffde.estimators.qaffde_sgd import QAFFDESGD
from qaffde.estimators.regressor import Inputs, QAFFDERegressor, seen
from qaffde.estimators.tensor_train import QAFFDETensorTrain
from qaffde.files import fields as check
from qaffde.files.fields import Check, Fields, array, item, number, optional, positive, reals
from qaffde.files.format import UNKNOWN, FileError, quoted
from qaffde.files.values import RECIPES, Recipe
from qaffde.kinds import Integer, Kind, Periodic, Real
from qaffde.nn import (
    BornMixture,
    GaussianMeasure,
    StandardizedDensity,
    TableDensity,
    TransformedDensity,
)
from qaffde.nn.conditional import BornHead, Target
from qaffde.nn.recipes import MAX_COEFFICIENT, MAX_FUNCTIONS
from qaffde.schema import Schema
from qaffde.selection import Plan, SelectionPolicy, recipes  # noqa: F401 (registers recipes)
from qaffde.training import ComputeConfig, History, TensorTrainConfig, TrainingConfig
from qaffde.training.classes import ClassSums
from qaffde.training.closed_form import Sums
from qaffde.training.regression import ConditionalDensity, MemberLinear, MemberNetwork

MAX_WAVES = 256
"""Products of two waves are a table of the cube of their number."""
COLUMNS = ("n_features_in_", "feature_names_in_", "schema_")
CONFIGS: dict[str, Any] = {
    "plan": Plan,
    "policy": SelectionPolicy,
    "compute": ComputeConfig,
    "training": TensorTrainConfig | TrainingConfig,
}
"""Parameters that are objects, or None."""

RENAMED: dict[tuple[type, str], str] = {(QAFFDESGD, "encoder"): "transformation"}
"""Parameters that had other names in older files."""


def fitted(model: BaseEstimator) -> bool:
    """Whether an estimator was fitted; a fit that failed leaves only the columns."""
    if hasattr(model, "__sklearn_is_fitted__"):
        return bool(model.__sklearn_is_fitted__())
    return any(name.endswith("_") and name not in COLUMNS for name in vars(model))


def estimator(
    kind: Any, restore: Callable[[Any, Fields], None] | None = None, /, **learned: Check
) -> Recipe:
    """Recipe of an estimator, fitted or not.

    `learned` checks the attributes of a fitted one. `restore` gives them to an unfitted estimator;
    by default they are set.
    """
    learned = {"n_features_in_": _n_columns, "feature_names_in_": _names, **learned}
    if hasattr(kind, "schema_"):
        learned["schema_"] = _schema

    def take(model: BaseEstimator) -> dict[str, Any]:
        fields = {"parameters": _with_pairs(model.get_params(deep=False))}
        if fitted(model):
            found = {"feature_names_in_": None, "schema_": None, **vars(model)}
            for name in learned.keys() - found.keys():
                raise FileError(
                    f"the estimator is only partially fitted ({name} is missing); fit it again"
                )
            fields |= {name: found[name] for name in learned}
        return fields

    def make(f: Fields) -> BaseEstimator:
        parameters = f.pop("parameters")
        model = kind(**{RENAMED.get((kind, key), key): parameters[key] for key in parameters})
        if f:
            f.require_all(learned.keys() - {"schema_"})
            if f["feature_names_in_"] is None:
                del f["feature_names_in_"]
            vars(model).update({name: f.pop(name) for name in COLUMNS if name in f})
            restore(model, f) if restore else vars(model).update(f)
        return model

    return Recipe(kind, make, take, ("parameters",), parameters=_parameters(kind), **learned)


@check.parametrized
def _parameters(f: Fields, name: str, values: Any, kind: Any) -> None:
    item(dict)(f, name, values)
    known = {*kind._get_param_names(), *(key for of, key in RENAMED if of is kind)}
    if kind is QAFFDEClassifier and values.pop("objective", None) == "generative":
        values["method"] = "generative"  # what it was called when format 2 was new
    if kind in (QAFFDE, QAFFDESGD):
        _restore_columns(f, values)
    for key in values.keys() - known:
        raise FileError(f"{f.kind}'s parameter {quoted(key)} is {UNKNOWN}")
    for key in values.keys() & CONFIGS.keys():
        optional(item(CONFIGS[key]))(f, key, values[key])


def _with_pairs(parameters: dict[str, Any]) -> dict[str, Any]:
    """Parameters with kinds by column, whose keys may be numbers, as pairs."""
    columns = parameters.get("columns")
    if isinstance(columns, Mapping):
        parameters["columns"] = tuple(columns.items())
    return parameters


def _restore_columns(f: Fields, values: dict[str, Any]) -> None:
    """Kinds by column from pairs, and from the bounds of older files."""
    columns, bounds = values.get("columns"), values.pop("bounds", None)
    if isinstance(columns, tuple) and all(isinstance(pair, tuple) for pair in columns):
        f.require(all(len(pair) == 2 for pair in columns), "columns", "are no pairs")
        f.require(all(isinstance(key, str | int) for key, _ in columns), "columns", "have no key")
        values["columns"] = dict(columns)
    if bounds is not None:
        f.require(isinstance(bounds, list | tuple) and len(bounds) > 0, "bounds", "are no pairs")
        pairs = bounds if isinstance(bounds[0], list | tuple) else [bounds]
        f.require(all(len(pair) == 2 for pair in pairs), "bounds", "are no pairs")
        kinds = [Real(*pair) for pair in pairs]
        values["columns"] = kinds if len(kinds) > 1 else kinds[0]


def _n_columns(f: Fields, name: str, value: Any) -> None:
    check.whole()(f, name, value)
    f.agree(name, "d", value)


def _prior(f: Fields, name: str, value: Any) -> None:
    array("C")(f, name, value)
    fits = (value >= 0).all() and 0 < value.sum() < MAX_COEFFICIENT
    f.require(fits, name, "must not be negative")


_names = optional(array("d", kinds="OU"))
_schema = optional(item(Schema, d="d"))
_history = check.items(item(History))


@check.parametrized
def _plan(f: Fields, name: str, plan: Any, method: str, **letters: str) -> None:
    item(Plan, D="D", **letters)(f, name, plan)
    f.require(plan.method == method, name, "is one of another method")


def _check_readable(f: Fields) -> None:
    """Complain about features whose Gram matrix has no eigenvalues to read a density with."""
    plan = f["plan_"]
    size = float(plan.measure.gram(plan.features).abs().max())
    f.require(0 < size < MAX_COEFFICIENT, "plan_", "has features beyond measure")


def _restore_qaffde(model: QAFFDE, f: Fields) -> None:
    plan, sums = f["plan_"], f["sums_"]
    f.require(sums is not None, "sums_", "is missing")
    is_table = plan.schema is not None
    f.require((sums.rho.ndim == 1) == is_table, "sums_", "are not those of the plan")
    if is_table:
        f.require(len(sums.rho) == plan.measure.n_statistics, "sums_", "are not those of the plan")
    elif f["_density"] is None:
        _check_readable(f)
    model.restore(f["plan_"], f["sums_"], f["_density"])


def _restore_classifier(model: QAFFDEClassifier, f: Fields) -> None:
    plan, sums, density = f["plan_"], f["sums_"], f["_density"]
    f.require(isinstance(plan.measure, GaussianMeasure), "plan_", "has another base measure")
    if plan.measurement == "gradient":
        f.require(density is not None, "_density", "is missing")
    else:
        f.agree("plan_", "d", plan.n_dims)
        f.require(sums is not None, "sums_", "is missing")
    if density is None:
        _check_readable(f)
    model.classes_ = f["classes_"]
    model.restore(plan, f["class_prior_"], sums, density, f["history_"])


def _restore_regressor(model: Any, f: Fields) -> None:
    """Give a regressor its densities, once each is known to take the inputs before it."""
    x = f["inputs_"](torch.zeros(1, model.n_features_in_, dtype=torch.float64))
    for density in f["densities_"]:
        head = density.head
        try:
            fits = density.network(x).shape[2] == head.n_inputs
        except RuntimeError:
            fits = False
        f.require(fits, "densities_", "do not fit together")
        x = torch.cat([x, seen(head.target, torch.zeros(1, dtype=torch.float64))], 1)
    vars(model).update(f)


def _head(f: Fields) -> BornHead:
    f.require(isinstance(f["target"].kind, Real | Integer | Periodic), "target", "has no density")
    return BornHead(**f)


def _is_fitted(f: Fields, name: str, model: Any) -> None:
    item(DensityEstimator, d="d")(f, name, model)
    f.require(fitted(model), name, "is not fitted")


ESTIMATORS = {
    "QAFFDE": estimator(
        QAFFDE,
        _restore_qaffde,
        plan_=_plan("closed_form", d="d"),
        sums_=optional(item(Sums, D="D")),
        _density=optional(item(StandardizedDensity | TableDensity, d="d")),
    ),
    "QAFFDESGD": estimator(
        QAFFDESGD,
        plan_=_plan("likelihood", d="d"),
        density_=item(StandardizedDensity | TransformedDensity | TableDensity, d="d"),
        rank_=check.whole(),
        n_fourier_features_=check.whole(),
        history_=_history,
    ),
    "QAFFDETensorTrain": estimator(
        QAFFDETensorTrain,
        density_=item(TableDensity, d="d"),
        bond_=check.whole(),
        rank_=check.whole(),
        history_=item(History),
    ),
    "QAFFDEClassifier": estimator(
        QAFFDEClassifier,
        _restore_classifier,
        classes_=array("C", kinds="biufOU"),
        class_prior_=_prior,
        plan_=_plan("classifier"),
        sums_=optional(item(ClassSums, C="C", D="D")),
        _density=optional(item(StandardizedDensity, C="C", d="d")),
        history_=_history,
    ),
    "QAFFDERegressor": estimator(
        QAFFDERegressor,
        _restore_regressor,
        inputs_=item(Inputs, d="d"),
        densities_=check.items(item(ConditionalDensity), least=1),
        is_single_=item(bool),
        history_=_history,
    ),
    "QAFFDEOutlierDetector": estimator(
        QAFFDEOutlierDetector,
        estimator_=_is_fitted,
        offset_=check.number(),
        out_of_fold_scores_=array("n"),
    ),
    "FourierFeatures": estimator(
        FourierFeatures,
        bandwidth_=array("d"),
        location_=array("d"),
        frequencies_=array("m", "d"),
        phases_=array("m"),
        amplitudes_=array("m"),
    ),
    "DerivedDensity": Recipe(
        DerivedDensity,
        None,
        None,
        ("density", "feature_names"),
        density=item(BornMixture | TableDensity, d="d"),
        feature_names=_names,
        schema=_schema,
    ),
}
"""Estimators that a file may hold."""
REGRESSION = {
    "Inputs": Recipe(
        Inputs,
        kinds=check.items(item(Kind), tuple, least=1),
        location=reals("d"),
        scale=positive("d"),
        gaps=check.items(item(bool), tuple),
    ),
    "ConditionalDensity": Recipe(
        ConditionalDensity, network=item(MemberNetwork), head=item(BornHead)
    ),
    "MemberNetwork": Recipe(
        MemberNetwork,
        None,
        lambda network: {"layers": list(network.layers)},
        layers=check.items(item(MemberLinear), least=2),
    ),
    "MemberLinear": Recipe(MemberLinear, weight=reals("M", "i", "o"), bias=reals("M", 1, "o")),
    "BornHead": Recipe(
        BornHead,
        _head,
        lambda head: dict(
            zip(("n_components", "rank", "n_functions"), head.shape, strict=True),
            target=head.target,
        ),
        n_components=check.whole(1, MAX_FUNCTIONS),
        rank=check.whole(1, MAX_FUNCTIONS),
        n_functions=check.whole(1, MAX_WAVES),
        target=item(Target),
    ),
    "Target": Recipe(Target, kind=item(Kind), location=number(), scale=number(0)),
}
"""Parts of a regressor."""
RECIPES |= ESTIMATORS | REGRESSION

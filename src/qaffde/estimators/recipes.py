"""Recipes of the estimators."""

from collections.abc import Callable, Mapping
from typing import Any, get_type_hints

import numpy as np
import torch
from sklearn.base import BaseEstimator

from qaffde import nn
from qaffde.estimators.autoregressive import QAFFDEAutoregressive
from qaffde.estimators.base import DensityEstimator
from qaffde.estimators.calculus import DerivedDensity
from qaffde.estimators.classifier import QAFFDEClassifier
from qaffde.estimators.drift import OpenColumn, QAFFDEDriftDetector
from qaffde.estimators.fourier import FourierFeatures
from qaffde.estimators.kernel_mixture import KernelMixture
from qaffde.estimators.outlier import QAFFDEOutlierDetector
from qaffde.estimators.qaffde import QAFFDE
from qaffde.estimators.qaffde_sgd import QAFFDESGD
from qaffde.estimators.regressor import Inputs, QAFFDERegressor, seen
from qaffde.estimators.tensor_train import QAFFDETensorTrain
from qaffde.files.fields import (
    MAX_COEFFICIENT,
    Fields,
    Spec,
    array,
    item,
    items,
    number,
    optional,
    parametrized,
    tensor,
    whole,
)
from qaffde.files.format import UNKNOWN, FileError, quoted
from qaffde.files.values import RECIPES, Recipe, must
from qaffde.functional.table_features import ColumnCode, TableFeatures
from qaffde.kinds import Integer, Kind, Periodic, Real
from qaffde.nn.conditional import BornHead, Target
from qaffde.nn.table_recipes import MAX_FUNCTIONS
from qaffde.schema import Schema
from qaffde.selection import Plan
from qaffde.selection.recipes import HISTORY
from qaffde.training import History
from qaffde.training.classes import ClassSums
from qaffde.training.closed_form import Sums
from qaffde.training.regression import ConditionalDensity, MemberLinear, MemberNetwork

MAX_WAVES = 256
"""Products of two waves are a table of the cube of their number."""
NUMBERS = Real | Integer | Periodic
"""Kinds of what a regressor predicts."""
COLUMNS = ("n_features_in_", "feature_names_in_", "schema_")
CONFIGS = ("plan", "policy", "compute", "training")
"""Parameters that are objects of the class that the constructor says, or None."""


def fitted(model: Any) -> bool:
    """Whether an estimator was fitted; a fit that failed leaves only the columns."""
    if hasattr(model, "__sklearn_is_fitted__"):
        return bool(model.__sklearn_is_fitted__())
    return any(name.endswith("_") and name not in COLUMNS for name in vars(model))


def estimator(
    kind: Any,
    restore: Callable[[Any, Fields], None] | None = None,
    /,
    later: tuple[str, ...] = (),
    **learned: Spec,
) -> Recipe:
    """Recipe of an estimator, fitted or not.

    `learned` checks the attributes of a fitted one. `restore` gives them to an unfitted estimator;
    by default they are set.
    Files from before an attribute came, which is `later`, lack it.
    """
    specs: Any = {"n_features_in_": _n_columns, "feature_names_in_": _names, **learned}
    if hasattr(kind, "schema_"):
        specs["schema_"] = _schema

    def take(model: BaseEstimator) -> dict[str, Any]:
        parameters = model.get_params(deep=False)
        if isinstance(parameters.get("columns"), Mapping):  # whose keys may be numbers
            parameters["columns"] = tuple(parameters["columns"].items())
        if not fitted(model):
            return {"parameters": parameters}
        found = {"feature_names_in_": None, "schema_": None, **vars(model)}
        for name in specs.keys() - found.keys():
            raise FileError(
                f"the estimator is only partially fitted ({name} is missing); fit it again"
            )
        return {"parameters": parameters, **{name: found[name] for name in specs}}

    def make(f: Fields) -> BaseEstimator:
        model = kind(**f.pop("parameters"))
        if f:
            f.require_all(name for name in specs if name not in later)
            _check_names(f, f["feature_names_in_"], f.get("schema_"))
            if f["feature_names_in_"] is None:
                del f["feature_names_in_"]
            vars(model).update({name: f.pop(name) for name in COLUMNS if name in f})
            restore(model, f) if restore else vars(model).update(f)
        return model

    how: Any = {"make": make, "take": take, "required": ("parameters",)}
    return Recipe(kind, **how, parameters=_parameters(kind), **specs)


def _check_names(f: Fields, names: Any, schema: Schema | None) -> None:
    """Complain about names of columns that are not those of the schema."""
    if names is not None and schema is not None:
        f.require(list(names) == schema.names, "schema", "has other columns")


@parametrized
def _parameters(f: Fields, name: str, values: Any, kind: Any) -> None:
    item(dict)(f, name, values)
    for key in values.keys() - {*kind._get_param_names()}:
        raise FileError(f"{f.kind}'s parameter {quoted(key)} is {UNKNOWN}")
    hints = get_type_hints(kind.__init__)
    for key in values.keys() & {*CONFIGS}:
        item(hints[key])(f, key, values[key])
    columns = values.get("columns")
    if isinstance(columns, tuple) and all(isinstance(pair, tuple) for pair in columns):
        fits = all(len(pair) == 2 and isinstance(pair[0], str | int) for pair in columns)
        f.require(fits, "columns", "are no pairs of a key and a kind")
        values["columns"] = dict(columns)


def _n_columns(f: Fields, name: str, value: Any) -> None:
    whole()(f, name, value)
    f.agree(name, "d", value)


@parametrized
def _plan(f: Fields, name: str, plan: Any, method: str, letters: str) -> None:
    item(Plan, letters)(f, name, plan)
    f.require(plan.method == method, name, "is one of another method")


def _is_fitted(f: Fields, name: str, models: Any) -> None:
    for model in models if isinstance(models, list) else [models]:
        item(DensityEstimator, "d")(f, name, model)
        f.require(fitted(model), name, "is not fitted")


def _restore_detector(model: Any, f: Fields) -> None:
    models, units = f["estimator_"], f.setdefault("units_", None)
    size = None if units is None else len(units)
    fits = size == (len(models) if isinstance(models, list) else None)
    f.require(fits, "units_", "are not those of the estimators")
    vars(model).update(f)


def _check_readable(f: Fields) -> None:
    """Complain about features whose Gram matrix has no eigenvalues to read a density with."""
    size = float(f["plan_"].measure.gram(f["plan_"].features).abs().max())
    f.require(0 < size < MAX_COEFFICIENT, "plan_", "has features beyond measure")


def _restore_qaffde(model: QAFFDE, f: Fields) -> None:
    plan, sums = f["plan_"], f["sums_"]
    f.require(sums is not None, "sums_", "is missing")
    shape, is_table = sums.rho.shape, plan.schema is not None
    fits = shape == (plan.measure.n_statistics,) if is_table else len(shape) == 2
    f.require(fits, "sums_", "are not those of the plan")
    if f["_density"] is None and not is_table:
        _check_readable(f)
    model.restore(plan, sums, f["_density"])


def _restore_classifier(model: QAFFDEClassifier, f: Fields) -> None:
    plan, sums, density, prior = f["plan_"], f["sums_"], f["_density"], f["class_prior_"]
    fits = (prior >= 0).all() and 0 < prior.sum() < MAX_COEFFICIENT
    f.require(fits, "class_prior_", "must not be negative")
    f.require(isinstance(plan.measure, nn.GaussianMeasure), "plan_", "has another base measure")
    if plan.measurement == "gradient":
        f.require(density is not None, "_density", "is missing")
    else:
        f.agree("plan_", "d", plan.n_dims)
        f.require(sums is not None, "sums_", "is missing")
    if density is None:
        _check_readable(f)
    model.classes_ = f["classes_"]
    model.restore(plan, prior, sums, density, f["history_"])


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


def _restore_drift(model: Any, f: Fields) -> None:
    vars(model).update(f, _tested=None)


def _check_features(f: Fields) -> None:
    f.agree("codes", "d", len(f["codes"]))
    d, F = f.sizes["d"], f.sizes["F"]
    try:
        fits = TableFeatures(**f)(np.zeros((1, d))).shape[1] == F
    except (IndexError, RuntimeError):
        fits = False
    f.require(fits and d < f["blocks"].max() < F, "blocks", "are not those of the features")


_names, _schema = optional(array("d", kinds="OU")), optional((Schema, "d"))


RECIPES |= {
    "OpenColumn": Recipe(OpenColumn, name=str | int, kind=Kind, dtype=str),
    "ColumnCode": Recipe(
        ColumnCode,
        must("levels", lambda f: all(0 <= level <= 1 for level in f["levels"]), "are no shares"),
        kind=Kind,
        knots=array("k", empty=True),
        levels=array("k", empty=True),
        unit=number(0),
    ),
    "TableFeatures": Recipe(
        TableFeatures,
        _check_features,
        codes=items(ColumnCode, tuple, least=1),
        W=tensor("w k, limited", torch.float32),
        pairs=tensor("p 2", torch.int64),
        blocks=tensor("F, not negative", torch.int64),
    ),
    "Inputs": Recipe(
        Inputs,
        kinds=items(Kind, tuple, least=1),
        location="d",
        scale="d, positive",
        gaps=items(bool, tuple),
    ),
    "ConditionalDensity": Recipe(ConditionalDensity, network=MemberNetwork, head=BornHead),
    "MemberNetwork": Recipe(MemberNetwork, layers=items(MemberLinear, least=2)),
    "MemberLinear": Recipe(MemberLinear, weight="M i o, limited", bias="M 1 o, limited"),
    "BornHead": Recipe(
        BornHead,
        must("target", lambda f: isinstance(f["target"].kind, NUMBERS), "has no density"),
        take=lambda head: {
            **dict(zip(("n_components", "rank", "n_functions"), head.shape, strict=True)),
            "target": head.target,
        },
        n_components=whole(1, MAX_FUNCTIONS),
        rank=whole(1, MAX_FUNCTIONS),
        n_functions=whole(1, MAX_WAVES),
        target=Target,
    ),
    "Target": Recipe(Target, kind=Kind, location=number(), scale=number(0)),
}

ESTIMATORS = {
    "QAFFDE": estimator(
        QAFFDE,
        _restore_qaffde,
        plan_=_plan("closed_form", "d D"),
        sums_=optional((Sums, "D")),
        _density=optional((nn.StandardizedDensity | nn.TableDensity, "d")),
    ),
    "QAFFDESGD": estimator(
        QAFFDESGD,
        plan_=_plan("likelihood", "d D"),
        density_=(nn.StandardizedDensity | nn.TransformedDensity | nn.TableDensity, "d"),
        rank_=whole(),
        n_fourier_features_=whole(),
        history_=HISTORY,
    ),
    "QAFFDETensorTrain": estimator(
        QAFFDETensorTrain,
        density_=(nn.TableDensity, "d"),
        bond_=whole(),
        rank_=whole(),
        history_=History,
    ),
    "QAFFDEAutoregressive": estimator(
        QAFFDEAutoregressive, density_=(nn.TableDensity, "d"), history_=History
    ),
    "QAFFDEClassifier": estimator(
        QAFFDEClassifier,
        _restore_classifier,
        classes_=array("C", kinds="biufOU"),
        class_prior_=array("C"),
        plan_=_plan("classifier", "D"),
        sums_=optional((ClassSums, "C D")),
        _density=optional((nn.StandardizedDensity, "C d")),
        history_=HISTORY,
    ),
    "QAFFDERegressor": estimator(
        QAFFDERegressor,
        _restore_regressor,
        inputs_=(Inputs, "d"),
        densities_=items(ConditionalDensity, least=1),
        is_single_=bool,
        history_=HISTORY,
    ),
    "QAFFDEOutlierDetector": estimator(
        QAFFDEOutlierDetector,
        _restore_detector,
        later=("units_",),
        estimator_=_is_fitted,
        units_=optional(array("k 2")),
        offset_=number(),
        out_of_fold_scores_=array("n"),
    ),
    "KernelMixture": estimator(
        KernelMixture, density_=(nn.KernelMixture, "d"), bandwidth_=number(0)
    ),
    "QAFFDEDriftDetector": estimator(
        QAFFDEDriftDetector,
        _restore_drift,
        _seed=whole(0),
        _schema=_schema,
        _features=(TableFeatures, "d F"),
        n_reference_=whole(),
        group_size_=whole(),
        _reference=tensor("G F, limited, empty"),
        _new=tensor("N F, limited, empty"),
        _waiting=array("w d", empty=True, missing=True),
    ),
    "FourierFeatures": estimator(
        FourierFeatures,
        bandwidth_=array("d"),
        location_=array("d"),
        frequencies_=array("m d"),
        phases_=array("m"),
        amplitudes_=array("m"),
    ),
    "DerivedDensity": Recipe(
        DerivedDensity,
        lambda f: _check_names(f, f["feature_names"], f["schema"]),
        density=(nn.BornMixture | nn.TableDensity, "d"),
        required=("density", "feature_names", "schema"),
        feature_names=_names,
        schema=_schema,
        given=str,
    ),
}
"""Estimators that a file may hold."""


RECIPES |= ESTIMATORS

"""Recipes of the estimators, their plans, sums and configurations."""

import math
from collections import Counter
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
from qaffde.estimators.drift_features import ColumnCode, TableFeatures
from qaffde.estimators.fourier import FourierFeatures
from qaffde.estimators.outlier import QAFFDEOutlierDetector
from qaffde.estimators.qaffde import QAFFDE
from qaffde.estimators.qaffde_sgd import QAFFDESGD
from qaffde.estimators.regressor import Inputs, QAFFDERegressor, seen
from qaffde.estimators.tensor_train import QAFFDETensorTrain
from qaffde.files.fields import (
    MAX_COEFFICIENT,
    Fields,
    Spec,
    anything,
    array,
    checked,
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
from qaffde.kinds import Atom, Category, Integer, Kind, Periodic, Real
from qaffde.nn.conditional import BornHead, Target
from qaffde.nn.parts import Part
from qaffde.nn.recipes import MAX_FUNCTIONS, charge_gram, check_axes, check_factors
from qaffde.parameters import check_choice, check_rank, check_share
from qaffde.schema import Column, Schema
from qaffde.selection import Plan, SelectionPolicy, Trial
from qaffde.selection.policy import DEFAULT_POLICY
from qaffde.selection.table_mixture import CodeLaw, TableMixture
from qaffde.training import ComputeConfig, History, TensorTrainConfig, TrainingConfig
from qaffde.training.classes import MEASUREMENTS, ClassSums
from qaffde.training.closed_form import SPECTRUM_WIDENING, Sums
from qaffde.training.regression import ConditionalDensity, MemberLinear, MemberNetwork

MAX_WAVES = 256
"""Products of two waves are a table of the cube of their number."""
COLUMNS = ("n_features_in_", "feature_names_in_", "schema_")
CONFIGS = ("plan", "policy", "compute", "training")
"""Parameters that are objects of the class that the constructor says, or None."""
MEASURED = {
    "closed_form": (*SPECTRUM_WIDENING,),
    "likelihood": ("likelihood",),
    "classifier": (*MEASUREMENTS, "gradient"),
}
"""Measurements of the plans of each method."""
NUMBERS = Real | Integer | Periodic
"""Kinds of what a regressor predicts."""
CHECKED = (
    *(Real, Periodic, Integer, Category, Atom),
    *(ComputeConfig, TensorTrainConfig, TrainingConfig),
)
"""Classes that check all of their parameters."""
RETIRED = ("map_trial_rows",)
"""Constants of policies in older files, which have no effect now."""
ROUNDING = 1e-6
"""Share of its trace by which a density matrix may be negative, after rows were forgotten."""


def _check_plan(f: Fields) -> None:
    check_choice("measurement", f["measurement"], MEASURED[f["method"]])
    if f["background"] != 0:
        check_share("background", f["background"], auto=True)
    classes = f["method"] == "classifier"
    f.require(classes or f["axes"] is None, "axes", "are for classifiers only")
    measure, columns = f["measure"], f["columns"]
    parts = tuple(part for column in columns or () for part in column.parts)
    if isinstance(measure, TableMixture):
        f.require(measure.parts == parts and f["schema"], "measure", "is not of the columns")
        f.require(len(parts) == f["features"].n_dims, "features", "are not of the parts")
        f.agree("columns", "d", len(columns))
        return
    f.require(all(part.is_line for part in parts), "columns", "need a mixture")
    f.agree("location", "d", f.sizes["l"])
    f.agree("features", "q", f.sizes["w"])
    f.agree("measure", "q", f.sizes["m"])
    check_axes(f)
    f.require(columns is None or len(columns) == f.sizes["d"], "columns", "are not all")
    charge_gram(f)


def _check_mixture(f: Fields) -> None:
    sizes = Counter(part.kind for part in f["parts"])
    f.require(len(f["laws"]) == sizes["codes"], "laws", "are not those of the parts")
    f.require(f["means"].shape[1] == sizes["line"], "means", "are not those of the lines")


@parametrized
def _rho(f: Fields, name: str, rho: Any, shape: str) -> None:
    """Density matrices that are not normalized; without classes, or statistics of a mixture."""
    if shape == "D D" and isinstance(rho, torch.Tensor) and rho.ndim == 1:
        tensor("S, limited")(f, name, rho)
        return
    tensor(shape)(f, name, rho)
    trace = float(rho.diagonal(dim1=-2, dim2=-1).sum())
    f.require(0 < trace < MAX_COEFFICIENT, name, "is zero or beyond measure")
    slack = ROUNDING * trace
    f.require((rho - rho.mT).abs().max() <= slack, name, "is not symmetric")
    positive = torch.linalg.cholesky_ex(rho + slack * torch.eye(rho.shape[-1])).info == 0
    f.require(positive.all(), name, "is not positive semidefinite")


def _check_schema(f: Fields) -> None:
    for column in f["columns"]:
        known = not isinstance(column.kind, Category) or bool(column.kind.values)
        f.require(known, "columns", "has a category without labels")
    f.agree("columns", "d", len(f["columns"]))
    check_choice("library", str(f["library"]), ("None", "pandas", "polars", "pyarrow"))
    try:
        schema = Schema(**f)
        schema.encode(schema.decode(np.zeros((1, len(f["columns"])))))
    except ImportError:  # frames of a library that is not there
        pass
    except (TypeError, ValueError, OverflowError):
        f.require(False, "columns", "have a dtype that no frame has")


def _check_features(f: Fields) -> None:
    f.agree("codes", "d", len(f["codes"]))
    d, F = f.sizes["d"], f.sizes["F"]
    try:
        fits = TableFeatures(**f)(np.zeros((1, d))).shape[1] == F
    except (IndexError, RuntimeError):
        fits = False
    f.require(fits and d < f["blocks"].max() < F, "blocks", "are not those of the features")


_history = items(History)
_curves: Any = dict.fromkeys(
    ("train_loss", "valid_loss", "learning_rate", "seconds"), items(float | int)
)

RECIPES |= {
    "Plan": Recipe(
        Plan,
        _check_plan,
        method=checked(check_choice, choices=MEASURED),
        measurement=str,
        features=(nn.FourierFeatures, "w=d D"),
        measure=(nn.BaseMeasure | TableMixture, "m=d"),
        base=str,
        location="l, empty",
        scale="q, positive, empty",
        bandwidth="q, positive, empty",
        reach="2 q, infinite, empty",
        rank=lambda f, name, value: check_rank(value),
        ridge=number(),
        min_trace=checked(check_share, whole=True),
        background=anything,
        background_spread=number(0),
        tolerance=checked(check_share),
        n_rows=whole(),
        trials=items(Trial, tuple),
        axes=optional("d q"),
        noise=optional(", positive"),
        columns=optional(items(nn.TableColumn, tuple, least=1)),
        schema=optional((Schema, "d")),
    ),
    "TableMixture": Recipe(
        TableMixture,
        check_factors,
        _check_mixture,
        parts=items(Part, tuple, least=1),
        weights="K, positive",
        means="K d, empty",
        covariances="K d d, definite, empty",
        factors=items((nn.Factor, "K"), tuple),
        laws=items(CodeLaw, tuple),
        shrinkage=number(-math.ulp(0)),  # zero where there are no lines
        ridge=number(0),
    ),
    "CodeLaw": Recipe(CodeLaw, has_order=bool, strength=number(0), width=number(0)),
    "Trial": Recipe(Trial, name=str, n_rows=whole(), log_likelihood=number(), chosen=bool),
    "Sums": Recipe(Sums, rho=_rho("D D"), weight=number(0), count=number(1 - 1e-9)),
    "ClassSums": Recipe(
        ClassSums,
        must("weight", lambda f: f["weight"].sum() > 0, "must not be zero"),
        rho=_rho("C D D"),
        psi="C D, limited",
        weight="C, not negative",
    ),
    "History": Recipe(History, steps=items(int), **_curves, n_recoveries=int, stopped_by=str),
    "Schema": Recipe(
        Schema, _check_schema, columns=items(Column, tuple, least=1), library=anything
    ),
    **{
        kind.__name__: Recipe(kind, name=str | int, kind=Kind, dtype=str)
        for kind in (Column, OpenColumn)
    },
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
    **{kind.__name__: Recipe(kind) for kind in CHECKED},
    "SelectionPolicy": Recipe(
        SelectionPolicy,
        make=lambda f: SelectionPolicy(**{name: f[name] for name in f if name not in RETIRED}),
        take=vars,
        required=(),
        **dict.fromkeys((*vars(DEFAULT_POLICY), *RETIRED), anything),
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


def fitted(model: Any) -> bool:
    """Whether an estimator was fitted; a fit that failed leaves only the columns."""
    if hasattr(model, "__sklearn_is_fitted__"):
        return bool(model.__sklearn_is_fitted__())
    return any(name.endswith("_") and name not in COLUMNS for name in vars(model))


def estimator(
    kind: Any, restore: Callable[[Any, Fields], None] | None = None, /, **learned: Spec
) -> Recipe:
    """Recipe of an estimator, fitted or not.

    `learned` checks the attributes of a fitted one. `restore` gives them to an unfitted estimator;
    by default they are set.
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
            f.require_all(specs)
            if f["feature_names_in_"] is None:
                del f["feature_names_in_"]
            vars(model).update({name: f.pop(name) for name in COLUMNS if name in f})
            restore(model, f) if restore else vars(model).update(f)
        return model

    how: Any = {"make": make, "take": take, "required": ("parameters",)}
    return Recipe(kind, **how, parameters=_parameters(kind), **specs)


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


def _is_fitted(f: Fields, name: str, model: Any) -> None:
    item(DensityEstimator, "d")(f, name, model)
    f.require(fitted(model), name, "is not fitted")


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


def _restore_drift(model: QAFFDEDriftDetector, f: Fields) -> None:
    vars(model).update(f, _tested=None)


_names, _schema = optional(array("d", kinds="OU")), optional((Schema, "d"))

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
        history_=_history,
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
        history_=_history,
    ),
    "QAFFDERegressor": estimator(
        QAFFDERegressor,
        _restore_regressor,
        inputs_=(Inputs, "d"),
        densities_=items(ConditionalDensity, least=1),
        is_single_=bool,
        history_=_history,
    ),
    "QAFFDEOutlierDetector": estimator(
        QAFFDEOutlierDetector,
        estimator_=_is_fitted,
        offset_=number(),
        out_of_fold_scores_=array("n"),
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
        density=(nn.BornMixture | nn.TableDensity, "d"),
        required=("density", "feature_names", "schema"),
        feature_names=_names,
        schema=_schema,
        given=str,
    ),
}
"""Estimators that a file may hold."""
RECIPES |= ESTIMATORS

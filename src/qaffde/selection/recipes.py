"""Recipes of plans, sums and configurations."""

from dataclasses import fields as dataclass_fields
from typing import Any

from torch import Tensor

from qaffde.files.fields import Fields
from qaffde.files.values import RECIPES, Recipe, attributes
from qaffde.nn import BaseMeasure, FourierFeatures
from qaffde.nn.recipes import MAX_COEFFICIENT, n_columns
from qaffde.parameters import check_rank
from qaffde.selection import Plan, SelectionPolicy, Trial
from qaffde.training import ComputeConfig, History, TrainingConfig
from qaffde.training.class_readings import MEASUREMENTS
from qaffde.training.closed_form import READINGS, ClassSums, Sums

MEASURED = {
    "closed_form": (*READINGS,),
    "likelihood": ("likelihood",),
    "classifier": (*MEASUREMENTS, "gradient"),
}
"""Measurements of the plans of each method."""


def _names(kind: Any) -> list[str]:
    return [field.name for field in dataclass_fields(kind)]


def _plan(f: Fields) -> Plan:
    features, measure = f.item("features", FourierFeatures), f.item("measure", BaseMeasure)
    q = features.n_dims
    f.require(n_columns(measure) == q, "measure", "has other columns")
    axes = f.tensor("axes", "d", q) if f.get("axes") is not None else None
    noise = f.positive("noise") if f.get("noise") is not None else None
    f.require(noise is None or axes is not None, "noise", "is of no direction")
    rank, background = f.get("rank"), f.get("background")
    check_rank(rank)
    SelectionPolicy(background=background)  # for its checks
    method = f.choice("method", MEASURED)
    trials = f.item("trials", tuple)
    f.require(all(isinstance(trial, Trial) for trial in trials), "trials", "hold no trials")
    return Plan(
        method=method,
        location=f.tensor("location", q if axes is None else "d"),
        scale=f.positive("scale", q),
        bandwidth=f.positive("bandwidth", q),
        base=f.item("base", str),
        measure=measure,
        features=features,
        reach=f.tensor("reach", 2, q, finite=False),
        measurement=f.choice("measurement", MEASURED[method]),
        rank=rank,
        ridge=f.number("ridge"),
        min_trace=f.number("min_trace", 0, 1 + 1e-12),
        background=background,
        background_spread=f.number("background_spread", 0),
        tolerance=f.number("tolerance", 0, 1),
        n_rows=f.count("n_rows"),
        trials=trials,
        axes=axes,
        noise=noise,
    )


def _trial(f: Fields) -> Trial:
    return Trial(
        f.item("name", str), f.count("n_rows"), f.number("log_likelihood"), f.item("chosen", bool)
    )


def _sums(f: Fields) -> Sums:
    least = 1 - 1e-9  # (Σw)² is at least Σw²
    return Sums(_rho(f, "D", "D"), f.number("weight", 0), f.number("count", least))


def _rho(f: Fields, *shape: str) -> Tensor:
    rho = f.tensor("rho", *shape)
    trace = float(rho.diagonal(dim1=-2, dim2=-1).sum())
    f.require(0 < trace < MAX_COEFFICIENT, "rho", "is zero or beyond measure")
    return rho


def _config(kind: Any) -> Recipe:
    """Recipe of a configuration, which checks its own values; what a file lacks is as usual."""

    def make(f: Fields) -> Any:
        return kind(**{name: f.get(name) for name in _names(kind) if name in f})

    return Recipe(kind, attributes(*_names(kind)), make)


def _class_sums(f: Fields) -> ClassSums:
    weight = f.tensor("weight", "C")
    f.require((weight >= 0).all() and weight.sum() > 0, "weight", "must not be negative")
    return ClassSums(_rho(f, "C", "D", "D"), f.tensor("psi", "C", "D"), weight)


def _history(f: Fields) -> History:
    return History(
        f.items("steps", int),
        f.items("train_loss", float | int),
        f.items("valid_loss", float | int),
        f.items("learning_rate", float | int),
        f.items("seconds", float | int),
        n_recoveries=f.item("n_recoveries", int),
        stopped_by=f.item("stopped_by", str),
    )


RECIPES |= {
    "ClassSums": Recipe(ClassSums, attributes("rho", "psi", "weight"), _class_sums),
    "History": Recipe(History, attributes(*_names(History)), _history),
    "Plan": Recipe(Plan, attributes(*_names(Plan)), _plan),
    "Trial": Recipe(Trial, attributes(*_names(Trial)), _trial),
    "Sums": Recipe(Sums, attributes(*_names(Sums)), _sums),
    **{kind.__name__: _config(kind) for kind in (ComputeConfig, TrainingConfig, SelectionPolicy)},
}

"""Recipes of plans, sums, kinds of columns and configurations."""

import math
from collections import Counter
from typing import Any

import numpy as np
import torch

from qaffde import nn
from qaffde.files.fields import (
    MAX_COEFFICIENT,
    Fields,
    anything,
    checked,
    items,
    number,
    optional,
    parametrized,
    tensor,
    whole,
)
from qaffde.files.values import RECIPES, Recipe, must
from qaffde.kinds import Atom, Category, Integer, Kind, Periodic, Real
from qaffde.nn.parts import Part
from qaffde.nn.recipes import charge_gram, check_axes
from qaffde.nn.table_recipes import check_factors
from qaffde.parameters import check_choice, check_rank, check_share
from qaffde.schema import Column, Schema
from qaffde.selection import Plan, SelectionPolicy, Trial
from qaffde.selection.policy import DEFAULT_POLICY
from qaffde.selection.table_mixture import CodeLaw, TableMixture
from qaffde.training import ComputeConfig, History, TensorTrainConfig, TrainingConfig
from qaffde.training.classes import MEASUREMENTS, ClassSums
from qaffde.training.closed_form import SPECTRUM_WIDENING, Sums

MEASURED = {
    "closed_form": (*SPECTRUM_WIDENING,),
    "likelihood": ("likelihood",),
    "classifier": (*MEASUREMENTS, "gradient"),
}
"""Measurements of the plans of each method."""
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


HISTORY = items(History)


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
    "Column": Recipe(Column, name=str | int, kind=Kind, dtype=str),
    **{kind.__name__: Recipe(kind) for kind in CHECKED},
    "SelectionPolicy": Recipe(
        SelectionPolicy,
        make=lambda f: SelectionPolicy(**{name: f[name] for name in f if name not in RETIRED}),
        take=vars,
        required=(),
        **dict.fromkeys((*vars(DEFAULT_POLICY), *RETIRED), anything),
    ),
}

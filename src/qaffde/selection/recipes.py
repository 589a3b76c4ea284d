"""Recipes of plans, sums and configurations."""

from dataclasses import fields
from typing import Any

import numpy as np
import torch

from qaffde.files import fields as check
from qaffde.files.fields import (
    Check,
    Fields,
    checked,
    item,
    items,
    number,
    optional,
    positive,
    reals,
)
from qaffde.files.format import FileError
from qaffde.files.values import RECIPES, Recipe
from qaffde.kinds import Atom, Category, Integer, Kind, Periodic, Real
from qaffde.nn import BaseMeasure, Factor, FourierFeatures, TableColumn
from qaffde.nn.parts import Part
from qaffde.nn.recipes import MAX_COEFFICIENT, charge_gram, check_axes
from qaffde.parameters import check_choice, check_rank, check_share
from qaffde.schema import Column, Schema
from qaffde.selection import Plan, SelectionPolicy, Trial
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
KINDS: tuple[Any, ...] = (Real, Periodic, Integer, Category, Atom)
CONSTANTS = tuple(field.name for field in fields(SelectionPolicy))
GONE = (
    "averaged_rows",
    "averaged_strength",
    "averaged_work",
    "base_errors",
    "map_trial_features",
    "max_choice_rows",
    "max_sweeps",
    "min_averaged_columns",
)
"""Constants of earlier searches, which files may hold."""
OLD_TABLE = (
    *("method", "schema", "columns", "location", "scale", "laws", "n_components", "background"),
    *("background_spread", "n_rows", "trials"),
)
ROUNDING = 1e-6
"""Share of its trace by which a density matrix may be negative, after rows were forgotten."""


def _plan(f: Fields) -> Plan:
    check_choice("measurement", f["measurement"], MEASURED[f["method"]])
    classes = f["method"] == "classifier"
    f.require(classes or f["axes"] is None, "axes", "are for classifiers only")
    if "maps" in f:  # what columns were called at first
        f["columns"] = f.pop("maps")
    measure, columns = f["measure"], f.get("columns")
    parts = tuple(part for column in columns or () for part in column.parts)
    if isinstance(measure, TableMixture):
        f.require(measure.parts == parts and f.get("schema"), "measure", "is not of the columns")
        f.agree("columns", "d", len(columns or ()))
        return Plan(**f)
    f.require(all(part.is_line for part in parts), "columns", "need a mixture")
    f.agree("location", "d", f.sizes["l"])
    f.agree("features", "q", f.sizes["w"])
    f.agree("measure", "q", f.sizes["m"])
    check_axes(f, "location", f["axes"], f["noise"])
    f.require(columns is None or len(columns) == f.sizes["d"], "columns", "are not all")
    charge_gram(f)
    return Plan(**f)


def _old_table(f: Fields) -> Plan:
    raise FileError(
        "the file holds the fit of a table by a version of qaffde that could not add rows to it; "
        "fit the table again"
    )


def _table_mixture(f: Fields) -> TableMixture:
    parts = f["parts"]
    others = [part for part in parts if not part.is_line]
    f.require([factor.part for factor in f["factors"]] == others, "factors", "are not the parts'")
    n_codes = sum(part.kind == "codes" for part in parts)
    f.require(len(f["laws"]) == n_codes, "laws", "are not those of the parts")
    c = sum(part.is_line for part in parts)
    f.require(f["means"].shape[1] == c, "means", "are not those of the lines")
    definite = torch.linalg.cholesky_ex(f["covariances"]).info == 0
    f.require(definite.all(), "covariances", "must be positive definite")
    return TableMixture(**f)


def _class_sums(f: Fields) -> ClassSums:
    weight = f["weight"]
    f.require((weight >= 0).all() and weight.sum() > 0, "weight", "must not be negative")
    return ClassSums(**f)


@check.parametrized
def _rho(f: Fields, name: str, rho: Any, *shape: str) -> None:
    """Density matrices that are not normalized, or statistics of a mixture."""
    if isinstance(rho, torch.Tensor) and rho.ndim == 1:
        reals("S", most=MAX_COEFFICIENT)(f, name, rho)
        return
    reals(*shape)(f, name, rho)
    trace = float(rho.diagonal(dim1=-2, dim2=-1).sum())
    f.require(0 < trace < MAX_COEFFICIENT, name, "is zero or beyond measure")
    slack = ROUNDING * trace
    f.require((rho - rho.mT).abs().max() <= slack, name, "is not symmetric")
    positive = torch.linalg.cholesky_ex(rho + slack * torch.eye(rho.shape[-1])).info == 0
    f.require(positive.all(), name, "is not positive semidefinite")


def _background(f: Fields, name: str, value: Any) -> None:
    """A share, or zero, where there is none."""
    if value != 0:
        check_share(name, value, auto=True)


@check.parametrized
def _or_empty(f: Fields, name: str, value: Any, own: Check, letter: str) -> None:
    """Doubles that pass a check, or none, where a table has no lines."""
    item(torch.Tensor)(f, name, value)
    if value.numel():
        own(f, name, value)
    else:
        f.require(value.dtype == torch.float64, name, "is of another type")
        f.agree(name, letter, 0)


def _schema(f: Fields) -> Schema:
    for column in f["columns"]:
        known = not isinstance(column.kind, Category) or bool(column.kind.values)
        f.require(known, "columns", "has a category without labels")
    f.agree("columns", "d", len(f["columns"]))
    check_choice("library", str(f["library"]), ("None", "pandas", "polars", "pyarrow"))
    schema = Schema(**f)
    try:
        schema.decode(np.zeros((1, len(schema.columns))))
    except ImportError:  # frames of a library that is not there
        pass
    except (TypeError, ValueError, OverflowError):
        f.require(False, "columns", "have a dtype that no frame has")
    return schema


_floats = items(item(float | int))

RECIPES |= {
    "Plan": Recipe(
        Plan,
        _plan,
        lambda plan: {field.name: getattr(plan, field.name) for field in fields(Plan)},
        tuple(field.name for field in fields(Plan) if field.name not in ("columns", "schema")),
        method=checked(check_choice, choices=MEASURED),
        measurement=item(str),
        features=item(FourierFeatures, w="d", D="D"),
        measure=item(BaseMeasure | TableMixture, m="d"),
        base=item(str),
        location=_or_empty(reals("l"), "l"),
        scale=_or_empty(positive("q"), "q"),
        bandwidth=_or_empty(positive("q"), "q"),
        reach=_or_empty(reals(2, "q", finite=False), "q"),
        rank=lambda f, name, value: check_rank(value),
        ridge=number(),
        min_trace=checked(check_share, whole=True),
        background=_background,
        background_spread=number(0),
        tolerance=checked(check_share),
        n_rows=check.whole(),
        trials=items(item(Trial), tuple),
        axes=optional(reals("d", "q")),
        noise=optional(positive()),
        maps=optional(item(tuple)),
        columns=optional(items(item(TableColumn), tuple, least=1)),
        schema=optional(item(Schema, d="d")),
    ),
    "TablePlan": Recipe(Fields, _old_table, None, (), **dict.fromkeys(OLD_TABLE, check.anything)),
    "TableMixture": Recipe(
        TableMixture,
        _table_mixture,
        parts=items(item(Part), tuple, least=1),
        weights=positive("K"),
        means=_or_empty(reals("K", "d"), "d"),
        covariances=_or_empty(reals("K", "d", "d"), "d"),
        factors=items(item(Factor, K="K"), tuple),
        laws=items(item(CodeLaw), tuple),
    ),
    "CodeLaw": Recipe(CodeLaw, has_order=item(bool), strength=number(0), width=number(0)),
    "Trial": Recipe(
        Trial, name=item(str), n_rows=check.whole(), log_likelihood=number(), chosen=item(bool)
    ),
    "Sums": Recipe(Sums, rho=_rho("D", "D"), weight=number(0), count=number(1 - 1e-9)),
    "ClassSums": Recipe(
        ClassSums,
        _class_sums,
        rho=_rho("C", "D", "D"),
        psi=reals("C", "D", most=MAX_COEFFICIENT),
        weight=reals("C"),
    ),
    "History": Recipe(
        History,
        steps=items(item(int)),
        **dict.fromkeys(("train_loss", "valid_loss", "learning_rate", "seconds"), _floats),
        n_recoveries=item(int),
        stopped_by=item(str),
    ),
    "Schema": Recipe(
        Schema, _schema, columns=items(item(Column), tuple, least=1), library=check.anything
    ),
    "Column": Recipe(Column, name=item(str | int), kind=item(Kind), dtype=item(str)),
    **{
        kind.__name__: Recipe(kind, **{f.name: check.anything for f in fields(kind)})
        for kind in KINDS
    },
    # Configurations check their own values; constants that a file lacks have their defaults.
    **{
        kind.__name__: Recipe(
            kind, None, None, (), **{f.name: check.anything for f in fields(kind)}
        )
        for kind in (ComputeConfig, TensorTrainConfig, TrainingConfig)
    },
    "SelectionPolicy": Recipe(
        SelectionPolicy,
        lambda f: SelectionPolicy(**{name: f[name] for name in f if name not in GONE}),
        lambda policy: {name: getattr(policy, name) for name in CONSTANTS},
        (),
        **dict.fromkeys((*CONSTANTS, *GONE), check.anything),
    ),
}

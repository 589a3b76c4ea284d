"""Recipes of plans, sums and configurations."""

from dataclasses import fields
from typing import Any

import torch

from qaffde.files import fields as check
from qaffde.files.fields import Fields, checked, item, items, number, optional, positive, reals
from qaffde.files.values import RECIPES, Recipe
from qaffde.kinds import Atom, Category, Integer, Kind, Periodic, Real
from qaffde.nn import BaseMeasure, ColumnMaps, FourierFeatures, TableColumn
from qaffde.nn.recipes import MAX_COEFFICIENT, charge_gram, check_axes
from qaffde.parameters import check_choice, check_rank, check_share
from qaffde.schema import Column, Schema
from qaffde.selection import Plan, SelectionPolicy, Trial
from qaffde.selection.table_mixture import CodeLaw
from qaffde.selection.tables import TablePlan
from qaffde.training import ComputeConfig, History, TensorTrainConfig, TrainingConfig
from qaffde.training.classes import MEASUREMENTS, ClassSums
from qaffde.training.closed_form import READINGS, Sums

MEASURED = {
    "closed_form": (*READINGS,),
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
    "map_trial_features",
    "max_choice_rows",
    "max_sweeps",
    "min_averaged_columns",
)
"""Constants of earlier searches, which files may hold."""
ROUNDING = 1e-6
"""Share of its trace by which a density matrix may be negative, after rows were forgotten."""


def _plan(f: Fields) -> Plan:
    check_choice("measurement", f["measurement"], MEASURED[f["method"]])
    check_axes(f, "location", f["axes"], f["noise"])
    classes = f["method"] == "classifier"
    f.require(classes or f["axes"] is None, "axes", "are for classifiers only")
    charge_gram(f)
    return Plan(**f)


def _class_sums(f: Fields) -> ClassSums:
    weight = f["weight"]
    f.require((weight >= 0).all() and weight.sum() > 0, "weight", "must not be negative")
    return ClassSums(**f)


@check.parametrized
def _rho(f: Fields, name: str, rho: Any, *shape: str) -> None:
    """Density matrices that are not normalized."""
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


def _units(f: Fields, name: str, value: Any) -> None:
    """A finite double for each line, of which there may be none."""
    item(torch.Tensor)(f, name, value)
    if value.numel():
        reals("c", positive=name == "scale")(f, name, value)
    else:
        f.agree(name, "c", 0)


def _table_plan(f: Fields) -> TablePlan:
    f.agree("columns", "d", len(f["columns"]))
    parts = [part for column in f["columns"] for part in column.parts]
    f.agree("columns", "c", sum(part.is_line for part in parts))
    n_codes = sum(part.kind == "codes" for part in parts)
    f.require(len(f["laws"]) == n_codes, "laws", "are not those of the parts")
    return TablePlan(**f)


def _schema(f: Fields) -> Schema:
    f.agree("columns", "d", len(f["columns"]))
    check_choice("library", str(f["library"]), ("None", "pandas", "polars", "pyarrow"))
    return Schema(**f)


_floats = items(item(float | int))

RECIPES |= {
    "Plan": Recipe(
        Plan,
        _plan,
        None,
        tuple(field.name for field in fields(Plan) if field.name != "maps"),
        method=checked(check_choice, choices=MEASURED),
        measurement=item(str),
        features=item(FourierFeatures, q="d", D="D"),
        measure=item(BaseMeasure, q="d"),
        base=item(str),
        location=reals("d"),
        scale=positive("q"),
        bandwidth=positive("q"),
        reach=reals(2, "q", finite=False),
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
        maps=optional(item(ColumnMaps, d="d")),
    ),
    "TablePlan": Recipe(
        TablePlan,
        _table_plan,
        method=checked(check_choice, choices=("closed_form", "likelihood")),
        schema=item(Schema, d="d"),
        columns=items(item(TableColumn), tuple, least=1),
        location=_units,
        scale=_units,
        laws=items(item(CodeLaw), tuple),
        n_components=check.whole(),
        background=_background,
        background_spread=number(0),
        n_rows=check.whole(),
        trials=items(item(Trial), tuple),
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

"""Fits of tables: columns of kinds other than real, and rows with gaps."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sklearn.utils.validation import _check_sample_weight
from torch import Tensor

from qaffde.estimators.base import check_configs, declare_columns
from qaffde.frames import as_frame
from qaffde.kinds import Real
from qaffde.nn import TableDensity
from qaffde.parameters import check_choice, check_sum
from qaffde.schema import Schema, asked_kinds
from qaffde.selection.plan import TRANSFORMATIONS
from qaffde.selection.tables import TablePlan, select_table, solve_table
from qaffde.streams import LARGE
from qaffde.training.run import Run

WHOLE = (
    "a table with kinds of columns or gaps is fitted as a whole, by expectation–maximization: "
    "rows cannot be added, merged or forgotten; fit again with all rows"
)


@dataclass(frozen=True, eq=False)
class Table:
    """Rows that are not plain numbers.

    Parameters
    ----------
    schema : Schema
    rows, weight : Tensors of shapes (n, d), (n,)
        NaN where a value is missing.
    """

    schema: Schema
    rows: Tensor
    weight: Tensor


def as_table(X: Any, sample_weight: Any, columns: Any, plan: Any) -> Table | None:
    """The rows as a table, or None where all columns are real and complete, or come in chunks."""
    schema = plan.schema if isinstance(plan, TablePlan) else None
    if schema is None:
        has_kinds = not isinstance(columns, str | None) or columns not in ("auto", None)
        if as_frame(X) is None and not _is_array(X, gaps=not has_kinds):
            return None
        schema = Schema.infer(X, columns)
    rows = schema.encode(X)
    if not isinstance(plan, TablePlan) and schema.is_real and not np.isnan(rows).any():
        return None
    schema.check(rows)
    weight = _check_sample_weight(sample_weight, rows, dtype=np.float64, ensure_non_negative=True)
    check_sum(weight)
    kept = (weight > 0) & ~np.isnan(rows).all(1)
    if kept.sum() < 2:
        raise ValueError(
            "fewer than two rows have a value and a positive sample_weight; a density needs at "
            "least two"
        )
    return Table(schema, torch.tensor(rows[kept]), torch.tensor(weight[kept]))


def _is_array(X: Any, *, gaps: bool) -> bool:
    """Whether rows are an array in memory, or a list, with gaps where those are asked for."""
    if not isinstance(X, np.ndarray | list | tuple) or (
        isinstance(X, np.ndarray) and X.size > LARGE
    ):
        return False
    if not gaps:
        return True
    try:
        array = np.asarray(X)
    except ValueError:
        return False
    return bool(array.dtype.kind == "f" and array.ndim == 2 and np.isnan(array).any())


def known_ends(model: Any, source: Any = None) -> Any:
    """Pairs of ends of an estimator's real columns, or of those of a source; None without any.

    Raises
    ------
    ValueError
        If a column is of another kind: rows that come in chunks are real.
    """
    names = getattr(model, "feature_names_in_", None) if source is None else source.names
    d = model.n_features_in_ if source is None else source.n_columns
    listed = list(range(d)) if names is None else [str(name) for name in names]
    kinds = asked_kinds(model.columns, listed)
    for number, kind in kinds.items():
        if not isinstance(kind, Real):
            raise ValueError(
                f"column {listed[number]!r} is {kind}, but rows in chunks, large arrays and Dask "
                "collections have real columns only; fit a data frame or an array in memory"
            )
    real = [kinds.get(k, Real()) for k in range(d)]
    ends = [(kind.lower, kind.upper) for kind in real if isinstance(kind, Real)]
    return None if all(pair == (None, None) for pair in ends) else ends


def fit_table(model: Any, table: Table, method: str, seed: int) -> tuple[TablePlan, TableDensity]:
    """Plan and density of a table with the parameters of an estimator."""
    _check_parameters(model)
    declare_table(model, table)
    run = Run(model.time_limit, verbose=bool(model.verbose))
    plan, start = model.plan, None
    if plan is None:
        size = model.base_measure
        plan, start = select_table(
            table.rows,
            table.weight,
            table.schema,
            method=method,
            transformation=model.transformation,
            n_components=None if isinstance(size, str) else int(size),
            policy=model.policy,
            seed=seed,
            run=run,
        )
    elif not isinstance(plan, TablePlan):
        raise ValueError(
            "the plan is one of real columns without gaps, but the table has kinds or gaps; fit "
            "without plan"
        )
    elif plan.method != method:
        raise ValueError(f"the plan is one of {plan.method}; this estimator needs {method}")
    density = solve_table(
        plan, table.rows, table.weight, start=start, policy=model.policy, seed=seed
    )
    return plan, density


def declare_table(model: Any, table: Table) -> None:
    """Let the columns of an estimator be those of a table from now on."""
    names = [column.name for column in table.schema.columns]
    named = all(isinstance(name, str) for name in names)
    declare_columns(model, len(names), names if named else None, reset=True)
    model.schema_ = table.schema


def kinds_of(model: Any) -> Any:
    """Kinds that an estimator asks for; all are real where its parameters ask for features."""
    is_auto = isinstance(model.columns, str) and model.columns == "auto"
    return None if is_auto and not takes_tables(model) else model.columns


def takes_tables(model: Any) -> bool:
    """Whether the parameters of an estimator leave a table, with gaps, to a mixture."""
    try:
        _check_parameters(model)
    except ValueError:
        return False
    return True


def _check_parameters(model: Any) -> None:
    check_configs(model)
    for name in ("n_features", "bandwidth", "rank", "features"):
        value = getattr(model, name)
        if not isinstance(value, str) or value != "auto":
            raise ValueError(
                f"{name}={value!r}, but a table with kinds of columns or gaps (NaN) has no "
                f"Fourier features: its density is a mixture. Leave {name}='auto'"
            )
    size = model.base_measure
    if isinstance(size, str) and size not in ("auto", "mixture"):
        raise ValueError(
            f"base_measure={size!r}, but the base measure of a table with kinds of columns or "
            "gaps (NaN) is a mixture; give 'auto', 'mixture' or its number of components"
        )
    if model.transformation is not None:
        check_choice("transformation", model.transformation, TRANSFORMATIONS)

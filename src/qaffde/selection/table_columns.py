"""Columns of a table as parts: their maps, codes and units, from the rows."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from qaffde.kinds import Atom, Category, Integer, Kind, Periodic, Real
from qaffde.nn import AtomColumn, CircleColumn, CodeColumn, ColumnMap, RealColumn, TableColumn
from qaffde.selection.columns import bounded_maps, learned_maps
from qaffde.selection.policy import SelectionPolicy
from qaffde.selection.summary import Summary

PADDING = 0.1
"""Of the range of integers at either end, for values that are still to come."""


def table_columns(
    X: Tensor,
    weight: Tensor,
    kinds: Sequence[Kind],
    policy: SelectionPolicy,
    seed: int,
    *,
    mapped: bool,
    auto: bool,
) -> list[TableColumn]:
    """Columns of a table as parts.

    Parameters
    ----------
    X, weight : Tensors of shapes (n, d), (n,)
    kinds : sequence of Kind
    policy : SelectionPolicy
    seed : int
    mapped : bool
        Whether real columns have maps to normal scores.
    auto : bool
        Whether those stay as they are that a Gaussian fits as well.
    """

    def real(x: Tensor, kind: Real) -> RealColumn:
        known = ~x.isnan()
        ends = torch.tensor(
            [[math.nan if end is None else end] for end in (kind.lower, kind.upper)]
        ).double()
        if known.sum() < 2:
            return RealColumn(_between(ends))
        summary = Summary.of(x[known, None].contiguous(), weight[known], seed)
        if mapped:
            found = learned_maps(summary, ends, policy, show_zero=True, skip_normal=auto)[0]
            if not found.is_identity or bool(ends.isnan().all()):
                return RealColumn(found)
        return RealColumn(ColumnMap() if ends.isnan().all() else bounded_maps(summary, ends)[0])

    found: list[TableColumn] = []
    for x, kind in zip(X.T, kinds, strict=True):
        match kind:
            case Real():
                found.append(real(x, kind))
            case Periodic():
                found.append(CircleColumn(kind.period, kind.start))
            case Integer():
                found.append(_integers(x, policy))
            case Category():
                found.append(CodeColumn(len(kind.values or ()), has_order=False))
            case Atom():
                others = torch.where(x == kind.value, math.nan, x)
                found.append(AtomColumn(kind.value, real(others, kind.rest)))
    return found


def _between(ends: Tensor) -> ColumnMap:
    """Map of a column that has known ends but no values."""
    if ends.isnan().all():
        return ColumnMap()
    lower, upper = ends[:, 0].tolist()
    low = upper - 1 if math.isnan(lower) else lower
    high = lower + 1 if math.isnan(upper) else upper
    knots = torch.tensor([0.75 * low + 0.25 * high, 0.25 * low + 0.75 * high]).double()
    infinite = torch.tensor([-torch.inf, torch.inf]).double()
    outer = torch.where(ends[:, 0].isnan(), infinite, ends[:, 0])
    return ColumnMap(knots, knots, torch.ones_like(knots), ends=outer)


def _integers(x: Tensor, policy: SelectionPolicy) -> CodeColumn:
    """Integers from the least to the largest, and some more; none below zero unless seen."""
    known = x[~x.isnan()]
    low, high = int(known.min()), int(known.max())
    room = 1 + math.ceil(PADDING * (high - low))
    first = max(0, low - room) if low >= 0 else low - room
    size = high + room + 1 - first
    if size > policy.max_codes:
        raise ValueError(
            f"an integer column goes from {low} to {high}, more than {policy.max_codes} values; "
            "make it real: columns={...: 'real'}"
        )
    return CodeColumn(size, first)


def line_units(X: Tensor, weight: Tensor, columns: Sequence[TableColumn]) -> tuple[Tensor, Tensor]:
    """Means and deviations (c,) of the known values of the lines."""
    found = []
    for x, column in zip(X.T, columns, strict=True):
        if column.parts[-1].is_line:
            z = column.encode(x)[0][:, -1]
            known = ~z.isnan()
            share = weight[known] / weight[known].sum().clamp(min=1e-300)
            mean = share @ z[known]
            deviation = (share @ (z[known] - mean).square()).sqrt()
            level = max(1e-9 * float(mean.abs()), 1e-300)
            found.append((float(mean), float(deviation) if deviation > level else 1.0))
    units: Any = torch.tensor(found, dtype=torch.float64).reshape(-1, 2).T
    return units[0].contiguous(), units[1].contiguous()

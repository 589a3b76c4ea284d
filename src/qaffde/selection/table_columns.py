"""Columns of a table as parts: their maps, codes and units, from the rows."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from qaffde.kinds import Atom, Category, Integer, Kind, Periodic, Real
from qaffde.nn import AtomColumn, CircleColumn, CodeColumn, RealColumn, TableColumn
from qaffde.nn.columns import encode_columns
from qaffde.parameters import check_inside, read_bounds
from qaffde.selection.columns import bounded_maps, known_ends, learned_maps
from qaffde.selection.policy import DEFAULT_POLICY, SelectionPolicy
from qaffde.selection.summary import TOO_LARGE, Source, Summary, robust_units


def table_columns(
    rows: Summary,
    kinds: Sequence[Kind],
    policy: SelectionPolicy,
    seed: int,
    *,
    mapped: bool,
    auto: bool,
) -> list[TableColumn]:
    """Columns of a table as parts.

    `rows` are those as :class:`~qaffde.schema.Schema` encodes them. Real columns may be `mapped`
    to normal scores, but for those that a Gaussian fits as well, if the choice is `auto`.
    """

    def real(x: Tensor, kind: Real, name: str) -> RealColumn:
        known = ~x.isnan()
        outer = [[math.nan if end is None else end] for end in (kind.lower, kind.upper)]
        ends = torch.tensor(outer, dtype=torch.float64)
        if not is_varied(x[known]):
            return _about(x[known], ends[:, 0], policy.lone_scale)
        summary = Summary.of(x[known, None].contiguous(), rows.weight[known], seed)
        robust_units(summary, policy, [name])  # refuses what float64 cannot hold
        if mapped:
            found = learned_maps(summary, ends, policy, show_zero=True, skip_normal=auto)[0]
            if not found.is_identity or bool(ends.isnan().all()):
                return found
        return RealColumn() if ends.isnan().all() else bounded_maps(summary, ends, policy)[0]

    found: list[TableColumn] = []
    schema = rows.schema
    names = range(len(kinds)) if schema is None else [column.name for column in schema.columns]
    for x, ends, kind, name in zip(rows.rows.T, rows.moments.ends.T, kinds, names, strict=True):
        if not ends.isfinite().all():
            raise ValueError(f"column {name!r} has no value at all; drop it")
        match kind:
            case Real():
                found.append(real(x, kind, str(name)))
            case Periodic():
                found.append(CircleColumn(kind.period, kind.start))
            case Integer():
                found.append(_integers(ends, policy))
            case Category():
                found.append(CodeColumn(len(kind.values or ()), has_order=False))
            case Atom():
                others = torch.where(x == kind.value, math.nan, x)
                found.append(AtomColumn(kind.value, real(others, kind.rest, str(name))))
    return found


def normal_scores(
    source: Source, policy: SelectionPolicy, seed: int
) -> tuple[list[TableColumn], Tensor, Tensor, Tensor]:
    """Columns with real ones as normal scores, rows (n, d), their parts (n, q), weights (n,)."""
    rows, weight = source.rows(seed)  # NaN for gaps
    n, d = rows.shape
    check_inside(read_bounds(source.ends, d), rows, range(n))
    kinds = [Real()] * d if source.schema is None else source.schema.kinds
    summary = Summary.of(rows, weight, seed, n)
    columns = table_columns(summary, kinds, policy, seed, mapped=True, auto=False)
    for column, x in zip(columns, rows.T, strict=True):
        _standardize_plain(column, x, weight, policy)
    return columns, rows, encode_columns(columns, rows)[0], weight


def _standardize_plain(
    column: TableColumn, x: Tensor, weight: Tensor, policy: SelectionPolicy
) -> None:
    """Give a real column that is too short for a map of its own one to mean 0 and variance 1."""
    real = column.rest if isinstance(column, AtomColumn) else column
    if not isinstance(real, RealColumn) or not real.is_identity:
        return
    location, scale = line_units(x[:, None], weight, [column], policy)
    sides = torch.tensor([-1.0, 1.0], dtype=torch.float64)
    real.knots, real.values = location + scale * sides, sides
    real.slopes = (1 / scale).expand(2).clone()


def _about(known: Tensor, ends: Tensor, lone: float) -> RealColumn:
    """Map of a column that has known ends (2,) but one value only, or none: two knots about it."""
    if ends.isnan().all():
        return RealColumn()
    outer = known_ends(ends)
    middle = ends.mean() if outer.isfinite().all() else ends.nanmean()
    value = known[0] if len(known) else middle
    width = (lone * value.abs()).clamp(min=1).minimum((outer[1] - outer[0]) / 4)
    center = value.clamp(outer[0] + 2 * width, outer[1] - 2 * width)
    sides = ends.new_tensor([-1.0, 1.0])
    slopes = (1 / width).expand(2).clone()
    return RealColumn(center + width * sides, sides, slopes, ends=outer, inset=width.expand(2))


def _integers(ends: Tensor, policy: SelectionPolicy) -> CodeColumn:
    """Integers from the least to the largest, and some more; none below zero unless seen."""
    low, high = (int(end) for end in ends)
    room = 1 + math.ceil(policy.code_room * (high - low))
    first = max(0, low - room) if low >= 0 else low - room
    size = high + room + 1 - first
    if size > policy.max_codes:
        raise ValueError(
            f"an integer column goes from {low} to {high}, more than {policy.max_codes} values; "
            "make it real: columns={...: 'real'}"
        )
    return CodeColumn(size, first)


def line_units(
    X: Tensor,
    weight: Tensor,
    columns: Sequence[TableColumn],
    policy: SelectionPolicy = DEFAULT_POLICY,
) -> tuple[Tensor, Tensor]:
    """Locations and scales (c,) of the known values of the lines, as ``robust_units`` has them."""
    found = []
    for x, column in zip(X.T, columns, strict=True):
        if column.parts[-1].is_line:
            z = column.encode(x)[0][:, -1:]
            known = ~z[:, 0].isnan()
            if is_varied(z[known]):
                units = robust_units(Summary.of(z[known], weight[known], 0), policy)
                found.append(torch.cat(units))
            else:  # one value, or none
                location = z[known][0, 0] if known.any() else z.new_zeros(())
                scale = (policy.lone_scale * location.abs()).clamp(min=1)
                found.append(torch.stack([location, scale]))
                if not (2 * location).isfinite():  # some draws would not be
                    raise ValueError(TOO_LARGE)
    both = torch.stack(found, 1) if found else torch.empty(2, 0, dtype=torch.float64)
    return both[0].contiguous(), both[1].contiguous()


def is_varied(values: Tensor) -> bool:
    """Whether some values differ."""
    return bool((values != values[:1]).any())

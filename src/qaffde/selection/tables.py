"""Plans of tables with kinds of columns or gaps: mixtures of the parts of their columns.

The size of the mixture, the maps of real columns and the smoothing of codes are chosen by the
likelihood of held-out rows.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from qaffde.nn import CodeColumn, TableColumn
from qaffde.nn.columns import encode_columns
from qaffde.parameters import ComputeConfig
from qaffde.schema import Schema
from qaffde.selection.base_measure import Shape, constant_feature, spec_of
from qaffde.selection.plan import ModelSpec, Plan
from qaffde.selection.policy import USUAL_TOLERANCE, SelectionPolicy
from qaffde.selection.search import Trial, best_shape, fixed, weighted_mean
from qaffde.selection.summary import Summary
from qaffde.selection.table_columns import line_units, table_columns
from qaffde.selection.table_mixture import CodeLaw, TableMixture, TableRows, fit_table_mixture
from qaffde.selection.table_waves import with_waves
from qaffde.training.closed_form import effective_count
from qaffde.training.run import Run, hold_out


def select_mixture(
    summary: Summary,
    spec: ModelSpec,
    policy: SelectionPolicy,
    compute: ComputeConfig,
    seed: int,
    run: Run | None,
) -> Plan:
    """Plan of a table with kinds of columns or gaps; parameters as in :func:`select`."""
    spec.check_mixture()
    X, weight, schema = summary.rows, summary.weight, summary.schema
    schema = Schema.infer(X.numpy(), None) if schema is None else schema
    order = torch.randperm(len(X), generator=torch.Generator().manual_seed(seed))
    chosen = order[: policy.table_rows]
    is_open = isinstance(spec.base_measure, str)

    def search(sizes: Sequence[int], *, mapped: bool, auto: bool) -> _Found:
        columns = table_columns(summary, schema.kinds, policy, seed, mapped=mapped, auto=auto)
        units = _Units(tuple(columns), *line_units(X[chosen], weight[chosen], columns, policy))
        name = "columns mapped: " if mapped else ""
        return _search(units, X[chosen], weight[chosen], sizes, name, policy, seed, run)

    sizes = policy.mixture_sizes if is_open else (int(spec.base_measure),)
    may_map = spec.transformation == "auto" and len(X) >= policy.mapped_rows
    best = search(sizes, mapped=may_map or spec.transformation == "normal", auto=may_map)
    trials, n_knots = best.trials, sum(len(column.breaks()) for column in best.units.columns)
    if may_map and n_knots:
        rival = search((len(best.mixture.weights),), mapped=False, auto=False)
        trials += rival.trials
        best = best if best.value - n_knots / effective_count(weight) > rival.value else rival
    base = spec_of((len(best.mixture.weights), best.mixture.shrinkage))
    mixture = fit_table_mixture(
        best.units.rows(X, weight)[0],
        base.n_components,
        best.mixture.laws,
        torch.Generator().manual_seed(seed),
        prior=base.prior(policy),
        policy=policy,
        max_iter=policy.table_iterations,
        start=best.mixture,
    )
    location, scale, c = best.units.location, best.units.scale, len(best.units.scale)
    plan = Plan(
        method=spec.method,
        location=location,
        scale=scale,
        bandwidth=torch.ones_like(scale),
        base=str(base),
        measure=mixture,
        features=constant_feature(len(mixture.parts)),
        reach=torch.tensor([[-torch.inf], [torch.inf]], dtype=torch.float64).expand(2, c).clone(),
        measurement="likelihood" if spec.method == "likelihood" else spec.measurement,
        rank=1,
        ridge=0.0,
        min_trace=policy.min_trace,
        background=policy.background,
        background_spread=policy.background_spread,
        tolerance=fixed(policy.tolerance) or USUAL_TOLERANCE,
        n_rows=len(X),
        trials=tuple(replace(trial, chosen=trial.name == best.chosen) for trial in trials),
        columns=best.units.columns,
        schema=schema,
    )
    if spec.method == "closed_form" or not is_open or len(best.fitted.x) < policy.few_wave_rows:
        return plan
    return with_waves(plan, best.mixture, best.fitted, best.judged, policy, compute, seed, run)


@dataclass(frozen=True, eq=False)
class _Units:
    """Columns as parts, and units (c,) of their lines."""

    columns: tuple[TableColumn, ...]
    location: Tensor
    scale: Tensor

    def rows(self, X: Tensor, weight: Tensor) -> tuple[TableRows, Tensor]:
        """Rows (n, d) as parts in these units, and their log-slopes (n,)."""
        x, log_slope = encode_columns(self.columns, X)
        parts = [part for column in self.columns for part in column.parts]
        lines = [k for k, part in enumerate(parts) if part.is_line]
        known = (~x[:, lines].isnan()).double()
        x[:, lines] = (x[:, lines] - self.location) / self.scale
        return TableRows(x, weight, parts), log_slope - known @ self.scale.log()


@dataclass(frozen=True, eq=False)
class _Found:
    """The best mixture and its name, and its mean log-density of held-out rows, in their units."""

    units: _Units
    mixture: TableMixture
    fitted: TableRows
    judged: TableRows
    chosen: str
    value: float
    trials: tuple[Trial, ...]


def _search(
    units: _Units,
    X: Tensor,
    weight: Tensor,
    sizes: Sequence[int],
    name: str,
    policy: SelectionPolicy,
    seed: int,
    run: Run | None,
) -> _Found:
    """Try sizes until larger ones are worse, then smoothings of the codes."""
    rows, log_slope = units.rows(X, weight)
    train, held_out = hold_out(len(X), policy.valid_share)
    valid = held_out if len(held_out) else train
    fitted, judged = rows.select(train), rows.select(valid)
    n, generator = len(fitted.x), torch.Generator().manual_seed(seed)
    if len(sizes) > 1:
        sizes = [k for k in sizes if n >= policy.component_rows * k] or [1]
    deadline = math.inf if run is None else run.deadline(policy.search_share)
    codes = [c for c in units.columns if c.parts[0].kind == "codes"]
    laws = [CodeLaw(isinstance(c, CodeColumn) and c.has_order) for c in codes]
    most = policy.table_choice_iterations
    found: dict[Shape, TableMixture] = {}
    trials: list[Trial] = []

    def scores(mixture: TableMixture) -> Tensor:
        return mixture.log_density(judged) + log_slope[valid]

    def named(shape: Shape) -> str:
        return f"{name}{spec_of(shape)}"

    def tried(shape: Shape, near: Shape | None) -> Tensor:
        how: Any = {"prior": spec_of(shape).prior(policy), "policy": policy, "max_iter": most}
        if near is not None:
            how["start"] = found[near]
        found[shape] = fit_table_mixture(fitted, min(shape[0], n), laws, generator, **how)
        log_p = scores(found[shape])
        value = weighted_mean(log_p, judged.weight)
        trials.append(Trial(named(shape), len(X), value))
        if run is not None:
            run.say(f"{trials[-1].name}: held-out log-likelihood {value:.5f}")
        return log_p

    def is_late() -> bool:
        return time.monotonic() >= deadline

    sizes = sizes if len(held_out) else [1]
    first = policy.mixture_shrinkage * len(units.scale)
    best = best_shape(sizes, first, tried, judged.weight, policy, is_late)
    mixture, chosen = found[best], named(best)
    if len(held_out):
        mixture = mixture.smoothed(fitted, judged, policy)
    value = weighted_mean(scores(mixture), judged.weight)
    return _Found(units, mixture, fitted, judged, chosen, value, tuple(trials))

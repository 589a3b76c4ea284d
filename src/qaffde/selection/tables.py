"""Plans of tables with kinds of columns or gaps: mixtures of the parts of their columns.

The size of the mixture, the maps of real columns and the smoothing of codes are chosen by the
likelihood of held-out rows.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from qaffde.nn import CodeColumn, TableColumn
from qaffde.nn.columns import encode_columns
from qaffde.schema import Schema
from qaffde.selection.base_measure import constant_feature
from qaffde.selection.plan import ModelSpec, Plan
from qaffde.selection.policy import SelectionPolicy
from qaffde.selection.search import Trial, best_size, weighted_mean
from qaffde.selection.summary import Summary
from qaffde.selection.table_columns import line_units, table_columns
from qaffde.selection.table_mixture import CodeLaw, TableMixture, TableRows, fit_table_mixture
from qaffde.training.closed_form import effective_count
from qaffde.training.run import Run, hold_out


def select_mixture(
    summary: Summary, spec: ModelSpec, policy: SelectionPolicy, seed: int, run: Run | None
) -> Plan:
    """Plan of a table with kinds of columns or gaps; parameters as in :func:`select`."""
    spec.check_mixture()
    X, weight, schema = summary.rows, summary.weight, summary.schema
    schema = Schema.infer(X.numpy(), None) if schema is None else schema
    order = torch.randperm(len(X), generator=torch.Generator().manual_seed(seed))
    chosen = order[: policy.table_rows]
    n_components = None if isinstance(spec.base_measure, str) else int(spec.base_measure)

    def search(sizes: Sequence[int], *, mapped: bool, auto: bool) -> _Search:
        columns = table_columns(summary, schema.kinds, policy, seed, mapped=mapped, auto=auto)
        found = _Search(X[chosen], weight[chosen], columns, policy, seed, run)
        found.choose(sizes, "columns mapped: " if mapped else "")
        return found

    sizes = policy.mixture_sizes if n_components is None else (n_components,)
    may_map = spec.transformation == "auto" and len(X) >= policy.mapped_rows
    best = search(sizes, mapped=may_map or spec.transformation == "normal", auto=may_map)
    trials = best.trials
    if may_map and best.n_knots:
        rival = search((len(best.mixture.weights),), mapped=False, auto=False)
        trials += rival.trials
        knots = best.n_knots / effective_count(weight)
        best = best if best.value - knots > rival.value else rival
    mixture = fit_table_mixture(
        best.units.rows(X, weight)[0],
        len(best.mixture.weights),
        best.mixture.laws,
        torch.Generator().manual_seed(seed),
        ridge=policy.mixture_ridge,
        max_iter=policy.table_iterations,
        start=best.mixture,
    )
    location, scale, c = best.units.location, best.units.scale, len(best.units.scale)
    return Plan(
        method=spec.method,
        location=location,
        scale=scale,
        bandwidth=torch.ones_like(scale),
        base=f"mixture of {len(mixture.weights)}",
        measure=mixture,
        features=constant_feature(max(c, 1)),
        reach=torch.tensor([[-torch.inf], [torch.inf]], dtype=torch.float64).expand(2, c).clone(),
        measurement="likelihood" if spec.method == "likelihood" else spec.measurement,
        rank=1,
        ridge=policy.mixture_ridge,
        min_trace=policy.min_trace,
        background=policy.background,
        background_spread=policy.background_spread,
        tolerance=policy.mixture_ridge,
        n_rows=len(X),
        trials=tuple(replace(trial, chosen=trial.name == best.chosen) for trial in trials),
        columns=best.units.columns,
        schema=schema,
    )


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


class _Search:
    """Mixtures of several sizes, judged on the same held-out rows.

    `mixture` is the best one, `chosen` its name, and `value` its mean log-density of held-out
    rows, in units of the data.
    """

    mixture: TableMixture
    value: float
    chosen: str
    trials: tuple[Trial, ...] = ()

    def __init__(
        self,
        X: Tensor,
        weight: Tensor,
        columns: Sequence[TableColumn],
        policy: SelectionPolicy,
        seed: int,
        run: Run | None,
    ) -> None:
        self.policy, self.seed, self.run = policy, seed, run
        self.units = _Units(tuple(columns), *line_units(X, weight, columns))
        rows, log_slope = self.units.rows(X, weight)
        train, valid = hold_out(len(X), policy.valid_share)
        self.held_out = len(valid) > 0
        valid = valid if self.held_out else train
        self.train, self.valid = rows.select(train), rows.select(valid)
        self.log_slope = log_slope[valid]

    @property
    def n_knots(self) -> int:
        """Number of knots of all maps."""
        return sum(len(column.breaks()) for column in self.units.columns)

    def choose(self, sizes: Sequence[int], name: str) -> None:
        """Try sizes until larger ones are worse, then smoothings of the codes."""
        policy, (n, q) = self.policy, self.train.x.shape
        usual = [k for k in sizes if n >= 10 * k * (q + 2)] if len(sizes) > 1 else list(sizes)
        deadline = math.inf if self.run is None else self.run.deadline(policy.search_share)
        generator = torch.Generator().manual_seed(self.seed)
        codes = [c for c in self.units.columns if c.parts[0].kind == "codes"]
        laws = [CodeLaw(isinstance(c, CodeColumn) and c.has_order) for c in codes]
        ridge, most = policy.mixture_ridge, policy.table_choice_iterations
        found: dict[int, TableMixture] = {}

        def tried(k: int) -> Tensor:
            found[k] = fit_table_mixture(
                self.train, min(k, n), laws, generator, ridge=ridge, max_iter=most
            )
            scores = self._scores(found[k])
            value = weighted_mean(scores, self.valid.weight)
            self.trials += (Trial(f"{name}mixture of {k}", n + len(self.valid.x), value),)
            if self.run is not None:
                self.run.say(f"{self.trials[-1].name}: held-out log-likelihood {value:.5f}")
            return scores

        sizes = (usual or [1]) if self.held_out else [1]
        weight, patience = self.valid.weight, policy.mixture_patience
        best = best_size(sizes, tried, weight, patience, lambda: time.monotonic() >= deadline)
        self.mixture, self.chosen = found[best], f"{name}mixture of {best}"
        if self.held_out:
            self.mixture = self.mixture.smoothed(self.train, self.valid, policy)
        self.value = weighted_mean(self._scores(self.mixture), weight)

    def _scores(self, mixture: TableMixture) -> Tensor:
        return mixture.log_density(self.valid) + self.log_slope

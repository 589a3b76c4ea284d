"""From a table of mixed columns to a plan and a density.

The base measure of a table is a mixture of the parts of its columns
(``table_mixture``). Its size, the maps of its real columns and the smoothing
of its codes are chosen by the likelihood of held-out rows.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

import torch
from torch import Tensor

from qaffde.nn import (
    AtomColumn,
    BornMixture,
    CircleFactor,
    CodeColumn,
    CodeFactor,
    Factor,
    FactoredMixture,
    GaussianMeasure,
    Part,
    RealColumn,
    TableColumn,
    TableDensity,
)
from qaffde.nn.calculus.mixture import born_terms, constant_form
from qaffde.nn.parts import MAX_DEVIATION
from qaffde.schema import Schema
from qaffde.selection.plan import Trial, background_weight
from qaffde.selection.policy import DEFAULT_POLICY, SelectionPolicy
from qaffde.selection.search import weighted_mean
from qaffde.selection.table_columns import line_units, table_columns
from qaffde.selection.table_mixture import (
    CodeLaw,
    TableMixture,
    TableRows,
    fit_table_mixture,
    fitted_factors,
)
from qaffde.training.closed_form import effective_count
from qaffde.training.run import Run, hold_out


@dataclass(frozen=True, eq=False, repr=False)
class TablePlan:
    """Choices for a table of mixed columns; immutable.

    ``print(plan)`` shows the columns, and the mixtures that were compared.

    Parameters
    ----------
    method : {"closed_form", "likelihood"}
        Of the estimator that the plan belongs to.
    schema : Schema
        Names and kinds of the columns.
    columns : tuple of TableColumn
        The columns as parts.
    location, scale : Tensors of shape (c,)
        Units of the lines among the parts.
    laws : tuple of CodeLaw
        How masses of codes are smoothed.
    n_components : int
        Size of the mixture.
    background : float or "auto"
        Weight of a broad component, as in ``SelectionPolicy``.
    n_rows : int
        Rows that it was selected on.
    trials : tuple of Trial
        Mixtures that were compared.
    """

    method: str
    schema: Schema
    columns: tuple[TableColumn, ...]
    location: Tensor
    scale: Tensor
    laws: tuple[CodeLaw, ...]
    n_components: int
    background: float | str
    background_spread: float
    n_rows: int
    trials: tuple[Trial, ...] = ()

    @property
    def n_dims(self) -> int:
        """The number of columns d."""
        return len(self.columns)

    @property
    def base_measure(self) -> str:
        """Kind of the base measure."""
        return "mixture"

    @property
    def parts(self) -> tuple[Part, ...]:
        """Parts of all columns."""
        return tuple(part for column in self.columns for part in column.parts)

    def rows(self, X: Tensor, weight: Tensor) -> tuple[TableRows, Tensor]:
        """Rows (n, d) as parts in the units of the plan, and their log-slopes (n,)."""
        found = [column.encode(x) for column, x in zip(self.columns, X.T, strict=True)]
        x = torch.cat([parts for parts, _ in found], 1)
        log_slope = torch.stack([slope for _, slope in found]).sum(0)
        if (log_slope == -torch.inf).any():
            row = int((log_slope == -torch.inf).nonzero()[0, 0])
            raise ValueError(
                f"row {row}, {X[row].tolist()}, has a value that the plan holds for impossible; "
                "fit without this plan"
            )
        lines = [k for k, part in enumerate(self.parts) if part.is_line]
        known = (~x[:, lines].isnan()).double()
        x[:, lines] = (x[:, lines] - self.location) / self.scale
        return TableRows(x, weight, self.parts), log_slope - known @ self.scale.log()

    def density(self, mixture: TableMixture, count: float) -> TableDensity:
        """Density of the table: the mixture, with a broad background, in units of the data."""
        epsilon = background_weight(self.background, count)
        K, c = mixture.means.shape
        weights = torch.cat([(1 - epsilon) * mixture.weights, torch.tensor([epsilon]).double()])
        factors = [_with_background(factor, mixture.weights) for factor in mixture.factors]
        lines = None
        if c:
            broad = self.background_spread**2 * torch.eye(c, dtype=torch.float64)[None]
            measure = GaussianMeasure(
                weights,
                torch.cat([mixture.means, torch.zeros(1, c).double()]),
                torch.cat([mixture.covariances, broad]),
            )
            terms = born_terms(constant_form(c), None, measure)
            lines = BornMixture(term.affine(self.location, self.scale) for term in terms)
        level = torch.zeros(K + 1, dtype=torch.float64) if c else weights.log()
        inner = FactoredMixture(self.parts, level, lines, factors)
        return TableDensity(inner, self.columns).requires_grad_(False).eval()

    def __repr__(self) -> str:
        return f"<TablePlan: {self.n_dims} columns, mixture of {self.n_components}>"

    def __str__(self) -> str:
        lines = [
            f"Plan (table, selected on {self.n_rows:,} rows)",
            f"  base measure  mixture of {self.n_components}",
            *(f"  {line}" for line in str(self.schema).splitlines()),
        ]
        for kind, column in zip(self.schema.columns, self.columns, strict=True):
            real = column.rest if isinstance(column, AtomColumn) else column
            if isinstance(real, RealColumn) and not real.map.is_identity:
                lines.append(f"  column {kind.name!s:<6} {real.map}")
        if self.trials:
            width = max(len(trial.name) for trial in self.trials)
            lines.append(f"  {'tried':{width}}     rows  held-out log-likelihood")
            lines += [
                f"  {trial.name:{width}}  {trial.n_rows:7,}  {trial.log_likelihood:.5f}"
                + ("  chosen" if trial.chosen else "")
                for trial in self.trials
            ]
        return "\n".join(lines)


def _with_background(factor: Factor, weights: Tensor) -> Factor:
    """The laws of a part, and one more over all components."""
    if isinstance(factor, CodeFactor):
        overall = (weights @ factor.log_mass.exp())[None].log()
        return CodeFactor(torch.cat([factor.log_mass, overall]))
    assert isinstance(factor, CircleFactor)
    wide = torch.tensor([MAX_DEVIATION], dtype=torch.float64)
    return CircleFactor(torch.cat([factor.mean, 0 * wide]), torch.cat([factor.deviation, wide]))


def select_table(
    X: Tensor,
    weight: Tensor,
    schema: Schema,
    *,
    method: str = "closed_form",
    transformation: str | None = "auto",
    n_components: int | None = None,
    policy: SelectionPolicy | None = None,
    seed: int = 0,
    run: Run | None = None,
) -> tuple[TablePlan, TableMixture]:
    """Plan of a table, and the mixture that was judged best, fitted to the rows not held out.

    Parameters
    ----------
    X : Tensor of shape (n, d)
        Rows as ``Schema.encode`` makes them, NaN where a value is missing.
    weight : Tensor of shape (n,)
    schema : Schema
    method, transformation : str
        As in the estimators.
    n_components : int, optional
        Size of the mixture, where it is given.
    policy : SelectionPolicy, optional
    seed : int, default=0
    run : Run, optional
        Clock and progress.
    """
    policy = DEFAULT_POLICY if policy is None else policy
    sizes = policy.mixture_sizes if n_components is None else (n_components,)
    order = torch.randperm(len(X), generator=torch.Generator().manual_seed(seed))
    chosen = order[: policy.table_rows]

    def search(*, mapped: bool, auto: bool) -> _Search:
        columns = table_columns(X, weight, schema.kinds, policy, seed, mapped=mapped, auto=auto)
        found = _Search(X[chosen], weight[chosen], schema, columns, method, policy, seed, run)
        found.choose(sizes, "columns mapped: " if mapped else "")
        return found

    may_map = transformation == "auto" and len(X) >= policy.mapped_rows
    best = search(mapped=may_map or transformation == "normal", auto=may_map)
    if may_map and best.n_knots:
        sizes = (best.plan.n_components,)
        rival, knots = search(mapped=False, auto=False), best.n_knots / effective_count(weight)
        trials = best.plan.trials + rival.plan.trials
        best = best if best.value - knots > rival.value else rival
        trials = tuple(replace(trial, chosen=trial.name == best.chosen) for trial in trials)
        best.plan = replace(best.plan, trials=trials)
    return replace(best.plan, n_rows=len(X)), best.mixture


class _Search:
    """Mixtures of several sizes, judged on the same held-out rows.

    Attributes
    ----------
    plan : TablePlan
    mixture : TableMixture
        The best one.
    value : float
        Its mean log-density of held-out rows, in units of the data.
    chosen : str
        Its name.
    """

    mixture: TableMixture
    value: float
    chosen: str

    def __init__(
        self,
        X: Tensor,
        weight: Tensor,
        schema: Schema,
        columns: Sequence[TableColumn],
        method: str,
        policy: SelectionPolicy,
        seed: int,
        run: Run | None,
    ) -> None:
        self.policy, self.seed, self.run = policy, seed, run
        location, scale = line_units(X, weight, columns)
        codes = [c for c in columns if c.parts[0].kind == "codes"]
        laws = tuple(CodeLaw(isinstance(c, CodeColumn) and c.has_order) for c in codes)
        spread = policy.background_spread
        self.plan = TablePlan(
            method, schema, tuple(columns), location, scale, laws, 1, policy.background, spread, 0
        )
        rows, log_slope = self.plan.rows(X, weight)
        train, valid = hold_out(len(X), policy.valid_share)
        self.held_out = len(valid) > 0
        valid = valid if self.held_out else train
        self.train, self.valid = rows.select(train), rows.select(valid)
        self.log_slope = log_slope[valid]

    @property
    def n_knots(self) -> int:
        """Number of knots of all maps."""
        return sum(len(column.breaks()) for column in self.plan.columns)

    def choose(self, sizes: Sequence[int], name: str) -> None:
        """Try sizes until larger ones are worse, then smoothings of the codes."""
        policy, (n, q) = self.policy, self.train.x.shape
        usual = [k for k in sizes if n >= 10 * k * (q + 2)] if len(sizes) > 1 else list(sizes)
        deadline = math.inf if self.run is None else self.run.deadline(policy.search_share)
        generator = torch.Generator().manual_seed(self.seed)
        found: list[tuple[float, TableMixture]] = []
        trials: list[Trial] = []
        for k in (usual or [1]) if self.held_out else [1]:
            mixture = fit_table_mixture(
                self.train,
                min(k, n),
                self.plan.laws,
                generator,
                ridge=policy.mixture_ridge,
                max_iter=policy.table_choice_iterations,
            )
            value = self._judged(mixture)
            found.append((value, mixture))
            trials.append(Trial(f"{name}mixture of {k}", n + len(self.valid.x), value))
            if self.run is not None:
                self.run.say(f"{trials[-1].name}: held-out log-likelihood {value:.5f}")
            best = max(range(len(found)), key=lambda number: found[number][0])
            if time.monotonic() >= deadline or len(found) > best + policy.mixture_patience:
                break
        self.mixture, self.chosen = found[best][1], trials[best].name
        trials[best] = replace(trials[best], chosen=True)
        size = len(self.mixture.weights)
        self.plan = replace(self.plan, n_components=size, trials=tuple(trials))
        if self.held_out:
            self._smooth()
        self.value = self._judged(self.mixture)

    def _judged(self, mixture: TableMixture) -> float:
        log_p = mixture.log_density(self.valid) + self.log_slope
        return weighted_mean(log_p, self.valid.weight)

    def _smooth(self) -> None:
        """Best smoothing of each part that has codes, the components as they are."""
        policy, laws = self.policy, list(self.plan.laws)
        terms = self.mixture.log_terms(self.train)
        share = terms.softmax(1) * self.train.weight[:, None]
        for number, law in enumerate(laws):
            widths = policy.code_widths if law.has_order else (1.0,)
            scores: dict[CodeLaw, float] = {}
            for strength, width in product(policy.code_strengths, widths):
                trial = CodeLaw(law.has_order, strength, width)
                factors = fitted_factors(
                    self.train, share, [*laws[:number], trial, *laws[number + 1 :]]
                )
                changed = replace(self.mixture, factors=factors)
                scores[trial] = self._judged(changed)
            laws[number] = max(scores, key=lambda trial: scores[trial])
        factors = fitted_factors(self.train, share, laws)
        self.mixture = replace(self.mixture, factors=factors)
        self.plan = replace(self.plan, laws=tuple(laws))


def solve_table(
    plan: TablePlan,
    X: Tensor,
    weight: Tensor,
    *,
    start: TableMixture | None = None,
    policy: SelectionPolicy | None = None,
    seed: int = 0,
) -> TableDensity:
    """Density of a table on a plan.

    Parameters
    ----------
    plan : TablePlan
    X, weight : Tensors of shapes (n, d), (n,)
    start : TableMixture, optional
        Where expectation–maximization begins.
    policy : SelectionPolicy, optional
    seed : int, default=0
    """
    policy = DEFAULT_POLICY if policy is None else policy
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.randperm(len(X), generator=generator)[: policy.max_mixture_rows]
    rows, _ = plan.rows(X[chosen], weight[chosen])
    mixture = fit_table_mixture(
        rows,
        min(plan.n_components, len(X)),
        plan.laws,
        generator,
        ridge=policy.mixture_ridge,
        max_iter=policy.table_iterations,
        start=start,
    )
    return plan.density(mixture, effective_count(weight))

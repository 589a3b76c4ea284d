"""From a summary of the rows to a plan, by held-out likelihood."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from qaffde.parameters import check_bandwidth, check_lattice, check_mixture
from qaffde.selection.bandwidth import RULES, bandwidth_by_rule
from qaffde.selection.base_measure import BaseSpec, n_distinct
from qaffde.selection.closed_form import ClosedForm
from qaffde.selection.likelihood import Likelihood
from qaffde.selection.method import Method
from qaffde.selection.plan import Choice, Plan
from qaffde.selection.policy import DEFAULT_POLICY, SelectionPolicy
from qaffde.selection.search import Search
from qaffde.selection.spec import ModelSpec, fixed
from qaffde.selection.summary import Summary
from qaffde.selection.units import box_units, units
from qaffde.training.checkpoint import fingerprint
from qaffde.training.compute import DOUBLE, ComputeConfig
from qaffde.training.run import Run

METHODS: dict[str, type[Method]] = {"closed_form": ClosedForm, "likelihood": Likelihood}


def select(
    summary: Summary,
    spec: ModelSpec | None = None,
    *,
    policy: SelectionPolicy | None = None,
    compute: ComputeConfig = DOUBLE,
    seed: int = 0,
    names: Sequence[str] | None = None,
    run: Run | None = None,
) -> Plan:
    """Choose by held-out likelihood what a specification leaves open.

    Parameters
    ----------
    summary : Summary
        Of the rows, as :func:`summarize` makes it.
    spec : ModelSpec, optional
        What is fixed; everything is chosen by default.
    policy : SelectionPolicy, optional
        Constants of the search.
    compute : ComputeConfig, optional
        Where candidates are judged.
    seed : int, default=0
    names : sequence of str, optional
        Of the columns, for messages.
    run : Run, optional
        Clock, checkpoint and progress.

    Returns
    -------
    Plan

    Examples
    --------
    >>> import numpy as np
    >>> from qaffde.selection import ModelSpec, select, solve, summarize
    >>> X = np.random.default_rng(0).normal(size=(500, 1))
    >>> plan = select(summarize(X, random_state=0), ModelSpec(bandwidth=0.5, base_measure="box"))
    >>> plan.base_measure, plan.features.n_features
    ('box', 125)
    >>> density = solve(plan, X)
    >>> density.log_prob(torch.zeros(1, 1).double()).exp().round(decimals=1)
    tensor([0.4000], dtype=torch.float64)
    """
    spec = ModelSpec() if spec is None else spec
    policy = DEFAULT_POLICY if policy is None else policy
    run = Run() if run is None else run
    n, d = summary.moments.n, summary.rows.shape[1]
    check_lattice(spec.features, d)
    check_mixture(spec.base_measure, n)
    h, ends = check_bandwidth(spec.bandwidth, d, RULES), spec.ends(d)
    if ends is not None and spec.is_given:
        location, scale = box_units(ends)
    else:
        smoothing = h if spec.base_measure == "kernel" else None
        location, scale = units(summary.moments, names, smoothing)
    z = summary.standardized(location, scale)

    method = METHODS[spec.method](spec, policy, compute, seed)
    search = Search(
        z.rows,
        z.weight,
        method.scores,
        policy=policy,
        seed=seed,
        **search_context(run, policy, spec, (z.rows, z.weight), seed),
    )
    given = None if h is None else h / scale
    box = None if ends is None else (ends - location) / scale
    chosen = _choose(search, method, z, given, box)
    choice = chosen
    if given is None and spec.method == "closed_form":  # kernels narrow as rows become many
        factor = z.shrinkage * search.shrinkage
        choice = replace(chosen, bandwidth=chosen.bandwidth * factor)
    measure = search.measure(choice.base, choice.bandwidth, z.moments)
    size = None if spec.open_ended or spec.is_given else n
    return Plan(
        method=spec.method,
        location=location,
        scale=scale,
        bandwidth=choice.bandwidth,
        base=str(choice.base) + (" alone" if choice.bare else ""),
        measure=measure,
        features=method.features(choice, measure, z, size),
        reach=method.reach(choice, measure, z.moments.ends),
        measurement=method.measurement(measure),
        rank=method.rank(d),
        ridge=0.0 if choice.ridge is None else choice.ridge / z.moments.count,
        min_trace=policy.min_trace,
        background=policy.background,
        background_spread=policy.background_spread,
        tolerance=method.tolerance,
        n_rows=len(z.rows),
        trials=search.trials(chosen, scale, float(scale.log().sum())),
    )


def _choose(
    search: Search, method: Method, z: Summary, h: Tensor | None, ends: Tensor | None
) -> Choice:
    """Base measure and bandwidth: given, by a rule, or by held-out likelihood."""
    spec, policy = method.spec, method.policy
    n, d = n_distinct(z.rows), z.rows.shape[1]
    bases = spec.base_specs(ends, n, d, policy)
    few = n < policy.few_rows
    rule = "silverman" if few and spec.bandwidth == "auto" else spec.bandwidth
    known = h
    if known is None:
        known = bandwidth_by_rule(rule, bases[0].kind, z, search.generator(), policy)
    if known is not None and (few or _is_settled(spec, bases)):
        return method.unsearched(bases[0], known, z.moments.count)
    return method.choose(search, bases, known)


def _is_settled(spec: ModelSpec, bases: list[BaseSpec]) -> bool:
    """Whether nothing is left to choose once the bandwidth is known."""
    if bases[0].kind == "kernel":
        return True
    one = len(bases) == 1 and bases[0].n_components > 0
    return one and (spec.method == "closed_form" or fixed(spec.ridge) is not None)


def search_context(
    run: Run, policy: SelectionPolicy, spec: object, rows: tuple[Tensor, ...], seed: int
) -> dict[str, Any]:
    """Deadline, checkpoint and report of a search, as arguments of :class:`Search`."""
    file = run.file("search")
    identity = fingerprint(rows=rows, parameters=(spec, policy), seed=seed)
    saved = None if file is None else file.load(identity)
    known: dict[str, Tensor] = {} if saved is None else saved["known"]

    def report(name: str, value: float) -> None:
        run.say(f"{run.seconds:6.1f} s  {name}: held-out log-likelihood {value:.5f}")
        if file is not None:
            file.save({"known": dict(known)}, identity)

    return {"deadline": run.deadline(policy.search_share), "known": known, "report": report}

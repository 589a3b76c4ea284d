"""From a summary of the rows to a plan, by held-out likelihood."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from qaffde.parameters import check_bandwidth, check_lattice, check_mixture
from qaffde.selection.bandwidth import RULES, bandwidth_by_rule
from qaffde.selection.base_measure import BaseSpec, n_distinct
from qaffde.selection.methods import ClosedForm, Likelihood, Method
from qaffde.selection.plan import Choice, ModelSpec, Plan, fixed
from qaffde.selection.policy import DEFAULT_POLICY, SelectionPolicy
from qaffde.selection.search import Search
from qaffde.selection.summary import Moments, Summary
from qaffde.training.checkpoint import fingerprint
from qaffde.training.config import DOUBLE, ComputeConfig
from qaffde.training.run import Run

Names = Sequence[str] | None


def units(
    moments: Moments, names: Names = None, bandwidth: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Location and scale to unit variance, so that units change nothing but the Jacobian.

    Parameters
    ----------
    moments : Moments
        Of the rows.
    names : sequence of str, optional
        Of the columns, for messages.
    bandwidth : Tensor of shape (d,), optional
        Scale of a constant column, where the kernel alone makes it a density.

    Returns
    -------
    location, scale : Tensors of shape (d,)
    """
    location, scale = moments.mean, moments.covariance.diagonal().sqrt()
    constant = (moments.ends[0] == moments.ends[1]) | ~(scale > 0)
    if constant.any() and bandwidth is None:
        _complain_constant(constant, names)
    if bandwidth is not None:
        scale = torch.where(constant, bandwidth, scale)
    if not (location.isfinite() & scale.isfinite()).all():
        raise ValueError(
            "the values are so large that their variance overflows; divide the columns first"
        )
    if bandwidth is None:
        _complain_copies(moments.standardized(location, scale), names)
    return location, scale


def box_units(ends: Tensor) -> tuple[Tensor, Tensor]:
    """Location and scale of the uniform law between `ends` of shape (2, d)."""
    lower, upper = ends
    return (lower + upper) / 2, (upper - lower) / math.sqrt(12)


def _complain_constant(constant: Tensor, names: Names) -> None:
    columns = ", ".join(_name(names, int(i)) for i in constant.nonzero()[:, 0])
    raise ValueError(
        f"constant column: {columns}. A constant has no density; drop it, or smooth it "
        "with base_measure='kernel' and bandwidth as a number"
    )


def _complain_copies(moments: Moments, names: Names) -> None:
    """Reject columns that repeat one another exactly: their joint density does not exist."""
    correlation = moments.covariance.abs().fill_diagonal_(0.0)
    if moments.n > 2 and correlation.max() > 1 - 1e-12:
        i, j = np.unravel_index(int(correlation.argmax()), correlation.shape)
        raise ValueError(
            f"columns {_name(names, int(i))} and {_name(names, int(j))} are copies of "
            "each other up to units: their joint density does not exist; drop one, or smooth them "
            "with base_measure='kernel' and bandwidth as a number"
        )


def _name(names: Names, column: int) -> str:
    return str(column) if names is None else repr(str(names[column]))


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
    """Choose the open parameters of a specification by held-out likelihood.

    Parameters
    ----------
    summary : Summary
        Of the rows, as :func:`summarize` makes it.
    spec : ModelSpec, optional
        Parameters that are fixed; all others are chosen.
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
    >>> import torch
    >>> from qaffde.selection import ModelSpec, solve, summarize
    >>> X = np.random.default_rng(0).normal(size=(500, 1))
    >>> plan = select(summarize(X, random_state=0), ModelSpec(bandwidth=0.3, base_measure="box"))
    >>> plan.base_measure, plan.features.n_features
    ('box', 125)
    >>> density = solve(plan, X)
    >>> density.log_prob(torch.zeros(1, 1).double()).exp().round(decimals=1)
    tensor([0.4000], dtype=torch.float64)
    """
    spec = ModelSpec() if spec is None else spec
    policy = DEFAULT_POLICY if policy is None else policy
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
        factor = z.shrinkage * (search.shrinkage if spec.bandwidth == "auto" else 1.0)
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
    known = h
    if known is None and (few or spec.bandwidth != "auto" or bases[0].kind == "kernel"):
        rule = "silverman" if few and spec.bandwidth == "auto" else spec.bandwidth
        known = bandwidth_by_rule(rule, z, search.generator(), policy)
    if known is not None and (few or _is_settled(spec, bases)):
        return method.unsearched(bases[0], known, z.moments.count)
    return method.choose(search, bases, known)


def _is_settled(spec: ModelSpec, bases: list[BaseSpec]) -> bool:
    """Whether the bandwidth is the last choice."""
    if bases[0].kind == "kernel":
        return True
    one = len(bases) == 1 and bases[0].n_components > 0
    return one and (spec.method == "closed_form" or fixed(spec.ridge) is not None)


def search_context(
    run: Run | None, policy: SelectionPolicy, spec: object, rows: tuple[Tensor, ...], seed: int
) -> dict[str, Any]:
    """Deadline, checkpoint and report of a search, as arguments of :class:`Search`."""
    if run is None:
        return {}
    file, known = run.file("search"), {}
    identity = fingerprint(rows=rows, parameters=(spec, policy), seed=seed)
    if file is not None and (saved := file.load(identity)) is not None:
        known = saved["known"]

    def report(name: str, value: float) -> None:
        run.say(f"{run.seconds:6.1f} s  {name}: held-out log-likelihood {value:.5f}")
        if file is not None:
            file.save({"known": dict(known)}, identity)

    return {"deadline": run.deadline(policy.search_share), "known": known, "report": report}

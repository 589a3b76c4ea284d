"""Reports: what a search tells and keeps while it runs, and a plan as text."""

from typing import TYPE_CHECKING, Any

from qaffde.selection.policy import SelectionPolicy
from qaffde.selection.search import show_numbers
from qaffde.selection.summary import Summary
from qaffde.training.checkpoint import fingerprint
from qaffde.training.run import Run

if TYPE_CHECKING:
    from qaffde.selection.plan import Plan


def search_context(
    run: Run, policy: SelectionPolicy, parameters: object, z: Summary, seed: int
) -> dict[str, Any]:
    """Deadline, checkpoint and report of a search, as arguments of :class:`Search`."""
    file, known = run.file("search"), {}
    rows = z.rows, z.weight, z.labels
    identity = {} if file is None else fingerprint(rows=rows, parameters=parameters, seed=seed)
    if file is not None and (saved := file.load(identity)) is not None:
        with file.restoring():
            known = {str(name): scores.double() for name, scores in saved["known"].items()}

    def report(name: str, value: float) -> None:
        run.say(f"{name}: held-out log-likelihood {value:.5f}")
        if file is not None:
            file.save({"known": dict(known)}, identity)

    return {"deadline": run.deadline(policy.search_share), "known": known, "report": report}


def plan_text(plan: "Plan") -> str:
    """Choices of a plan, and the candidates that were compared."""

    def line(name: str, value: object) -> str:
        return f"  {name:<13} {value}"

    plain = plan.schema is None
    method = plan.method.replace("_", " ") if plain else "table"
    lines = [
        f"Plan ({method}, selected on {plan.n_rows:,} rows)",
        line("base measure", plan.base),
    ]
    if plan.schema is not None:
        lines += [f"  {text}" for text in str(plan.schema).splitlines()]
    if plain or plan.has_waves:
        h = show_numbers(plan.bandwidth * plan.scale)
        lines += [line("bandwidth", h), line("features", plan.features.n_features)]
        lines += [line("rank", plan.rank)]
    names = range(plan.n_dims) if plan.schema is None else plan.schema.names
    columns = zip(names, plan.columns or (), strict=bool(plan.columns))
    lines += [line(f"column {name}", own) for name, own in columns if len(own.breaks())]
    if plan.axes is not None:
        lines.append(line("components", f"{len(plan.scale)} of {plan.n_dims} columns"))
    if plain and plan.method != "likelihood":
        lines.append(line("measurement", plan.measurement))
    if plan.method != "closed_form" and (plain or plan.has_waves):
        lines.append(line("ridge", f"{plan.ridge:.4g}"))
    if plan.trials:
        width = max(len(trial.name) for trial in plan.trials)
        lines.append(f"  {'tried':{width}}     rows  held-out log-likelihood")
    lines += [
        f"  {trial.name:{width}}  {trial.n_rows:7,}  {trial.log_likelihood:.5f}"
        + ("  chosen" if trial.chosen else "")
        for trial in plan.trials
    ]
    return "\n".join(lines)

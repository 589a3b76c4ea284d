"""``qaffde demo``: a benchmark density, its estimates and a picture."""

from functools import partial
from pathlib import Path

import typer

from qaffde import demo as trial
from qaffde.cli.errors import usage
from qaffde.cli.output import print_facts
from qaffde.cli.sinks import check_output
from qaffde.targets import PLANAR, get_target


def demo(*, target: str, rows: int, methods: str | None, output: Path, json: bool) -> None:
    """Fit QAFFDE to a benchmark density beside other methods, and draw them."""
    if target not in PLANAR:
        raise usage(f"unknown target {target!r}; choose one of {', '.join(PLANAR)}")
    names = [name.strip() for name in methods.split(",")] if methods else list(trial.METHODS)
    for name in names:
        if name not in trial.METHODS:
            raise usage(f"unknown method {name!r}; choose of {', '.join(trial.METHODS)}")
    check_output(output)
    truth = get_target(target)
    X, results = trial.compare(truth, rows, names, partial(typer.echo, err=True))
    trial.draw(results, truth, X, output)
    if not json:
        typer.echo(f"\n{trial.table(results)}\n\npicture: {output}")
        return
    figures = {name: _numbers(result) for name, result in results.items()}
    facts = {"target": target, "rows": rows, "methods": figures, "picture": str(output)}
    print_facts(facts, as_json=True)


def _numbers(result: trial.Result) -> dict[str, float | None]:
    return {
        name.replace(" ", "_").lower(): None if value == "-" else float(value)
        for name, value in result.figures.items()
    }

"""``qaffde demo``: a benchmark density, its estimates and a picture."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from qaffde import demo as trial
from qaffde.cli.commands import Json
from qaffde.cli.data import check_output
from qaffde.cli.errors import reporting, usage
from qaffde.cli.output import print_json
from qaffde.targets import PLANAR, get_target


def demo(
    *,
    target: Annotated[str, typer.Option(help=f"One of {', '.join(PLANAR)}.")] = "swiss_roll",
    rows: Annotated[int, typer.Option(min=100, help="Training rows.")] = 20_000,
    methods: Annotated[
        str | None, typer.Option(help=f"Some of {', '.join(trial.METHODS)}, by commas.")
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="Picture to write.")] = Path(
        "demo.png"
    ),
    json: Json = False,
) -> None:
    """Fit QAFFDE to a benchmark density beside other methods, and draw them."""
    if target not in PLANAR:
        raise usage(f"unknown target {target!r}; choose one of {', '.join(PLANAR)}")
    names = [name.strip() for name in methods.split(",")] if methods else list(trial.METHODS)
    for name in names:
        if name not in trial.METHODS:
            raise usage(f"unknown method {name!r}; choose of {', '.join(trial.METHODS)}")
    with reporting():
        check_output(str(output))
        truth = get_target(target)
        X, results = trial.compare(truth, rows, names, partial(typer.echo, err=True))
        trial.draw(results, truth, X, output)
        if json:
            figures = {name: _numbers(result) for name, result in results.items()}
            print_json(
                {"target": target, "rows": rows, "methods": figures, "picture": str(output)}
            )
            return
        typer.echo(f"\n{trial.table(results)}\n\npicture: {output}")


def _numbers(result: trial.Result) -> dict[str, float | None]:
    return {
        name.replace(" ", "_").lower(): None if value == "-" else float(value)
        for name, value in result.figures.items()
    }

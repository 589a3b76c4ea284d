"""The commands, put together."""

from collections.abc import Callable
from typing import Annotated

import typer

from qaffde import __version__
from qaffde.cli import compare, demo, derive, explore, fit, info, plot, score
from qaffde.cli.commands import examples

app = typer.Typer(
    name="qaffde",
    help="Density estimation with quantum adaptive Fourier features.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
EXAMPLES: dict[Callable[..., None], tuple[str, ...]] = {
    fit.fit: (
        "qaffde fit rows.csv -o model.qaffde",
        "qaffde fit rows.parquet -c height,weight --missing drop -o model.qaffde",
        "qaffde fit shares.csv --bounds 0:1 --method qaffde-sgd --time-limit 20 -o model.qaffde",
        "cat rows.csv | qaffde fit - -o model.qaffde",
    ),
    score.score: (
        "qaffde score model.qaffde new.csv -o scored.csv",
        "qaffde score model.qaffde new.parquet --missing impute -o scored.parquet",
        "qaffde score model.qaffde new.csv --json",
    ),
    derive.sample: (
        "qaffde sample model.qaffde -n 1000 -o drawn.csv",
        "qaffde sample model.qaffde -n 5",
    ),
    derive.marginal: ("qaffde marginal model.qaffde height weight -o pair.qaffde",),
    derive.condition: ("qaffde condition model.qaffde height=1.8 -o tall.qaffde",),
    plot.plot: (
        "qaffde plot model.qaffde -o density.png",
        "qaffde plot model.qaffde --kind pairs --data rows.csv -o pairs.png",
        "qaffde plot model.qaffde --kind slices -c weight --given height=1.6,1.8 -o slices.svg",
    ),
    explore.explore: (
        "qaffde explore model.qaffde",
        "qaffde explore model.qaffde --port 8000 --no-browser",
    ),
    score.anomalies: (
        "qaffde anomalies model.qaffde new.csv --fraction 0.01 -o odd.csv",
        "qaffde anomalies model.qaffde new.csv --all -o judged.parquet",
    ),
    info.info: ("qaffde info model.qaffde", "qaffde info model.qaffde --json"),
    compare.compare: (
        "qaffde compare rows.csv",
        "qaffde compare rows.csv --methods qaffde,kde,gmm --time-limit 20 --json",
    ),
    demo.demo: ("qaffde demo", "qaffde demo --target arc --rows 5000 -o arc.png"),
}
"""Commands in the order of the help, and examples of each."""

for command, lines in EXAMPLES.items():
    app.command(epilog=examples(*lines))(command)


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,  # noqa: FBT002
) -> None:
    """Density estimation with quantum adaptive Fourier features."""
    if version:
        typer.echo(__version__)
        raise typer.Exit

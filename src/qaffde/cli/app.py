"""The commands, put together."""

from typing import Annotated

import typer

from qaffde import __version__
from qaffde.cli import experiment

app = typer.Typer(
    name="qaffde",
    help="Density estimation with quantum adaptive Fourier features.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.add_typer(experiment.app, name="experiment")


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,  # noqa: FBT002
) -> None:
    """Density estimation with quantum adaptive Fourier features."""
    if version:
        typer.echo(__version__)
        raise typer.Exit

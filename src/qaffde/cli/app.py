"""The commands in the order of the help, with examples; each is imported when it is called."""

from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from qaffde import __version__

COMMANDS = {
    "fit": ("fit", "Fit a density to data, and write it to a model file."),
    "score": ("score", "Write rows with a column log_density."),
    "sample": ("models", "Draw independent rows from a density."),
    "marginal": ("models", "Write the exact density of some columns."),
    "condition": ("models", "Write the exact density of columns where others have values."),
    "plot": ("plot", "Draw a density, or how it was fitted."),
    "explore": ("explore", "Open a page to move through a density."),
    "anomalies": ("score", "Write the rows where the density is low."),
    "drift": ("drift", "Test whether new rows are like reference rows, column by column."),
    "info": ("models", "Show what a model file holds."),
    "compare": ("compare", "Compare methods on held-out rows of your data."),
}
"""Modules of the commands, and what the help says of each."""
EXAMPLES = """
qaffde fit rows.csv -o model.qaffde
qaffde fit rows.parquet -c height,weight --missing drop -o model.qaffde
qaffde fit shares.csv --bounds 0:1 --method qaffde-sgd --time-limit 20 -o model.qaffde
cat rows.csv | qaffde fit - -o model.qaffde
qaffde score model.qaffde new.csv -o scored.csv
qaffde score model.qaffde new.parquet --missing impute -o scored.parquet
qaffde score model.qaffde new.csv --json
qaffde sample model.qaffde -n 1000 -o drawn.csv
qaffde sample model.qaffde -n 5
qaffde marginal model.qaffde height weight -o pair.qaffde
qaffde condition model.qaffde height=1.8 -o tall.qaffde
qaffde plot model.qaffde -o density.png
qaffde plot model.qaffde --kind pairs --data rows.csv -o pairs.png
qaffde plot model.qaffde --kind slices -c weight --given height=1.6,1.8 -o slices.svg
qaffde explore model.qaffde
qaffde explore june.qaffde july.qaffde
qaffde explore model.qaffde --port 8000 --no-browser
qaffde anomalies model.qaffde new.csv --fraction 0.01 -o odd.csv
qaffde anomalies model.qaffde new.csv --all -o judged.parquet
qaffde drift reference.parquet new.parquet
qaffde drift last_month.csv today.csv -c price,city --level 0.01 --json
qaffde info model.qaffde
qaffde info model.qaffde --json
qaffde compare rows.csv
qaffde compare rows.csv --methods qaffde,kde,gmm --time-limit 20 --json
"""
PLAIN: dict[str, Any] = {"rich_markup_mode": None, "pretty_exceptions_enable": False}


class Commands(TyperGroup):
    """Group that imports a command when it is called, so that help comes at once."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands: Any = dict.fromkeys(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Import a command, whose errors are then reported in one line."""
        if cmd_name not in COMMANDS:
            return None
        from qaffde.cli.output import reporting

        work = getattr(import_module(f"qaffde.cli.{COMMANDS[cmd_name][0]}"), cmd_name)
        own = [line for line in EXAMPLES.splitlines() if f"qaffde {cmd_name}" in line]
        alone = typer.Typer(add_completion=False, **PLAIN)
        alone.command(cmd_name, epilog="\n\n".join(["Examples:", *own]))(reporting()(work))
        return get_command(alone)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """List the commands, without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, about) for name, (_, about) in COMMANDS.items()])


app = typer.Typer(name="qaffde", cls=Commands, no_args_is_help=True, **PLAIN)


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,  # noqa: FBT002
) -> None:
    """Density estimation with quantum adaptive Fourier features."""
    if version:
        typer.echo(__version__)
        raise typer.Exit

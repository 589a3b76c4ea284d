"""The command ``qaffde``. Each group of commands is a module that adds itself to the app."""

import sys


def main() -> None:
    """Run the command line."""
    try:
        from qaffde.cli.app import app
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich"):
            raise
        sys.exit("the command line needs typer and rich; run: pip install 'qaffde[cli]'")
    app()

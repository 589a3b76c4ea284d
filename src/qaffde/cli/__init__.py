"""The command ``qaffde``. Each group of commands is a module that adds itself to the app."""


def main() -> None:
    """Run the command line."""
    from qaffde.cli.app import app

    app()

"""``qaffde explore``: a page where a person moves through a density."""

import threading
import webbrowser
from pathlib import Path
from typing import Any

import typer

from qaffde.cli.errors import note
from qaffde.cli.inputs import load_model
from qaffde.cli.output import print_facts
from qaffde.explore import Explorer, ExplorerServer
from qaffde.explore.server import is_loopback

FACTS = {"n_fourier_features_": "features", "rank_": "rank", "base_measure_": "base"}


def explore(model: Path, *, host: str, port: int, browser: bool, json: bool) -> None:
    """Open a page to move through a density: pick columns, drag values, select a box."""
    density = load_model(model, "marginal", "condition", "sample")
    if not is_loopback(host):
        note(f"anyone who can reach {host} can look at this model; leave out --host if not")
    with ExplorerServer(Explorer(density), facts(model.name, density), host, port) as server:
        if json:
            print_facts({"model": str(model), "address": server.address}, as_json=True)
        else:
            typer.echo(f"{model} is at {server.address} until Ctrl-C")
        if browser:
            threading.Thread(target=webbrowser.open, args=[server.address], daemon=True).start()
        serve(server, quiet=json)


def serve(server: ExplorerServer, *, quiet: bool = False) -> None:
    """Answer until a person interrupts."""
    try:
        server.serve_forever(poll_interval=0.2)
    except KeyboardInterrupt:
        if not quiet:
            typer.echo("stopped")


def facts(name: str, model: Any) -> dict[str, Any]:
    """Facts about a model that the page shows."""
    found = {"file": name, "class": type(model).__name__}
    return found | {
        word: getattr(model, attribute)
        for attribute, word in FACTS.items()
        if hasattr(model, attribute)
    }

"""``qaffde explore``: a page where a person moves through a density."""

import threading
import webbrowser
from typing import Annotated, Any

import typer

from qaffde.cli.commands import Json, Model, load_model
from qaffde.cli.errors import note, reporting
from qaffde.cli.output import print_json
from qaffde.explore import Explorer, ExplorerServer
from qaffde.explore.server import LOOPBACK, is_loopback

FACTS = {"n_fourier_features_": "features", "rank_": "rank", "base_measure_": "base"}


def explore(
    model: Model,
    *,
    host: Annotated[
        str, typer.Option(help="Address to listen at; others than loopback can be reached by all.")
    ] = LOOPBACK,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen at; 0 is any that is free.")
    ] = 0,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Whether to open the page.")
    ] = True,
    json: Json = False,
) -> None:
    """Open a page to move through a density: pick columns, drag values, select a box."""
    with reporting():
        density = load_model(model, "marginal", "condition", "sample")
        if not is_loopback(host):
            note(f"anyone who can reach {host} can look at this model; leave out --host if not")
        with ExplorerServer(Explorer(density), facts(model.name, density), host, port) as server:
            if json:
                print_json({"model": str(model), "address": server.address})
            else:
                typer.echo(f"{model} is at {server.address} until Ctrl-C")
            if browser:
                threading.Thread(
                    target=webbrowser.open, args=[server.address], daemon=True
                ).start()
            serve(server, quiet=json)


def serve(server: ExplorerServer, *, quiet: bool = False) -> None:
    """Answer until a person interrupts."""
    try:
        server.serve_forever(poll_interval=0.2)
    except KeyboardInterrupt:
        if not quiet:
            typer.echo("stopped")


def facts(name: str, model: Any) -> dict[str, Any]:
    """What the page says of a model."""
    found = {"file": name, "class": type(model).__name__}
    for attribute, word in FACTS.items():
        if hasattr(model, attribute):
            found[word] = getattr(model, attribute)
    return found

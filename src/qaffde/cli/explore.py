"""``qaffde explore``: a page where a person moves through a density."""

import tempfile
import threading
import webbrowser
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from qaffde.cli.inputs import load_model
from qaffde.cli.options import Json, Model
from qaffde.cli.output import note, print_facts

FACTS = {"n_fourier_features_": "features", "rank_": "rank", "base_measure_": "base"}


def explore(
    model: Model,
    second: Annotated[
        Path | None,
        Argument(metavar="MODEL", help="Another model of the same columns, to look at beside it."),
    ] = None,
    *,
    host: Annotated[
        str, Option(help="Address to listen at; others than loopback can be reached by all.")
    ] = "127.0.0.1",
    port: Annotated[
        int, Option(min=0, max=65535, help="Port to listen at; 0 is any that is free.")
    ] = 0,
    browser: Annotated[
        bool, Option("--browser/--no-browser", help="Whether to open the page.")
    ] = True,
    json: Json = False,
) -> None:
    """Open a page to move through a density: pick columns, drag values, select a box."""
    from qaffde.explore import Explorer, ExplorerServer
    from qaffde.explore.server import is_loopback

    density = load_model(model, "marginal", "condition", "sample")
    explorer, beside = Explorer(density), None
    if second is not None:
        beside = Explorer(load_model(second, "marginal", "condition", "sample"))
        explorer.share_view(beside)
    if not is_loopback(host):
        note(f"anyone who can reach {host} and has the address can look at this model")
    own = {word: getattr(density, name, None) for name, word in FACTS.items()}
    facts = {"file": model.name, "class": type(density).__name__}
    facts |= {word: value for word, value in own.items() if value is not None}
    if second is not None:
        facts["second"] = second.name
    with ExplorerServer(explorer, facts, host, port, beside) as server:
        if json:
            print_facts({"model": str(model), "address": server.address}, as_json=True)
        else:
            typer.echo(f"{model} is at {server.address} until Ctrl-C")
        with tempfile.TemporaryDirectory(prefix="qaffde-") as folder:
            if browser:
                page = redirection(server.address, Path(folder))
                threading.Thread(target=webbrowser.open, args=[page.as_uri()], daemon=True).start()
            serve(server, quiet=json)


def redirection(address: str, folder: Path) -> Path:
    """Page that leads to an address: all users see arguments of commands, but not files."""
    page = folder / "explorer.html"
    page.write_text(f'<meta http-equiv="refresh" content="0; url={address}">', encoding="utf-8")
    return page


def serve(server: Any, *, quiet: bool) -> None:
    """Answer until a person interrupts."""
    try:
        server.serve_forever(poll_interval=0.2)
    except KeyboardInterrupt:
        if not quiet:
            typer.echo("stopped")

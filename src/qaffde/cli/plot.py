"""``qaffde plot``: pictures of a model."""

import io
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from qaffde.cli.commands import Columns, Header, Json, Model, Seed, framed, load_model
from qaffde.cli.data import DataError, check_output, open_table, pick_for_model
from qaffde.cli.data.rows import Missing, read_all
from qaffde.cli.data.selection import find_columns
from qaffde.cli.errors import reporting, usage
from qaffde.cli.output import print_facts, print_json
from qaffde.files.model import write
from qaffde.plot import KINDS, DensityDisplay
from qaffde.plot.display import natural_kind
from qaffde.plot.evaluate import names_of
from qaffde.plot.style import import_pyplot
from qaffde.targets import PLANAR, get_target

FORMATS = (".png", ".svg", ".pdf")


def plot(
    model: Model,
    *,
    output: Annotated[Path, typer.Option("--output", "-o", help="PNG, SVG or PDF to write.")],
    kind: Annotated[str, typer.Option(help=f"auto, {', '.join(KINDS)}.")] = "auto",
    data: Annotated[
        str | None, typer.Option(help="Data to show beside the density; - is standard input.")
    ] = None,
    columns: Columns = None,
    given: Annotated[
        list[str] | None,
        typer.Option(help="For slices: COLUMN=VALUE,VALUE,...; repeated for several columns."),
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="For truth: the benchmark density that is known.")
    ] = None,
    dpi: Annotated[int, typer.Option(min=10, max=1200, help="Dots in an inch.")] = 150,
    header: Header = None,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Draw a density: curve, contours, surface, all pairs, slices, or how it was fitted."""
    if kind not in ("auto", *KINDS):
        raise usage(f"unknown kind {kind!r}; choose one of auto, {', '.join(KINDS)}")
    if target is not None and target not in PLANAR:
        raise usage(f"unknown target {target!r}; choose one of {', '.join(PLANAR)}")
    if output.suffix.lower() not in FORMATS:
        raise usage(f"pictures are {', '.join(FORMATS)}; got {output.name!r}")
    with reporting():
        import_pyplot()
        check_output(str(output))
        density = load_model(model)
        names = names_of(density)
        chosen = find_columns(columns, names, "the model") if columns else None
        shown = [names[j] for j in chosen] if chosen else names
        kind = natural_kind(len(shown)) if kind == "auto" else kind
        display = DensityDisplay.from_estimator(
            density,
            None if data is None else _rows(data, density, header=header),
            kind=kind,
            columns=chosen,
            given=parse_given(given, names) if given else None,
            truth=None if target is None else get_target(target),
            random_state=seed,
        )
        buffer = io.BytesIO()
        display.figure_.savefig(buffer, format=output.suffix[1:].lower(), dpi=dpi)
        import_pyplot().close(display.figure_)
        write(output.resolve(), buffer.getvalue())
        facts = {"kind": kind, "columns": shown, "picture": str(output)}
        (print_json if json else print_facts)(facts)


def _rows(data: str, model: Any, *, header: bool | None) -> Any:
    with open_table(data, header=header) as table:
        selection = pick_for_model(table, model, None)
        return framed(read_all(selection, Missing.drop)[0], selection.names)


def parse_given(texts: list[str], names: list[str]) -> dict[int | str, Any]:
    """Values of columns from texts such as ``height=1.6,1.8``."""
    given: dict[int | str, Any] = {}
    for text in texts:
        column, sign, values = text.rpartition("=")
        try:
            numbers = [float(value) for value in values.split(",")]
        except ValueError:
            numbers = [np.nan]
        if not sign or not column or not np.isfinite(numbers).all():
            raise usage(f"--given takes COLUMN=VALUE,VALUE such as {names[0]}=1,2; got {text!r}")
        (number, *more) = find_columns([column], names, "the model")
        if more:
            raise DataError(f"--given takes one column at a time, got {column!r}")
        given[number] = numbers
    return given

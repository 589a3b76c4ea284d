"""``qaffde plot``: pictures of a model."""

from typing import Annotated, Any

from typer import Option

from qaffde.cli.inputs import load_model, open_data, parse_values, rows_for_model
from qaffde.cli.options import Columns, Decimal, Encoding, Header, Json, Model, Picture, Seed
from qaffde.cli.output import check_output, print_facts, usage
from qaffde.streams.names import column_names, find_columns, framed_for

FORMATS = (".png", ".svg", ".pdf")


def plot(
    model: Model,
    *,
    output: Picture,
    kind: Annotated[str, Option(help="auto, curve, contours, pairs, ridges or slices.")] = "auto",
    data: Annotated[
        str | None, Option(help="Data to show beside the density; - is standard input.")
    ] = None,
    columns: Columns = None,
    given: Annotated[
        list[str] | None,
        Option(help="For slices: COLUMN=VALUE,VALUE,...; repeated for several columns."),
    ] = None,
    dpi: Annotated[int, Option(min=10, max=1200, help="Dots in an inch.")] = 150,
    header: Header = None,
    decimal: Decimal = None,
    encoding: Encoding = None,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Draw a density: curve, contours, all pairs, ridges, or slices."""
    from qaffde.files.format import replacing
    from qaffde.plot import KINDS, DensityDisplay
    from qaffde.plot.display import natural_kind
    from qaffde.plot.style import import_pyplot

    text = {"header": header, "decimal": decimal, "encoding": encoding}
    check_output(output, model, data or "")
    if kind not in ("auto", *KINDS):
        raise usage(f"unknown kind {kind!r}; choose one of auto, {', '.join(KINDS)}")
    if output.suffix.lower() not in FORMATS:
        raise usage(f"pictures are {', '.join(FORMATS)}; got {output.name!r}")
    pyplot, density = import_pyplot(), load_model(model)
    names = column_names(density)
    chosen = find_columns(columns, names, "the model") if columns else None
    shown = [names[j] for j in chosen] if chosen else names
    kind = natural_kind(len(shown)) if kind == "auto" else kind
    wanted = f"--given takes COLUMN=VALUE,VALUE such as {names[0]}=1,2"
    values: Any = parse_values(density, given or (), names, wanted, several=True)
    display = DensityDisplay.from_estimator(
        density,
        None if data is None else _rows(data, density, **text),
        kind=kind,
        columns=chosen,
        given=values,
        random_state=seed,
    )
    with replacing(output) as file:
        display.figure_.savefig(file, format=output.suffix[1:].lower(), dpi=dpi)
    pyplot.close(display.figure_)
    print_facts({"kind": kind, "columns": shown, "picture": str(output)}, as_json=json)


def _rows(data: str, model: Any, **text: Any) -> Any:
    with open_data(data, **text) as table:
        part = rows_for_model(table, model, None, "drop").collect()
        assert part is not None
        return framed_for(model, part[0])

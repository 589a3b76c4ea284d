"""``qaffde plot``: pictures of a model."""

import io
from pathlib import Path
from typing import Any

from qaffde.cli.errors import usage
from qaffde.cli.inputs import load_model, model_names, open_data, parse_values, rows_for_model
from qaffde.cli.output import print_facts
from qaffde.cli.sinks import check_output
from qaffde.files.model import write
from qaffde.plot import KINDS, DensityDisplay
from qaffde.plot.display import natural_kind
from qaffde.plot.evaluate import names_of
from qaffde.plot.style import import_pyplot
from qaffde.streams.names import find_columns, framed
from qaffde.targets import PLANAR, get_target

FORMATS = (".png", ".svg", ".pdf")


def plot(
    model: Path,
    *,
    output: Path,
    kind: str,
    data: str | None,
    columns: list[str] | None,
    given: list[str] | None,
    target: str | None,
    dpi: int,
    header: bool | None,
    seed: int,
    json: bool,
) -> None:
    """Draw a density: curve, contours, surface, all pairs, slices, or how it was fitted."""
    check_output(output, model, data or "")
    if kind not in ("auto", *KINDS):
        raise usage(f"unknown kind {kind!r}; choose one of auto, {', '.join(KINDS)}")
    if target is not None and target not in PLANAR:
        raise usage(f"unknown target {target!r}; choose one of {', '.join(PLANAR)}")
    if output.suffix.lower() not in FORMATS:
        raise usage(f"pictures are {', '.join(FORMATS)}; got {output.name!r}")
    pyplot, density = import_pyplot(), load_model(model)
    names = names_of(density)
    chosen = find_columns(columns, names, "the model") if columns else None
    shown = [names[j] for j in chosen] if chosen else names
    kind = natural_kind(len(shown)) if kind == "auto" else kind
    wanted = f"--given takes COLUMN=VALUE,VALUE such as {names[0]}=1,2"
    display = DensityDisplay.from_estimator(
        density,
        None if data is None else _rows(data, density, header=header),
        kind=kind,
        columns=chosen,
        given=parse_values(given, names, wanted, several=True) if given else None,
        truth=None if target is None else get_target(target),
        random_state=seed,
    )
    buffer = io.BytesIO()
    display.figure_.savefig(buffer, format=output.suffix[1:].lower(), dpi=dpi)
    pyplot.close(display.figure_)
    write(output.resolve(), buffer.getvalue())
    facts = {"kind": kind, "columns": shown, "picture": str(output)}
    print_facts(facts, as_json=json)


def _rows(data: str, model: Any, *, header: bool | None) -> Any:
    with open_data(data, header=header) as table:
        rows = rows_for_model(table, model, None, "drop")
        return framed(rows.collect()[0], model_names(model))

"""``qaffde sample``, ``qaffde marginal`` and ``qaffde condition``."""

from typing import Annotated

import numpy as np
import typer

from qaffde.cli.commands import Json, Model, ModelOut, Seed, TableOut, load_model
from qaffde.cli.data import check_output, open_sink
from qaffde.cli.data.formats import STANDARD
from qaffde.cli.data.selection import find_columns
from qaffde.cli.data.table import BATCH_ROWS, import_pyarrow
from qaffde.cli.errors import reporting, usage
from qaffde.cli.output import print_facts, print_json, progress
from qaffde.files.model import save
from qaffde.plot.evaluate import names_of


def sample(
    model: Model,
    *,
    n: Annotated[int, typer.Option("-n", "--rows", min=1, help="How many rows.")] = 1000,
    output: TableOut = None,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Draw independent rows from a density."""
    if json and output == STANDARD:
        raise usage("--json and -o - would both write to standard output; name a file for rows")
    with reporting():
        density = load_model(model, "sample")
        names, random_state = names_of(density), np.random.RandomState(seed)
        pa = import_pyarrow()
        sizes = [min(BATCH_ROWS, n - start) for start in range(0, n, BATCH_ROWS)]
        if json and output is None:
            rows = [density.sample(size, random_state=random_state) for size in sizes]
            print_json({"columns": names, "rows": np.concatenate(rows)})
            return
        with open_sink(output or STANDARD) as sink, progress("drawing", n) as tick:
            for size in sizes:
                drawn = density.sample(size, random_state=random_state)
                arrays = [pa.array(np.ascontiguousarray(column)) for column in drawn.T]
                sink.write(pa.RecordBatch.from_arrays(arrays, names=names))
                tick(size)
        if json:
            print_json({"columns": names, "rows": n, "output": output})


def marginal(
    model: Model,
    columns: Annotated[list[str], typer.Argument(help="Columns to keep: names or numbers.")],
    output: ModelOut,
    *,
    json: Json = False,
) -> None:
    """Write the exact density of some columns, the others integrated out."""
    with reporting():
        check_output(str(output))
        density = load_model(model, "marginal")
        names = names_of(density)
        chosen = find_columns(columns, names, "the model")
        save(density.marginal(chosen), output.resolve())
        facts = {"columns": [names[j] for j in chosen], "model": str(output)}
        (print_json if json else print_facts)(facts)


def condition(
    model: Model,
    values: Annotated[list[str], typer.Argument(metavar="COLUMN=VALUE...", help="What is known.")],
    output: ModelOut,
    *,
    json: Json = False,
) -> None:
    """Write the exact density of the other columns, where some have given values."""
    with reporting():
        check_output(str(output))
        density = load_model(model, "condition")
        names = names_of(density)
        given = parse_values(values, names)
        rest = [name for j, name in enumerate(names) if j not in given]
        save(density.condition(given), output.resolve())
        said = {names[j]: value for j, value in given.items()}
        if json:
            print_json({"columns": rest, "given": said, "model": str(output)})
            return
        shown = [f"{name} = {value:g}" for name, value in said.items()]
        print_facts({"columns": rest, "given": shown, "model": str(output)})


def parse_values(texts: list[str], names: list[str]) -> dict[int, float]:
    """Values by column number, from texts such as ``height=1.5``."""
    given: dict[int, float] = {}
    for text in texts:
        column, sign, value = text.rpartition("=")
        try:
            number = float(value)
        except ValueError:
            number = np.nan
        if not sign or not column or not np.isfinite(number):
            raise usage(f"a condition is COLUMN=NUMBER, such as {names[0]}=1.5; got {text!r}")
        for j in find_columns([column], names, "the model"):
            if j in given:
                raise usage(f"the column {names[j]!r} has two values")
            given[j] = number
    return given

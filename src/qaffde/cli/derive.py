"""``qaffde sample``, ``qaffde marginal`` and ``qaffde condition``."""

from pathlib import Path

import numpy as np

from qaffde.cli.errors import usage
from qaffde.cli.inputs import STANDARD, load_model, parse_values
from qaffde.cli.output import print_facts, progress
from qaffde.cli.sinks import check_output, open_sink
from qaffde.files.model import save
from qaffde.plot.evaluate import names_of
from qaffde.streams.arrow import import_pyarrow
from qaffde.streams.names import find_columns
from qaffde.streams.table import Table


def sample(model: Path, *, n: int, output: str | None, seed: int, json: bool) -> None:
    """Draw independent rows from a density."""
    if json and output == STANDARD:
        raise usage("--json and -o - would both write to standard output; name a file for rows")
    density, pa = load_model(model, "sample"), import_pyarrow()
    names, random_state = names_of(density), np.random.RandomState(seed)
    starts = range(0, n, Table.batch_rows)
    sizes = [min(Table.batch_rows, n - start) for start in starts]
    drawn = (density.sample(size, random_state=random_state) for size in sizes)
    if json and output is None:
        print_facts({"columns": names, "rows": np.concatenate(list(drawn))}, as_json=True)
        return
    with open_sink(output or STANDARD, model) as write, progress() as report:
        for start, rows in zip(starts, drawn, strict=True):
            arrays = [pa.array(np.ascontiguousarray(column)) for column in rows.T]
            write(pa.RecordBatch.from_arrays(arrays, names=names))
            report("drawing", start + len(rows), n)
    if json:
        print_facts({"columns": names, "rows": n, "output": output}, as_json=True)


def marginal(model: Path, columns: list[str], output: Path, *, json: bool) -> None:
    """Write the exact density of some columns, the others integrated out."""
    check_output(output, model)
    density = load_model(model, "marginal")
    names = names_of(density)
    chosen = find_columns(columns, names, "the model")
    save(density.marginal(chosen), output.resolve())
    print_facts({"columns": [names[j] for j in chosen], "model": str(output)}, as_json=json)


def condition(model: Path, values: list[str], output: Path, *, json: bool) -> None:
    """Write the exact density of the other columns, where some have given values."""
    check_output(output, model)
    density = load_model(model, "condition")
    names = names_of(density)
    wanted = f"a condition is COLUMN=NUMBER, such as {names[0]}=1.5"
    given = {int(j): value for j, (value,) in parse_values(values, names, wanted).items()}
    save(density.condition(given), output.resolve())
    rest = [name for j, name in enumerate(names) if j not in given]
    said = {names[j]: value for j, value in given.items()}
    shown = said if json else [f"{name} = {value:g}" for name, value in said.items()]
    print_facts({"columns": rest, "given": shown, "model": str(output)}, as_json=json)

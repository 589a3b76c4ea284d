"""``qaffde sample``, ``marginal``, ``condition`` and ``info``: what a model says alone."""

from datetime import date, timedelta
from typing import Annotated, Any

import numpy as np
from typer import Argument, Option

from qaffde.cli.fit import attributes, kinds_of
from qaffde.cli.inputs import load_model, parse_values
from qaffde.cli.options import Json, Model, ModelOut, Seed, TableOut
from qaffde.cli.output import check_output, print_facts, progress, shown
from qaffde.cli.sinks import open_sink
from qaffde.frames import is_date
from qaffde.streams.names import column_names, find_columns
from qaffde.streams.schemas import record_batch
from qaffde.streams.table import DataError, Table


def sample(
    model: Model,
    *,
    n: Annotated[int, Option("-n", "--rows", min=1, help="How many rows.")] = 1000,
    output: TableOut = None,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Draw independent rows from a density."""
    printed, drawn = json and output is None, []
    with open_sink(output, model, json=json) as write, progress() as report:
        density = load_model(model, "sample")
        names, random_state = column_names(density), np.random.RandomState(seed)
        for start in range(0, n, Table.batch_rows):
            rows = density.sample(min(Table.batch_rows, n - start), random_state=random_state)
            batch = record_batch(rows, names)
            drawn += list(zip(*batch.to_pydict().values(), strict=True)) if printed else []
            write(batch)
            report("drawing", start + len(rows), n)
    if json:
        found: dict[str, Any] = {"rows": drawn} if printed else {"rows": n, "output": output}
        print_facts({"columns": names, **found}, as_json=True)


def marginal(
    model: Model,
    columns: Annotated[list[str], Argument(help="Columns to keep: names or numbers.")],
    output: ModelOut,
    *,
    json: Json = False,
) -> None:
    """Write the exact density of some columns, the others integrated out."""
    check_output(output, model)
    density = load_model(model, "marginal")
    names = column_names(density)
    chosen = find_columns(columns, names, "the model")
    density.marginal(chosen).save(output.resolve())
    print_facts({"columns": [names[j] for j in chosen], "model": str(output)}, as_json=json)


def condition(
    model: Model,
    values: Annotated[list[str], Argument(metavar="COLUMN=VALUE...", help="What is known.")],
    output: ModelOut,
    *,
    json: Json = False,
) -> None:
    """Write the exact density of the other columns, where some have given values."""
    check_output(output, model)
    density = load_model(model, "condition")
    names = column_names(density)
    wanted = f"a condition is COLUMN=VALUE, such as {names[0]}=1.5"
    given = {j: value for j, (value,) in parse_values(density, values, names, wanted).items()}
    density.condition(given).save(output.resolve())
    rest = [name for j, name in enumerate(names) if j not in given]
    said = {names[j]: value for j, value in given.items()}
    listed = said if json else [f"{name} = {shown(value)}" for name, value in said.items()]
    print_facts({"columns": rest, "given": listed, "model": str(output)}, as_json=json)


LEARNED = ("base_measure_", "bandwidth_", "ridge_", "n_fourier_features_", "rank_", "offset_")
LEVELS, MOST, EPOCH = (0.01, 0.25, 0.5, 0.75, 0.99), 6, date(1970, 1, 1)
DIAGNOSTICS = ("effective_rank", "purity", "von_neumann_entropy")


def info(model: Model, *, json: Json = False) -> None:
    """Show what a model file holds: class, columns and their quantiles, rank, entropy, size."""
    if not model.is_file():
        raise DataError(f"{model} is not a file")
    from qaffde import load
    from qaffde.estimators.recipes import fitted
    from qaffde.files.format import unpack

    estimator = load(model)
    header, arrays = unpack(model.read_bytes())
    facts = {
        "class": type(estimator).__name__,
        **(describe(estimator) if fitted(estimator) else {"fitted": False}),
        "memory_bytes": sum(array.nbytes for array in arrays.values()),
        "file_bytes": model.stat().st_size,
        "format": header["format"],
        "written_by": f"qaffde {header.get('version')}",
    }
    spread = quantiles(estimator) if fitted(estimator) else {}
    print_facts(facts | ({"quantiles": spread} if json else {}), as_json=json)
    if spread and not json:
        print(f"\nquantiles at {', '.join(f'{100 * q:g} %' for q in LEVELS)}, shares of labels")
        print_facts(spread, as_json=False)


def quantiles(model: Any) -> dict[str, Any]:
    """Exact quantiles of each column, or the shares of its labels, the largest first."""
    found: dict[str, Any] = {}
    for k, name in enumerate(column_names(model)):
        try:
            one = model.marginal([k])
            column = None if one.schema is None else one.schema.columns[0]
            if column is not None and column.codes:
                shares = {str(label): one.probability({0: [label]}) for label in column.codes}
                top = sorted(shares.items(), key=lambda item: -item[1])
                found[name] = [f"{label} {100 * share:.3g} %" for label, share in top[:MOST]]
                continue
            values = one.ppf(LEVELS).round(6).tolist()
        except (AttributeError, ValueError):  # kernels, and most columns of a chain
            continue
        is_day = column is not None and is_date(column.dtype)
        found[name] = [str(EPOCH + timedelta(v)) for v in values] if is_day else values
    return found


def describe(model: Any) -> dict[str, Any]:
    """Facts of a fitted estimator, as far as it has them."""
    facts: dict[str, Any] = {"columns": column_names(model), **kinds_of(model)}
    facts |= {"given": model.given} if getattr(model, "given", "") else {}
    facts |= {"selected_on_rows": model.plan_.n_rows} if hasattr(model, "plan_") else {}
    if hasattr(model, "sums_"):
        facts["total_weight"] = float(model.sums_.weight)
    facts |= attributes(model, *LEARNED)
    if facts.get("base_measure", "kernel") != "kernel":
        facts |= {name: getattr(model, name)() for name in DIAGNOSTICS if hasattr(model, name)}
    return facts

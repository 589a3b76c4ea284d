"""``qaffde drift``: whether new rows are like reference rows, and which columns moved."""

from contextlib import ExitStack
from typing import Annotated, Any

import typer
from typer import Argument, Option

from qaffde.cli.fit import parse_kinds
from qaffde.cli.inputs import open_data
from qaffde.cli.options import Columns, Data, Header, Json, KindOf, Seed
from qaffde.cli.output import print_facts, progress, usage
from qaffde.streams.chunked import TableChunks, pick_columns
from qaffde.streams.table import DataError

DRIFT = 3
"""Exit status where the rows differ at the level."""


def drift(
    reference: Annotated[str, Argument(metavar="REFERENCE", help="Table of reference rows.")],
    data: Data,
    *,
    level: Annotated[float, Option(help="Probability of a false alarm.")] = 0.05,
    columns: Columns = None,
    column: KindOf = None,
    header: Header = None,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Test whether the rows of DATA have the distribution of those of REFERENCE.

    Exit status 0 means that they do as far as one can tell, 3 that they do not at the level, 1 an
    error. Columns have p-values of their own, corrected for their number. Values may be missing,
    and that more of them are is drift too.
    """
    if not 0 < level < 1:
        raise usage(f"--level must lie between 0 and 1, got {level}")
    from qaffde import QAFFDEDriftDetector

    with ExitStack() as stack:
        report = stack.enter_context(progress())
        tables = [stack.enter_context(open_data(of, header=header)) for of in (reference, data)]
        names, _ = pick_columns(tables[0], columns or None)
        lacking = [name for name in names if name not in tables[1].names]
        if lacking:
            raise DataError(f"{tables[1].label} lacks the columns {', '.join(lacking)}")
        how: Any = {"missing": "keep", "progress": report}
        rows, new = (TableChunks(table, names, **how) for table in tables)
        kinds = parse_kinds(column, names)
        given = {names.index(name): kind for name, kind in kinds.items()}
        detector = QAFFDEDriftDetector(columns=given or "auto", random_state=seed)
        detector.fit(rows).update(new)
    if not detector.n_new_:
        raise DataError(
            f"{tables[1].label} has too few rows: beside {detector.n_reference_:,} reference rows "
            f"at least {detector.group_size_} are needed"
        )
    moved = detector.p_value_ <= level
    p_values = dict(zip(names, detector.column_p_values_.tolist(), strict=True))
    if json:
        facts = {
            "drift": moved,
            "p_value": detector.p_value_,
            "level": level,
            "columns": p_values,
            "reference_rows": detector.n_reference_,
            "new_rows": detector.n_new_,
        }
        print_facts(facts, as_json=True)
    else:
        width = max(map(len, p_values))
        print(f"{'column':<{width}}  p-value")
        for name, p in sorted(p_values.items(), key=lambda item: item[1]):
            print(f"{name:<{width}}  {p:.4f}{'  moved' if p <= level else ''}")
        verdict = "drift" if moved else "no drift"
        print(f"\n{verdict} at level {level:g}: p = {detector.p_value_:.4f} of all columns")
    if moved:
        raise typer.Exit(DRIFT)

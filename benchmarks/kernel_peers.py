"""QAFFDE beside kernel density estimates of other libraries: time, memory and error.

    python -m benchmarks.kernel_peers run [--rows N …] [--columns d …] [--methods NAME …]
    python -m benchmarks.kernel_peers constant [--rows N …] [--columns d …]
    python -m benchmarks.kernel_peers report [--results FILE] [--page FILE]

All have the same rows, the same Gaussian kernel and Scott's bandwidth. ``run`` measures each
method in a process of its own and appends one row for each method, number of rows and columns;
what is there already is not measured again. ``constant`` fits ours to few and to many rows and
scores by both in turn, in one process. ``report`` writes them into docs/cost.md.
"""

import argparse
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import groupby, product
from operator import attrgetter
from pathlib import Path
from statistics import median

from benchmarks.overhead import Cases, interleave
from benchmarks.peer_data import N_QUERIES, SEED, Cell, is_prepared, prepare
from benchmarks.peer_methods import METHODS
from benchmarks.peer_report import PAGE, report, summary, verdict_of_constant
from benchmarks.peer_worker import Limits, measure
from experiments.rows import ROOT, Row, append_row, provenance, read_rows
from qaffde import load

RESULTS = ROOT / "benchmarks/results/kernel_peers.jsonl"
LENGTHS = (10_000, 100_000, 1_000_000)
ENDS = (10_000, 10_000_000)
COLUMNS = (2, 8)
KEPT = ("qaffde-100", "qaffde-full")
"""Methods whose models are kept and scored by in turn."""
ROUNDS, ROUND_SECONDS = 20, 3.0


def run(
    cells: Iterable[Cell],
    methods: Sequence[str],
    rounds: int,
    limits: Limits,
    folder: Path,
    path: Path,
) -> None:
    """Append the rows that the file does not have yet; methods of a cell follow one another."""
    done = {_key(row) for row in read_rows(path) if row["comparison"] == "peers"}
    for number, cell in product(range(rounds), cells):
        for method in methods:
            row: Row = {"comparison": "peers", "round": number}
            if _key(row | {"method": method} | vars(cell)) in done:
                continue
            row |= fitted_and_measured(method, cell, folder, limits)
            append_row(row, path)
            print(summary(row), flush=True)


def _key(row: Row) -> tuple[object, ...]:
    return tuple(row[name] for name in ("method", "n", "d", "seed", "round"))


def fitted_and_measured(method: str, cell: Cell, folder: Path, limits: Limits) -> Row:
    """Row of one method; its model stays in the folder, if it is one of those to be kept."""
    if not is_prepared(cell, folder):
        prepare(cell, folder)
    return measure(method, cell, folder, limits, _model_file(method, cell, folder))


def _model_file(method: str, cell: Cell, folder: Path) -> Path | None:
    file = cell.file(folder, method).with_suffix(".safetensors")
    return file if method in KEPT else None


def run_constant(
    cells: Iterable[Cell], methods: Sequence[str], limits: Limits, folder: Path, path: Path
) -> None:
    """Append, for each method and number of columns, times to score by fits of all lengths."""
    for _, group in groupby(sorted(cells, key=attrgetter("d", "n")), attrgetter("d")):
        same_columns = list(group)
        for method in methods:
            row = constant(method, same_columns, limits, folder)
            append_row(row, path)
            print(*verdict_of_constant([row]), flush=True)


def constant(method: str, cells: Sequence[Cell], limits: Limits, folder: Path) -> Row:
    """Times to score the same queries by fits to ever more rows, taken in turn."""
    models = {cell.n: load(_kept_model(method, cell, folder, limits)) for cell in cells}
    Q = cells[0].load(folder, "queries")
    cases: Cases = {str(n): partial(model.score_samples, Q) for n, model in models.items()}
    times = list(interleave(cases, ROUNDS, ROUND_SECONDS).values())
    return {
        "comparison": "constant",
        "method": method,
        "d": cells[0].d,
        "n": list(models),
        "n_queries": len(Q),
        "score_seconds": [median(seconds) for seconds in times],
        "ratio": median(last / first for first, last in zip(times[0], times[-1], strict=True)),
        "repetitions": len(times[0]),
        **provenance(),
    }


def _kept_model(method: str, cell: Cell, folder: Path, limits: Limits) -> Path:
    file = _model_file(method, cell, folder)
    if file is None:
        raise ValueError(f"no model of {method} is kept; choose from {', '.join(KEPT)}")
    if not file.exists():
        row = fitted_and_measured(method, cell, folder, limits)
        if not file.exists():
            raise RuntimeError(f"{method} has no model of {cell.n} rows: {row['reason']}")
    return file


@contextmanager
def scratch(folder: Path | None) -> Iterator[Path]:
    """A folder for data and models: the given one, which stays, or one for the time being."""
    if folder is None:
        with tempfile.TemporaryDirectory() as temporary:
            yield Path(temporary)
    else:
        folder.mkdir(parents=True, exist_ok=True)
        yield folder


def main(arguments: list[str] | None = None) -> None:
    """Run the command line."""
    options = _parser().parse_args(arguments)
    if options.command == "report":
        print(report(read_rows(options.results), options.page))
        return
    limits = Limits(options.fit_limit, options.limit, options.memory)
    sizes = product(options.rows, options.columns)
    cells = [Cell(n, d, SEED, options.queries) for n, d in sizes]
    with scratch(options.folder) as folder:
        if options.command == "constant":
            run_constant(cells, options.methods, limits, folder, options.out)
        else:
            run(cells, options.methods, options.rounds, limits, folder, options.out)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("run", help="measure and append rows")
    command.add_argument("--rounds", type=int, default=1, help="measurements of each")
    _add_sizes(command, LENGTHS, tuple(METHODS))
    command = commands.add_parser("constant", help="score by fits of few and of many rows in turn")
    _add_sizes(command, ENDS, KEPT)
    command = commands.add_parser("report", help="rebuild the page from the rows")
    command.add_argument("--results", type=Path, default=RESULTS, help="file of the rows")
    command.add_argument("--page", type=Path, default=PAGE, help="page with the markers")
    return parser


def _add_sizes(
    command: argparse.ArgumentParser, lengths: tuple[int, ...], methods: tuple[str, ...]
) -> None:
    command.add_argument("--rows", nargs="+", type=int, default=lengths, metavar="N")
    command.add_argument("--queries", type=int, default=N_QUERIES, help="points to score")
    command.add_argument("--columns", nargs="+", type=int, default=COLUMNS, metavar="d")
    command.add_argument("--methods", nargs="+", choices=methods, default=methods, metavar="NAME")
    command.add_argument("--limit", type=float, default=Limits.score, help="seconds to score")
    command.add_argument("--fit-limit", type=float, default=Limits.fit, help="seconds to fit")
    command.add_argument("--memory", type=float, default=Limits.memory, help="GiB for a method")
    command.add_argument("--folder", type=Path, help="where data and models are kept")
    command.add_argument("--out", type=Path, default=RESULTS, help="file of the rows")


if __name__ == "__main__":
    main()

"""The command line of a benchmark: ``run`` measures rows, ``report`` writes pages from them."""

from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from experiments.pages import fill
from experiments.rows import Row, append_row, read_rows


class Commands(NamedTuple):
    """A parser and those of its two commands, for options of their own."""

    parser: ArgumentParser
    run: ArgumentParser
    report: ArgumentParser


def new_parser(doc: str | None, rows: Path) -> ArgumentParser:
    """Parser of a benchmark that only measures, with the option ``--out``."""
    parser = ArgumentParser(description=doc, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=rows, help="file of the rows")
    return parser


def run_and_report(doc: str | None, rows: Path, page: Path) -> Commands:
    """Parsers of ``run [--out FILE]`` and ``report [--results FILE] [--page FILE]``.

    Parameters
    ----------
    doc : str
        Docstring of the benchmark.
    rows, page : Path
        Where its rows and its page are unless the options say otherwise.
    """
    parser = ArgumentParser(description=doc, formatter_class=RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="measure rows")
    run.add_argument("--out", type=Path, default=rows, help="file of the rows")
    report = commands.add_parser("report", help="write the page from the rows")
    report.add_argument("--results", type=Path, default=rows, help="file of the rows")
    report.add_argument("--page", type=Path, default=page, help="page to write")
    return Commands(parser, run, report)


def run_or_report(
    doc: str | None,
    rows: Path,
    page: Path,
    run: Callable[[Namespace], Iterable[Row]],
    body: Callable[[list[Row]], str],
    arguments: list[str] | None,
    options: Mapping[str, Any],
    *,
    keep: bool = False,
) -> Namespace:
    """Run the commands of :func:`run_and_report`.

    Rows of `run` are appended as they are measured, to those of earlier runs if `keep`. `body` is
    what is printed after a run, and what ``report`` writes between the markers of the page that
    have the name of the file of rows. `options` are those of ``run``.
    """
    commands = run_and_report(doc, rows, page)
    for name, settings in options.items():
        commands.run.add_argument(f"--{name}", **settings)
    given = commands.parser.parse_args(arguments)
    if given.command == "report":
        fill(given.page, rows.stem, body(read_rows(given.results)))
        return given
    if not keep:
        given.out.unlink(missing_ok=True)
    for row in run(given):
        append_row(row, given.out)
    print(body(read_rows(given.out)))
    return given

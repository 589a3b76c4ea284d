"""The command line of a benchmark: ``run`` measures rows, ``report`` writes pages from them."""

from argparse import ArgumentParser, RawDescriptionHelpFormatter
from pathlib import Path
from typing import NamedTuple


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

"""A plan for more rows than a machine holds: bytes, operations, hours and money on a cluster.

    python -m benchmarks.big_plan run [--out FILE]
    python -m benchmarks.big_plan report [--results FILE] [--rows N] [--price P] [--nodes K] …

``run`` measures what a row, a density matrix and a task cost (:mod:`benchmarks.big_costs`).
``report`` multiplies these slopes by the sizes of the plan, under assumptions that are its
options, and writes tables and assumptions into docs/cost.md. No figure there is typed.
"""

from argparse import ArgumentParser
from dataclasses import fields
from pathlib import Path
from typing import Any

from benchmarks.big_costs import run
from benchmarks.big_model import MEANING, Costs, Plan
from benchmarks.big_tables import (
    assumptions,
    limit_table,
    plan_table,
    slope_table,
    summary,
)
from benchmarks.commands import run_and_report
from experiments.pages import fill
from experiments.rows import ROOT, Row, read_rows, write_rows

ROWS = ROOT / "benchmarks/results/big_plan.jsonl"
PAGE = ROOT / "docs/cost.md"


def report(plan: Plan, rows: list[Row], page: Path = PAGE) -> None:
    """Write tables and assumptions between the markers of the page."""
    costs = Costs(rows)
    fill(page, "plan", f"{summary(plan, costs)}\n\n{plan_table(plan, costs)}")
    fill(page, "assumptions", assumptions(plan))
    fill(page, "costs", slope_table(costs))
    fill(page, "limits", limit_table(plan))


def main(arguments: list[str] | None = None) -> None:
    """Run the command line."""
    options = _parser().parse_args(arguments)
    if options.command == "run":
        write_rows(run(), options.out)
        print(slope_table(Costs(read_rows(options.out))))
        return
    plan = Plan(**{field.name: getattr(options, field.name) for field in fields(Plan)})
    rows = read_rows(options.results)
    report(plan, rows, options.page)
    print(summary(plan, Costs(rows)), plan_table(plan, Costs(rows)), sep="\n\n")


def _parser() -> ArgumentParser:
    commands = run_and_report(__doc__, ROWS, PAGE)
    for field in fields(Plan):
        default: Any = field.default
        commands.report.add_argument(
            f"--{field.name}", type=type(default), default=default, help=MEANING[field.name]
        )
    return commands.parser


if __name__ == "__main__":
    main()

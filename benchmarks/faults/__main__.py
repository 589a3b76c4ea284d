"""Try bad inputs, damaged files, kills, full disks, little memory, threads, hostile requests.

    python -m benchmarks.faults run [--budget small|medium|large] [--only KIND] [--resume]
                                    [--out FILE]
    python -m benchmarks.faults report [--results FILE]

Each kind prints how many were tried and how many held, and leaves a row for every few hundred of
them; with ``--resume`` those in the file are not tried again: remove a row to try its attempts
again. ``report`` writes the table of docs/faults.md from
the rows. The run fails if anything did not hold.
"""

import sys
from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.commands import run_and_report
from benchmarks.faults import arrays, files, inputs, kills, limits, shared, tables
from benchmarks.faults.attempts import Kind, tried
from experiments.pages import fill
from experiments.rows import ROOT, Row, append_row, markdown_table, read_rows

ROWS = ROOT / "benchmarks/results/faults.jsonl"
PAGE = ROOT / "docs/faults.md"
BUDGETS = {"small": (600, 12), "medium": (5_000, 100), "large": (50_000, 1000)}
"""Inputs and kills."""
PART, KILLS = 250, 10
"""Attempts that a row stands for, at most, and kills, which take longer."""
LOST = frozenset({kills.SAME})
SAID = frozenset({"answered", "refused"})
USED = frozenset({"refused", "loaded, used", "loaded, unfitted"})
READ = frozenset({"refused", "rows"})
KINDS = (
    Kind("bad rows", inputs.start, SAID, 0.08),
    Kind("hostile arrays", arrays.start, SAID | {"answered, in part"}, 0.2, seconds=60),
    Kind("damaged model files", files.start, USED, 0.35, watched=True),
    Kind("damaged tables", tables.start, READ, 0.3, watched=True),
    Kind("full disk", limits.start_disk, frozenset({"refused"}), 0.02),
    Kind("little memory", limits.start_memory, SAID, 0.015),
    Kind("threads at once", shared.start_threads, frozenset({"same"}), 0.005, seconds=60),
    Kind("hostile requests", shared.start_requests, SAID | {"closed"}, 0.03),
    Kind("kill while saving", kills.start_save, LOST, 0.5, is_kill=True),
    Kind("kill while training", kills.start_fit, LOST, 0.15, is_kill=True),
    Kind("kill between chunks", kills.start_partial_fit, LOST, 0.2, is_kill=True),
    Kind("kill of `qaffde fit`", kills.start_command, LOST, 0.1, is_kill=True),
    Kind("kill of an experiment", kills.start_experiment, LOST, 0.02, True, seconds=120),
    Kind("kill of a Dask worker", kills.start_dask, LOST, 0.03, True, seconds=120),
)


def count(kind: Kind, budget: str) -> int:
    """Attempts of a kind, at least one."""
    n_inputs, n_kills = BUDGETS[budget]
    return max(1, round(kind.share * (n_kills if kind.is_kill else n_inputs)))


def missing(n: int, size: int, rows: Sequence[Row]) -> Iterator[tuple[int, int]]:
    """Begin and length of the parts, of at most `size`, of n attempts that no row stands for."""
    done = {k for row in rows for k in range(row["begin"], row["begin"] + row["tried"])}
    begin = 0
    while begin < n:
        end = next((k for k in range(begin, n) if k in done or k == begin + size), n)
        if end > begin:
            yield begin, end - begin
        begin = max(end, begin + 1)


def run(kinds: Sequence[Kind], budget: str, seed: int, old: Sequence[Row] = ()) -> Iterator[Row]:
    """Rows of at most PART attempts of each kind, beyond those of `old` rows."""
    for kind in kinds:
        own = [row for row in old if row["kind"] == kind.name]
        for part in missing(count(kind, budget), KILLS if kind.is_kill else PART, own):
            row = tried(kind, part[1], seed, part[0])
            print(f"{kind.name}: {row['tried']} tried, {row['held']} held", flush=True)
            for what, times in row["outcomes"].items():
                if what not in kind.fine:
                    print(f"    {times} × {what}", flush=True)
            yield {**row, "budget": budget}


def table(rows: Sequence[Row]) -> str:
    """Tried and held in Markdown."""
    lines = []
    for name in dict.fromkeys(row["kind"] for row in rows):
        own = [row for row in rows if row["kind"] == name]
        counts = [f"{sum(row[key] for row in own):,}" for key in ("tried", "held")]
        lines.append([name, *counts, f"{max(row['slowest_seconds'] for row in own):.1f}"])
    total = [f"{sum(row[key] for row in rows):,}" for key in ("tried", "held")]
    head = ["fault", "tried", "held", "slowest, s"]
    return markdown_table(head, [*lines, ["all", *total, ""]])


def report(rows: Sequence[Row], page: Path = PAGE) -> None:
    """Write the table between the markers of the page."""
    budgets = ", ".join(sorted({row["budget"] for row in rows}))
    dates = sorted({row["date"][:10] for row in rows})
    fill(page, "faults", f"{table(rows)}\n\nBudget: {budgets}; {dates[-1]}.")


def main(arguments: list[str] | None = None) -> None:
    """Run the command line."""
    options = _parser().parse_args(arguments)
    if options.command == "report":
        report(read_rows(options.results), options.page)
        return
    kinds = [kind for kind in KINDS if not options.only or kind.name in options.only]
    old = read_rows(options.out) if options.resume else []
    if not options.resume:
        options.out.unlink(missing_ok=True)
    for row in run(kinds, options.budget, options.seed, old):
        append_row(row, options.out)
    rows = read_rows(options.out)
    print(f"\n{table(rows)}")
    if any(row["held"] < row["tried"] for row in rows):
        sys.exit("some did not hold, see above")


def _parser() -> ArgumentParser:
    commands = run_and_report(__doc__, ROWS, PAGE)
    add = commands.run.add_argument
    add("--budget", choices=BUDGETS, default="small")
    add("--only", nargs="+", choices=[kind.name for kind in KINDS], metavar="KIND")
    add("--resume", action="store_true")
    add("--seed", type=int, default=0)
    return commands.parser


if __name__ == "__main__":
    main()

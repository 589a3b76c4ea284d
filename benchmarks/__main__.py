"""Time qaffde beside the bare operations it consists of.

    python -m benchmarks [--repetitions N] [--out FILE]

Prints every comparison and its ratio, and writes one JSON line for each timing.
"""

import os
import platform
from dataclasses import replace

from benchmarks.commands import new_parser
from benchmarks.overhead import Sizes, run
from experiments.rows import ROOT, Row, markdown_table, provenance, read_rows, write_rows

ROWS = ROOT / "benchmarks/results/overhead.jsonl"
SETTINGS = ("comparison", "n", "d", "n_features", "rank", "base_measure")


def main(arguments: list[str] | None = None, sizes: Sizes | None = None) -> None:
    """Run the command line; `sizes` are the published ones by default."""
    parser = new_parser(__doc__, ROWS)
    parser.add_argument("--repetitions", type=int, default=Sizes.repetitions)
    options = parser.parse_args(arguments)
    print(environment(), flush=True)
    write_rows(run(replace(sizes or Sizes(), repetitions=options.repetitions)), options.out)
    rows = read_rows(options.out)
    print(table(rows), verdict(rows), sep="\n\n")


def environment() -> str:
    """One line on the machine and the libraries."""
    origin = provenance()
    versions = ", ".join(f"{name} {version}" for name, version in origin["versions"].items())
    cores = f"{origin['threads']} threads on {os.cpu_count()} cores"
    return f"{platform.platform()} {platform.machine()}, {cores}; {versions}"


def table(rows: list[Row]) -> str:
    """All timings in Markdown; each comparison begins with the bare operations."""
    head = [*SETTINGS, "what", "median s", "ratio", "bound"]
    return markdown_table(head, [_line(row) for row in rows])


def verdict(rows: list[Row]) -> str:
    """Largest bounded ratio of each comparison, or time of a call, beside its bound."""
    worst: dict[str, Row] = {}
    for row in rows:
        if row["bound"] is not None:
            name = row["comparison"]
            worst[name] = max(worst.get(name, row), row, key=_bounded)
    return "\n".join(
        f"{name}: {_amount(row, _bounded(row))} at most, "
        f"{'within' if _bounded(row) <= row['bound'] else 'ABOVE'} the bound of "
        f"{_amount(row, row['bound'])}"
        for name, row in worst.items()
    )


def _bounded(row: Row) -> float:
    return float(row[row.get("bounded", "ratio")])


def _amount(row: Row, value: float) -> str:
    return (
        f"{1e6 * value:.0f} µs" if "bounded" in row else f"{value:.2f} times the bare operations"
    )


def _line(row: Row) -> list[str]:
    bound = "" if row["bound"] is None else f"{row['bound']:g}"
    settings = [str(row.get(name, "")) for name in SETTINGS]
    return [*settings, row["case"], f"{row['seconds']:.4g}", f"{row['ratio']:.2f}", bound]


if __name__ == "__main__":
    main()

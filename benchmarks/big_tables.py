"""Tables of the page on big data, each from rows or from the plan's arithmetic alone."""

import math
from dataclasses import fields, replace

from benchmarks.big_costs import FEATURES, LENGTHS
from benchmarks.big_model import MEANING, Costs, Plan, needed, planned, resolved
from experiments.rows import Row, markdown_table


def plan_table(plan: Plan, costs: Costs) -> str:
    """The plan for every number of columns and features."""
    head = [
        "columns",
        "D",
        "frequencies",
        "read TB",
        "ρ sent GB, at most",
        "10¹⁵ operations",
        "core-hours: decode",
        "look",
        "ρ",
        "hours",
        "of these waiting",
        "dollars",
        "GiB a worker",
    ]
    lines = []
    for d in LENGTHS:
        for n_features in FEATURES:
            cost = planned(plan, costs, d, n_features)
            lines.append(
                [
                    str(d),
                    f"{n_features:,}",
                    costs.of("pass", d=d, n_features=n_features)["frequencies"],
                    f"{cost['stored'] / 1e12:.1f}",
                    f"{cost['moved'] / 1e9:,.0f}",
                    f"{cost['flops'] / 1e15:,.1f}",
                    f"{cost['decoding']:,.0f}",
                    f"{cost['looking']:,.0f}",
                    f"{cost['adding']:,.0f}",
                    f"{cost['hours']:.2f}",
                    f"{cost['waiting']:.2f}",
                    f"{cost['money']:,.0f}",
                    f"{cost['memory'] / 2**30:.1f}",
                ]
            )
    return markdown_table(head, lines)


def slope_table(costs: Costs) -> str:
    """The measured slopes behind the plan."""
    head = ["what", "columns", "D", "between", "time", "of each", "rate"]
    return markdown_table(head, [_slope(row) for row in costs.rows if row["what"] in OF])


OF = {
    "parquet": ("read and decode Parquet", "row"),
    "look": ("look: sample, ends, moments", "row"),
    "pass": ("ρ, ends, moments", "row"),
    "add": ("add two ρ", "sum"),
    "read": ("read the density from ρ", "fit"),
    "task": ("Dask's own work, by the clock", "partition"),
}


def _slope(row: Row) -> list[str]:
    what, each = OF[row["what"]]
    rate = ""
    if row["what"] == "pass" and row["slope"]:
        rate = f"{row['flops'] / row['slope'] / 1e9:.1f} GFLOP/s"
    elif row["what"] == "parquet":
        rate = f"{row['bytes']:.1f} bytes a row on disk"
    elif row["what"] == "add":
        rate = f"{row['bytes'] / 1e6:.1f} MB"
    between = " and ".join(f"{n:,}" for n in row.get("lengths", []))
    seconds = row["slope"] if "slope" in row else row["seconds"]
    columns, D = (str(row.get(name, "")) for name in ("d", "n_features"))
    return [what, columns, D, between, in_words(seconds), each, rate]


def in_words(seconds: float) -> str:
    """A time in a unit that suits it.

    Examples
    --------
    >>> in_words(3.21e-7), in_words(0.0042), in_words(7.0)
    ('0.321 µs', '4.2 ms', '7 s')
    """
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-6:.3f} µs"


def limit_table(plan: Plan) -> str:
    """How many rows D features in two columns can tell from more, and what all rows would need."""
    head = ["D", "bandwidth it resolves", "rows with that bandwidth by Scott's rule", "ρ GB"]
    sizes = [*FEATURES, needed(plan, 2)]
    lines = []
    for D in sizes:
        h = resolved(plan, 2, D)
        lines.append([f"{D:,}", f"{h:.3f}", f"{h**-6:,.2g}", f"{8 * D**2 / 1e9:.2g}"])
    return markdown_table(head, lines)


def assumptions(plan: Plan) -> str:
    """One line for each assumption."""
    return markdown_table(
        ["assumption", "value"],
        [[MEANING[field.name], f"{getattr(plan, field.name):g}"] for field in fields(plan)],
    )


def summary(plan: Plan, costs: Costs) -> str:
    """The plan at D = 1000 in a sentence for each number of columns."""
    lines = []
    for d in LENGTHS:
        cost, once = (planned(p, costs, d, 1000) for p in (plan, replace(plan, passes=1)))
        lines.append(
            f"{power_of_ten(plan.rows)} rows of {d} columns at D = 1000 on "
            f"{plan.nodes * plan.cores} cores: {cost['hours']:.2f} hours and "
            f"{cost['money']:,.0f} dollars ({cost['stored'] / 1e12:.1f} TB read, "
            f"{cost['flops']:.1e} operations, at most {cost['moved'] / 1e9:,.0f} GB sent); in one "
            f"pass {once['hours']:.2f} hours and {once['money']:,.0f} dollars."
        )
    return "\n".join(f"- {line}" for line in lines)


def power_of_ten(n: float) -> str:
    """A number as a power of ten, where it is one.

    Examples
    --------
    >>> power_of_ten(1e11), power_of_ten(3e9)
    ('10¹¹', '3,000,000,000')
    """
    power = round(math.log10(n))
    raised = "".join("⁰¹²³⁴⁵⁶⁷⁸⁹"[int(digit)] for digit in str(power))
    return f"10{raised}" if n == 10.0**power else f"{n:,.0f}"

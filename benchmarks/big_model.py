"""The arithmetic of the plan: measured costs, times sizes, under assumptions."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from experiments.rows import Row
from qaffde.distributed.partitions import FAN_IN

HOUR = 3600.0
WORKING_COPIES = 4
"""Of a partition in a worker: as read, as float64, in the plan's units, and one to spare."""


@dataclass(frozen=True)
class Plan:
    """What is assumed; every one of these is an option of ``report``."""

    rows: float = 1e11
    passes: int = 2
    nodes: int = 16
    cores: int = 16
    price: float = 0.05
    storage: float = 1.0
    network: float = 1.0
    efficiency: float = 0.8
    partition: float = 4e6
    period: float = 10.0
    spectrum: float = 2.0


MEANING = {
    "rows": "rows N",
    "passes": "passes over the rows: two for an untuned fit, one where the plan is given or "
    "selected on some partitions",
    "nodes": "machines",
    "cores": "cores of a machine, one worker of one thread on each, as fast as the core here",
    "price": "price of a core for an hour, in dollars: an assumption, not a quote",
    "storage": "gigabytes a second that a machine reads from storage",
    "network": "gigabytes a second that a machine sends",
    "efficiency": "share of the cores' time that is work",
    "partition": "rows of a partition",
    "period": "width of the data, in standard deviations, that a lattice has to cover",
    "spectrum": "standard deviations of the kernel's spectrum that its frequencies have to reach",
}


class Costs:
    """Measured costs, by what they are of."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = rows

    def of(self, what: str, **of: Any) -> Row:
        """The last row that was measured of something."""
        found = [
            row
            for row in self.rows
            if row["what"] == what and all(row[name] == value for name, value in of.items())
        ]
        if not found:
            raise ValueError(
                f"no row of {what} {of or ''}: python -m benchmarks.big_plan run measures it"
            )
        return found[-1]


def planned(plan: Plan, costs: Costs, d: int, n_features: int) -> dict[str, float]:
    """Everything that N rows of d columns cost with so many features.

    Parts of a worker's time do not overlap, so they add up; the scheduler works beside them, and
    is a floor.
    """
    of = {"d": d, "n_features": n_features}
    row, add, read = (costs.of(what, **of) for what in ("pass", "add", "read"))
    file, look = costs.of("parquet", d=d), costs.of("look", d=d)
    N, P, cores = plan.rows, plan.rows / plan.partition, plan.nodes * plan.cores
    stored, moved = plan.passes * N * file["bytes"], P * add["bytes"]
    decoding = plan.passes * N * file["slope"]
    looking = (plan.passes - 1) * N * look["slope"]
    adding = N * row["slope"] + P * add["seconds"]
    computing = (decoding + looking + adding) / (cores * plan.efficiency)
    waiting = stored / (plan.nodes * plan.storage * 1e9) + moved / (
        plan.nodes * plan.network * 1e9
    )
    scheduling = plan.passes * P * costs.of("task")["slope"]
    hours = (max(computing + waiting, scheduling) + read["seconds"]) / HOUR
    partition = 8 * d * plan.partition * WORKING_COPIES
    return {
        "stored": stored,
        "moved": moved,
        "flops": N * row["flops"],
        "cosines": N * row["cosines"],
        "decoding": decoding / HOUR,
        "looking": looking / HOUR,
        "adding": adding / HOUR,
        "waiting": waiting / HOUR,
        "scheduling": scheduling / HOUR,
        "hours": hours,
        "money": hours * cores * plan.price,
        "memory": costs.of("interpreter")["mib"] * 2**20 + partition + (FAN_IN + 1) * add["bytes"],
    }


def resolved(plan: Plan, d: int, n_features: int) -> float:
    """Bandwidth, in standard deviations, whose spectrum a lattice of D frequencies reaches.

    A lattice over the period P has V (κP/4πh)^d points within κ deviations 1/(2h) of the spectrum,
    V the volume of the unit ball; D of them resolve h.
    """
    volume = math.pi ** (d / 2) / math.gamma(d / 2 + 1)
    return plan.spectrum * plan.period / (4 * math.pi) * (volume / n_features) ** (1 / d)


def needed(plan: Plan, d: int) -> int:
    """Features that Scott's bandwidth of all rows asks for."""
    h = plan.rows ** (-1 / (d + 4))
    return math.ceil((resolved(plan, d, 1) / h) ** d)

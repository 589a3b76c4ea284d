"""Experiments so small that they take a second."""

from experiments.config import DensityBudget, DensityConfig, MethodBudget
from experiments.density import density_cells

SETS, METHODS = ("arc", "random_gmm(2, 0.2)"), ("gmm", "planar")
TIMINGS = {
    "date",
    "fit_cpu_seconds",
    "fit_seconds",
    "score_cpu_seconds",
    "score_seconds",
    "seconds",
}


def tiny_budget(**changes):
    sizes = {"trials": 2, "n_search": 150, "n_valid": 80, "n_train": 200, "n_test": 90}
    steps = {"search_steps": 10, "final_steps": 12, "seeds": (3,)}
    methods = {"gmm": MethodBudget(seeds=(3, 4))}
    return DensityBudget(**(sizes | steps | {"methods": methods} | changes))


def tiny_config(**changes):
    budgets = dict.fromkeys(("quick", "standard"), tiny_budget(**changes))
    return DensityConfig("Tiny densities", SETS, METHODS, budgets, ("kde",))


def tiny_cells(files, experiment="planar", *, config=None, **selection):
    return density_cells(
        experiment, config or tiny_config(), "quick", storage=files.storage, **selection
    )


def without_timings(rows):
    kept = [{k: v for k, v in row.items() if k not in TIMINGS} for row in rows]
    return sorted(kept, key=lambda row: row["id"])

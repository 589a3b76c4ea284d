"""``qaffde info``: what a model file holds."""

from pathlib import Path
from typing import Any

from qaffde.cli.fit import attributes
from qaffde.cli.output import print_facts
from qaffde.estimators.recipes import fitted
from qaffde.files.format import unpack
from qaffde.files.model import load
from qaffde.plot.evaluate import names_of
from qaffde.streams.table import DataError

LEARNED = ("base_measure_", "bandwidth_", "ridge_", "n_fourier_features_", "rank_", "offset_")
DIAGNOSTICS = ("effective_rank", "purity", "von_neumann_entropy")


def info(model: Path, *, json: bool) -> None:
    """Show what a model file holds: class, columns, base measure, rank, entropy, size."""
    if not model.is_file():
        raise DataError(f"{model} is not a file")
    estimator = load(model)
    header, arrays = unpack(model.read_bytes())
    facts = {
        "class": type(estimator).__name__,
        **(describe(estimator) if fitted(estimator) else {"fitted": False}),
        "memory_bytes": sum(array.nbytes for array in arrays.values()),
        "file_bytes": model.stat().st_size,
        "format": header["format"],
        "written_by": f"qaffde {header.get('version')}",
    }
    print_facts(facts, as_json=json)


def describe(model: Any) -> dict[str, Any]:
    """Facts of a fitted estimator, as far as it has them."""
    facts: dict[str, Any] = {"columns": names_of(model)}
    if hasattr(model, "sums_"):
        facts["total_weight"] = float(model.sums_.weight)
    facts |= attributes(model, *LEARNED)
    if facts.get("base_measure", "kernel") != "kernel":
        facts |= {name: getattr(model, name)() for name in DIAGNOSTICS if hasattr(model, name)}
    return facts

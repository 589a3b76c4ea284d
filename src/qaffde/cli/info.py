"""``qaffde info``: what a model file holds."""

from typing import Any

from qaffde.cli.commands import Json, Model
from qaffde.cli.data.table import DataError
from qaffde.cli.errors import reporting
from qaffde.cli.output import print_facts, print_json
from qaffde.files.estimators import fitted
from qaffde.files.format import unpack
from qaffde.files.model import load
from qaffde.plot.evaluate import names_of

ATTRIBUTES = ("base_measure_", "bandwidth_", "ridge_", "n_fourier_features_", "rank_", "offset_")
DIAGNOSTICS = ("effective_rank", "purity", "von_neumann_entropy")


def info(model: Model, *, json: Json = False) -> None:
    """Show what a model file holds: class, columns, base measure, rank, entropy, size."""
    with reporting():
        if not model.is_file():
            raise DataError(f"{model} is no file")
        estimator = load(model)
        header, arrays = unpack(model.read_bytes())
        facts: dict[str, Any] = {"class": type(estimator).__name__}
        if fitted(estimator):
            facts |= describe(estimator)
        else:
            facts["fitted"] = False
        facts |= {
            "memory_bytes": sum(array.nbytes for array in arrays.values()),
            "file_bytes": model.stat().st_size,
            "format": header["format"],
            "written_by": f"qaffde {header.get('version')}",
        }
        (print_json if json else print_facts)(facts)


def describe(model: Any) -> dict[str, Any]:
    """Facts of a fitted estimator, as far as it has them."""
    facts: dict[str, Any] = {"columns": names_of(model)}
    if hasattr(model, "weight_sum_"):
        facts["total_weight"] = model.weight_sum_
    for name in ATTRIBUTES:
        if hasattr(model, name):
            value = getattr(model, name)
            facts[name.rstrip("_")] = value.tolist() if hasattr(value, "tolist") else value
    if getattr(model, "base_measure_", "kernel") != "kernel":
        facts |= {name: getattr(model, name)() for name in DIAGNOSTICS if hasattr(model, name)}
    return facts

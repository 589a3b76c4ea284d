"""Convert a model file of format 1, which qaffde 0.1.0 wrote, to the format of today.

    python tools/convert_model.py OLD NEW

Format 1 had frames instead of plans and no configuration objects. Densities stay as they are, and
updates go on. Parameters that no longer exist are left out: they would matter to another fit only.
Classifiers and baselines are refused. The result is checked as every file is that is loaded.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np

import qaffde.estimators  # noqa: F401 (registers what files may hold)
from qaffde._version import __version__
from qaffde.files.atomic import write_atomically
from qaffde.files.format import FORMAT, Arrays, FileError, Json, pack, quoted, unpack
from qaffde.files.model import loads
from qaffde.selection import SelectionPolicy
from qaffde.training import ComputeConfig, TrainingConfig

COMPUTE = ("dtype", "device")
POLICY = (SelectionPolicy, ("background", "min_trace", "tolerance"))
TRAINING = (
    *("solver", "initialization", "max_iter", "max_steps", "batch_size", "learning_rate"),
    *("clip_norm", "validation_fraction", "patience", "checkpoint"),
)
MOVED: dict[str, dict[str, tuple[Any, tuple[str, ...]]]] = {
    "QAFFDE": {"policy": POLICY, "compute": (ComputeConfig, (*COMPUTE, "batch_size"))},
    "QAFFDESGD": {
        "policy": POLICY,
        "compute": (ComputeConfig, COMPUTE),
        "training": (TrainingConfig, TRAINING),
    },
}
"""Parameters that configurations have now."""
AUTO = {"QAFFDE": {"tolerance": 1e-6}, "QAFFDESGD": {"tolerance": 1e-7, "batch_size": 1024}}
"""Defaults that are "auto" now."""
RENAMED = {
    "QAFFDEOutlierDetector": {"scores": "out_of_fold_scores_"},
}
ESTIMATORS = ("QAFFDEOutlierDetector", "FourierFeatures")
"""Estimators whose fitted attributes have an underscore now, and nothing else is new."""
REFUSED = (
    *("KDE", "GMM", "MADE", "MAF", "IAF", "RealNVP", "NSF", "Planar", "RoundTrip"),
    "PolynomialShear",
    *("QAFFDEClassifier", "FlowClassifier", "ImageFlowClassifier", "ImageRoundTrip"),
)


def convert(content: bytes) -> bytes:
    """Content of a file of today's format, from that of a file of format 1."""
    header, arrays = unpack(content, version=1)
    try:
        converter = Converter(arrays)
        with np.errstate(all="ignore"):  # of forged numbers, which loading refuses
            for entry in header["objects"]:
                converter.add(entry["class"], entry["fields"])
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        if isinstance(error, FileError):
            raise
        raise FileError(f"the file is damaged and cannot be converted ({quoted(error)})") from None
    new = {"format": FORMAT, "version": __version__, "objects": converter.objects}
    converted = pack(new, converter.arrays)
    loads(converted)
    return converted


class Converter:
    """Objects of a file of today's format.

    Parameters
    ----------
    arrays : dict of {str: ndarray}
        Of the file of format 1.
    """

    def __init__(self, arrays: Arrays) -> None:
        self.arrays = dict(arrays)
        self.objects: list[Json] = []
        self._places: list[Any] = []  # of the old objects; frames themselves

    def add(self, kind: str, fields: Json) -> None:
        """Convert the next object of the old file."""
        if kind in REFUSED:
            raise FileError(
                f"the file holds a {kind} of format 1, which is not converted: load it with "
                "qaffde 0.1.0, or fit the model again and save it"
            )
        new = self._renumbered(fields)
        if kind == "Frame":
            self._places.append(new)
            return
        if kind == "GaussianMeasure":
            del self.arrays[new.pop("cholesky")["tensor"]]  # is computed from the covariances
        if kind in MOVED:
            new = self._density_estimator(kind, new)
        elif kind in ESTIMATORS:
            new = _fitted(RENAMED.get(kind, {}), new)
        else:
            new = {RENAMED.get(kind, {}).get(name, name): new[name] for name in new}
        self._places.append(self._append(kind, new))

    def _append(self, kind: str, fields: Json) -> Json:
        self.objects.append({"class": kind, "fields": fields})
        return {"object": len(self.objects) - 1}

    def _renumbered(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._renumbered(item) for item in value]
        if not isinstance(value, dict):
            return value
        if value.keys() == {"object"}:
            return self._places[value["object"]]
        return {name: self._renumbered(item) for name, item in value.items()}

    def _density_estimator(self, kind: str, old: Json) -> Json:
        parameters, constants = self._parameters(kind, old.pop("parameters")["dict"])
        new: Json = {"parameters": {"dict": parameters}}
        if "density" not in old:
            return new
        new |= {"n_features_in_": old.pop("n_features_in_")}
        new |= {"feature_names_in_": old.pop("feature_names_in_", None)}
        plan, learned = self._closed_form(old) if kind == "QAFFDE" else self._likelihood(old)
        plan = {"rank": parameters.get("rank", "auto")} | plan | constants
        plan |= {"trials": {"tuple": []}, "axes": None, "noise": None}
        learned["plan_"] = self._append("Plan", plan)
        if old:
            raise FileError(f"{kind}.{quoted(next(iter(old)))} is not known in format 1")
        return new | learned

    def _closed_form(self, old: Json) -> tuple[Json, Json]:
        frame, count = dict(old.pop("frame")), old.pop("effective_count")
        sums = {"rho": old.pop("rho"), "weight": old.pop("weight_sum"), "count": count}
        frame |= {"base": frame.pop("base_measure"), "method": "closed_form", "ridge": 0.0}
        frame["n_rows"] = max(1, round(count))
        return frame, {"sums_": self._append("Sums", sums), "_density": old.pop("density")}

    def _likelihood(self, old: Json) -> tuple[Json, Json]:
        del old["search"]  # has no place in a plan
        inner = self._fields(old["density"])
        if "encoder" in inner:
            inner = self._fields(inner["density"])
        location, scale = (self.arrays[inner[name]["tensor"]] for name in ("location", "scale"))
        born = within = self._fields(inner["density"])
        if "epsilon" in within:
            born = self._fields(within["density"])
        measure = self._fields(born["measure"])
        ends: list[Any] = [[-np.inf] * len(scale), [np.inf] * len(scale)]
        if "lower" in measure:
            ends = [self.arrays[measure[name]["tensor"]] for name in ("lower", "upper")]
        bandwidth = self.arrays.pop(old.pop("bandwidth")["array"]) / scale
        plan = {
            "method": "likelihood",
            "measurement": "likelihood",
            "location": self._tensor("Plan.location", location),
            "scale": self._tensor("Plan.scale", scale),
            "bandwidth": self._tensor("Plan.bandwidth", bandwidth),
            "reach": self._tensor("Plan.reach", np.array(ends)),
            "base": old.pop("base_measure"),
            "measure": born["measure"],
            "features": born["features"],
            "rank": old["rank"],
            "ridge": old.pop("ridge"),
            # The weight of the background is 1/(n + 1), unless it was given.
            "n_rows": max(1, round(1 / within.get("epsilon", 0.5)) - 1),
        }
        names = ("density", "rank", "n_fourier_features", "history")
        return plan, {f"{name}_": old.pop(name) for name in names}

    def _fields(self, reference: Json) -> Json:
        fields: Json = self.objects[reference["object"]]["fields"]
        return fields

    def _tensor(self, name: str, array: Any) -> Json:
        self.arrays[name] = np.array(array, dtype=np.float64)
        return {"tensor": name}

    def _parameters(self, kind: str, old: Json) -> tuple[Json, Json]:
        """Parameters of the class as it is now, and constants of its plan."""
        new = {name: old[name] for name in old if name not in ("compile", "learn_features")}
        size, form = new.pop("n_base_components", "auto"), new.pop("normalisation", "exact")
        if form == "kernel":
            new["base_measure"] = "kernel"
        elif isinstance(size, int) and new.get("base_measure") == "mixture":
            new["base_measure"] = size
        if "initialisation" in new:
            new["initialization"] = new.pop("initialisation")
        if "fixed_point" in str(new.get("solver")):
            del new["solver"]
        usual = SelectionPolicy()
        constants = {name: new.get(name, getattr(usual, name)) for name in POLICY[1]}
        constants["background_spread"] = usual.background_spread
        if constants["tolerance"] == "auto":
            constants["tolerance"] = AUTO[kind]["tolerance"]
        for name, value in AUTO[kind].items():
            if new.get(name) == value:
                del new[name]
        for name, (config, moved) in MOVED[kind].items():
            found = {key: new.pop(key) for key in moved if key in new}
            changed = {key: found[key] for key in found if found[key] != getattr(config(), key)}
            new[name] = self._append(config.__name__, changed) if changed else None
        return new, constants


def _fitted(renamed: dict[str, str], old: Json) -> Json:
    """Fields of an estimator whose fitted attributes have an underscore now."""
    new = {"parameters": old.pop("parameters")}
    if old:
        new |= {"feature_names_in_": None}
    kept = ("n_features_in_", "feature_names_in_")
    names = {name: name if name in kept else f"{name}_" for name in old} | renamed
    return new | {names[name]: old[name] for name in old}


def main(arguments: list[str]) -> None:
    """Run the command line."""
    if len(arguments) != 2:
        sys.exit("usage: python tools/convert_model.py OLD NEW")
    old, new = arguments
    try:
        write_atomically(new, convert(Path(old).read_bytes()))
    except (FileError, OSError) as error:
        sys.exit(f"{old}: {error}")


if __name__ == "__main__":
    main(sys.argv[1:])

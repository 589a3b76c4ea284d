"""Convert an older model file to the format of today.

    python tools/convert_model.py OLD NEW

Format 1, which qaffde 0.1.0 wrote, had frames instead of plans and no configuration objects; its
classifiers and baselines are refused. Format 2 had other names and fewer fields at first.
Densities stay as they are, and updates go on. Parameters that no longer exist are left out: they
would matter to another fit only. The result is checked as every file is that is loaded.
"""

import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

import qaffde.estimators  # noqa: F401 (registers what files may hold)
from qaffde._version import __version__
from qaffde.files.format import (
    FORMAT,
    Arrays,
    FileError,
    Json,
    pack,
    quoted,
    unpack,
    write_atomically,
)
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
WITH_SCHEMA = (
    *("QAFFDE", "QAFFDESGD", "QAFFDETensorTrain", "QAFFDERegressor", "QAFFDEOutlierDetector"),
)
WITH_PARAMETERS = (*WITH_SCHEMA, "QAFFDEClassifier", "FourierFeatures")
CONSTANTS = {field.name for field in fields(SelectionPolicy)}
REFUSED = (
    *("KDE", "GMM", "MADE", "MAF", "IAF", "RealNVP", "NSF", "Planar", "RoundTrip"),
    "PolynomialShear",
    *("QAFFDEClassifier", "FlowClassifier", "ImageFlowClassifier", "ImageRoundTrip"),
)


def convert(content: bytes) -> bytes:
    """Content of a file of today's format, from that of an older file."""
    header, arrays = unpack(content, versions=(1, FORMAT))
    try:
        with np.errstate(all="ignore"):  # of forged numbers, which loading refuses
            if header["format"] == 1:
                converter = Converter(arrays)
                objects = converter.convert(header["objects"])
                arrays = converter.arrays
            else:
                objects = header["objects"]
            renamer = Renamer(arrays)
            objects = renamer.convert(objects)
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        if isinstance(error, FileError):
            raise
        raise FileError(f"the file is damaged and cannot be converted ({quoted(error)})") from None
    new = {"format": FORMAT, "version": __version__, "objects": objects}
    converted = pack(new, renamer.arrays)
    loads(converted)
    return converted


class Steps:
    """Objects of a newer file, made of those of an older one, one after the other.

    Parameters
    ----------
    arrays : dict of {str: ndarray}
        Of the older file.
    """

    def __init__(self, arrays: Arrays) -> None:
        self.arrays = dict(arrays)
        self.objects: list[Json] = []
        self._places: list[Any] = []  # what stands for each older object

    def convert(self, objects: Any) -> list[Json]:
        """Objects of the newer file."""
        for entry in objects:
            self._places.append(self.add(entry["class"], self._renumbered(entry["fields"])))
        return self.objects

    def add(self, kind: str, fields: Json) -> Any:
        """Convert an object; what stands for it in the fields of later ones."""
        raise NotImplementedError

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

    def _fields(self, reference: Json) -> Json:
        fields: Json = self.objects[reference["object"]]["fields"]
        return fields

    def _tensor(self, name: str, array: Any) -> Json:
        name = f"{name}.{len(self.arrays)}"
        self.arrays[name] = np.array(array, dtype=np.float64)
        return {"tensor": name}


class Renamer(Steps):
    """Objects of format 2 with the names and fields of today, from those that it had at first."""

    def add(self, kind: str, fields: Json) -> Any:
        """Convert an object; maps of columns, projections and frames are parts of others."""
        if kind == "TablePlan":
            raise FileError(
                "the file holds the fit of a table by a version of qaffde that could not add rows "
                "to it; fit the table again"
            )
        if kind == "RealColumn" and "map" in fields:
            return fields["map"]
        if kind == "ColumnMaps":
            return fields["columns"]
        if kind == "Projection":
            return fields
        if kind in ("MappedDensity", "MappedMixture"):
            return self._append("TableDensity", self._table(**fields))
        if kind == "ClassBorn":
            return self._class_density(fields)
        if kind == "ClassDensity":
            return self._append(
                "StandardizedDensity", {"density": fields["born"], **fields["coder"]}
            )
        change = {
            "Plan": self._plan,
            "SelectionPolicy": lambda old: {k: old[k] for k in old if k in CONSTANTS},
            "StandardizedDensity": lambda old: {"axes": None, "noise": None, **old},
            "DerivedDensity": lambda old: {"schema": None, **old},
            "TableMixture": lambda old: {"shrinkage": 0.0, "ridge": 1e-7, **old},
            "FactoredMixture": lambda old: {"waves": [], **old},
        }.get(kind, lambda old: old)
        if kind in WITH_PARAMETERS:
            fields = self._estimator(kind, fields)
        return self._append("RealColumn" if kind == "ColumnMap" else kind, change(fields))

    def _plan(self, old: Json) -> Json:
        columns = old.pop("maps", None)
        return {"columns": columns and {"tuple": columns}, "schema": None, **old}

    def _table(self, density: Json, maps: list[Json]) -> Json:
        inner = self.objects[density["object"]]
        if inner["class"] == "BornMixture":
            line = self._append("Part", {"kind": "line", "size": 0})
            level = self._tensor("level", np.zeros(len(inner["fields"]["terms"])))
            parts = {"tuple": [line] * len(maps)}
            mixture = {"parts": parts, "log_weights": level, "lines": density, "factors": []}
            mixture["waves"] = []
            density = self._append("FactoredMixture", mixture)
        return {"density": density, "columns": maps}

    def _class_density(self, old: Json) -> Json:
        epsilon, measure = old.pop("epsilon"), self._fields(old["measure"])
        means, covariances = (self.arrays[measure[k]["tensor"]] for k in ("means", "covariances"))
        fields = {
            "density": self._append("BornDensity", old),
            "epsilon": epsilon,
            "mean": self._tensor("mean", means[0]),
            "cholesky": self._tensor("cholesky", _cholesky(covariances[0])),
        }
        return self._append("DefensiveDensity", fields)

    def _estimator(self, kind: str, old: Json) -> Json:
        given = old["parameters"]["dict"]
        if kind == "QAFFDEClassifier" and given.pop("objective", None) == "generative":
            given["method"] = "generative"
        if kind == "QAFFDESGD" and "encoder" in given:
            given["transformation"] = given.pop("encoder")
        bounds = given.pop("bounds", None)
        if bounds is not None:
            given["columns"] = self._kinds(bounds)
        if len(old) > 1 and kind in WITH_SCHEMA:
            old = {"schema_": None, **old}
        return old

    def _kinds(self, bounds: Any) -> Any:
        """Kinds of columns, from a pair of bounds or one for each column."""
        pairs = [_listed(pair) for pair in _listed(bounds)]
        if not isinstance(pairs[0], list):
            pairs = [pairs]
        kinds = [self._append("Real", {"lower": low, "upper": high}) for low, high in pairs]
        return kinds if len(kinds) > 1 else kinds[0]


def _listed(value: Any) -> Any:
    """A list, or a tuple, as a list; other values as they are."""
    return value["tuple"] if isinstance(value, dict) and "tuple" in value else value


def _cholesky(C: Any) -> Any:
    try:
        return np.linalg.cholesky(C)
    except np.linalg.LinAlgError as error:
        raise ValueError("a covariance is not positive definite") from error


class Converter(Steps):
    """Objects of format 2 from those of format 1."""

    def add(self, kind: str, fields: Json) -> Any:
        """Convert an object; frames are parts of others."""
        if kind in REFUSED:
            raise FileError(
                f"the file holds a {kind} of format 1, which is not converted: load it with "
                "qaffde 0.1.0, or fit the model again and save it"
            )
        if kind == "Frame":
            return fields
        if kind == "GaussianMeasure":
            del self.arrays[fields.pop("cholesky")["tensor"]]  # is computed from the covariances
        if kind in MOVED:
            fields = self._density_estimator(kind, fields)
        elif kind in ESTIMATORS:
            fields = _fitted(RENAMED.get(kind, {}), fields)
        return self._append(kind, fields)

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

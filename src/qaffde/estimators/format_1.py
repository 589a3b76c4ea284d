"""Model files of format 1, which had frames instead of plans and no configuration objects.

Densities are read as they are. Parameters that no longer exist are left out: they would matter to
another fit only. Classifiers and baselines are refused.
"""

from dataclasses import dataclass
from typing import Any

import torch

from qaffde.estimators.recipes import COLUMNS
from qaffde.files.fields import Fields
from qaffde.files.format import FileError
from qaffde.files.values import FORMER, RECIPES, Recipe, attributes
from qaffde.nn import BoxMeasure, DefensiveDensity, StandardizedDensity, TransformedDensity
from qaffde.nn.density import find_born
from qaffde.selection import SelectionPolicy
from qaffde.training import ComputeConfig, TrainingConfig

POLICY = (SelectionPolicy, ("background", "min_trace", "tolerance"))
COMPUTE = ("dtype", "device")
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
FRAME = ("location", "scale", "bandwidth", "measure", "features", "reach", "measurement")
PARTS: dict[str, tuple[str, ...]] = {
    "KDE": ("KernelSum",),
    "GMM": ("MixtureDensity",),
    "QAFFDEClassifier": ("Projection", "LeNet", "ImageCoder", "ClassBorn", "ClassSums"),
    **dict.fromkeys(("MADE", "MAF", "IAF", "RealNVP", "NSF", "Planar", "RoundTrip"), ()),
    **dict.fromkeys(("FlowClassifier", "ImageFlowClassifier", "ImageRoundTrip"), ()),
}
"""Estimators that are not read, and parts that files list before them."""


@dataclass(frozen=True)
class Frame:
    """Fields of a plan that come from a frame, not checked yet."""

    parts: dict[str, Any]


def _frame(f: Fields) -> Frame:
    return Frame({name: f.get(name) for name in FRAME} | {"base": f.get("base_measure")})


def _qaffde(f: Fields) -> Any:
    parameters = _parameters(f)
    if "frame" not in f:
        return _made("QAFFDE", parameters=parameters)
    count = f.number("effective_count", 0)
    sums = _made("Sums", rho=f.get("rho"), weight=f.get("weight_sum"), count=count)
    parts = f.item("frame", Frame).parts | {"rank": parameters.get("rank"), "ridge": 0.0}
    parts |= {"method": "closed_form", "n_rows": max(1, round(count))}
    plan = _plan(f, parameters["policy"], **parts)
    learned = {"sums": sums, "plan": plan, "density": f.get("density")}
    return _made("QAFFDE", parameters=parameters, **_columns(f), **learned)


def _qaffde_sgd(f: Fields) -> Any:
    parameters = _parameters(f)
    if "density" not in f:
        return _made("QAFFDESGD", parameters=parameters)
    density = f.item("density", StandardizedDensity | TransformedDensity)
    inner: Any = density.density if isinstance(density, TransformedDensity) else density
    born, d = find_born(density), len(inner.scale)
    reach = torch.tensor([[-torch.inf], [torch.inf]], dtype=torch.float64).repeat(1, d)
    if isinstance(born.measure, BoxMeasure):
        reach = torch.stack([born.measure.lower, born.measure.upper])
    # The weight of the background is 1/(n + 1), unless it was given.
    share = inner.density.epsilon if isinstance(inner.density, DefensiveDensity) else 0.5
    plan = _plan(
        f,
        parameters["policy"],
        method="likelihood",
        location=inner.location,
        scale=inner.scale,
        bandwidth=torch.from_numpy(f.array("bandwidth", d)) / inner.scale,
        base=f.get("base_measure"),
        measure=born.measure,
        features=born.features,
        reach=reach,
        measurement="likelihood",
        rank=f.get("rank"),
        ridge=f.get("ridge"),
        n_rows=max(1, round(1 / share) - 1),
    )
    f.get("search")  # has no place in a plan
    learned = {name: f.get(name) for name in ("rank", "n_fourier_features", "history")}
    learned |= {"plan": plan, "density": density}
    return _made("QAFFDESGD", parameters=parameters, **_columns(f), **learned)


def _parameters(f: Fields) -> dict[str, Any]:
    """Parameters of the class as it is now."""
    old = f.item("parameters", dict)
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
    for name, usual in AUTO[f.kind].items():
        if new.get(name) == usual:
            del new[name]
    for name, (kind, moved) in MOVED[f.kind].items():
        config = kind(**{key: new.pop(key) for key in moved if key in new})
        new[name] = None if config == kind() else config
    return new


def _plan(f: Fields, policy: SelectionPolicy | None, **parts: Any) -> Any:
    """Plan with the constants of a policy."""
    names = ("background", "min_trace", "tolerance", "background_spread")
    constants = {name: getattr(policy or SelectionPolicy(), name) for name in names}
    if constants["tolerance"] == "auto":
        constants["tolerance"] = AUTO[f.kind]["tolerance"]
    return _made("Plan", **parts, **constants, trials=(), axes=None, noise=None)


def _columns(f: Fields) -> dict[str, Any]:
    return {name: f.get(name) for name in COLUMNS if name in f}


def _made(kind: str, **values: Any) -> Any:
    """Object of a class as files have it now, of values that are checked as theirs are."""
    fields = Fields(kind, values)
    item = RECIPES[kind].make(fields)
    fields.finish()
    return item


def _refused(name: str) -> Recipe:
    def refuse(f: Fields) -> None:
        raise FileError(
            f"the file holds a {name} of format 1, which this version does not read: load it with "
            "qaffde 0.1.0, or fit the model again and save it"
        )

    return Recipe(object, attributes(), refuse)


FORMER[1] = {
    **RECIPES,
    "Frame": Recipe(Frame, attributes(), _frame),
    "QAFFDE": Recipe(object, attributes(), _qaffde),
    "QAFFDESGD": Recipe(object, attributes(), _qaffde_sgd),
    **{name: _refused(owner) for owner in PARTS for name in (owner, *PARTS[owner])},
}

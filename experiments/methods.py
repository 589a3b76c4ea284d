"""The methods that are compared: how each is made, searched and read.

QAFFDE and QAFFDE-SGD choose for themselves within a fit; their spaces lie around what they chose
in the first trial, which for every method has the default parameters. QAFFDE-SGD has one trial of
those behind a shear, whose codes have other bandwidths than the rows.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from experiments.models.flat import flat_parameters, from_flat
from experiments.models.made import MADE
from experiments.models.planar import Planar
from experiments.models.predecessors import IAF, dmkde
from experiments.models.roundtrip import RoundTrip
from experiments.models.shear import ShearedSGD
from experiments.spaces import SPACES, Choice, Space
from qaffde import QAFFDE
from qaffde.baselines import BASELINES, TrainedEstimator
from qaffde.plot.style import DENSITY
from qaffde.selection import SelectionPolicy

Parameters = dict[str, Any]


@dataclass(frozen=True)
class Reference:
    """What the numbers of a space are in proportion to.

    Parameters
    ----------
    deviations : ndarray of shape (d,)
        Standard deviations of the columns of the training rows.
    default : dict
        What the fit with default parameters chose, as its row has it.
    growth : float
        Rows to train on, in numbers of those that were searched on.
    """

    deviations: NDArray[np.float64]
    default: Mapping[str, Any]
    growth: float = 1.0

    @property
    def shrinkage(self) -> float:
        """Rate n^(−1/(d + 4)) at which the best bandwidth of a kernel falls."""
        return float(self.growth ** (-1 / (len(self.deviations) + 4)))


Resolve = Callable[[Parameters, Reference], Parameters]


def as_they_are(sampled: Parameters, reference: Reference) -> Parameters:
    """Parameters of the space are those of the estimator."""
    return sampled


def in_deviations(sampled: Parameters, reference: Reference) -> Parameters:
    """A bandwidth in standard deviations, that falls as rows grow more."""
    if "bandwidth" not in sampled:
        return sampled
    h = sampled["bandwidth"] * reference.shrinkage * reference.deviations
    return sampled | {"bandwidth": h.tolist()}


def around_default(sampled: Parameters, reference: Reference) -> Parameters:
    """Factors of the bandwidth and the ridge that the default fit chose.

    The bandwidth of a kernel falls with the rows as that of any kernel estimate; a ridge is a
    number over that of the rows. A plain base is the box, or the Gaussian in many columns, where
    a box is nearly all empty.

    Where the default itself is to be trained on more rows, what it chose stays chosen if its base
    is a box. A mixture has parts of its own, that no row records, and is chosen again.
    """
    parameters = dict(sampled)
    if not sampled and reference.default.get("base_measure") == "box":
        parameters = {"base": "plain", "bandwidth_factor": 1.0}
        parameters |= {"ridge_factor": 1.0} if "ridge" in reference.default else {}
    if "base" in parameters:
        plain = (
            "box" if len(reference.deviations) <= SelectionPolicy().max_box_columns else "gaussian"
        )
        parameters["base_measure"] = {"plain": plain, "mixture": "mixture"}[parameters.pop("base")]
    if "bandwidth_factor" in parameters:
        chosen = np.asarray(reference.default["bandwidth"])
        factor = parameters.pop("bandwidth_factor")
        shrinkage = 1.0 if "ridge" in reference.default else reference.shrinkage
        parameters["bandwidth"] = (factor * shrinkage * chosen).tolist()
    if "ridge_factor" in parameters:
        chosen = reference.default["ridge"] / reference.growth
        parameters["ridge"] = min(0.5, parameters.pop("ridge_factor") * chosen)
    return parameters


@dataclass(frozen=True)
class Method:
    """One method of the comparison.

    Parameters
    ----------
    label : str
        In tables and figures.
    kind : {"ours", "neural", "classical"}
    make : callable
        Unfitted estimator of parameters.
    space : dict of {str: Range or Choice}
        What the trials after the first draw from.
    also : tuple of dict of {str: Choice}
        Settings of the trials between the first and those: each has one value to choose, under a
        name that `space` does not have.
    colour, marker : str
        In figures: Okabe and Ito's palette and more, told apart by the marker too.
    resolve : callable
        Parameters of the estimator from those of the space.
    judged_as : dict
        Parameters of the density whose likelihood judges a trial, where the method is none.
    attributes : tuple of str
        Fitted attributes that a row records.
    has_likelihood : bool
        False where what is fitted does not integrate to one: then no likelihood is reported.
    """

    label: str
    kind: str
    make: Callable[..., BaseEstimator]
    space: Space
    colour: str
    marker: str = "o"
    resolve: Resolve = as_they_are
    judged_as: Mapping[str, Any] = field(default_factory=dict)
    attributes: tuple[str, ...] = ()
    has_likelihood: bool = True
    also: tuple[Space, ...] = ()

    @property
    def spaces(self) -> tuple[Space, ...]:
        """What the trials draw from in turn; the first has the defaults."""
        return {}, *self.also, self.space


_SHEAR = Choice(("shear",), why="what bends is straightened; the rest is as untuned as before")
_FITTED = ("bandwidth", "base_measure", "rank", "n_fourier_features")

LABORATORY: dict[str, Callable[..., BaseEstimator]] = {
    "made": MADE,
    "iaf": IAF,
    "planar": Planar,
    "roundtrip": RoundTrip,
    "dmkde": dmkde,
}
"""Methods that only experiments have, beside those of `qaffde.baselines`."""


def _baseline(name: str, label: str, colour: str, marker: str, **options: Any) -> Method:
    kind = "classical" if name in ("kde", "gmm", "dmkde") else "neural"
    make = (BASELINES | LABORATORY)[name]
    if isinstance(make, type) and issubclass(make, TrainedEstimator):
        make = partial(from_flat, make)
    return Method(label, kind, make, SPACES[name], colour, marker, **options)


METHODS: dict[str, Method] = {
    "qaffde": Method(
        "QAFFDE",
        "ours",
        QAFFDE,
        SPACES["qaffde"],
        DENSITY,
        "o",
        around_default,
        attributes=_FITTED,
    ),
    "qaffde_sgd": Method(
        "QAFFDE-SGD",
        "ours",
        ShearedSGD,
        SPACES["qaffde_sgd"],
        "#0072B2",
        "s",
        around_default,
        attributes=(*_FITTED, "ridge"),
        also=({"transformation": _SHEAR},),
    ),
    "made": _baseline("made", "MADE", "#009E73", "^"),
    "maf": _baseline("maf", "MAF", "#56B4E9", "v"),
    "iaf": _baseline("iaf", "IAF", "#CC79A7", "<"),
    "planar": _baseline("planar", "Planar", "#E69F00", ">"),
    "realnvp": _baseline("realnvp", "RealNVP", "#8C6BB1", "P"),
    "nsf": _baseline("nsf", "NSF", "#A81E6A", "D"),
    "roundtrip": _baseline("roundtrip", "RoundTrip", "#44AA99", "X"),
    "kde": _baseline(
        "kde", "KDE", "#888888", "h", resolve=in_deviations, attributes=("bandwidth",)
    ),
    "gmm": _baseline("gmm", "GMM", "#A6761D", "*", attributes=("n_components",)),
    "dmkde": _baseline(
        "dmkde",
        "DMKDE",
        "#999933",
        "d",
        resolve=in_deviations,
        judged_as={"base_measure": "box"},
        attributes=_FITTED,
        has_likelihood=False,
    ),
}


def find_method(name: str) -> Method:
    """Method by its name.

    Examples
    --------
    >>> find_method("nsf").label
    'NSF'
    """
    if name not in METHODS:
        raise ValueError(f"unknown method {name!r}; choose one of {', '.join(METHODS)}")
    return METHODS[name]


def check_parameters(name: str, parameters: Mapping[str, Any], where: str) -> None:
    """Reject parameters that the estimator of a method does not have."""
    model = find_method(name).make()
    is_trained = isinstance(model, TrainedEstimator)
    known = flat_parameters(model) if is_trained else model.get_params()
    for parameter in parameters:
        if parameter not in known:
            raise ValueError(
                f"{where} has no parameter {parameter!r}; {name} knows {', '.join(known)}"
            )

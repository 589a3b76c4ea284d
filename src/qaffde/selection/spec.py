"""What a caller fixes of a model; all that is "auto" is selected."""

from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

from torch import Tensor

from qaffde import functional as QF
from qaffde.parameters import (
    check_choice,
    check_count,
    check_rank,
    check_share,
    holds_numbers,
    read_bounds,
)
from qaffde.selection.base_measure import BaseSpec
from qaffde.selection.policy import SelectionPolicy
from qaffde.training.closed_form import READINGS

METHODS = ("closed_form", "likelihood")
BASE_MEASURES = ("auto", "box", "gaussian", "mixture", "kernel")
FEATURES = ("auto", *QF.FREQUENCIES, "adaptive")


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """What is asked of a density; parameters as in :class:`qaffde.QAFFDE` and `QAFFDESGD`.

    Parameters
    ----------
    method : {"closed_form", "likelihood"}, default="closed_form"
    n_features, bandwidth, rank, features, base_measure, bounds, measurement, ridge
        As in the estimators.
    open_ended : bool, default=False
        Whether rows are still to come. Then "auto" takes what later rows cannot fall out of: the
        mixture base, frequencies without a period, and as many features as a large fit has.

    Examples
    --------
    >>> ModelSpec(base_measure="ball")
    Traceback (most recent call last):
    ValueError: base_measure='ball' is not known; choose one of auto, box, gaussian, mixture, ...
    """

    method: str = "closed_form"
    n_features: int | str = "auto"
    bandwidth: Any = "auto"
    rank: int | float | str = "auto"
    features: str = "auto"
    base_measure: int | str = "auto"
    bounds: Any = None
    measurement: str = "square_root"
    ridge: float | str = "auto"
    open_ended: bool = False

    def __post_init__(self) -> None:
        check_choice("method", self.method, METHODS)
        check_count("n_features", self.n_features, auto=True, minimum=2)
        check_rank(self.rank)
        check_choice("features", self.features, FEATURES)
        check_base_measure(self.base_measure, BASE_MEASURES)
        check_choice("measurement", self.measurement, READINGS)
        check_share("ridge", self.ridge, auto=True)
        if self.bounds is not None and self.base_measure not in ("auto", "box"):
            raise ValueError(
                f"bounds belong to the box, but base_measure={self.base_measure!r}; "
                'leave bounds out or set base_measure="box"'
            )

    @property
    def is_given(self) -> bool:
        """Whether the parameters settle the plan, so that no row has a say in it."""
        numbers = holds_numbers(self.bandwidth) and holds_numbers(self.bounds)
        return numbers and self.features != "adaptive" and self.method == "closed_form"

    @property
    def is_free(self) -> bool:
        """Whether nobody asked for features, a rank or a number of Gaussians."""
        free = (self.n_features, self.bandwidth, self.features, self.rank)
        is_auto = all(isinstance(value, str) and value == "auto" for value in free)
        return is_auto and isinstance(self.base_measure, str)

    def frequency_kind(self, d: int) -> str:
        """Kind of frequencies for d columns."""
        if self.features not in ("auto", "adaptive"):
            return self.features
        if self.features == "auto" and d <= 2:
            return "lattice"
        return "sobol" if d <= 6 else "orthogonal"

    def opened(self, d: int) -> "ModelSpec":
        """The same for rows of d columns of which more are to come."""
        spec = replace(self, open_ended=True)
        if self.bounds is not None or self.base_measure == "box":
            return spec
        base = "mixture" if self.base_measure == "auto" else self.base_measure
        wrapped = self.features == "auto" and self.frequency_kind(d) == "lattice"
        return replace(spec, base_measure=base, features="sobol" if wrapped else self.features)

    def base_specs(
        self, ends: Tensor | None, n: int, d: int, policy: SelectionPolicy
    ) -> list[BaseSpec]:
        """Base measures to compare, the simplest first; size 0 is a size still to be chosen.

        A box is no candidate in many columns, where it is nearly all empty.

        Parameters
        ----------
        ends : Tensor of shape (2, d), optional
            Known ends of a box, in the units of the plan.
        n, d : int
            Distinct rows, and columns.
        policy : SelectionPolicy
        """
        few = n < policy.few_rows
        box = BaseSpec("box", bounds=ends, roomy=self.method == "likelihood")
        if isinstance(self.base_measure, Integral):
            return [BaseSpec("mixture", int(self.base_measure))]
        mixture = BaseSpec("mixture", 1 if few else 0)
        if self.base_measure != "auto":
            named = {"box": box, "mixture": mixture}
            return [named.get(str(self.base_measure), BaseSpec(str(self.base_measure)))]
        if ends is not None:
            return [box]
        if few:
            return [BaseSpec("gaussian")]
        return [box, mixture] if d <= policy.max_box_columns else [mixture]

    def ends(self, d: int) -> Tensor | None:
        """Known ends of the box, of shape (2, d), in the units of the data; NaN where unknown."""
        return read_bounds(self.bounds, d)


def check_base_measure(value: object, choices: tuple[str, ...]) -> None:
    """Reject what is neither a name nor a number of Gaussians."""
    if isinstance(value, Integral) and not isinstance(value, bool):
        check_count("base_measure", value)
    else:
        check_choice("base_measure", value, choices)


def fixed(value: float | str) -> float | None:
    """A number that is given, None for "auto"."""
    return None if isinstance(value, str) else float(value)

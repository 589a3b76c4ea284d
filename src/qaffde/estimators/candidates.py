"""What maximum likelihood may start from, its neighbours and its plainer forms."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from qaffde.estimators.data_measure import MeasureSpec

RIDGE_ROWS = 100.0
"""The ridge begins at this number over that of the rows."""
RIDGE_STEP, BLUR_STEP = 3.0, 0.4
BENT_BANDWIDTH, BENT_RIDGE = 2.7, 10.0
"""Of features that bend one Gaussian, in its standard deviations and times the number of rows: so
wide, they see its skewness and little else."""


@dataclass(frozen=True)
class Candidate:
    """What is chosen before the likelihood is maximised.

    Parameters
    ----------
    spec : MeasureSpec
    bandwidth : Tensor of shape (d,)
        Of the frequencies, in units of the rows.
    ridge : float
        Times the number of rows.
    bare : bool
        Whether the base measure is left as it is, with one constant feature.
    """

    spec: MeasureSpec
    bandwidth: Tensor
    ridge: float = RIDGE_ROWS
    bare: bool = False

    def __str__(self) -> str:
        h = ", ".join(f"{number:.4g}" for number in self.bandwidth)
        size = f" of {self.spec.n_components}" if self.spec.name == "mixture" else ""
        size += " averaged" if self.spec.strength is not None else ""
        size += f" blurred by {self.spec.blur:.4g}" if self.spec.blur else ""
        if self.bare:
            return f"{self.spec.name}{size}, bare"
        return f"{self.spec.name}{size}, bandwidth {h}, ridge {self.ridge:.4g}/n"


Move = Callable[[Candidate, int], Candidate]
"""A neighbour of a candidate, in direction 1 or −1."""


def wider(factor: float, columns: Tensor | float = 1.0) -> Move:
    """Move that multiplies the bandwidth of the columns that are marked by one."""
    return lambda candidate, direction: replace(
        candidate, bandwidth=candidate.bandwidth * factor ** (direction * columns)
    )


def blurrier(candidate: Candidate, direction: int) -> Candidate:
    """Move that blurs a mixture, whose own bumps may be finer than the features can take back."""
    blur = max(0.0, candidate.spec.blur + BLUR_STEP * direction)
    return replace(candidate, spec=replace(candidate.spec, blur=blur))


def stiffer(candidate: Candidate, direction: int) -> Candidate:
    """Move that multiplies the ridge."""
    return replace(candidate, ridge=candidate.ridge * RIDGE_STEP**direction)


def plainer(candidate: Candidate, ridge: float | None = None) -> list[Candidate]:
    """Forms of a mixture to take where held-out rows cannot tell them from the best.

    The base measure alone, as it was fitted. In one column one Gaussian lacks little but
    skewness, a single number, which it takes long for held-out rows to see: there it is bent by
    wide features first, with the ridge that is given, if one is.
    """
    bare = replace(candidate, spec=sharp(candidate.spec), bare=True)
    if not is_bell(candidate):
        return [bare]
    width = torch.full_like(candidate.bandwidth, BENT_BANDWIDTH)
    return [Candidate(bare.spec, width, BENT_RIDGE if ridge is None else ridge), bare]


def is_bell(candidate: Candidate) -> bool:
    """Whether the base measure is a mixture of one Gaussian, of one column."""
    spec = candidate.spec
    return (spec.kind, spec.name) == ("mixture", "gaussian") and len(candidate.bandwidth) == 1


def sharp(spec: MeasureSpec) -> MeasureSpec:
    """The base measure without its blur."""
    return replace(spec, blur=0.0)

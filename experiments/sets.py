"""Data sets by name, and who may see which of their rows."""

import re
from dataclasses import dataclass
from functools import cached_property

from experiments.targets import PLANAR, Target, get_target, random_gmm
from experiments.targets.base import FloatArray

_MIXTURE = re.compile(r"random_gmm\((\d+), ([\d.]+)\)")


def find_target(name: str) -> Target:
    """Target of a planar name, or of one such as ``random_gmm(5, 0.2)``: columns and scale.

    Examples
    --------
    >>> find_target("random_gmm(5, 0.2)")
    <Target random_gmm, n_dims=5>
    """
    if name in PLANAR:
        return get_target(name)
    match = _MIXTURE.fullmatch(name)
    if match is None:
        raise ValueError(
            f"unknown set {name!r}; choose one of {', '.join(PLANAR)}, or a mixture such as "
            "'random_gmm(5, 0.2)', its columns and its scale"
        )
    return random_gmm(int(match[1]), float(match[2]))


def dims_and_scale(name: str) -> tuple[int, float]:
    """Columns and scale of a mixture's name.

    Examples
    --------
    >>> dims_and_scale("random_gmm(5, 0.2)")
    (5, 0.2)
    """
    match = _MIXTURE.fullmatch(name)
    if match is None:
        raise ValueError(f"{name!r} is not the name of a mixture such as 'random_gmm(5, 0.2)'")
    return int(match[1]), float(match[2])


@dataclass(frozen=True)
class Draws:
    """Independent rows of one set for one seed.

    What selects sees `train` and `valid`; `test` and the truth are for what has been selected.

    Parameters
    ----------
    target : Target
    seed : int
        Seeds 3·seed, 3·seed + 1 and 3·seed + 2 draw the rows for training, validation and test.
    n_train, n_valid, n_test : int
    """

    target: Target
    seed: int
    n_train: int
    n_valid: int
    n_test: int

    @cached_property
    def train(self) -> FloatArray:
        """Rows to train on."""
        return self.target.sample(self.n_train, random_state=3 * self.seed)

    @cached_property
    def valid(self) -> FloatArray:
        """Rows that judge trials."""
        return self.target.sample(self.n_valid, random_state=3 * self.seed + 1)

    @cached_property
    def test(self) -> FloatArray:
        """Rows that judge what was chosen."""
        return self.target.sample(self.n_test, random_state=3 * self.seed + 2)

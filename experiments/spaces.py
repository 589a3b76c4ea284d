"""Where to search for the parameters of each method.

Search spaces are plain data: :class:`Range` and :class:`Choice` say what the paper states, and
where a range is narrower than the paper's, ``why`` says why.
"""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Range:
    """Numbers between two ends, both included.

    Parameters
    ----------
    low, high : float
        Whole numbers where both are ints.
    log : bool
        Draw logarithms uniformly.
    paper : str
        The paper's range, where it states one.
    why : str
        Reason for another one here.
    """

    low: float
    high: float
    log: bool = False
    paper: str = ""
    why: str = ""


@dataclass(frozen=True)
class Choice:
    """One of several values."""

    values: tuple[Any, ...]
    paper: str = ""
    why: str = ""


Space = dict[str, Range | Choice]

_LEARNING_RATE = Range(
    1e-4,
    1e-2,
    log=True,
    paper="1e-5 to 1e-1",
    why="two decades around the defaults; the paper's ends were not tried here",
)
_WIDTH = Range(
    20,
    256,
    log=True,
    paper="20 to 1000",
    why="the cost of a step is quadratic in it; wider networks were not tried here",
)
_LAYERS = Range(
    2,
    12,
    paper="2 to 24",
    why="the cost of a step is linear in it; deeper flows were not tried here",
)
_CYCLE = Range(
    0.1,
    10.0,
    log=True,
    why="a decade around the default; with 10, as in the code of RoundTrip's authors, generators "
    "had not found the modes of star_eight after 1700 steps, in one run",
)
_NETWORK: Space = {"n_layers": _LAYERS, "hidden_size": _WIDTH, "learning_rate": _LEARNING_RATE}
_SPLINES: Space = _NETWORK | {
    "n_layers": Range(
        2,
        6,
        paper="2 to 24",
        why="a layer of splines costs a few of the affine ones; three were enough here",
    ),
    "n_bins": Range(
        4, 24, paper="3 to 11", why="16 is the default, which the paper's range leaves out"
    ),
}

_FACTOR = Range(0.5, 2.0, log=True, why="an octave around what the default fit chose")
_BASE = Choice(("plain", "mixture"), why="the two that the default fit chooses between")

SPACES: dict[str, Space] = {
    "qaffde": {
        "n_features": Range(250, 2000, log=True, paper="250 to 2000"),
        "bandwidth_factor": _FACTOR,
        "base": _BASE,
    },
    "qaffde_sgd": {
        "n_features": Range(250, 2000, log=True, paper="250 to 2000"),
        "bandwidth_factor": _FACTOR,
        "ridge_factor": Range(0.1, 10.0, log=True, why="a decade around the default fit's"),
        "rank": Range(8, 64, log=True, paper="shares 0, .1, .5 and 1 of D"),
        "base": _BASE,
    },
    "made": {
        "n_components": Range(1, 32, log=True),
        "hidden_size": _WIDTH,
        "learning_rate": _LEARNING_RATE,
    },
    "maf": _NETWORK,
    "iaf": _NETWORK,
    "realnvp": _NETWORK,
    "nsf": _SPLINES,
    "planar": {
        "n_layers": Range(
            8, 64, log=True, paper="2 to 24", why="a planar map is one hidden unit, and cheap"
        ),
        "learning_rate": Range(
            1e-3,
            1e-1,
            log=True,
            paper="1e-5 to 1e-1",
            why="at 2e-3 training was still near its start after 1500 steps",
        ),
    },
    "roundtrip": {
        "hidden_size": _WIDTH,
        "n_hidden": Range(
            2, 6, why="its authors take up to ten; other than three was not tried here"
        ),
        "cycle_x": _CYCLE,
        "cycle_z": _CYCLE,
        "learning_rate": _LEARNING_RATE,
    },
    "kde": {"bandwidth": Range(2**-8, 2.0, log=True, why="standardised columns; 'auto' finds it")},
    "gmm": {"n_components": Range(1, 256, log=True)},
    "dmkde": {
        "n_features": Range(250, 2000, log=True, paper="250 to 2000"),
        "bandwidth": Range(
            2**-8,
            2.0,
            log=True,
            paper="2^-20 to 2^20",
            why="in standard deviations: narrower than 2^-8 no kernel holds two rows, wider than "
            "2 all rows are one blob",
        ),
    },
}
"""Parameters to search for each method, and between which values."""

"""What figures need of a fitted density, in a few thousand letters: a mesh, and some pairs.

Densities are kept as the square roots of their share of the largest, in whole numbers: low
densities, which are most of a picture, keep more levels than high ones.
"""

import base64
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.rows import Row
from experiments.targets import Target

Array = NDArray[np.float64]

MESH_SIDE = 96
N_PAIRS = 1000
TAIL, MARGIN = 0.002, 0.06
"""Share of test rows beyond each side of the mesh, and what is then added of its width."""
TRUTH = "truth"


def picture(score: Callable[[Array], Array], box: Array, log_p: Array) -> Row:
    """Densities on the mesh of a box, and at the first test rows.

    Parameters
    ----------
    score : callable
        Log-density of rows.
    box : ndarray of shape (2, 2)
        Ends of both columns.
    log_p : ndarray of shape (n,)
        Log-density of test rows.
    """
    return {
        "box": box.round(6).tolist(),
        "mesh": pack(np.exp(score(mesh_points(box))), np.uint8),
        "pairs": pack(np.exp(log_p[:N_PAIRS]), np.uint16),
    }


def truth_picture(target: Target, test: Array) -> Row:
    """Picture of the true density."""
    return picture(target.log_prob, picture_box(test), target.log_prob(test[:N_PAIRS]))


def picture_box(test: Array) -> Array:
    """Ends of both columns, (2, 2), that hold nearly all rows."""
    lower, upper = np.quantile(test, [TAIL, 1 - TAIL], axis=0)
    margin = MARGIN * (upper - lower)
    return np.stack([lower - margin, upper + margin], axis=1).round(6)


def mesh_points(box: Array) -> Array:
    """Centres of the cells, (side², 2): a row of a picture after the other, the lowest first."""
    x, y = (
        lower + (np.arange(MESH_SIDE) + 0.5) / MESH_SIDE * (upper - lower) for lower, upper in box
    )
    return np.stack([part.ravel() for part in np.meshgrid(x, y)], axis=1)


def pack(values: Array, kind: type[np.uint8] | type[np.uint16]) -> dict[str, Any]:
    """Non-negative numbers as text.

    Examples
    --------
    >>> unpack(pack(np.array([0.0, 0.25, 1.0]), np.uint16)).round(3)
    array([0.  , 0.25, 1.  ])
    """
    scale = float(values.max()) or 1.0
    levels = np.iinfo(kind).max
    whole = np.rint(levels * np.sqrt(values / scale)).astype(np.dtype(kind).newbyteorder("<"))
    text = base64.b64encode(zlib.compress(whole.tobytes(), 9)).decode()
    return {"scale": float(f"{scale:.6g}"), "bytes": whole.itemsize, "data": text}


def unpack(packed: dict[str, Any]) -> Array:
    """Numbers of :func:`pack`, to within its rounding."""
    kind = np.dtype(f"<u{packed['bytes']}")
    whole = np.frombuffer(zlib.decompress(base64.b64decode(packed["data"])), dtype=kind)
    return packed["scale"] * (whole / np.iinfo(kind).max) ** 2


def unpack_mesh(record: Row) -> Array:
    """Densities of shape (side, side), the lowest row of the picture first."""
    return unpack(record["mesh"]).reshape(MESH_SIDE, MESH_SIDE)

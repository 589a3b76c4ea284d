"""Most and least likely images as text, for figures that need no data."""

import base64
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.rows import Row

LEVELS = 31
"""Of a pixel: five bits are enough for the eye."""


def pack_images(images: NDArray[Any], shape: tuple[int, int, int]) -> Row:
    """Images in [0, 1] of shape (…, d) as text.

    Examples
    --------
    >>> packed = pack_images(np.array([[0.0, 1.0, 0.5, 0.2]]), (1, 2, 2))
    >>> unpack_images(packed).shape
    (1, 1, 2, 2)
    """
    whole = np.rint(images * LEVELS).astype(np.uint8)
    text = base64.b64encode(zlib.compress(whole.tobytes(), 9)).decode()
    return {"shape": [*images.shape[:-1], *shape], "data": text}


def unpack_images(packed: Row) -> NDArray[np.float64]:
    """Images of shape (…, channels, height, width), to within the rounding."""
    whole = np.frombuffer(zlib.decompress(base64.b64decode(packed["data"])), dtype=np.uint8)
    return whole.reshape(packed["shape"]) / LEVELS

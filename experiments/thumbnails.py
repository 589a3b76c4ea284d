"""Small pictures for the page, as data URLs: a density on its mesh, and true against estimated."""

import base64
import io
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.pictures import unpack, unpack_mesh
from experiments.rows import Row

SIDE = 72
"""Cells along each side of a scatter."""
INK = (43, 124, 190)
DIAGONAL = (140, 140, 140, 150)


def mesh_image(own: Row, truth: Row) -> str:
    """Density in viridis, square roots, up to the largest true one."""
    most = unpack_mesh(truth).max()
    share = np.sqrt(np.clip(unpack_mesh(own) / most, 0, 1))
    levels = np.rint(255 * share).astype(np.uint8)[::-1]
    image = _pillow().fromarray(levels).convert("P")
    image.putpalette(_palette())
    return _data_url(image)


def scatter_image(own: Row, truth: Row) -> str:
    """True density to the right, estimated upwards, the darker the more test rows."""
    x, y = unpack(truth["pairs"]), unpack(own["pairs"])
    most = 1.08 * x.max()
    counts, *_ = np.histogram2d(
        np.clip(y / most, 0, 1), np.clip(x / most, 0, 1), SIDE, range=[(0, 1), (0, 1)]
    )
    pixels = np.zeros((SIDE, SIDE, 4), dtype=np.uint8)
    pixels[np.arange(SIDE), np.arange(SIDE)] = DIAGONAL
    hit = counts > 0
    pixels[hit, :3] = INK
    pixels[hit, 3] = np.rint(90 + 165 * np.log1p(counts[hit]) / np.log1p(counts.max()))
    return _data_url(_pillow().fromarray(pixels[::-1].copy()))


def shares_image(shares: NDArray[np.float64]) -> str:
    """Shares in viridis, square roots, the first line above."""
    image = _pillow().fromarray(np.rint(255 * np.sqrt(shares)).astype(np.uint8)).convert("P")
    image.putpalette(_palette())
    return _data_url(image)


def pixels_image(pixels: NDArray[np.float64]) -> str:
    """Pixels in [0, 1], grey (height, width) or in colours (height, width, 3)."""
    return _data_url(_pillow().fromarray(np.rint(255 * pixels).astype(np.uint8)))


def _pillow() -> Any:
    from PIL import Image  # comes with matplotlib

    return Image


@cache
def _palette() -> bytes:
    from matplotlib import colormaps

    colours: NDArray[np.float64] = np.asarray(colormaps["viridis"](np.arange(256)))[:, :3]
    return np.rint(255 * colours).astype(np.uint8).tobytes()


def _data_url(image: Any) -> str:
    buffer = io.BytesIO()
    image.save(buffer, "png", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"

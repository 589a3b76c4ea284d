"""Image sets of the experiment, and images that none of their classes explains."""

from collections.abc import Callable
from functools import cache

import numpy as np
from numpy.typing import NDArray

from experiments.images.loaders import ImageData, load_cifar10, load_mnist

Images = NDArray[np.float32]

GREY = np.array([0.299, 0.587, 0.114], dtype=np.float32)
"""Weights of red, green and blue in brightness (ITU-R BT.601)."""
TEST_SHARE = 3
"""One in so many of the digits is for testing."""


def load_digits() -> ImageData:
    """Scikit-learn's digits of 8 × 8 pixels, every third for testing."""
    from sklearn import datasets

    X, y = datasets.load_digits(return_X_y=True)
    X, test = (X / 16).astype(np.float32), np.arange(len(y)) % TEST_SHARE == 0
    names = tuple("0123456789")
    return ImageData(X[~test], y[~test], X[test], y[test], (1, 8, 8), names)


IMAGE_SETS: dict[str, Callable[[], ImageData]] = {
    "mnist": load_mnist,
    "cifar10": load_cifar10,
    "digits": load_digits,
}
SHUFFLED = "shuffled pixels"
OUTSIDE = {"mnist": ("cifar10", "cifar10 in grey"), "cifar10": ("mnist", "mnist in colour")}
"""Whose images are foreign to a set, and what they are called."""


@cache
def load_images(name: str) -> ImageData:
    """Set by its name, read once in a process."""
    if name not in IMAGE_SETS:
        raise ValueError(f"unknown set {name!r}; choose one of {', '.join(IMAGE_SETS)}")
    return IMAGE_SETS[name]()


def shuffled_pixels(X: Images, shape: tuple[int, int, int], seed: int) -> Images:
    """Images whose pixels stand in random order, each in one of its own; colours stay together."""
    pixels = X.reshape(len(X), shape[0], -1)
    order = np.random.default_rng(seed).permuted(
        np.broadcast_to(np.arange(pixels.shape[2]), (len(X), pixels.shape[2])), axis=1
    )
    return np.take_along_axis(pixels, order[:, None], axis=2).reshape(X.shape)


def fitted_to(X: Images, shape: tuple[int, int, int], wanted: tuple[int, int, int]) -> Images:
    """Images of one shape in another: cropped or framed in black, made grey or repeated.

    Examples
    --------
    >>> fitted_to(np.ones((2, 3 * 6 * 6), dtype=np.float32), (3, 6, 6), (1, 4, 4)).shape
    (2, 16)
    """
    images = X.reshape(len(X), *shape)
    for axis in (2, 3):
        images = _resized(images, axis, wanted[axis - 1])
    if shape[0] != wanted[0]:
        grey = images if shape[0] == 1 else np.tensordot(images, GREY, (1, 0))[:, None]
        images = np.repeat(grey, wanted[0], axis=1)
    return np.ascontiguousarray(images.reshape(len(X), -1), dtype=np.float32)


def _resized(images: Images, axis: int, size: int) -> Images:
    """The middle of an axis, or the images in the middle of a longer one."""
    has = images.shape[axis]
    if has >= size:
        start = (has - size) // 2
        return np.take(images, range(start, start + size), axis)
    before = (size - has) // 2
    frame = [(0, 0)] * 4
    frame[axis] = (before, size - has - before)
    return np.pad(images, frame)


def outsiders(name: str, X_test: Images, seed: int) -> dict[str, Images]:
    """Images by kind that no class of a set explains, each as many as `X_test` has, at most.

    Those of another set are left out where its files are not there.
    """
    shape, n = load_images(name).image_shape, len(X_test)
    found = {SHUFFLED: shuffled_pixels(X_test, shape, seed)}
    if name in OUTSIDE:
        other_name, kind = OUTSIDE[name]
        try:
            other = load_images(other_name)
        except FileNotFoundError:
            return found
        found[kind] = fitted_to(other.X_test[:n], other.image_shape, shape)
    return found

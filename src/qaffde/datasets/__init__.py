"""Image data from their standard files, and augmentation of images.

Nothing is fetched: files are read from the folder ``$QAFFDE_DATA`` (``~/.cache/qaffde`` unless it
is set), and a file that is not there, or not the published one, is an error that says so.
"""

from qaffde.datasets.augment import Augmentation, RandomFlip, RandomShift
from qaffde.datasets.images import ImageData, data_folder, load_cifar10, load_mnist

__all__ = [
    "Augmentation",
    "ImageData",
    "RandomFlip",
    "RandomShift",
    "data_folder",
    "load_cifar10",
    "load_mnist",
]

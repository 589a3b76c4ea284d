"""MNIST and CIFAR-10 from their published files.

Nothing is fetched: files are read from the folder ``$QAFFDE_DATA`` (``~/.cache/qaffde`` unless it
is set), and a file that is not there, or not the published one, is an error that says so.
"""

import gzip
import hashlib
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

MNIST_FILES = {
    "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
    "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
    "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
    "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
}
"""MD5 of the files once they are unpacked."""
CIFAR_FILES = {
    "data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
    "data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
    "data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
    "data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
    "data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
    "test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d",
}
CIFAR_CLASSES = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)
CIFAR_SHAPE = (3, 32, 32)
MNIST_SOURCE = "the four files of MNIST (.gz or unpacked; yann.lecun.com/exdb/mnist has them)"
CIFAR_SOURCE = "cifar-10-binary.tar.gz, unpacked (www.cs.toronto.edu/~kriz/cifar.html has it)"
MAX_BYTES = 1 << 28
"""More than any of the files unpacks to."""
IDX_UBYTE = 8
"""Code of unsigned bytes in an idx file."""


@dataclass(frozen=True, eq=False)
class ImageData:
    """Labelled images in their standard split, as flat rows.

    Parameters
    ----------
    X_train, X_test : ndarrays of shape (n, channels · height · width)
        float32 in [0, 1], or uint8.
    y_train, y_test : ndarrays of shape (n,), int64
    image_shape : tuple (channels, height, width)
    class_names : tuple of str
    """

    X_train: NDArray[Any]
    y_train: NDArray[np.int64]
    X_test: NDArray[Any]
    y_test: NDArray[np.int64]
    image_shape: tuple[int, int, int]
    class_names: tuple[str, ...]

    def __repr__(self) -> str:
        return (
            f"ImageData({len(self.y_train)} training and {len(self.y_test)} test images of shape "
            f"{self.image_shape}, {len(self.class_names)} classes)"
        )


def data_folder() -> Path:
    """The folder that data are read from: ``$QAFFDE_DATA``, or ``~/.cache/qaffde``."""
    return Path(os.environ.get("QAFFDE_DATA") or "~/.cache/qaffde").expanduser()


def load_mnist(
    folder: str | os.PathLike[str] | None = None, *, as_float: bool = True, verify: bool = True
) -> ImageData:
    """Handwritten digits: 60 000 training and 10 000 test images of 28 × 28 pixels.

    Parameters
    ----------
    folder : path, optional
        That holds ``mnist/train-images-idx3-ubyte`` and its three companions, unpacked or as
        ``.gz``; :func:`data_folder` by default.
    as_float : bool, default=True
        Pixels in [0, 1] as float32, or bytes.
    verify : bool, default=True
        Compare checksums with those of the published files.

    Raises
    ------
    FileNotFoundError
        If a file is missing.
    ValueError
        If a file is damaged.
    """
    where = (data_folder() if folder is None else Path(folder)) / "mnist"
    content = {
        name: _read(where, name, digest if verify else None, MNIST_SOURCE)
        for name, digest in MNIST_FILES.items()
    }
    X, y, X_test, y_test = (_idx(where / name, data) for name, data in content.items())
    _check_pairs(where, X, y, X_test, y_test)
    shape = (1, *X.shape[1:])
    return _data((X, y, X_test, y_test), shape, tuple("0123456789"), as_float=as_float)


def load_cifar10(
    folder: str | os.PathLike[str] | None = None, *, as_float: bool = True, verify: bool = True
) -> ImageData:
    """Small photographs: 50 000 training and 10 000 test images of 3 × 32 × 32.

    The binary version is read, which is plain bytes; the Python version is a pickle, which could
    run code. The folder holds ``cifar-10-batches-bin/data_batch_1.bin`` and its five companions;
    otherwise as :func:`load_mnist`.
    """
    where = (data_folder() if folder is None else Path(folder)) / "cifar-10-batches-bin"
    batches = [
        _batch(where / name, _read(where, name, digest if verify else None, CIFAR_SOURCE))
        for name, digest in CIFAR_FILES.items()
    ]
    train = np.concatenate(batches[:-1])
    parts = train[:, 1:], train[:, 0], batches[-1][:, 1:], batches[-1][:, 0]
    return _data(parts, CIFAR_SHAPE, CIFAR_CLASSES, as_float=as_float)


def _read(where: Path, name: str, digest: str | None, source: str) -> bytes:
    """Content of a file, unpacked, and the published one if its digest is given."""
    plain, packed = where / name, where / f"{name}.gz"
    if plain.is_file():
        content = plain.read_bytes()
    elif packed.is_file():
        content = _unpacked(packed)
    else:
        raise FileNotFoundError(
            f"{plain} is not there. Get {source} and put them into {where}; another folder than "
            f"{where.parent} can be named by the environment variable QAFFDE_DATA"
        )
    if digest is not None and hashlib.md5(content, usedforsecurity=False).hexdigest() != digest:
        raise ValueError(
            f"{plain} is not the published file: its checksum differs. Get {source} again, or "
            "pass verify=False if it is meant to be another"
        )
    return content


def _unpacked(path: Path) -> bytes:
    try:
        with gzip.open(path) as file:
            return file.read(MAX_BYTES)
    except (OSError, EOFError) as error:
        raise ValueError(f"{path} cannot be unpacked ({error}); get it again") from None


def _idx(path: Path, content: bytes) -> NDArray[np.uint8]:
    """Array of an idx file: a magic number, sizes, bytes."""
    ndim = content[3] if len(content) > 3 else 0
    start = 4 + 4 * ndim
    good = content[:3] == bytes([0, 0, IDX_UBYTE]) and ndim in (1, 3) and len(content) >= start
    shape = struct.unpack(f">{ndim}I", content[4:start]) if good else ()
    if not good or len(content) - start != int(np.prod(shape, dtype=object)):
        raise ValueError(f"{path} is not an idx file of bytes, or is cut short; get it again")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def _check_pairs(where: Path, *parts: NDArray[np.uint8]) -> None:
    X, y, X_test, y_test = parts
    fits = [part.ndim for part in parts] == [3, 1, 3, 1] and X.shape[1:] == X_test.shape[1:]
    if not fits or len(X) != len(y) or len(X_test) != len(y_test):
        raise ValueError(f"the files in {where} do not belong together; get them again")


def _batch(path: Path, content: bytes) -> NDArray[np.uint8]:
    """Rows of a label and the pixels of an image."""
    width = 1 + int(np.prod(CIFAR_SHAPE))
    rows = np.frombuffer(content, np.uint8)
    if not len(rows) or len(rows) % width:
        raise ValueError(f"{path} is not a batch of CIFAR-10, or is cut short; get it again")
    rows = rows.reshape(-1, width)
    if rows[:, 0].max() >= len(CIFAR_CLASSES):
        raise ValueError(f"{path} has labels beyond 9, so it is not CIFAR-10; get it again")
    return rows


def _data(
    parts: tuple[NDArray[np.uint8], ...],
    shape: tuple[int, ...],
    names: tuple[str, ...],
    *,
    as_float: bool,
) -> ImageData:
    X, y, X_test, y_test = parts
    rows = [_flat(images, as_float=as_float) for images in (X, X_test)]
    channels, height, width = shape
    return ImageData(
        rows[0],
        y.astype(np.int64),
        rows[1],
        y_test.astype(np.int64),
        (channels, height, width),
        names,
    )


def _flat(images: NDArray[np.uint8], *, as_float: bool) -> NDArray[Any]:
    flat = images.reshape(len(images), -1)
    return flat.astype(np.float32) / np.float32(255) if as_float else flat.copy()

"""Image files: small ones in the published formats, and ones that are damaged."""

import gzip
import hashlib

import numpy as np
import pytest

from experiments.images import loaders as images
from experiments.images.loaders import load_cifar10, load_mnist

RNG = np.random.default_rng(0)


def idx(array):
    sizes = b"".join(size.to_bytes(4, "big") for size in array.shape)
    return bytes([0, 0, 8, array.ndim]) + sizes + array.tobytes()


MNIST = {
    "train-images-idx3-ubyte": RNG.integers(0, 256, (5, 4, 6), dtype=np.uint8),
    "train-labels-idx1-ubyte": np.array([3, 1, 4, 1, 5], dtype=np.uint8),
    "t10k-images-idx3-ubyte": RNG.integers(0, 256, (2, 4, 6), dtype=np.uint8),
    "t10k-labels-idx1-ubyte": np.array([9, 2], dtype=np.uint8),
}
CIFAR = {name: RNG.integers(0, 10, (3, 3073), dtype=np.uint8) for name in images.CIFAR_FILES}


def write(folder, contents):
    folder.mkdir()
    for name, content in contents.items():
        (folder / name).write_bytes(content)


@pytest.fixture
def data(tmp_path, monkeypatch):
    """A folder with both data sets, whose checksums are taken for the published ones."""
    files = {name: idx(array) for name, array in MNIST.items()}
    batches = {name: array.tobytes() for name, array in CIFAR.items()}
    write(tmp_path / "mnist", files)
    write(tmp_path / "cifar-10-batches-bin", batches)
    for known, contents in ((images.MNIST_FILES, files), (images.CIFAR_FILES, batches)):
        for name, content in contents.items():
            monkeypatch.setitem(known, name, hashlib.md5(content).hexdigest())
    monkeypatch.setenv("QAFFDE_DATA", str(tmp_path))
    return tmp_path


def test_mnist(data):
    found = load_mnist()
    train, labels, test, test_labels = MNIST.values()
    assert (found.image_shape, found.X_train.dtype) == ((1, 4, 6), np.float32)
    np.testing.assert_allclose(found.X_train, train.reshape(5, 24) / 255, rtol=1e-6)
    np.testing.assert_allclose(found.X_test, test.reshape(2, 24) / 255, rtol=1e-6)
    np.testing.assert_array_equal(found.y_train, labels)
    np.testing.assert_array_equal(found.y_test, test_labels)
    assert repr(found) == (
        "ImageData(5 training and 2 test images of shape (1, 4, 6), 10 classes)"
    )


def test_cifar10(data):
    found = load_cifar10(as_float=False)
    train = np.concatenate([CIFAR[f"data_batch_{i}.bin"] for i in range(1, 6)])
    assert (found.image_shape, found.X_train.dtype) == ((3, 32, 32), np.uint8)
    np.testing.assert_array_equal(found.X_train, train[:, 1:])
    np.testing.assert_array_equal(found.y_train, train[:, 0])
    np.testing.assert_array_equal(found.X_test, CIFAR["test_batch.bin"][:, 1:])
    assert found.class_names[found.y_train[0]] in ("airplane", *found.class_names)
    assert found.X_train.flags.writeable


def test_packed_files_are_the_same(data):
    plain = load_mnist()
    for name in MNIST:
        path = data / "mnist" / name
        path.with_name(f"{name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    np.testing.assert_array_equal(load_mnist().X_train, plain.X_train)


def test_a_folder_may_be_named(data, monkeypatch):
    monkeypatch.setenv("QAFFDE_DATA", str(data / "elsewhere"))
    assert len(load_mnist(data).y_test) == 2
    with pytest.raises(FileNotFoundError, match="elsewhere"):
        load_mnist()


def test_the_folder_is_in_the_cache_by_default(monkeypatch, tmp_path):
    monkeypatch.delenv("QAFFDE_DATA", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert images.data_folder() == tmp_path / ".cache" / "qaffde"


@pytest.mark.parametrize(
    ("load", "message"),
    [
        (
            load_mnist,
            r"mnist.train-images-idx3-ubyte is not there. Get the four files.*QAFFDE_DATA",
        ),
        (load_cifar10, r"data_batch_1.bin is not there. Get cifar-10-binary.tar.gz.*QAFFDE_DATA"),
    ],
)
def test_absent_files(load, message, tmp_path):
    with pytest.raises(FileNotFoundError, match=message):
        load(tmp_path)


def swapped(data):
    first, second = (data / "mnist" / f"{part}-labels-idx1-ubyte" for part in ("train", "t10k"))
    first.write_bytes(second.read_bytes())


DAMAGE = {
    "cut": (lambda c: c[:-1], "not an idx file of bytes, or is cut short"),
    "long": (lambda c: c + b"0", "not an idx file of bytes, or is cut short"),
    "empty": (lambda c: b"", "not an idx file of bytes"),
    "header": (lambda c: c[:6], "not an idx file of bytes"),
    "floats": (lambda c: c[:2] + b"\x0d" + c[3:], "not an idx file of bytes"),
    "huge": (lambda c: c[:4] + b"\xff" * 12 + c[16:], "not an idx file of bytes"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_mnist(data, name):
    change, message = DAMAGE[name]
    path = data / "mnist" / "train-images-idx3-ubyte"
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(ValueError, match=r"train-images.*checksum differs"):
        load_mnist()
    with pytest.raises(ValueError, match=message):
        load_mnist(verify=False)


def test_files_that_do_not_belong_together(data):
    swapped(data)
    with pytest.raises(ValueError, match="do not belong together"):
        load_mnist(verify=False)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c[:-1], "not a batch of CIFAR-10, or is cut short"),
        (lambda c: b"", "not a batch of CIFAR-10"),
        (lambda c: b"\xff" + c[1:], "labels beyond 9"),
    ],
)
def test_damaged_cifar10(data, change, message):
    path = data / "cifar-10-batches-bin" / "data_batch_3.bin"
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(ValueError, match="checksum differs"):
        load_cifar10()
    with pytest.raises(ValueError, match=message):
        load_cifar10(verify=False)


def test_a_damaged_archive(data):
    path = data / "mnist" / "t10k-labels-idx1-ubyte"
    packed = gzip.compress(path.read_bytes())
    path.unlink()
    path.with_name(f"{path.name}.gz").write_bytes(packed[:-9])
    with pytest.raises(ValueError, match="cannot be unpacked"):
        load_mnist()

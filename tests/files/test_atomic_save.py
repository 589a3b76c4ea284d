"""A save that fails leaves the old file, and nothing beside it."""

import errno
import os

import pytest

import qaffde
from qaffde import QAFFDE

pytest.importorskip("safetensors", reason="model files need the extra 'files'")


class Killed(BaseException):
    """Stands for a process that ends at once."""


@pytest.fixture
def path(tmp_path):
    QAFFDE(n_features=3).save(tmp_path / "model")
    return tmp_path / "model"


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left"), Killed()])
@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_the_old_file_stays(step, error, path, monkeypatch):
    def fail(*_):
        raise error

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(type(error)):
        QAFFDE(n_features=4).save(path)
    monkeypatch.undo()
    assert qaffde.load(path).n_features == 3
    assert [item.name for item in path.parent.iterdir()] == ["model"]


def test_a_new_file_replaces_the_old(path):
    QAFFDE(n_features=4).save(path)
    assert qaffde.load(path).n_features == 4
    assert [item.name for item in path.parent.iterdir()] == ["model"]


def test_safetensors_may_be_missing(path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "safetensors.numpy", None)
    for use in (lambda: qaffde.load(path), lambda: QAFFDE().save(path)):
        with pytest.raises(ImportError, match=r"run: pip install 'qaffde\[files\]'"):
            use()

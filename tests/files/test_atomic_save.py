"""A save that fails leaves the old file, and nothing beside it."""

import errno
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import qaffde
from qaffde import QAFFDE, Real
from qaffde.files.format import replacing
from qaffde.files.model import loads


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


def test_threads_on_one_path_share_nothing(path):
    """120 saves beside readers: no save fails, and every reader finds a whole model."""
    sizes = range(3, 11)

    def save(k):
        QAFFDE(n_features=sizes[k % len(sizes)]).save(path)
        return qaffde.load(path).n_features

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(save, range(120)))
    assert set(found) <= set(sizes)
    assert [item.name for item in path.parent.iterdir()] == ["model"]


def test_a_file_that_is_replaced_while_it_is_opened(path, tmp_path, monkeypatch):
    """The size belongs to the file that was opened, not to the one that was there before."""
    fitted = QAFFDE(n_features=8, bandwidth=1.0, columns=Real(-3, 3)).fit([[0.0], [1.0]])
    fitted.save(tmp_path / "other")
    found = os.stat(path)

    def replaced(_):
        os.replace(tmp_path / "other", path)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", replaced)
        model = qaffde.load(path)
    assert model.n_features == 8


def test_processes_of_one_number_share_nothing(path, monkeypatch):
    """Containers on one folder may have the same pid."""
    monkeypatch.setattr(os, "getpid", lambda: 1)
    with replacing(path) as one, replacing(path) as other:
        one.write(b"one")
        other.write(b"other")
    assert path.read_bytes() == b"one"  # which ended last


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o666])
def test_a_file_keeps_its_mode(path, mode):
    path.chmod(mode)
    QAFFDE(n_features=4).save(path)
    assert stat.S_IMODE(path.stat().st_mode) == mode


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600)])
def test_a_new_file_follows_the_umask(tmp_path, umask, mode):
    before = os.umask(umask)
    try:
        QAFFDE().save(tmp_path / "model")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "model").stat().st_mode) == mode


def test_a_secret_is_never_readable_by_others(path):
    path.chmod(0o600)
    with replacing(path):
        (beside,) = (item for item in path.parent.iterdir() if item != path)
        assert stat.S_IMODE(beside.stat().st_mode) == 0o600


def test_a_link_stays_and_its_target_is_written(path):
    link, far = path.with_name("link"), path.with_name("far")
    link.symlink_to(far)
    for n_features in (4, 5):
        QAFFDE(n_features=n_features).save(link)
        assert link.is_symlink()
        assert qaffde.load(far).n_features == n_features


def test_devices_and_pipes_are_written_into(path):
    pipe = path.with_name("pipe")
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as pool:
        content = pool.submit(pipe.read_bytes)
        QAFFDE(n_features=3).save(pipe)
    assert loads(content.result()).n_features == 3
    assert pipe.is_fifo()
    QAFFDE().save("/dev/null")
    assert Path("/dev/null").is_char_device()
    if Path("/dev/full").exists():
        with pytest.raises(OSError, match="No space left"):
            QAFFDE().save("/dev/full")


@pytest.mark.parametrize("name", ["", ".", "folder", "folder/"])
def test_a_directory_is_not_a_file(name, tmp_path, monkeypatch):
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(IsADirectoryError, match="is a directory; name a file in it"):
        QAFFDE().save(name)
    assert [item.name for item in tmp_path.iterdir()] == ["folder"]

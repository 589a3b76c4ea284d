"""Checkpoints: a fit that was killed ends as if it had not been; bad files are refused."""

import errno
import json
import os
import pickle
from pathlib import Path

import pytest
import torch
from torch import nn

from qaffde import QAFFDE
from qaffde.files import FileError
from qaffde.files.format import FORMAT, pack
from qaffde.training import Checkpoint, CheckpointError, LoopConfig, TrainingDiverged, train
from qaffde.training.checkpoint import fingerprint

X = torch.randn(90, 2, generator=torch.Generator().manual_seed(1))
ROWS, VALID = (X[:70], X[:70].sum(1)), (X[70:], X[70:].sum(1))
SETTINGS = {"max_steps": 90, "batch_size": 16, "learning_rate": 0.05, "eval_every": 10}


class Killed(BaseException):
    """Stands for a process that ends at once."""


def network(dropout):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Dropout(dropout), nn.Linear(8, 1))


def mean_square(module, x, y):
    return (module(x)[:, 0] - y).square().mean()


def fit(path=None, report=None, rows=ROWS, valid=VALID, seed=0, every=0.0, dropout=0.0, **options):
    loop = {k: options.pop(k) for k in ("make_optimizer", "loss") if k in options}
    loss = loop.pop("loss", mean_square)
    module, generator = network(dropout), torch.Generator().manual_seed(seed)
    config = LoopConfig(**(SETTINGS | options))
    checkpoint = None if path is None else Checkpoint(path, every)
    history = train(
        module, loss, rows, valid, config, generator, checkpoint=checkpoint, report=report, **loop
    )
    return module, history


def stop_at(step, error=Killed):
    def report(history):
        if history.steps[-1] == step:
            raise error

    return report


def lbfgs(parameters, config):
    return torch.optim.LBFGS(parameters, max_iter=3, history_size=4)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "fit.ckpt"


@pytest.fixture
def left_behind(path):
    with pytest.raises(Killed):
        fit(path, stop_at(40))
    return path


def assert_same(first, second):
    (one, history), (two, other) = first, second
    for a, b in zip(one.parameters(), two.parameters(), strict=True):
        assert torch.equal(a, b)
    for name in ("steps", "train_loss", "learning_rate", "n_recoveries", "stopped_by"):
        assert getattr(history, name) == getattr(other, name)
    assert history.valid_loss == pytest.approx(other.valid_loss, rel=0, abs=0, nan_ok=True)


CASES = {
    "early": (10, {}),
    "late": (80, {}),
    "whole batch": (40, {"batch_size": None}),
    "patience": (10, {"patience": 1}),
    "nothing held out": (40, {"valid": None}),
    "dropout": (40, {"dropout": 0.3}),
    "L-BFGS": (40, {"batch_size": None, "make_optimizer": lbfgs, "eval_every": 5}),
}


@pytest.mark.parametrize("case", CASES)
def test_a_killed_fit_resumes_to_the_same_bits(path, case):
    step, options = CASES[case]
    whole = fit(**options)
    with pytest.raises(Killed):
        fit(path, stop_at(step), **options)
    assert path.exists()
    steps = []
    resumed = fit(path, lambda history: steps.append(history.steps[-1]), **options)
    assert_same(whole, resumed)
    assert min(steps) > step  # it did not start anew
    assert not path.exists()


def test_noise_of_a_module_follows_the_generator_alone():
    torch.manual_seed(1)
    first = fit(dropout=0.3)
    state = torch.manual_seed(2).get_state()
    second = fit(dropout=0.3)
    assert_same(first, second)
    assert torch.equal(torch.get_rng_state(), state)
    assert fit(dropout=0.3, seed=1)[1].train_loss != first[1].train_loss
    assert fit()[1].train_loss != first[1].train_loss


def test_a_fit_may_be_killed_again_and_again(path):
    for step in (10, 30, 70):
        with pytest.raises(Killed):
            fit(path, stop_at(step))
    assert_same(fit(), fit(path))


def test_the_last_save_counts_not_the_last_step(path):
    calls = 0

    def loss(module, x, y):
        nonlocal calls
        calls += module.training
        if calls == 47:
            raise Killed
        return mean_square(module, x, y)

    with pytest.raises(Killed):
        fit(path, loss=loss)
    assert_same(fit(), fit(path))


class FailsOnce:
    """Not finite in the steps 43 and 58, counted by the values that it has seen."""

    def __init__(self, bad):
        self.bad = bad

    def __call__(self, module, x, y):
        value = mean_square(module, x, y)
        return value * torch.nan if module.training and x.sum().item() in self.bad else value


def test_recoveries_are_resumed_too(path):
    sums = []

    def note(module, x, y):
        if module.training:
            sums.append(x.sum().item())
        return mean_square(module, x, y)

    fit(loss=note)
    loss = FailsOnce({sums[42], sums[57]})
    whole = fit(loss=loss)
    assert whole[1].n_recoveries == 2
    for step in (40, 50):
        path.unlink(missing_ok=True)
        with pytest.raises(Killed):
            fit(path, stop_at(step), loss=loss)
        assert_same(whole, fit(path, loss=loss))


def test_an_interrupt_saves_even_if_it_is_not_time(path):
    with pytest.raises(KeyboardInterrupt):
        fit(path, stop_at(40, KeyboardInterrupt), every=1e9)
    assert path.exists()
    assert_same(fit(), fit(path))


def test_time_between_saves_is_kept(path):
    with pytest.raises(Killed):
        fit(path, stop_at(40), every=1e9)
    assert not path.exists()


def test_seconds_before_the_kill_are_counted(left_behind):
    spent = Checkpoint(left_behind).load({})["seconds"]
    _, history = fit(left_behind)
    assert history.seconds[-1] > spent > 0


def test_a_longer_time_limit_is_the_same_fit(left_behind):
    assert_same(fit(), fit(left_behind, time_limit=1e6))


def test_a_file_of_a_diverged_fit_is_not_kept(path):
    def loss(module, x, y):
        return mean_square(module, x, y) * torch.nan

    with pytest.raises(TrainingDiverged):
        fit(path, loss=loss)
    assert not path.exists()


OTHER_FITS = {
    "training_data": {"rows": (2 * X[:70], X[:70].sum(1))},
    "validation_data": {"valid": (X[71:], X[71:].sum(1))},
    "settings": {"learning_rate": 0.04},
    "optimizer": {"make_optimizer": lambda p, config: torch.optim.SGD(p)},
    "random_state": {"seed": 1},
}


@pytest.mark.parametrize("part", OTHER_FITS)
def test_the_file_of_another_fit_is_refused_and_kept(left_behind, part):
    before = left_behind.read_bytes()
    message = f"belongs to another fit: {part} differ; call fit with the same .* or remove"
    with pytest.raises(CheckpointError, match=message):
        fit(left_behind, **OTHER_FITS[part])
    assert left_behind.read_bytes() == before


def test_another_network_is_another_fit(left_behind, monkeypatch):
    monkeypatch.setitem(globals(), "network", lambda _: nn.Linear(2, 1))
    with pytest.raises(CheckpointError, match="initial_parameters differ"):
        fit(left_behind)


DAMAGE = {
    "cut short": (lambda content: content[:-100], "tensors have .* bytes, not"),
    "a bit": (
        lambda content: content[:-9] + bytes([content[-9] ^ 1]) + content[-8:],
        "digest is wrong",
    ),
    "only the head": (lambda content: content[:20], "cut short"),
    "empty": (lambda content: b"", "cut short"),
    "text": (lambda content: b"step,loss\n1,0.5\n", "cut short"),
    "pickle": (lambda content: pickle.dumps({"state": 1}), "cut short"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_damaged_files_are_refused(left_behind, kind):
    damage, message = DAMAGE[kind]
    left_behind.write_bytes(damage(left_behind.read_bytes()))
    with pytest.raises(CheckpointError, match=f"cannot be read .*{message}.*; remove it to start"):
        fit(left_behind)


class Trap:
    """Would create a file when unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def test_a_file_holds_no_code(path, tmp_path):
    with pytest.raises(
        FileError, match="Trap, which is not among the classes that files may hold"
    ):
        Checkpoint(path).save({"module": Trap(tmp_path / "sprung")}, {})
    path.write_bytes(pickle.dumps({"fingerprint": {}, "state": Trap(tmp_path / "sprung")}))
    with pytest.raises(CheckpointError, match="cannot be read"):
        Checkpoint(path).load({})
    assert not (tmp_path / "sprung").exists()


def tagged(**values):
    return {"dict": values}


EMPTY = tagged()
HOSTILE = {
    "nothing": ({}, "KeyError"),
    "another format": ({"format": FORMAT + 1}, "the file has format 3"),
    "a number": ({"checkpoint": 3}, "TypeError"),
    "no fingerprint": ({"checkpoint": tagged(state=EMPTY)}, "KeyError"),
    "no state": ({"checkpoint": tagged(fingerprint=EMPTY, state=3)}, "no state of a fit"),
    "no such tensor": (
        {"checkpoint": tagged(fingerprint=EMPTY, state=tagged(x={"tensor": "x"}))},
        "a tensor is missing",
    ),
    "an object": (
        {"checkpoint": tagged(fingerprint=EMPTY, state=tagged(x={"object": 0}))},
        "of no known kind",
    ),
    "nested": ({"checkpoint": json.loads("[" * 20 + "]" * 20)}, "nested too deeply"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_files_are_refused_in_one_line(path, case):
    header, message = HOSTILE[case]
    path.write_bytes(pack({"format": FORMAT, **header}, {}))
    with pytest.raises(CheckpointError, match=f"cannot be read .*{message}") as refusal:
        Checkpoint(path).load({})
    assert str(refusal.value).isprintable()
    assert str(refusal.value).endswith("remove it to start anew")


def test_a_model_is_not_a_checkpoint(path):
    QAFFDE().save(path)
    with pytest.raises(CheckpointError, match="cannot be read"):
        Checkpoint(path).load({})


def forget_pairs(state):
    state["optimizer"]["state"] = [1, 2]


DAMAGED_STATES = [dict.clear, lambda state: state.update(module={}), forget_pairs]


@pytest.mark.parametrize("damage", DAMAGED_STATES)
def test_a_forged_state_is_refused(left_behind, damage, monkeypatch):
    load = Checkpoint.load

    def damaged(self, expected):
        state = load(self, expected)
        damage(state)
        return state

    monkeypatch.setattr(Checkpoint, "load", damaged)
    with pytest.raises(CheckpointError, match=r"cannot be read .*; remove it to start anew"):
        fit(left_behind)


def test_a_sparse_file_is_not_read(path):
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(CheckpointError, match="header cannot be read"):
        Checkpoint(path).load({})


def test_only_regular_files_are_replaced_or_removed(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, "/dev/null"):
        with pytest.raises(CheckpointError, match="name a regular file"):
            Checkpoint(path)


def test_a_link_stays(tmp_path):
    link, target = tmp_path / "link", tmp_path / "target"
    link.symlink_to(target)
    checkpoint = Checkpoint(link)
    checkpoint.save({"step": 1}, {})
    assert target.is_file()
    assert Checkpoint(link).load({}) == {"step": 1}
    checkpoint.remove()
    assert link.is_symlink()
    assert not target.exists()


def test_a_full_disk_warns_once_and_training_goes_on(path, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.warns(RuntimeWarning, match="cannot be saved .*No space left") as warned:
        module = fit(path)
    assert len(warned) == 1
    assert list(path.parent.iterdir()) == []
    assert_same(fit(), module)


def test_a_failed_save_leaves_the_old_file(left_behind, monkeypatch):
    before = left_behind.read_bytes()

    def full(self, target):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.warns(RuntimeWarning, match="cannot be saved"):
        Checkpoint(left_behind).save({}, {})
    assert left_behind.read_bytes() == before


def test_a_directory_that_is_not_there_is_an_error_before_training(tmp_path):
    with pytest.raises(FileNotFoundError, match="does not exist; create it first"):
        fit(tmp_path / "nowhere" / "fit.ckpt")


def test_fingerprints_see_shape_type_and_order():
    parts = [X, X.T, X.double(), X[:80], (X, X), (X,), {"a": X}, {"b": X}, None, X.flip(0)]
    prints = [fingerprint(part=part)["part"] for part in parts]
    assert len(set(prints)) == len(parts)

"""A fit of QAFFDESGD that is interrupted, killed and taken up again."""

import itertools

import numpy as np
import pytest

from qaffde.selection.likelihood import Likelihood
from qaffde.training import CheckpointError, run
from tests.sgd_models import X, fitted

pytestmark = pytest.mark.usefixtures("short_search")


class Killed(BaseException):
    """Stands for a process that ends at once."""


FEW = X[::5]
STAGES = {"search": {"bandwidth": "auto"}, "convex": {}}
TRAINING = {"max_iter": 50, "max_steps": 40}
CONVEX_STEPS = 10


def fit(rows=FEW, checkpoint=None, **options):
    """Fit that reports its progress."""
    training = TRAINING | {"checkpoint": checkpoint}
    return fitted(rows, training=training, verbose=True, **options)


def reports(monkeypatch, call):
    """Have `call(total, step)` at every evaluation of a training of `total` steps."""
    monkeypatch.setattr(
        run,
        "print_progress",
        lambda total, limit: lambda history: call(total, history.steps[-1]),
    )


def kill_in(stage, monkeypatch, error=KeyboardInterrupt):
    """Raise in the middle of a stage."""
    calls, judge = itertools.count(), Likelihood.scores

    def fragile(self, *args, **kwargs):
        if next(calls) == 6:
            raise error
        return judge(self, *args, **kwargs)

    def stop(total, step):
        if (total, step) == (CONVEX_STEPS, 2):
            raise error

    if stage == "search":
        monkeypatch.setattr(Likelihood, "scores", fragile)
    else:
        reports(monkeypatch, stop)


@pytest.mark.parametrize("base_measure", ["box", 3])
@pytest.mark.parametrize("stage", STAGES)
def test_a_killed_fit_resumes_to_the_same_bits(stage, base_measure, tmp_path, monkeypatch):
    options = STAGES[stage] | {"base_measure": base_measure}
    whole = fit(**options)
    options["checkpoint"] = tmp_path / "fit"
    with monkeypatch.context() as patch:
        kill_in(stage, patch)
        with pytest.raises(KeyboardInterrupt):
            fit(**options)
    assert list(tmp_path.iterdir())
    steps = []
    reports(monkeypatch, lambda total, step: steps.append((total, step)))
    resumed = fit(**options)
    np.testing.assert_array_equal(resumed.score_samples(FEW), whole.score_samples(FEW))
    assert resumed.plan_.trials == whole.plan_.trials
    assert [h.train_loss for h in resumed.history_] == [h.train_loss for h in whole.history_]
    assert not list(tmp_path.iterdir())
    if stage == "convex":
        assert min(steps) == (CONVEX_STEPS, 3)


def test_a_resumed_search_judges_only_what_is_left(tmp_path, monkeypatch):
    options = {"bandwidth": "auto", "checkpoint": tmp_path / "fit"}
    judge, calls = Likelihood.scores, []

    def counting(self, *args, **kwargs):
        calls.append(1)
        return judge(self, *args, **kwargs)

    with monkeypatch.context() as patch:
        kill_in("search", patch, Killed)
        with pytest.raises(Killed):
            fit(**options)
    monkeypatch.setattr(Likelihood, "scores", counting)
    fit(**options)
    resumed = len(calls)
    fit(**options)
    assert resumed == len(calls) - resumed - 4  # one candidate on four folds was known


def test_a_killed_fit_may_be_left_for_another_one_under_another_name(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        kill_in("convex", patch)
        with pytest.raises(KeyboardInterrupt):
            fit(checkpoint=tmp_path / "one")
    left = set(tmp_path.iterdir())
    fit(checkpoint=tmp_path / "two")
    assert set(tmp_path.iterdir()) == left


def test_an_interrupted_fit_leaves_an_earlier_one_as_it_was(monkeypatch):
    model = fit(X)
    before = model.score_samples(X)
    kill_in("convex", monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X + 1)
    np.testing.assert_array_equal(model.score_samples(X), before)


@pytest.mark.parametrize("stage", STAGES)
def test_a_damaged_checkpoint_is_an_error(stage, tmp_path, monkeypatch):
    options = STAGES[stage] | {"checkpoint": tmp_path / "fit"}
    with monkeypatch.context() as patch:
        kill_in(stage, patch)
        with pytest.raises(KeyboardInterrupt):
            fit(**options)
    for file in tmp_path.iterdir():
        file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(CheckpointError, match=r"cannot be read .*; remove it"):
        fit(**options)


@pytest.mark.parametrize("change", [{"ridge": 0.02}, {"random_state": 1}, {"n_features": 20}])
def test_the_checkpoint_of_another_fit_is_refused(change, tmp_path, monkeypatch):
    options = {"bandwidth": "auto", "checkpoint": tmp_path / "fit"}
    with monkeypatch.context() as patch:
        kill_in("search", patch)
        with pytest.raises(KeyboardInterrupt):
            fit(**options)
    with pytest.raises(CheckpointError, match="belongs to another fit"):
        fit(**options | change)
    with pytest.raises(CheckpointError, match="belongs to another fit: rows differ"):
        fit(X[1:], **options)

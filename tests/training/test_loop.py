"""The training loop: what it minimises, keeps, and survives."""

import math
import subprocess
import sys
import time
from itertools import pairwise

import pytest
import torch
from torch import nn

from qaffde.training import LoopConfig, TrainingDiverged, print_progress, train
from qaffde.training.loop import MAX_FAILURES
from qaffde.training.run import progress_line

X = torch.linspace(-1, 1, 64, dtype=torch.float64)[:, None]
ROWS = (X, 2 * X - 1)
TRUTH = torch.tensor([2.0, -1.0], dtype=torch.float64)


def line():
    module = nn.utils.skip_init(nn.Linear, 1, 1, dtype=torch.float64)
    for parameter in module.parameters():
        nn.init.zeros_(parameter)
    return module


def found(module):
    return torch.stack([p.detach().flatten()[0] for p in module.parameters()])


def mean_square(module, x, y):
    return (module(x) - y).square().mean()


def fit(module=None, loss=mean_square, rows=ROWS, valid=ROWS, seed=0, **options):
    make = {k: options.pop(k) for k in ("make_optimizer", "report") if k in options}
    settings = {"max_steps": 60, "batch_size": 10, "learning_rate": 0.1, "eval_every": 10}
    config = LoopConfig(**(settings | options))
    module = line() if module is None else module
    generator = torch.Generator().manual_seed(seed)
    return module, train(module, loss, rows, valid, config, generator, **make)


def sgd(parameters, config):
    return torch.optim.SGD(parameters, lr=config.learning_rate)


def lbfgs(parameters, config):
    return torch.optim.LBFGS(parameters, lr=config.learning_rate, line_search_fn="strong_wolfe")


def test_the_minimum_is_found():
    module, history = fit(max_steps=300)
    assert torch.allclose(found(module), TRUTH, atol=1e-3)
    assert history.steps == list(range(10, 301, 10))
    assert history.valid_loss[-1] < 1e-6 < history.valid_loss[0]
    assert history.stopped_by == "max_steps"
    assert history.n_recoveries == 0
    assert all(a <= b for a, b in pairwise(history.seconds))


def test_lbfgs_goes_through_the_same_loop():
    options = {"batch_size": None, "final_learning_rate": 1.0, "learning_rate": 1.0}
    module, _ = fit(make_optimizer=lbfgs, max_steps=3, eval_every=1, **options)
    assert torch.allclose(found(module), TRUTH, atol=1e-6)


def test_same_seed_same_result_and_nothing_global_is_touched():
    state = torch.get_rng_state()
    (one, first), (two, second), (other, _) = (fit(seed=seed) for seed in (0, 0, 1))
    assert torch.equal(found(one), found(two))
    assert first.train_loss == second.train_loss
    assert not torch.equal(found(one), found(other))
    assert torch.equal(torch.get_rng_state(), state)


def test_an_epoch_sees_every_row_once_and_the_last_batch_is_kept():
    seen = []

    def note(module, x, y):
        seen.append(x)
        return mean_square(module, x, y)

    fit(loss=note, valid=None, max_steps=14)
    assert [len(x) for x in seen] == 2 * [10, 10, 10, 10, 10, 10, 4]
    epochs = torch.cat(seen[:7]), torch.cat(seen[7:])
    assert not torch.equal(*epochs)
    for epoch in epochs:
        assert torch.equal(epoch.sort(0).values, X)


def test_the_whole_batch_is_not_shuffled():
    def ordered(module, x, y):
        assert x is X
        return mean_square(module, x, y)

    fit(loss=ordered, valid=None, batch_size=None)


def test_learning_rate_falls_linearly():
    rates = []

    class Spy(torch.optim.SGD):
        def step(self, closure):
            rates.append(self.param_groups[0]["lr"])
            return super().step(closure)

    options = {"learning_rate": 0.5, "final_learning_rate": 0.1}
    _, history = fit(make_optimizer=lambda p, c: Spy(p), max_steps=20, **options)
    expected = [0.1 + 0.4 * (1 - t / 20) for t in range(20)]
    assert rates == pytest.approx(expected)
    assert history.learning_rate[-1] == pytest.approx(0.1)


@pytest.mark.parametrize("clip_norm", [None, 0.25])
def test_a_gradient_is_clipped_to_its_norm(clip_norm):
    options = {"batch_size": None, "max_steps": 1, "make_optimizer": sgd, "valid": None}
    module, _ = fit(clip_norm=clip_norm, learning_rate=1.0, **options)
    gradient = torch.tensor([4 * X.square().mean(), -2.0])
    expected = gradient if clip_norm is None else clip_norm * gradient / gradient.norm()
    assert torch.allclose(found(module), expected.double(), atol=1e-5)


def test_weights_decay():
    flat = (X, torch.zeros_like(X))
    start = line()
    nn.init.ones_(start.weight)
    options = {"rows": flat, "valid": None, "batch_size": None, "max_steps": 1}
    module, _ = fit(start, loss=lambda m, x, y: 0 * m(x).sum(), weight_decay=0.5, **options)
    assert module.weight.item() == pytest.approx(1 - 0.1 * 0.5)


def drifting(module, x, y):
    """Falls without end as the weight grows: training goes wherever it is held out to go."""
    return -module.weight.sum() if module.training else (module.weight - 0.5).square().sum()


def test_early_stopping_restores_the_best():
    options = {"make_optimizer": sgd, "final_learning_rate": 0.1, "eval_every": 1}
    module, history = fit(loss=drifting, patience=3, **options)
    assert module.weight.item() == pytest.approx(0.5)
    assert history.stopped_by == "patience"
    assert history.steps[-1] == 5 + 3
    assert min(history.valid_loss) == pytest.approx(0, abs=1e-12)


def test_without_patience_training_goes_on_and_still_restores_the_best():
    options = {"make_optimizer": sgd, "final_learning_rate": 0.1, "eval_every": 1}
    module, history = fit(loss=drifting, **options)
    assert history.steps[-1] == 60
    assert module.weight.item() == pytest.approx(0.5)


def test_without_held_out_rows_the_last_state_stays_and_patience_counts_training():
    options = {"make_optimizer": sgd, "final_learning_rate": 0.1, "eval_every": 1}
    module, history = fit(loss=lambda m, x, y: 0 * m.weight.sum() + 1, patience=2, valid=None)
    assert history.steps[-1] == 30
    assert all(math.isnan(loss) for loss in history.valid_loss)
    module, _ = fit(loss=drifting, valid=None, **options)
    assert module.weight.item() == pytest.approx(6.0)


def test_the_rate_falls_with_the_time(monkeypatch):
    clock = iter(range(10**6))
    monkeypatch.setattr("qaffde.training.loop.time.perf_counter", lambda: float(next(clock)))
    _, history = fit(time_limit=400.0, max_steps=10**6, final_learning_rate=0.0)
    assert history.stopped_by == "time_limit"
    expected = [0.1 * max(0.0, 1 - seconds / 400) for seconds in history.seconds]
    assert history.learning_rate == pytest.approx(expected, abs=0.002)


def slow(monkeypatch, seconds=1.0):
    """A clock, and a loss that takes so long, or half of it where no gradient follows."""
    clock, losses = [0.0], []
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])

    def loss(module, x, y):
        clock[0] += seconds * len(x) / len(X) * (1.0 if module.training else 0.5)
        value = mean_square(module, x, y)
        losses.append(value.item())
        return value

    return clock, losses, loss


@pytest.mark.parametrize("limit", [3.5, 6.0, 11.9])
def test_a_step_of_many_evaluations_is_cut_short_with_the_best_of_them(monkeypatch, limit):
    clock, losses, loss = slow(monkeypatch)
    options = {"valid": None, "batch_size": None, "eval_every": 1, "max_steps": 9}
    module, history = fit(
        loss=loss, time_limit=limit, learning_rate=0.01, make_optimizer=lbfgs, **options
    )
    assert limit - 1 <= clock[0] <= limit
    assert history.stopped_by == "time_limit"
    assert mean_square(module, *ROWS).item() == pytest.approx(min(losses))


@pytest.mark.parametrize("limit", [1.0, 2.5, 7.9])
def test_the_last_evaluation_is_within_the_limit(monkeypatch, limit):
    clock, _, loss = slow(monkeypatch)
    _, history = fit(loss=loss, batch_size=8, time_limit=limit, max_steps=10**6)
    assert limit - 1 <= clock[0] <= limit
    assert history.stopped_by == "time_limit"


def test_time_limit_ends_training_with_an_evaluation():
    module, history = fit(time_limit=1e-9, max_steps=10**9)
    assert (history.steps, history.stopped_by) == ([1], "time_limit")
    assert found(module).norm() > 0


class FailingLoss:
    """Mean square that is spoilt at some calls."""

    def __init__(self, calls, spoil):
        self.calls, self.spoil, self.n = calls, spoil, 0

    def __call__(self, module, x, y):
        self.n += module.training
        value = mean_square(module, x, y)
        return self.spoil(value) if module.training and self.n in self.calls else value


def infinite_gradient(value):
    return value + (value - value.detach()).abs().sqrt().sum()


SPOILS = {
    "NaN": lambda value: value * math.nan,
    "infinity": lambda value: value + math.inf,
    "gradient": infinite_gradient,
}


@pytest.mark.parametrize("spoil", SPOILS)
def test_a_loss_that_is_not_finite_is_recovered_from(spoil):
    module, history = fit(loss=FailingLoss({25}, SPOILS[spoil]), max_steps=300)
    assert history.n_recoveries == 1
    assert torch.allclose(found(module), TRUTH, atol=1e-3)
    full = LoopConfig(max_steps=300, learning_rate=0.1).learning_rate_at
    assert history.learning_rate[:2] == pytest.approx([full(10), full(20)])
    assert history.learning_rate[2:4] == pytest.approx([full(30) / 2, full(40) / 2])


def test_recovery_returns_to_the_last_good_parameters_and_moments():
    states = []

    def watch(module, x, y):
        states.append(found(module))
        return mean_square(module, x, y)

    class Watched(FailingLoss):
        def __call__(self, module, x, y):
            if module.training:
                watch(module, x, y)
            return super().__call__(module, x, y)

    fit(loss=Watched({15}, SPOILS["NaN"]), max_steps=20)
    assert torch.equal(states[15], states[10])
    assert not torch.equal(states[14], states[10])


def test_parameters_that_explode_come_back():
    def barrier(module, x, y):
        return (module.weight - module.weight.log()).sum()

    start = line()
    nn.init.constant_(start.weight, 2.0)  # a step of 10 from here goes to -3, one of 2.5 to .75
    options = {"make_optimizer": sgd, "final_learning_rate": 0.1, "learning_rate": 10.0}
    module, history = fit(start, loss=barrier, eval_every=1, **options)
    assert history.n_recoveries >= 2
    assert module.weight.item() == pytest.approx(1.0, abs=1e-3)


def test_nan_on_held_out_rows_counts_as_a_failure():
    def brittle(module, x, y):
        value = mean_square(module, x, y)
        return value if module.training else value * math.nan

    with pytest.raises(TrainingDiverged):
        fit(loss=brittle)


def test_infinity_on_held_out_rows_is_only_bad():
    def hard(module, x, y):
        value = mean_square(module, x, y)
        return value if module.training else value + math.inf

    _, history = fit(loss=hard)
    assert history.n_recoveries == 0
    assert history.valid_loss == [math.inf] * 6


def test_failures_in_a_row_are_an_error_that_leaves_the_best_state():
    states = []
    loss = FailingLoss(set(range(21, 99)), SPOILS["NaN"])
    module = line()

    def note(history):
        states.append(found(module))

    message = rf"not finite {MAX_FAILURES + 1} times in a row, last at step 26 with .* clip_norm"
    with pytest.raises(TrainingDiverged, match=message):
        fit(module, loss=loss, report=note)
    assert torch.equal(found(module), states[-1])
    assert len(states) == 2


def test_failures_with_successes_between_them_are_no_row():
    calls = set(range(5, 400, 20))
    _, history = fit(loss=FailingLoss(calls, SPOILS["NaN"]), max_steps=400)
    assert history.n_recoveries == len(calls) > MAX_FAILURES


COUNT, POSITIVE = "must be a whole number of at least 1", "must be a positive number"
BAD_SETTINGS = {
    f"max_steps=0 {COUNT}$": {"max_steps": 0},
    f"max_steps=None {COUNT}$": {"max_steps": None},
    f"batch_size=-1 {COUNT}": {"batch_size": -1},
    f"eval_every=2.5 {COUNT}": {"eval_every": 2.5},
    f"patience=True {COUNT}": {"patience": True},
    f"learning_rate=0 {POSITIVE}$": {"learning_rate": 0},
    f"learning_rate='fast' {POSITIVE}$": {"learning_rate": "fast"},
    f"clip_norm=-1 {POSITIVE} or None": {"clip_norm": -1},
    f"time_limit=0 {POSITIVE} or None": {"time_limit": 0},
    "weight_decay=-0.1 must be a number of at least 0": {"weight_decay": -0.1},
    "final_learning_rate=1.0 must lie between 0 and learning_rate=0.5": {
        "learning_rate": 0.5,
        "final_learning_rate": 1.0,
    },
}


@pytest.mark.parametrize("message", BAD_SETTINGS)
def test_bad_settings(message):
    with pytest.raises(ValueError, match=message):
        LoopConfig(**BAD_SETTINGS[message])


def test_progress_is_a_line_for_each_evaluation(capsys):
    _, history = fit(loss=FailingLoss({5}, SPOILS["NaN"]), report=print_progress(60))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 6
    assert lines[-1] == progress_line(history, 60)
    assert lines[0].startswith("step 10/60  train ")
    assert "recoveries 1" in lines[0]
    assert lines[-1].endswith("stopped by max_steps")
    assert "valid" in lines[0]


def test_progress_without_held_out_rows_has_no_nan():
    _, history = fit(valid=None)
    assert "nan" not in progress_line(history, 60)


def test_optimizers_do_not_import_the_compiler_of_torch():
    """It takes longer than a usual fit; nothing here is compiled."""
    code = """
import sys, torch
from qaffde.training import LoopConfig, train
from qaffde.training.likelihood import lbfgs
from qaffde.training.loop import adam
for make in (adam, lbfgs):
    line, x = torch.nn.Linear(1, 1), torch.ones(9, 1)
    config = LoopConfig(max_steps=2, batch_size=None, eval_every=1)
    loss = lambda module, x: module(x).square().mean()
    train(line, loss, (x,), None, config, torch.Generator(), make_optimizer=make)
    if "torch._dynamo" in sys.modules:
        sys.exit(make.__name__)
"""
    done = subprocess.run([sys.executable, "-c", code], check=False, stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (0, b"")

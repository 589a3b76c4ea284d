r"""One training loop for every module and every loss.

It draws batches, takes steps and keeps the state that is best on held-out rows, recovers from
losses that are not finite, and resumes after the process was killed.

At every evaluation the loop notes its whole state: parameters, optimizer, generators, place in
the epoch. Recovery returns to that state, and a checkpoint is that state in a file, so that a
resumed run takes the very steps that an undisturbed one takes.
"""

import math
import os
import time
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from inspect import unwrap
from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.optim import Optimizer

from qaffde.training.checkpoint import Checkpoint, State, fingerprint
from qaffde.training.config import LoopConfig
from qaffde.training.noise import Noise
from qaffde.training.run import ALONE, History, Peers

MAX_FAILURES = 5
"""Recoveries in a row, before training is given up."""

Rows = tuple[Tensor, ...]
Loss = Callable[..., Tensor]
MakeOptimizer = Callable[[Iterable[nn.Parameter], LoopConfig], Optimizer]
Report = Callable[[History], None]


class TrainingDiverged(RuntimeError):  # noqa: N818 (a word for what happened)
    """The loss was not finite again and again, at ever smaller learning rates."""


def eager(kind: type[Optimizer]) -> Callable[..., Optimizer]:
    """An optimizer without wrappers for torch's compiler, whose import takes longer than a fit."""
    wrapped = ("add_param_group", "load_state_dict", "state_dict", "zero_grad")
    methods = {name: unwrap(getattr(kind, name)) for name in wrapped}
    return type(kind.__name__, (kind,), {**methods, "step": torch.no_grad()(unwrap(kind.step))})


def adam(parameters: Iterable[nn.Parameter], config: LoopConfig) -> Optimizer:
    """Adam with decoupled weight decay."""
    settings = {"lr": config.learning_rate, "weight_decay": config.weight_decay}
    return eager(torch.optim.AdamW)(parameters, **settings, foreach=True)


def train(
    module: nn.Module,
    loss: Loss,
    rows: Rows,
    valid: Rows | None,
    config: LoopConfig,
    generator: Generator,
    *,
    make_optimizer: MakeOptimizer = adam,
    checkpoint: Checkpoint | str | os.PathLike[str] | None = None,
    report: Report | None = None,
    peers: Peers = ALONE,
) -> History:
    """Minimize a loss over the parameters of a module, in place.

    The module ends in the state that was best on `valid`, or in its last one without held-out rows
    (patience then counts the training loss).

    Parameters
    ----------
    module : nn.Module
    loss : callable
        ``loss(module, *batch)``, a scalar Tensor: a mean over the rows of the batch.
    rows, valid : tuples of Tensors of one length; `valid` may be None
        Training rows, and held-out rows.
    config : LoopConfig
    generator : torch.Generator
        Source of the batches and of dropout.
    make_optimizer : callable, default=adam
        ``make_optimizer(parameters, config)``; L-BFGS needs ``batch_size=None``.
    checkpoint : Checkpoint or path, optional
        Where the state is saved. Training goes on from such a file, and removes it in the end.
    report : callable, optional
        Called with the history after every evaluation.
    peers : Peers, default=ALONE
        Processes that train the same module, each on its own rows, by averages of gradients.

    Returns
    -------
    History

    Raises
    ------
    TrainingDiverged, CheckpointError
        After several recoveries in a row; of a checkpoint that is damaged or of another fit.

    Examples
    --------
    >>> line, x = nn.Linear(1, 1), torch.linspace(-1, 1, 100)[:, None]
    >>> def mean_square(module, x, y):
    ...     return (module(x) - y).square().mean()
    >>> config = LoopConfig(max_steps=500, batch_size=10, learning_rate=0.1)
    >>> generator = torch.Generator().manual_seed(0)
    >>> history = train(line, mean_square, (x, 3 * x), None, config, generator)
    >>> history.stopped_by, round(line.weight.item(), 3)
    ('max_steps', 3.0)
    """
    run = _Run(module, loss, rows, valid, config, generator, make_optimizer, peers)
    file = Checkpoint(checkpoint) if isinstance(checkpoint, str | os.PathLike) else checkpoint
    identity = {} if file is None else run.fingerprint()
    if file is not None and (saved := file.load(identity)) is not None:
        with file.restoring():
            run.restore(saved)
    try:
        while not run.history.stopped_by:
            if run.advance():
                if file is not None and file.due:
                    file.save(run.good, identity)
                if report is not None:
                    report(run.history)
    except KeyboardInterrupt:
        if file is not None:
            file.save(run.good, identity)
        raise
    except TrainingDiverged:
        if file is not None:
            file.remove()  # it would only diverge again
        raise
    finally:
        module.load_state_dict(run.best_state)
    if file is not None:
        file.remove()
    return run.history


class _NotFiniteError(ArithmeticError):
    """A loss or gradient that is NaN or infinite."""


class _LateError(Exception):
    """A step of several evaluations has no time for its next one."""


@dataclass(eq=False)
class _Run:
    """State of one training, and the two moves that change it: a step and an evaluation."""

    module: nn.Module
    loss: Loss
    rows: Rows
    valid: Rows | None
    config: LoopConfig
    generator: Generator
    make_optimizer: MakeOptimizer
    peers: Peers

    kept = ("order", "position", "is_noisy", "step", "failures", "stale", "damping", "best_loss")
    """Attributes that a checkpoint holds as they are."""

    def __post_init__(self) -> None:
        self.module.train()
        self.order, self.position = torch.empty(0, dtype=torch.int64), 0
        self.parameters = [p for p in self.module.parameters() if p.requires_grad]
        self.peers.share_(self.parameters)
        self.optimizer = self.make_optimizer(self.parameters, self.config)
        self.noise = Noise(self.generator.clone_state())  # batches do not depend on noise
        self.is_noisy = self.config.batch_size is not None  # line searches need the same loss
        self.step, self.failures, self.stale = 0, 0, 0
        self.damping, self.best_loss = 1.0, math.inf
        self.pace, self.pause = 0.0, 0.0  # seconds of the last gradient and the last evaluation
        self.lowest: tuple[float, list[Tensor]] | None = None  # of all rows, in this step
        self.history = History()
        self.losses: list[float] = []
        self.best_state = _copied(self.module.state_dict())
        self.started, self.processor_started = time.perf_counter(), time.process_time()
        self.good = self.state()

    def fingerprint(self) -> dict[str, str]:
        return fingerprint(
            training_data=self.rows,
            validation_data=self.valid,
            settings=replace(self.config, time_limit=None),
            optimizer=type(self.optimizer).__name__,
            initial_parameters=self.best_state,
            random_state=self.generator.get_state(),
        )

    def state(self) -> State:
        return {
            "module": _copied(self.module.state_dict()),
            "optimizer": _listed(_copied(self.optimizer.state_dict())),
            "best_state": self.best_state,
            "generator": self.generator.get_state(),
            "noise": self.noise.generator.get_state(),
            "history": asdict(self.history),
            "seconds": self.seconds,
            "processor_seconds": time.process_time() - self.processor_started,
            **{name: getattr(self, name) for name in self.kept},
        }

    def restore(self, state: State) -> None:
        self._go_back(state)
        vars(self).update({name: state[name] for name in (*self.kept, "best_state")}, good=state)
        self.generator.set_state(state["generator"])
        self.noise.generator.set_state(state["noise"])
        self.history = History(**state["history"])
        self.started = time.perf_counter() - state["seconds"]
        self.processor_started = time.process_time() - state["processor_seconds"]

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.started

    @property
    def learning_rate(self) -> float:
        """Rate by steps, or by time if more is over; processes with own clocks must agree."""
        limit, done = self.config.time_limit, float(self.step)
        if limit is not None and self.peers.size == 1:
            done = max(done, self.seconds / limit * self.config.max_steps)
        return self.damping * self.config.learning_rate_at(done)

    def advance(self) -> bool:
        """Take one step, and evaluate if it is time; whether an evaluation succeeded."""
        try:
            try:
                self._take_step()
            except _LateError:
                self._take_lowest()
            is_last = self.step >= self.config.max_steps or self._is_late()
            if is_last or self.step % self.config.eval_every == 0:
                self._evaluate()
                return True
        except _NotFiniteError:
            self._recover()
        return False

    def _batch(self) -> Rows:
        """Next rows, each epoch in a new order, the last batch of each included."""
        if self.config.batch_size is None:
            return self.rows
        if self.position >= len(self.order):
            self.order = torch.randperm(len(self.rows[0]), generator=self.generator)
            self.position = 0
        chosen = self.order[self.position : self.position + self.config.batch_size]
        self.position += self.config.batch_size
        return tuple(part.index_select(0, chosen.to(part.device)) for part in self.rows)

    def _take_step(self) -> None:
        batch = self._batch()
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate
        self.step, self.lowest = self.step + 1, None

        def closure() -> Tensor:
            if self.lowest is not None and self.peers.size == 1 and self._is_late():
                raise _LateError
            began = time.perf_counter()
            self.optimizer.zero_grad()
            value = self._loss(batch)
            value.backward()
            value = value.detach()
            gradients = [p.grad for p in self.parameters if p.grad is not None]
            self.peers.average_([value, *gradients])
            norm = nn.utils.clip_grad_norm_(self.parameters, self.config.clip_norm or math.inf)
            if not (value.isfinite() and norm.isfinite()):
                raise _NotFiniteError
            if self.config.batch_size is None:
                self._note(float(value))
            self.pace = time.perf_counter() - began
            return value

        self.losses.append(float(self.optimizer.step(closure)))  # type: ignore[arg-type]

    def _note(self, value: float) -> None:
        """Keep the parameters if their loss over all rows is the least of this step."""
        if self.lowest is None or value < self.lowest[0]:
            self.lowest = value, [parameter.detach().clone() for parameter in self.parameters]

    @torch.no_grad()
    def _take_lowest(self) -> None:
        """End a step that is cut short with the best parameters that it has seen."""
        assert self.lowest is not None
        self.losses.append(self.lowest[0])
        for parameter, value in zip(self.parameters, self.lowest[1], strict=True):
            parameter.copy_(value)

    def _loss(self, batch: Rows) -> Tensor:
        """Loss of a batch; a module that drew nothing until the first evaluation never does."""
        with self.noise if self.is_noisy else nullcontext():
            return self.loss(self.module, *batch)

    def _is_late(self) -> bool:
        """Whether one more gradient and evaluation, as long as the last, would end too late."""
        limit = self.config.time_limit
        if limit is None:
            return self.peers.any(False)
        pause = self.pause
        if self.valid is not None and not self.history.steps:  # a loss is half of a gradient
            size = self.config.batch_size or len(self.rows[0])
            pause = 0.5 * self.pace * len(self.valid[0]) / size
        return self.peers.any(self.seconds + self.pace + pause >= limit)

    def _evaluate(self) -> None:
        began = time.perf_counter()
        train_loss = sum(self.losses) / len(self.losses)
        valid_loss = math.nan if self.valid is None else self._held_out(self.valid)
        self.losses, self.failures = [], 0
        self.is_noisy = self.is_noisy and self.noise.used
        loss = train_loss if self.valid is None else valid_loss
        improved = loss < self.best_loss
        self.stale = 0 if improved else self.stale + 1
        self.best_loss = min(loss, self.best_loss)
        if improved or self.valid is None:
            self.best_state = _copied(self.module.state_dict())
        self.history.steps.append(self.step)
        self.history.train_loss.append(train_loss)
        self.history.valid_loss.append(valid_loss)
        self.history.learning_rate.append(self.learning_rate)
        self.history.seconds.append(self.seconds)
        if self.step >= self.config.max_steps:
            self.history.stopped_by = "max_steps"
        elif self.config.patience is not None and self.stale >= self.config.patience:
            self.history.stopped_by = "patience"
        elif self._is_late():
            self.history.stopped_by = "time_limit"
        self.good = self.state()
        self.pause = time.perf_counter() - began

    @torch.no_grad()
    def _held_out(self, valid: Rows) -> float:
        """Mean loss over held-out rows; infinite is bad, but NaN is a failure."""
        self.module.eval()
        total = 0.0
        for batch in zip(*(part.split(8192) for part in valid), strict=True):
            total += len(batch[0]) * float(self._loss(batch))
        self.module.train()
        mean = torch.tensor(total / len(valid[0]), dtype=torch.float64)
        self.peers.average_([mean])
        if mean.isnan():
            raise _NotFiniteError
        return float(mean)

    def _recover(self) -> None:
        """Go back to the last good parameters, at half the learning rate, with other batches."""
        self.failures += 1
        self.history.n_recoveries += 1
        if self.failures > MAX_FAILURES:
            raise TrainingDiverged(
                f"the loss or its gradient was not finite {self.failures} times in a row, last "
                f"at step {self.step} with learning rate {self.learning_rate:.2g}; lower the "
                "learning rate, set clip_norm, or look for extreme values in the data"
            )
        self.losses = []
        self.damping /= 2
        self._go_back(self.good)

    def _go_back(self, state: State) -> None:
        self.module.load_state_dict(state["module"])
        optimizer = _copied(state["optimizer"])
        self.optimizer.load_state_dict(optimizer | {"state": dict(optimizer["state"])})


def _listed(state: State) -> State:
    """State of an optimizer, with pairs in place of the dict whose keys are numbers."""
    return state | {"state": [[number, own] for number, own in state["state"].items()]}


def _copied(state: Any) -> Any:
    """Dictionaries and lists anew, with clones of their tensors; deepcopy takes far longer."""
    if isinstance(state, Tensor):
        return state.clone()
    if isinstance(state, dict):
        return {key: _copied(value) for key, value in state.items()}
    return [_copied(value) for value in state] if isinstance(state, list) else state

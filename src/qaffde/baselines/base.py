"""Base class of trained baselines: standardization, hold-out, the training loop, draws."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, ClassVar, Self

import torch
from numpy.typing import ArrayLike
from torch import Generator, Tensor, nn
from torch.optim import Optimizer

from qaffde.estimators.base import DensityEstimator, all_or_nothing, training_of
from qaffde.nn import Density, StandardizedDensity
from qaffde.parameters import generator_from
from qaffde.selection.summary import Moments, units
from qaffde.training import History, TrainingConfig, adam, hold_out, negative_log_likelihood, train
from qaffde.training.config import LoopConfig
from qaffde.training.loop import Loss, Report, Rows
from qaffde.training.noise import Noise
from qaffde.training.run import Run


class FlowDensity(Density, ABC):
    """Density with draws, that may be conditional on a context of k numbers."""

    @abstractmethod
    def log_prob(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        """Log-density of shape (n,) at x of shape (n, d), given context of shape (n, k)."""

    @abstractmethod
    def sample(self, n: int, generator: Generator, context: Tensor | None = None) -> Tensor:
        """Draws of shape (n, d), given context of shape (n, k)."""

    def forward(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        """Same as :meth:`log_prob`."""
        return self.log_prob(x, context)

    @property
    def dtype(self) -> torch.dtype:
        """Of the parameters, and so of the draws."""
        return next(self.parameters()).dtype


@dataclass(eq=False, repr=False)
class TrainedEstimator(DensityEstimator):
    """Density estimator that trains a torch density by its likelihood.

    Columns are standardized, and the network is trained in float32, which is up to 1.7 times
    faster; it scores in float64. A subclass writes ``_build``, and adds its own parameters.

    Parameters
    ----------
    training : TrainingConfig, optional
        Settings of Adam, `default_training` of the class by default; "auto" batches are of 512
        rows. The network that was best on held-out rows is kept.
    time_limit : float or None, default=None
        Seconds before training stops.
    verbose : bool, default=False
        Print progress: a line for each evaluation.
    random_state : int, RandomState instance or None, default=None

    Attributes
    ----------
    density_ : qaffde.nn.StandardizedDensity
    history_ : qaffde.training.History
    n_features_in_ : int
    """

    _: KW_ONLY
    training: TrainingConfig | None = None
    time_limit: float | None = None
    verbose: bool = False
    random_state: Any = None
    density_: StandardizedDensity = field(init=False)
    history_: History = field(init=False)

    default_training: ClassVar[TrainingConfig]
    _max_held_out: ClassVar[int | None] = None
    _listener: Report | None = field(default=None, init=False)  # in place of what `verbose` prints

    @abstractmethod
    def _build(self, n_dims: int, n_context: int = 0) -> FlowDensity:
        """Untrained density of `n_dims` columns."""

    @all_or_nothing
    def fit(self, X: ArrayLike, y: None = None, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the density to the rows of `X`, of shape (n, d)."""
        rows, weight, _ = self._validated(X, sample_weight)
        config, generator = self._config(), generator_from(self.random_state)
        location, scale = units(Moments.of(rows, weight), self._names())
        with Noise(generator):
            density = self._build(rows.shape[1]).float()
        parts = ((rows - location) / scale).float(), (weight / weight.mean()).float()
        chosen, held_out = hold_out(
            len(rows), config.validation_fraction, generator, most=self._max_held_out
        )
        train, valid = (tuple(part[k] for part in parts) for k in (chosen, held_out))
        self.history_ = self.train_module(
            density, self._loss(generator), train, valid if len(held_out) else None, generator
        )
        self.density_ = StandardizedDensity(density.double(), location, scale)
        self.density_.requires_grad_(False).eval()
        return self

    def train_module(
        self, module: nn.Module, loss: Loss, rows: Rows, valid: Rows | None, generator: Generator
    ) -> History:
        """Train a module in place with these settings; see :func:`qaffde.training.train`."""
        config = self._config()
        run = Run(self.time_limit, config.checkpoint, verbose=bool(self.verbose))
        loop = config.loop(512, run.left)
        context = run.loop_arguments("learning", loop.max_steps)
        if self._listener is not None:
            context["report"] = self._listener
        make = self._optimizer
        return train(module, loss, rows, valid, loop, generator, make_optimizer=make, **context)

    def _optimizer(self, parameters: Iterable[nn.Parameter], config: LoopConfig) -> Optimizer:
        return adam(parameters, config)

    def _loss(self, generator: Generator) -> Loss:
        """Loss to minimize; one that draws uses the generator."""
        return negative_log_likelihood

    def _config(self) -> TrainingConfig:
        """Training settings, checked."""
        return training_of(self)

"""Base class of trained baselines: standardization, hold-out, the training loop, draws."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
from numpy.typing import ArrayLike
from torch import Generator, Tensor, nn

from qaffde.estimators.base import DensityEstimator, all_or_nothing
from qaffde.nn import Density, StandardizedDensity
from qaffde.parameters import check_kind, check_positive, generator_from
from qaffde.selection.summary import Moments, units
from qaffde.training import History, TrainingConfig, adam, hold_out, negative_log_likelihood, train
from qaffde.training.loop import Loss, MakeOptimizer, Report, Rows
from qaffde.training.noise import Noise
from qaffde.training.run import Run

BATCH_SIZE = 512


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


@dataclass(frozen=True)
class Trained:
    """Result of a training: a density of z = (x − location) / scale, in float64."""

    density: FlowDensity
    location: Tensor
    scale: Tensor
    history: History


class TrainedEstimator(DensityEstimator):
    """Density estimator that trains a torch density by its likelihood.

    Columns are standardized (the Jacobian is in every log-density) and the network is trained in
    float32, which is up to 1.7 times faster; it scores in float64, so that a row's score does
    not depend on the rows beside it.

    A subclass writes ``_build``, and its constructor takes these parameters too.

    Parameters
    ----------
    training : TrainingConfig, optional
        Settings of Adam, `default_training` of the class by default. Of its batches "auto" are of
        512 rows. The network that was best on held-out rows is kept.
    time_limit : float or None, default=None
        Seconds before training stops.
    verbose : bool, default=False
        Print progress.
    random_state : int, RandomState instance or None, default=None

    Attributes
    ----------
    density_ : qaffde.nn.StandardizedDensity
    history_ : qaffde.training.History
    n_features_in_ : int
    """

    default_training: ClassVar[TrainingConfig]
    density_: StandardizedDensity
    history_: History
    _make_optimizer: MakeOptimizer = staticmethod(adam)
    _max_held_out: int | None = None
    _listener: Report | None = None
    """Called with the history after every evaluation, in place of what `verbose` prints."""

    def __init__(
        self,
        *,
        training: TrainingConfig | None = None,
        time_limit: float | None = None,
        verbose: bool = False,
        random_state: Any = None,
    ) -> None:
        self.training = training
        self.time_limit = time_limit
        self.verbose = verbose
        self.random_state = random_state

    @abstractmethod
    def _build(self, n_dims: int, n_context: int = 0) -> FlowDensity:
        """Untrained density of `n_dims` columns."""

    @all_or_nothing
    def fit(self, X: ArrayLike, y: None = None, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the density to the rows of `X`, of shape (n, d)."""
        trained = self.train_density(*self._validated(X, sample_weight))
        self.density_ = StandardizedDensity(trained.density, trained.location, trained.scale)
        self.density_.requires_grad_(False).eval()
        self.history_ = trained.history
        return self

    def train_density(
        self, rows: Tensor, weight: Tensor, context: Tensor | None = None
    ) -> Trained:
        """Train a new density on validated rows, each given its row of `context` if there is one.

        Parameters
        ----------
        rows, weight : Tensors of shapes (n, d), (n,)
        context : Tensor of shape (n, k), optional
        """
        config, generator = self._config(), generator_from(self.random_state)
        location, scale = units(Moments.of(rows, weight), getattr(self, "feature_names_in_", None))
        n_context = 0 if context is None else context.shape[1]
        with Noise(generator):
            density = self._build(rows.shape[1], n_context).float()
        Z = (rows - location) / scale
        parts = [Z, weight / weight.mean(), *([] if context is None else [context])]
        parts = [part.float() for part in parts]
        chosen, held_out = hold_out(
            len(rows), config.validation_fraction, generator, most=self._max_held_out
        )
        history = self.train_module(
            density,
            self._loss(generator),
            tuple(part[chosen] for part in parts),
            tuple(part[held_out] for part in parts) if len(held_out) else None,
            generator,
        )
        return Trained(density.double().eval().requires_grad_(False), location, scale, history)

    def train_module(
        self,
        module: nn.Module,
        loss: Loss,
        rows: Rows,
        valid: Rows | None,
        generator: Generator,
    ) -> History:
        """Train a module in place with these settings; see :func:`qaffde.training.train`."""
        config = self._config()
        run = Run(self.time_limit, config.checkpoint, verbose=bool(self.verbose))
        loop = config.loop(BATCH_SIZE, run.left)
        context = run.loop_arguments("learning", loop.max_steps)
        if self._listener is not None:
            context["report"] = self._listener
        make = self._make_optimizer
        return train(module, loss, rows, valid, loop, generator, make_optimizer=make, **context)

    def _loss(self, generator: Generator) -> Loss:
        """Loss to minimize; one that draws uses the generator."""
        return negative_log_likelihood

    def _config(self) -> TrainingConfig:
        """Training settings, checked with all that goes with them."""
        check_kind("training", self.training, TrainingConfig)
        check_positive("time_limit", self.time_limit, optional=True)
        config = self.default_training if self.training is None else self.training
        if config.checkpoint is not None and self.random_state is None:
            raise ValueError(
                "checkpoint needs a random_state, or a fit that is called again is another one; "
                "set random_state to a number"
            )
        return config

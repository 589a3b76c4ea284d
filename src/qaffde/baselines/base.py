"""Base class of trained baselines: standardization, hold-out, the training loop, draws."""

import os
from abc import ABC, abstractmethod
from dataclasses import dataclass
from inspect import Parameter, Signature, signature
from typing import Any, Self

import torch
from numpy.typing import ArrayLike
from torch import Generator, Tensor

from qaffde.estimators.base import DensityEstimator
from qaffde.nn import Density, StandardizedDensity
from qaffde.parameters import check_count, check_share, generator_from
from qaffde.selection.plan import in_data_units
from qaffde.selection.selector import units
from qaffde.selection.summary import Moments
from qaffde.training import (
    History,
    LoopConfig,
    adam,
    hold_out,
    negative_log_likelihood,
    print_progress,
    train,
)
from qaffde.training.loop import Loss, MakeOptimizer, Report
from qaffde.training.noise import seeded

N_EVALUATIONS = 50
"""Evaluations in a training that goes on to its last step."""


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

    A subclass writes ``_build`` and takes parameters of its own, and these as ``**training``.

    Parameters
    ----------
    max_steps : int, default=8000
        Steps of Adam; the learning rate falls to 1e-5 over them, linearly.
    batch_size : int or None, default=512
        Rows in a step; None is all of them.
    learning_rate : float, default=2e-3
        Of the first step.
    weight_decay : float, default=0.0
    clip_norm : float or None, default=5.0
        Largest norm of the gradient.
    validation_fraction : float, default=0.1
        Share of the rows that is held out; the network that was best on them is kept.
    patience : int or None, default=20
        Fiftieths of `max_steps` without improvement before training stops.
    time_limit : float or None, default=None
        Seconds before training stops.
    checkpoint : path or None, default=None
        File to save the state of training in. A fit that was killed goes on from it when it is
        called again with the same data, parameters and ``random_state``, to the same result.
    verbose : bool, default=False
        Print progress.
    random_state : int, RandomState instance or None, default=None

    Attributes
    ----------
    density_ : qaffde.nn.StandardizedDensity
    history_ : qaffde.training.History
    n_features_in_ : int
    """

    density_: StandardizedDensity
    history_: History
    _make_optimizer: MakeOptimizer = staticmethod(adam)
    _max_held_out: int | None = None
    _listener: Report | None = None
    """Called with the history after every evaluation, in place of what `verbose` prints."""

    def __init__(
        self,
        *,
        max_steps: int = 8000,
        batch_size: int | None = 512,
        learning_rate: float = 2e-3,
        weight_decay: float = 0.0,
        clip_norm: float | None = 5.0,
        validation_fraction: float = 0.1,
        patience: int | None = 20,
        time_limit: float | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        verbose: bool = False,
        random_state: Any = None,
    ) -> None:
        self.max_steps = max_steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.clip_norm = clip_norm
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.time_limit = time_limit
        self.checkpoint = checkpoint
        self.verbose = verbose
        self.random_state = random_state

    def __init_subclass__(cls, **options: Any) -> None:
        """Spell out ``**training`` in the signature, for scikit-learn and for readers of help."""
        super().__init_subclass__(**options)
        if "__init__" in vars(cls):
            cls.__init__.__signature__ = _spelled_out(cls)  # type: ignore[attr-defined]

    @abstractmethod
    def _build(self, n_dims: int, n_context: int = 0) -> FlowDensity:
        """Untrained density of `n_dims` columns, initialized from torch's global generator."""

    def fit(self, X: ArrayLike, y: None = None, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the density to the rows of `X`.

        Parameters
        ----------
        X : array-like of shape (n, d)
        y : None
            Ignored.
        sample_weight : array-like of shape (n,), optional
        """
        trained = self.train_density(*self._validated(X, sample_weight))
        self.density_ = in_data_units(trained.density, trained.location, trained.scale)
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
        config = self._config()
        generator = generator_from(self.random_state)
        location, scale = units(Moments.of(rows, weight), getattr(self, "feature_names_in_", None))
        n_context = 0 if context is None else context.shape[1]
        with seeded(generator):
            density = self._build(rows.shape[1], n_context).float()
        Z = (rows - location) / scale
        parts = [Z, weight / weight.mean(), *([] if context is None else [context])]
        chosen, held_out = hold_out(len(rows), self.validation_fraction, generator)
        held_out = held_out[: self._max_held_out]
        history = train(
            density,
            self._loss(generator),
            tuple(part[chosen].float() for part in parts),
            tuple(part[held_out].float() for part in parts) if len(held_out) else None,
            config,
            generator,
            make_optimizer=self._make_optimizer,
            checkpoint=self.checkpoint,
            report=self._report(),
        )
        return Trained(density.double().eval().requires_grad_(False), location, scale, history)

    def _report(self) -> Report | None:
        if self._listener is not None:
            return self._listener
        return print_progress(self.max_steps) if self.verbose else None

    def _loss(self, generator: Generator) -> Loss:
        """Loss to minimize; one that draws uses the generator."""
        return negative_log_likelihood

    def _config(self) -> LoopConfig:
        """Settings of the loop, checked."""
        check_count("max_steps", self.max_steps)
        check_share("validation_fraction", self.validation_fraction)
        if self.checkpoint is not None and self.random_state is None:
            raise ValueError(
                "checkpoint needs random_state, or a fit that is called again is another one; "
                "set random_state to a number"
            )
        return LoopConfig(
            max_steps=self.max_steps,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            final_learning_rate=min(1e-5, self.learning_rate),
            weight_decay=self.weight_decay,
            clip_norm=self.clip_norm,
            eval_every=-(-self.max_steps // N_EVALUATIONS),
            patience=self.patience,
            time_limit=self.time_limit,
        )


def _spelled_out(cls: type) -> Signature:
    """Signature of ``__init__``, its ``**keywords`` replaced by what the parent takes."""
    own = signature(cls.__init__).parameters.values()  # type: ignore[misc]
    kept = {p.name: p for p in own if p.kind is not Parameter.VAR_KEYWORD}
    parent = signature(cls.__mro__[1].__init__).parameters.values()  # type: ignore[misc]
    passed_on = [p.replace(kind=Parameter.KEYWORD_ONLY) for p in parent if p.name not in kept]
    return Signature([*kept.values(), *passed_on])

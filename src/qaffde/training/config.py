"""Settings of the training algorithms and of computations over rows."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import Any

from qaffde.parameters import check_choice, check_count, check_positive, check_share


@dataclass(frozen=True, kw_only=True)
class LoopConfig:
    r"""Settings of :func:`train`.

    The learning rate falls linearly, :math:`\eta_t = (\eta_0 - \eta_T) (1 - t / T) + \eta_T`.

    Parameters
    ----------
    max_steps, batch_size : int, default=5000, 512
        T, and the rows in a step; None takes all of them, unshuffled, as L-BFGS needs it.
    learning_rate, final_learning_rate : float, default=1e-3, 1e-5
        :math:`\eta_0` and :math:`\eta_T`.
    weight_decay, clip_norm : float, default=0.0, None
        Decoupled, as in AdamW; largest norm of the gradient.
    eval_every, patience : int, default=250, None
        Steps between evaluations, and evaluations without improvement before training stops.
    time_limit : float or None, default=None
        Seconds before training stops. The rate falls with them where they are over first.

    Examples
    --------
    >>> config = LoopConfig(max_steps=100, learning_rate=0.1, final_learning_rate=0.0)
    >>> [round(config.learning_rate_at(step), 3) for step in (0, 50, 100)]
    [0.1, 0.05, 0.0]
    """

    max_steps: int = 5000
    batch_size: int | None = 512
    learning_rate: float = 1e-3
    final_learning_rate: float = 1e-5
    weight_decay: float = 0.0
    clip_norm: float | None = None
    eval_every: int = 250
    patience: int | None = None
    time_limit: float | None = None

    def __post_init__(self) -> None:
        for name in ("max_steps", "eval_every", "batch_size", "patience"):
            if getattr(self, name) is not None or name in ("max_steps", "eval_every"):
                check_count(name, getattr(self, name))
        check_positive("learning_rate", self.learning_rate)
        for name in ("clip_norm", "time_limit"):
            check_positive(name, getattr(self, name), optional=True)
        if not (isinstance(self.weight_decay, Real) and self.weight_decay >= 0):
            raise ValueError(f"weight_decay={self.weight_decay!r} must be a number of at least 0")
        if not 0 <= self.final_learning_rate <= self.learning_rate:
            raise ValueError(
                f"final_learning_rate={self.final_learning_rate!r} must lie between 0 and "
                f"learning_rate={self.learning_rate!r}"
            )

    def learning_rate_at(self, step: float) -> float:
        """Learning rate after `step` steps."""
        left = max(0.0, 1 - step / self.max_steps)
        return (self.learning_rate - self.final_learning_rate) * left + self.final_learning_rate


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """Settings of maximum likelihood and of gradient training.

    Parameters
    ----------
    solver : {"lbfgs", "adam"}, default="lbfgs"
        For the convex problem of frozen features. Adam is the paper's, and slower.
    max_iter : int, default=10
        Iterations of that solver; for "adam", epochs. L-BFGS, where it begins with Algorithm 2
        and rows are more than `start_rows`, sees only those in the first half of them.
    initialization : {"closed_form", "random"}, default="closed_form"
        Of the density matrix: by Algorithm 2, or at random.
    start_rows, polish_epochs : int, default=10_000, 5
        Rows of Algorithm 2 then; epochs of Adam over all rows where there are too many for the
        solver, which sees some of them.
    max_steps, batch_size, learning_rate : default=2000, "auto", 3e-3
        Of Adam, where an encoder or features learn; the rate falls linearly to 1e-5. Batches of
        a classifier are of 256 rows.
    weight_decay, clip_norm : default=0.0, 10.0
        Decoupled, as in AdamW; largest norm of its gradient, or None.
    validation_fraction, patience : default=0.1, 10
        Share of rows that Adam does not see, and fiftieths of `max_steps` without improvement on
        them before it stops. What was best on them is kept.
    mixed_start : float, default=0.1
        Classifiers start with pure states, and mixed ones of this amplitude.
    learn_features : bool, default=False
        Whether the frequencies of a classifier learn too.
    dropout : float, default=0.0
        Share of the features that a step of a classifier does not see, drawn anew for each row.
    augment : callable, optional
        ``augment(images, generator)`` returns other images (n, C, H, W), to train an encoder.
    checkpoint : path or None, default=None
        Beginning of the names of files that keep the state while fitting. A fit that was killed
        goes on from them when called again with the same data, parameters and seed.

    Examples
    --------
    >>> TrainingConfig(max_steps=0)
    Traceback (most recent call last):
    ValueError: max_steps=0 must be a whole number of at least 1
    """

    solver: str = "lbfgs"
    max_iter: int = 10
    initialization: str = "closed_form"
    start_rows: int = 10_000
    polish_epochs: int = 5
    max_steps: int = 2000
    batch_size: int | str = "auto"
    learning_rate: float = 3e-3
    weight_decay: float = 0.0
    clip_norm: float | None = 10.0
    validation_fraction: float = 0.1
    patience: int | None = 10
    mixed_start: float = 0.1
    learn_features: bool = False
    dropout: float = 0.0
    augment: Callable[..., Any] | None = None
    checkpoint: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        check_choice("solver", self.solver, ("lbfgs", "adam"))
        check_choice("initialization", self.initialization, ("closed_form", "random"))
        for name in ("max_iter", "max_steps", "start_rows", "polish_epochs"):
            check_count(name, getattr(self, name))
        check_count("batch_size", self.batch_size, auto=True)
        check_positive("learning_rate", self.learning_rate)
        check_positive("mixed_start", self.mixed_start)
        check_share("validation_fraction", self.validation_fraction)
        if self.dropout != 0:
            check_share("dropout", self.dropout)
        if self.augment is not None and not callable(self.augment):
            raise ValueError(
                f"augment={self.augment!r} must be callable as augment(images, generator)"
            )
        self.loop(1, None)

    def loop(self, usual_batch: int, time_limit: float | None) -> "LoopConfig":
        """Settings of the loop of Adam, checked."""
        shared = ("max_steps", "learning_rate", "weight_decay", "clip_norm", "patience")
        return LoopConfig(
            **{name: getattr(self, name) for name in shared},
            batch_size=usual_batch if isinstance(self.batch_size, str) else self.batch_size,
            final_learning_rate=min(1e-5, self.learning_rate),
            eval_every=max(1, self.max_steps // 50),
            time_limit=time_limit,
        )

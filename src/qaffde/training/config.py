"""Settings of the training algorithms and of computations over rows."""

import math
import os
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from qaffde.nn import FourierFeatures
from qaffde.parameters import check_choice, check_count, check_share

DTYPES = {"float64": torch.float64, "float32": torch.float32}
BLOCK_BYTES = 2**23
"""Of the largest array of a block of rows: about what the caches of a core hold."""
MIN_ROWS, MAX_ROWS = 16, 8192
MEMORY_SHARE = 16
"""A block's largest array takes at most one part in so many of the memory that is left."""


@dataclass(frozen=True, kw_only=True)
class ComputeConfig:
    """Precision, device and number of rows that are computed at once.

    Parameters
    ----------
    dtype : {"float64", "float32"}, default="float64"
        Precision of features and of `score_samples`. Single precision is about twice as fast and
        takes digits from small densities. Sums over rows and Gram matrices are in float64 anyway,
        and likelihoods are maximized in float32, which is all that they need.
    device : str, default="cpu"
        Where rows are summed, likelihoods maximized and rows scored; fitted tensors stay on the
        CPU.
    batch_size : int or "auto", default="auto"
        Rows whose features are computed at once. "auto" keeps them in the cache of a core and
        within the memory that is left.

    Examples
    --------
    >>> ComputeConfig(dtype="float32", batch_size=500).rows(width=1000)
    500
    """

    dtype: str = "float64"
    device: str = "cpu"
    batch_size: int | str = "auto"

    def __post_init__(self) -> None:
        check_choice("dtype", self.dtype, DTYPES)
        check_count("batch_size", self.batch_size, auto=True)
        check_device(self.device)

    @property
    def torch_dtype(self) -> torch.dtype:
        """The precision as torch calls it."""
        return DTYPES[self.dtype]

    def features(self, features: FourierFeatures) -> FourierFeatures:
        """Features in this precision, on this device."""
        W = features.W
        if W.dtype == self.torch_dtype and W.device == torch.device(self.device):
            return features
        return deepcopy(features).to(self.device, self.torch_dtype)

    def rows(self, width: int) -> int:
        """Number of rows of a block whose largest array has `width` numbers a row."""
        if not isinstance(self.batch_size, str):
            return int(self.batch_size)
        row = width * self.torch_dtype.itemsize
        available = available_memory(torch.device(self.device))
        most = min(BLOCK_BYTES, available // MEMORY_SHARE) // row
        return max(MIN_ROWS, min(MAX_ROWS, most))

    def tensor(self, rows: Tensor) -> Tensor:
        """Rows in this precision, on this device; not copied if they need not be."""
        return rows.to(self.device, self.torch_dtype)

    def exact(self, rows: NDArray[np.float64]) -> Tensor:
        """Rows as they are, on this device; not copied if they need not be."""
        tensor = torch.from_numpy(rows) if rows.flags.writeable else torch.tensor(rows)
        return tensor.to(self.device)


def check_device(device: object) -> None:
    """Reject a device that is not there, or that holds no numbers."""
    if not isinstance(device, str):
        raise ValueError(f"device={device!r} must be a name, such as 'cpu' or 'cuda:0'")
    try:
        torch.zeros(1, device=device).cpu()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ValueError(
            f"device={device!r} cannot be used here; take 'cpu' ({reason})"
        ) from error


def available_memory(device: torch.device) -> int:
    """Bytes that are left on a device, roughly; 1 GiB where the system does not tell."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return 2**30
    found = dict(line.split(":", 1) for line in lines)
    return 1024 * int(found["MemAvailable"].split()[0]) if "MemAvailable" in found else 2**30


DOUBLE = ComputeConfig()


N_EVALUATIONS = 50
FINAL_RATE = 1e-5
OPTIONAL = ("batch_size", "patience", "clip_norm", "time_limit")
"""Settings that None switches off."""


@dataclass(frozen=True, kw_only=True)
class AdaptiveConfig:
    """Settings of Algorithm 1, :func:`qaffde.training.fit_adaptive_features`.

    Lengths are in bandwidths there, so the defaults do not depend on the units of the data. They
    take a second or two for 1000 features in two dimensions.

    Parameters
    ----------
    n_pairs : int, default=10_000
        Pairs in an epoch, as many as in the paper; as many again are held out.
    n_epochs : int, default=30
    batch_size : int, default=500
        Pairs in a step of Adam.
    learning_rate : float, default=0.01
        Of the first step; it falls to zero as a polynomial.
    decay_power : float, default=1.0
        Degree of that polynomial.
    near_share : float, default=0.25
        Share of near pairs, in [0, 1]. Random pairs alone show only zeros of the kernel.
    fresh : bool, default=True
        Draw new pairs for every epoch. False is the paper's fixed set, which many features
        begin to learn by heart.

    Examples
    --------
    >>> AdaptiveConfig(n_epochs=10).n_steps
    200
    """

    n_pairs: int = 10_000
    n_epochs: int = 30
    batch_size: int = 500
    learning_rate: float = 0.01
    decay_power: float = 1.0
    near_share: float = 0.25
    fresh: bool = True

    def __post_init__(self) -> None:
        for name in ("n_pairs", "n_epochs", "batch_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)!r}")
        for name in ("learning_rate", "decay_power"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive, got {getattr(self, name)!r}")
        if not 0 <= self.near_share <= 1:
            raise ValueError(f"near_share must lie between 0 and 1, got {self.near_share!r}")

    @property
    def n_steps(self) -> int:
        """Steps of Adam in all."""
        return self.n_epochs * -(-self.n_pairs // self.batch_size)


@dataclass(frozen=True, kw_only=True)
class LoopConfig:
    r"""Settings of :func:`train`.

    The learning rate falls as a polynomial, as in the paper:

    .. math:: \eta_t = (\eta_0 - \eta_T) (1 - t / T)^p + \eta_T

    Parameters
    ----------
    max_steps : int, default=5000
        T, the number of steps.
    batch_size : int or None, default=512
        Rows in a step; None takes all of them, unshuffled, as L-BFGS needs it.
    learning_rate, final_learning_rate : float, default=1e-3, 1e-5
        :math:`\eta_0` and :math:`\eta_T`.
    decay_power : float, default=1.0
        p, the degree of the polynomial.
    weight_decay : float, default=0.0
        Decoupled, as in AdamW.
    clip_norm : float or None, default=None
        Largest norm of the gradient.
    eval_every : int, default=250
        Steps between evaluations.
    patience : int or None, default=None
        Evaluations without improvement before training stops; None goes on to the end.
    time_limit : float or None, default=None
        Seconds before training stops.

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
    decay_power: float = 1.0
    weight_decay: float = 0.0
    clip_norm: float | None = None
    eval_every: int = 250
    patience: int | None = None
    time_limit: float | None = None

    def __post_init__(self) -> None:
        for name in ("max_steps", "batch_size", "eval_every", "patience"):
            _check(name, getattr(self, name), Integral, 1, "a whole number of at least 1")
        for name in ("learning_rate", "decay_power", "clip_norm", "time_limit"):
            _check(name, getattr(self, name), Real, math.ulp(0), "a positive number")
        _check("weight_decay", self.weight_decay, Real, 0, "a number of at least 0")
        if not 0 <= self.final_learning_rate <= self.learning_rate:
            raise ValueError(
                f"final_learning_rate={self.final_learning_rate!r} must lie between 0 and "
                f"learning_rate={self.learning_rate!r}"
            )

    def learning_rate_at(self, step: int) -> float:
        """Learning rate after `step` steps."""
        left = max(0.0, 1 - step / self.max_steps) ** self.decay_power
        return (self.learning_rate - self.final_learning_rate) * left + self.final_learning_rate


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """Settings of maximum likelihood and of gradient training.

    Parameters
    ----------
    solver : {"lbfgs", "adam"}, default="lbfgs"
        For the convex problem of frozen features. L-BFGS was faster than Adam on every problem
        of ``python -m benchmarks.solvers``; Adam is the paper's.
    max_iter : int, default=60
        Iterations of that solver; for "adam", epochs.
    initialization : {"closed_form", "random"}, default="closed_form"
        Of the density matrix: by Algorithm 2, or at random.
    max_steps, batch_size, learning_rate : default=2000, "auto", 3e-3
        Of Adam, where an encoder or features learn; the rate falls linearly to 1e-5. Batches are
        of 1024 rows for densities and 256 for classifiers.
    weight_decay : float, default=0.0
        Decoupled, as in AdamW.
    clip_norm : float or None, default=10.0
        Largest norm of its gradient.
    validation_fraction, patience : default=0.1, 10
        Share of rows that Adam does not see, and fiftieths of `max_steps` without improvement on
        them before it stops. What was best on them is kept.
    learn_features : bool, default=False
        Whether the frequencies of a classifier learn too.
    dropout : float, default=0.0
        Share of the features that a step does not see, drawn anew for each row: many features
        then cannot learn rows by heart. For classifiers with the conditional objective.
    augment : callable, optional
        ``augment(images, generator)`` returns other images of the same shape (n, C, H, W), for
        training an encoder.
    checkpoint : path or None, default=None
        Where the state is kept while fitting, in files that begin with this name. A fit that was
        killed goes on from them when called again with the same data, parameters and seed.

    Examples
    --------
    >>> TrainingConfig(max_steps=0)
    Traceback (most recent call last):
    ValueError: max_steps=0 must be a whole number of at least 1
    """

    solver: str = "lbfgs"
    max_iter: int = 60
    initialization: str = "closed_form"
    max_steps: int = 2000
    batch_size: int | str = "auto"
    learning_rate: float = 3e-3
    weight_decay: float = 0.0
    clip_norm: float | None = 10.0
    validation_fraction: float = 0.1
    patience: int | None = 10
    learn_features: bool = False
    dropout: float = 0.0
    augment: Callable[..., Any] | None = None
    checkpoint: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        check_choice("solver", self.solver, ("lbfgs", "adam"))
        check_choice("initialization", self.initialization, ("closed_form", "random"))
        check_count("max_iter", self.max_iter)
        check_count("max_steps", self.max_steps)
        check_count("batch_size", self.batch_size, auto=True)
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
        is_rate = isinstance(self.learning_rate, Real) and float(self.learning_rate) > 0
        return LoopConfig(
            max_steps=self.max_steps,
            batch_size=usual_batch if isinstance(self.batch_size, str) else self.batch_size,
            learning_rate=self.learning_rate,
            final_learning_rate=min(FINAL_RATE, float(self.learning_rate)) if is_rate else 0.0,
            weight_decay=self.weight_decay,
            clip_norm=self.clip_norm,
            eval_every=max(1, self.max_steps // N_EVALUATIONS),
            patience=self.patience,
            time_limit=time_limit,
        )


def _check(name: str, value: Any, kind: type, minimum: float, wanted: str) -> None:
    """Reject anything but None or a number of this kind of at least `minimum`."""
    if value is None and name in OPTIONAL:
        return
    is_number = isinstance(value, kind) and not isinstance(value, bool)
    if not is_number or not value >= minimum:
        also = " or None" if name in OPTIONAL else ""
        raise ValueError(f"{name}={value!r} must be {wanted}{also}")

"""Checks of what users pass, with messages that say what to do, and guards of public methods."""

import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from copy import deepcopy
from dataclasses import dataclass
from functools import wraps
from numbers import Integral, Real
from threading import Lock
from types import FunctionType
from typing import Any, TypeVar

import joblib
import numpy as np
import torch
from numpy.random import RandomState
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from threadpoolctl import threadpool_info, threadpool_limits
from torch import Tensor, nn

Seed = int | RandomState | None


def generator_from(random_state: Seed) -> torch.Generator:
    """New generator for one fit; no global state is read or changed.

    The same integer gives the same generator; a RandomState is advanced; None takes its seed from
    the operating system.

    Examples
    --------
    >>> first, second = (torch.rand(2, generator=generator_from(0)) for _ in range(2))
    >>> first.equal(second)
    True
    """
    generator = torch.Generator()
    if random_state is None:
        generator.seed()
        return generator
    return generator.manual_seed(int(check_random_state(random_state).randint(2**31 - 1)))


MAX_LATTICE_COLUMNS = 4


def check_choice(name: str, value: object, choices: Iterable[str]) -> None:
    """Reject a string that is not one of the choices."""
    options = list(choices)
    if not isinstance(value, str) or value not in options:
        raise ValueError(f"{name}={value!r} is not known; choose one of {', '.join(options)}")


def _require(
    fits: object, name: str, value: object, wanted: str, also: tuple[str | None, ...] = ()
) -> None:
    """Reject a value that does not fit, unless it is "auto" or None and these may be `also`."""
    if not fits and not (isinstance(value, str | None) and value in also):
        may = "".join(' or "auto"' if other else " or None" for other in also)
        raise ValueError(f"{name}={value!r} must be {wanted}{may}")


def _is_number(value: Any, kind: type = Real) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def check_count(name: str, value: Any, *, auto: bool = False, minimum: int = 1) -> None:
    """Reject anything but a whole number of at least `minimum` (or "auto")."""
    fits = _is_number(value, Integral) and value >= minimum
    wanted = f"a whole number of at least {minimum}"
    _require(fits, name, value, wanted, ("auto",) if auto else ())


def check_rank(value: Any) -> None:
    """Reject a rank that is neither a number of eigenpairs, nor a share of D, nor "auto"."""
    whole = _is_number(value, Integral) and value >= 1
    fits = whole or (_is_number(value) and 0 < value <= 1)
    wanted = "a whole number of at least 1, a share of the features in (0, 1],"
    _require(fits, "rank", value, wanted, ("auto",))


def check_share(name: str, value: Any, *, auto: bool = False, whole: bool = False) -> None:
    """Reject anything but a number strictly between 0 and 1 (or 1 if `whole`, or "auto")."""
    fits = _is_number(value) and (0 < value < 1 or (whole and value == 1))
    wanted = f"a number in {'(0, 1]' if whole else '(0, 1)'}"
    _require(fits, name, value, wanted, ("auto",) if auto else ())


def check_positive(name: str, value: Any, *, optional: bool = False) -> None:
    """Reject anything but a positive number (or None)."""
    fits = _is_number(value) and value > 0
    _require(fits, name, value, "a positive number", (None,) if optional else ())


def check_kind(name: str, value: object, kind: type) -> None:
    """Reject anything but None or an object of a class, such as a configuration."""
    wanted = f"a {kind.__name__}: {name}={kind.__name__}(...),"
    _require(isinstance(value, kind), name, value, wanted, (None,))


def check_sum(weight: NDArray[np.float64]) -> None:
    """Reject weights whose sum overflows."""
    if weight.mean(dtype=np.longdouble) * len(weight) > np.finfo(np.float64).max:
        raise ValueError("the sum of sample_weight overflows; divide the weights by a number")


def check_mixture(n_components: object, n: int) -> None:
    """Reject more Gaussians than rows can hold."""
    if isinstance(n_components, int) and n_components > n // 2:
        raise ValueError(
            f"base_measure={n_components} Gaussians are too many for {n} rows; take at most "
            f'{n // 2}, or "mixture"'
        )


def check_lattice(features: str, n_dims: int) -> None:
    """Reject a lattice in more columns than it can fill."""
    if features == "lattice" and n_dims > MAX_LATTICE_COLUMNS:
        raise ValueError(
            f"features='lattice' is for up to {MAX_LATTICE_COLUMNS} columns and X has {n_dims}; "
            "use 'sobol' or 'orthogonal'"
        )


MAX_BANDWIDTH = 1e150
"""Beyond it, its square is infinite."""


def check_bandwidth(value: Any, n_dims: int, rules: Sequence[str]) -> Tensor | None:
    """Bandwidths of shape (d,) if they are positive, finite numbers, None if a rule is named."""
    if isinstance(value, str):
        check_choice("bandwidth", value, rules)
        return None
    h = _numbers(value)
    least, most = 1 / MAX_BANDWIDTH, MAX_BANDWIDTH
    fits = not isinstance(value, bool) and h.ndim <= 1 and h.size in (1, n_dims)
    wanted = (
        f"one of {', '.join(rules)}, a positive number, or one positive number for each of the "
        f"{n_dims} columns, between {least:g} and {most:g}"
    )
    _require(fits and ((h >= least) & (h <= most)).all(), "bandwidth", value, wanted)
    return torch.from_numpy(np.broadcast_to(h.reshape(-1), (n_dims,)).copy())


def _numbers(value: Any) -> NDArray[np.float64]:
    """Array of what is numbers, None being NaN; NaN for anything else."""
    try:
        return np.array(value, dtype=np.float64)
    except (TypeError, ValueError):
        return np.array(math.nan)


def read_bounds(bounds: Any, d: int) -> Tensor | None:
    """Ends (2, d) of pairs (lower, upper), one for all columns or each; NaN where one is None."""
    if bounds is None:
        return None
    ends = _numbers(bounds)
    wanted = (
        f"a pair (lower, upper) or one pair for each of the {d} columns; None in a pair leaves"
    )
    fits = ends.shape in ((2,), (1, 2), (d, 2))
    _require(fits, "bounds", bounds, f"{wanted} that end to the data")
    ends = np.broadcast_to(np.where(np.isinf(ends), np.nan, ends), (d, 2))
    if (ends[:, 0] >= ends[:, 1]).any():
        column = int(np.argmax(ends[:, 0] >= ends[:, 1]))
        raise ValueError(f"bounds of column {column} must have lower < upper, got {ends[column]}")
    return torch.tensor(ends.T.copy())


def check_inside(ends: Tensor | None, X: Tensor, number: Sequence[int]) -> None:
    """Reject rows beyond ends of shape (2, d); messages call them by their numbers."""
    if ends is None:
        return
    outside = ((X < ends[0]) | (X > ends[1])).any(1)
    if outside.any():
        row = int(outside.nonzero()[0, 0])
        raise ValueError(
            f"{int(outside.sum())} rows lie outside bounds, the first is row {number[row]}: "
            f"{X[row].tolist()}; widen the ends, columns=Real(lower, upper), or drop them"
        )


def check_priors(value: Any, n_classes: int) -> NDArray[np.float64]:
    """Probabilities of all classes, of shape (C,)."""
    priors = _numbers(value)
    fine = priors.shape == (n_classes,) and (priors >= 0).all() and abs(priors.sum() - 1) <= 1e-8
    wanted = "numbers of sum one, none of them negative: one for each class, in sorted order"
    _require(fine, "priors", value, f"{n_classes} {wanted}")
    return priors


def holds_numbers(value: Any) -> bool:
    """Whether a parameter is all finite numbers: no rule, and no end left open."""
    return value is not None and bool(np.isfinite(_numbers(value)).all())


Module = TypeVar("Module", bound=nn.Module)
DTYPES = {"float64": torch.float64, "float32": torch.float32}
BLOCK_BYTES = 2**23
"""Of the largest array of a block of rows: about what the caches of a core hold."""
MIN_ROWS, MAX_ROWS = 16, 8192


@dataclass(frozen=True, kw_only=True)
class ComputeConfig:
    """Precision, device and number of rows that are computed at once.

    Parameters
    ----------
    dtype : {"float64", "float32"}, default="float64"
        Precision of features and of `score_samples`: "float32" is about twice as fast and takes
        digits from small densities. Sums over rows and Gram matrices are in float64 anyway.
    device : str, default="cpu"
        Where rows are summed, likelihoods maximized and rows scored.
    batch_size : int or "auto", default="auto"
        Rows whose features are computed at once. "auto" keeps them in the cache of a core.

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
        named = isinstance(self.device, str)
        _require(named, "device", self.device, "a name, such as 'cpu' or 'cuda:0'")
        try:
            torch.zeros(1, device=self.device).cpu()
        except (RuntimeError, AssertionError, NotImplementedError) as error:
            reason = str(error).strip().partition("\n")[0]
            message = f"device={self.device!r} cannot be used here; take 'cpu' ({reason})"
            raise ValueError(message) from error

    @property
    def torch_dtype(self) -> torch.dtype:
        """The precision as torch calls it."""
        return DTYPES[self.dtype]

    def module(self, module: Module) -> Module:
        """A module in this precision, on this device; not copied if it need not be."""
        buffer = next(module.buffers())
        if buffer.dtype == self.torch_dtype and buffer.device == torch.device(self.device):
            return module
        return deepcopy(module).to(self.device, self.torch_dtype)

    def rows(self, width: int) -> int:
        """Number of rows of a block whose largest array has `width` numbers a row."""
        if not isinstance(self.batch_size, str):
            return int(self.batch_size)
        most = BLOCK_BYTES // (width * self.torch_dtype.itemsize)
        return max(MIN_ROWS, min(MAX_ROWS, most))

    def tensor(self, rows: Tensor) -> Tensor:
        """Rows in this precision, on this device; not copied if they need not be."""
        return rows.to(self.device, self.torch_dtype)

    def exact(self, rows: NDArray[np.float64]) -> Tensor:
        """Rows as they are, on this device; not copied if they need not be."""
        tensor = torch.from_numpy(rows) if rows.flags.writeable else torch.tensor(rows)
        return tensor.to(self.device)


DOUBLE = ComputeConfig()


Function = TypeVar("Function", bound=Callable[..., Any])
Class = TypeVar("Class", bound=type)


def foreign_settings() -> list[AbstractContextManager[Any]]:
    """Contexts that undo inference mode, autocast and a default device, of which none is ours."""
    on = [device for device in ("cpu", "cuda") if torch.is_autocast_enabled(device)]
    found: list[Any] = [torch.autocast(device, enabled=False) for device in on]
    if torch.is_inference_mode_enabled():
        found.append(torch.inference_mode(False))
    if torch.empty(0).device.type != "cpu":
        found.append(torch.device("cpu"))
    return found


LARGE_FIT, LARGE_SCORE = 2**22, 2**26
"""Numbers in an array, and numbers that scores compute, from which on several threads pay."""


class Threads:
    """Threads of torch and BLAS during fits and scores, put back when the last of them has ended.

    Small problems are faster on one thread; large ones take the processors that are free.
    """

    def __init__(self) -> None:
        self._lock, self._depth = Lock(), 0
        self._before, self._limits = 1, ExitStack()

    @contextmanager
    def chosen(self, *, small: bool, blas: bool = True) -> Iterator[None]:
        """One thread for small work, those that are free for other.

        Scores leave `blas` as it is: to look for its threads takes milliseconds.
        """
        with self._lock:
            self._depth += 1
            if self._depth == 1:
                self._before = torch.get_num_threads()
                number = 1 if small else min(self._before, free_processors())
                torch.set_num_threads(number)
                if blas and number < max((p["num_threads"] for p in threadpool_info()), default=1):
                    self._limits.enter_context(threadpool_limits(number))
        try:
            yield
        finally:
            with self._lock:
                self._depth -= 1
                if not self._depth:
                    self._limits.close()
                    torch.set_num_threads(self._before)


THREADS = Threads()


def free_processors() -> int:
    """Processors that this process may use, less the load of the last minute; at least one."""
    busy = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    return max(1, int(joblib.cpu_count() - busy + 0.5))


OUT_OF_MEMORY = re.compile("(out of|allocate) memory|bad_alloc", re.IGNORECASE)  # of torch
NO_MEMORY = "there is not enough memory; use fewer features, or fewer rows or columns at a time"


def with_own_settings(function: Function) -> Function:
    """Function that runs without :func:`foreign_settings`, and that refuses masked arrays.

    Memory that runs out is a MemoryError with a message, also where torch raises another error.
    """

    @wraps(function)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        given = (*args, *kwargs.values())
        if any(isinstance(x, np.ma.MaskedArray) and np.ma.is_masked(x) for x in given):
            raise ValueError(
                "the array has masked values, which would be read as if they were not masked; "
                "leave their rows out, or fill them: impute takes X.filled(np.nan)"
            )
        try:
            with ExitStack() as stack:
                for context in foreign_settings():
                    stack.enter_context(context)
                return function(*args, **kwargs)
        except MemoryError as error:
            raise MemoryError(str(error) or NO_MEMORY) from error
        except RuntimeError as error:
            if not OUT_OF_MEMORY.search(str(error)):
                raise
            raise MemoryError(NO_MEMORY) from error

    guarded.is_guarded = True  # type: ignore[attr-defined]
    return guarded  # type: ignore[return-value]


def guard(cls: Class) -> Class:
    """Let all public methods of a class run :func:`with_own_settings`."""
    for name, method in list(vars(cls).items()):
        if getattr(method, "is_guarded", False):  # by another base class
            continue
        if isinstance(method, classmethod) and not name.startswith("_"):
            setattr(cls, name, classmethod(with_own_settings(method.__func__)))
        elif isinstance(method, FunctionType) and not name.startswith("_"):
            setattr(cls, name, with_own_settings(method))
    return cls

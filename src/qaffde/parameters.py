"""Checks of what users pass as parameters, with messages that say what to do."""

import math
from collections.abc import Iterable, Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from numpy.random import RandomState
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from torch import Tensor

Seed = int | RandomState | None


def generator_from(random_state: Seed) -> torch.Generator:
    """New generator for one fit; no global state is read or changed.

    Parameters
    ----------
    random_state : int, RandomState or None
        The same integer gives the same generator; a RandomState is advanced, so that two calls
        differ; None takes its seed from the operating system (not from NumPy's global state).

    Examples
    --------
    >>> torch.rand(2, generator=generator_from(0)).equal(
    ...     torch.rand(2, generator=generator_from(0))
    ... )
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


def check_count(name: str, value: object, *, auto: bool = False, minimum: int = 1) -> None:
    """Reject anything but a whole number of at least `minimum` (or "auto")."""
    if auto and _is_auto(value):
        return
    if isinstance(value, bool) or not isinstance(value, Integral) or value < minimum:
        also = ' or "auto"' if auto else ""
        raise ValueError(f"{name}={value!r} must be a whole number of at least {minimum}{also}")


def check_rank(value: object) -> None:
    """Reject a rank that is neither a number of eigenpairs, nor a share of D, nor "auto"."""
    if _is_auto(value) or (_is_number(value, Integral) and value >= 1):  # type: ignore[operator]
        return
    if _is_number(value, Real) and 0 < value <= 1:  # type: ignore[operator]
        return
    raise ValueError(
        f"rank={value!r} must be a whole number of at least 1, a share of the features in (0, 1], "
        'or "auto"'
    )


def check_share(name: str, value: object, *, auto: bool = False, whole: bool = False) -> None:
    """Reject anything but a number strictly between 0 and 1 (or 1 if `whole`, or "auto")."""
    if auto and _is_auto(value):
        return
    if _is_number(value, Real) and (0 < value < 1 or (whole and value == 1)):  # type: ignore[operator]
        return
    interval = "(0, 1]" if whole else "(0, 1)"
    also = ' or "auto"' if auto else ""
    raise ValueError(f"{name}={value!r} must be a number in {interval}{also}")


def check_positive(name: str, value: object, *, optional: bool = False) -> None:
    """Reject anything but a positive number (or None)."""
    if optional and value is None:
        return
    if not _is_number(value, Real) or not value > 0:  # type: ignore[operator]
        also = " or None" if optional else ""
        raise ValueError(f"{name}={value!r} must be a positive number{also}")


def check_kind(name: str, value: object, kind: type) -> None:
    """Reject anything but None or an object of a class, such as a configuration."""
    if value is not None and not isinstance(value, kind):
        raise ValueError(
            f"{name}={value!r} must be a {kind.__name__}: {name}={kind.__name__}(...), or None"
        )


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


def check_bandwidth(value: Any, n_dims: int, rules: Sequence[str]) -> Tensor | None:
    """Bandwidths of shape (d,) if they are numbers, None if a rule is named.

    Raises
    ------
    ValueError
        If the rule is not known, or the numbers are not positive, finite and one or d.
    """
    if isinstance(value, str):
        check_choice("bandwidth", value, rules)
        return None
    try:
        h = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        h = np.array(math.nan)
    if (
        isinstance(value, bool)
        or h.ndim > 1
        or h.size not in (1, n_dims)
        or not (np.isfinite(h) & (h > 0)).all()
    ):
        raise ValueError(
            f"bandwidth={value!r} must be one of {', '.join(rules)}, a positive number, "
            f"or one positive number for each of the {n_dims} columns"
        )
    return torch.as_tensor(np.broadcast_to(h.reshape(-1), (n_dims,)).copy())


def check_bounds(bounds: Any, X: Tensor) -> Tensor | None:
    """Ends of the box, see :func:`read_bounds`, between which rows of shape (n, d) must lie."""
    ends = read_bounds(bounds, X.shape[1])
    check_inside(ends, X, range(len(X)))
    return ends


def read_bounds(bounds: Any, d: int) -> Tensor | None:
    """Ends of the box as a tensor of shape (2, d), NaN where the data decide.

    Parameters
    ----------
    bounds : None, a pair, or d pairs
        (lower, upper) for all columns or for each; None inside a pair leaves that end to the data.
    d : int
        Number of columns.
    """
    if bounds is None:
        return None
    try:
        ends = np.asarray(bounds, dtype=np.float64)  # None becomes NaN
        ends = np.broadcast_to(ends.reshape(-1, 2), (d, 2))
    except (TypeError, ValueError):
        raise ValueError(
            f"bounds={bounds!r} must be a pair (lower, upper) or one pair for each of the {d} "
            "columns; None in a pair leaves that end to the data"
        ) from None
    ends = np.where(np.isinf(ends), np.nan, ends)
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
            f"{X[row].tolist()}; widen bounds or drop them"
        )


def check_priors(value: Any, n_classes: int) -> NDArray[np.float64]:
    """Probabilities of all classes, of shape (C,)."""
    try:
        priors = np.array(value, dtype=np.float64)
    except (TypeError, ValueError):
        priors = np.full(0, math.nan)
    good = priors.shape == (n_classes,) and (priors >= 0).all()
    if not good or abs(priors.sum() - 1) > 1e-8:
        raise ValueError(
            f"priors={value!r} must be {n_classes} numbers of sum one, none of them negative: one "
            "for each class, in sorted order"
        )
    return priors


def holds_numbers(value: Any) -> bool:
    """Whether a parameter is all finite numbers: no rule, and no end left open."""
    try:
        return value is not None and bool(np.isfinite(np.asarray(value, dtype=np.float64)).all())
    except (TypeError, ValueError):
        return False


def _is_auto(value: object) -> bool:
    return isinstance(value, str) and value == "auto"


def _is_number(value: object, kind: type) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)
